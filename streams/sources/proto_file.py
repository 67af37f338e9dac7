"""A ``.proto`` file as text: the descriptor of its messages and enums.

Every registry gives a Protobuf schema as text; only some give its descriptor. The grammar is that of
https://protobuf.dev/reference/protobuf/proto3-spec and proto2-spec. What does not change how a value is read is passed
over: services, extensions, reserved names, defaults, all options but ``allow_alias``, and whether an import is public.
"""

import re
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

#: Deepest message in messages, and longest file, characters.
_DEEPEST: Final = 32
_LONGEST: Final = 4_000_000
_TOKEN: Final = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<text> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<word> \.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)* )
    | (?P<number> 0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]? )
    | (?P<sign> [^\s\w"'] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_SCALARS: Final = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_OPEN: Final = {"{": "}", "[": "]", "(": ")"}
_END: Final = ""


def descriptor(text: str) -> FileDescriptorProto:
    """Return the descriptor of a file, without its name.

    Names of types are as they are written: a `DescriptorPool` finds what they mean. A map's entry stands behind all
    other messages of its message, so that these are counted as Confluent's serializer for Java counts them.

    Raises
    ------
    ValueError
        If it is no file of the syntax proto2 or proto3.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST} characters")
    return _Parser(text).file()


class _Parser:
    """Reads the tokens of a file from the first to the last."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._proto3 = False

    # -- tokens ----------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else _END

    def _take(self) -> str:
        token = self._next
        if token == _END:
            raise ValueError("the file ends too early")
        self._at += 1
        return token

    def _skip(self, *wanted: str) -> None:
        for each in wanted:
            if self._next != each:
                raise self._strange(f"{each!r}")
            self._at += 1

    def _strange(self, wanted: str) -> ValueError:
        line = self._tokens[min(self._at, len(self._tokens) - 1)][1] if self._tokens else 1
        return ValueError(f"line {line}: {wanted} was expected, not {self._next[:40]!r}")

    def _word(self) -> str:
        if not re.match(r"\.?[A-Za-z_]", self._next):
            raise self._strange("a name")
        return self._take()

    def _text(self) -> str:
        if self._next[:1] not in ("'", '"'):
            raise self._strange("a text")
        return self._take()[1:-1]

    def _number(self) -> int:
        sign = -1 if self._next == "-" else 1
        if sign < 0:
            self._at += 1
        if not re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", self._next):
            raise self._strange("a whole number")
        found = self._take()
        return sign * int(found, 16 if found[:2] in ("0x", "0X") else 8 if found[0] == "0" else 10)

    def _pass(self, end: str) -> None:
        """Pass over everything up to the token that ends it, and over that."""
        open_ = [end]
        while open_:
            token = self._take()
            if token == open_[-1]:
                open_.pop()
            elif token in _OPEN:
                open_.append(_OPEN[token])

    def _pass_options(self) -> None:
        if self._next == "[":
            self._at += 1
            self._pass("]")

    # -- the file --------------------------------------------------------------------------------------------------

    def file(self) -> FileDescriptorProto:
        file = FileDescriptorProto()
        while self._next != _END:
            match self._take():
                case "syntax":
                    self._syntax(file)
                case "edition":
                    raise ValueError("it has an edition; only the syntax proto2 and proto3 can be read")
                case "import":
                    if self._next in ("public", "weak"):
                        self._at += 1
                    file.dependency.append(self._text())
                    self._skip(";")
                case "package":
                    file.package = self._word()
                    self._skip(";")
                case "message":
                    self._message(file.message_type.add(), 1)
                case "enum":
                    self._enum(file.enum_type.add())
                case "option":
                    self._pass(";")
                case "service" | "extend":
                    self._word()
                    self._skip("{")
                    self._pass("}")
                case part if part != ";":
                    self._at -= 1
                    raise self._strange("a message, an enum or another part of a .proto file")
        return file

    def _syntax(self, file: FileDescriptorProto) -> None:
        self._skip("=")
        name = self._text()
        self._skip(";")
        if name not in ("proto2", "proto3"):
            raise ValueError(f"the syntax {name[:40]!r} cannot be read")
        self._proto3 = name == "proto3"
        if self._proto3:
            file.syntax = name

    def _message(self, message: DescriptorProto, depth: int, name: str = "") -> None:
        if depth > _DEEPEST:
            raise ValueError(f"it has messages in messages, more than {_DEEPEST} deep")
        message.name = name or self._word()
        entries: list[DescriptorProto] = []
        optional: list[FieldDescriptorProto] = []
        self._skip("{")
        while self._next != "}":
            match self._next:
                case "message":
                    self._at += 1
                    self._message(message.nested_type.add(), depth + 1)
                case "enum":
                    self._at += 1
                    self._enum(message.enum_type.add())
                case "option" | "reserved" | "extensions":
                    self._pass(";")
                case "extend":
                    self._at += 1
                    self._word()
                    self._skip("{")
                    self._pass("}")
                case "oneof":
                    self._oneof(message, depth)
                case ";":
                    self._at += 1
                case _:
                    self._field(message, depth, entries, optional)
        self._skip("}")
        message.nested_type.extend(entries)
        for field in optional:  # of proto3: each is alone in a oneof, behind those of the file
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add().name = f"_{field.name}"

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        self._skip("oneof")
        index = len(message.oneof_decl)
        message.oneof_decl.add().name = self._word()
        self._skip("{")
        while self._next != "}":
            if self._next == "option":
                self._pass(";")
            elif self._next == ";":
                self._at += 1
            else:
                self._field(message, depth, [], []).oneof_index = index
        self._skip("}")

    def _field(
        self,
        message: DescriptorProto,
        depth: int,
        entries: list[DescriptorProto],
        optional: list[FieldDescriptorProto],
    ) -> FieldDescriptorProto:
        field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
        if self._next in _LABELS:
            label = self._take()
            field.label = _LABELS[label]
            if self._proto3 and label == "optional":
                optional.append(field)
        kind = self._word()
        if kind == "map" and self._next == "<":
            self._map(field, entries)
        elif kind == "group":
            name = self._word()
            field.name, field.type, field.type_name = name.lower(), FieldDescriptorProto.TYPE_GROUP, name
            self._skip("=")
            field.number = self._number()
            self._pass_options()
            self._message(message.nested_type.add(), depth + 1, name)
            return field
        else:
            _typed(field, kind)
            field.name = self._word()
        self._skip("=")
        field.number = self._number()
        self._pass_options()
        self._skip(";")
        return field

    def _map(self, field: FieldDescriptorProto, entries: list[DescriptorProto]) -> None:
        entry = DescriptorProto()
        self._skip("<")
        _typed(entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL), self._word())
        self._skip(",")
        _typed(entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL), self._word())
        self._skip(">")
        field.name = self._word()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        entry.options.map_entry = True
        entries.append(entry)
        field.label, field.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._word()
        self._skip("{")
        while self._next != "}":
            match self._next:
                case "option":
                    if [token for token, _ in self._tokens[self._at + 1 : self._at + 4]] == [
                        "allow_alias",
                        "=",
                        "true",
                    ]:
                        enum.options.allow_alias = True
                    self._pass(";")
                case "reserved":
                    self._pass(";")
                case ";":
                    self._at += 1
                case _:
                    value = enum.value.add(name=self._word())
                    self._skip("=")
                    value.number = self._number()
                    self._pass_options()
                    self._skip(";")
        self._skip("}")


def _typed(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # a message or an enum: who knows all files says which


def _tokens(text: str) -> list[tuple[str, int]]:
    """Return the tokens of a file with their lines."""
    found, at, line = [], 0, 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"line {line}: {text[at : at + 20]!r} cannot be read")
        if token.lastgroup != "blank":
            found.append((token.group(), line))
        line += token.group().count("\n")
        at = token.end()
    return found
