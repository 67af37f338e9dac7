"""Compiles ``.proto`` files. Every registry gives a Protobuf schema as such text; only some give its descriptor."""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

#: Names of files that may be imported.
_NAME: Final = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
#: Directory of files that every schema may import.
_WELL_KNOWN: Final = Path(grpc_tools.__file__).parent / "_proto"


def descriptors(files: Sequence[tuple[str, str]]) -> list[FileDescriptorProto]:
    """Compile files, given by name and text, with protoc. Return their and their imports' descriptors, imports first.

    In each message, entries of maps come after all other messages, so that indices agree with Confluent's serializer
    for Java.

    Raises ValueError if protoc refuses a file; protoc writes to stderr what is wrong.
    """
    with TemporaryDirectory(prefix="trueup-protoc-") as directory:
        root = Path(directory)
        for name, text in files:
            if not _NAME.fullmatch(name) or ".." in name.split("/"):
                raise ValueError(f"{name[:60]!r} is not allowed as the name of an imported file")
            place = root / name
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as exc:
                raise ValueError(f"{name!r} is the name of a folder and of a file") from exc
        made = root / ".descriptors"
        including = [f"--proto_path={each}" for each in (root, _WELL_KNOWN)]
        named = [str(root / name) for name, _ in files]
        if protoc.main(["protoc", *including, "--include_imports", f"--descriptor_set_out={made}", *named]):
            raise ValueError("protoc refuses it as a .proto file: see its message on stderr")
        found = list(FileDescriptorSet.FromString(made.read_bytes()).file)
    for file in found:
        _order(file.message_type)
    return found


def _order(messages: Sequence[DescriptorProto]) -> None:
    for message in messages:
        nested = sorted(message.nested_type, key=lambda each: each.options.map_entry)
        del message.nested_type[:]
        message.nested_type.extend(nested)
        _order(message.nested_type)
