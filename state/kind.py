"""A kind of row, declared once.

The declaration has the parts of the row's key, its contents, its version, how a rescale moves it, and who reads it.
Everything else follows from it: keys, rows and their checks, what metrics and ``trueup streams show`` read, and the
table in docs/reference/state.md. So does rescaling, except that `Moves.DIVIDED` needs code in `state.rescale_stream`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, final

from state.frames import DAMAGE, CorruptFrame, damaged, seal, unseal

T = TypeVar("T")
Parsed = TypeVar("Parsed")
#: Reads a stored row by key; None where there is none.
Get = Callable[[bytes], bytes | None]


class KeyPart(NamedTuple):
    """A part of a key."""

    #: Name for people.
    name: str
    #: Format of the part, see `struct`; empty: text, which ends the key. Keys are big-endian: they sort as numbers do.
    format: str = ""
    #: Returns the values that the part may have under a stream's present policy; None: any.
    now: Callable[[Any], Sequence[object]] | None = None
    #: Whether the part's value is given in hex digits.
    hex: bool = False


STREAM: Final = KeyPart("stream")
EVENT: Final = KeyPart("event id")
CONFIG: Final = KeyPart("configuration", "4s", lambda policy: (policy.config,), hex=True)
CHAMPION: Final = KeyPart("champion", "4s", lambda policy: (policy.config,), hex=True)
CHALLENGER: Final = KeyPart("challenger", "4s", lambda policy: [each.config for each in policy.challengers], hex=True)
LAYOUT: Final = KeyPart("layout", "4s", lambda policy: (policy.layout,) if policy.segments else ())
SCORED: Final = KeyPart("layout", "4s", lambda policy: (policy.scored,) if policy.segments else ())
SLOT: Final = KeyPart("slot", "H")
BANDS: Final = KeyPart("bands", "4s", lambda policy: (policy.bands.layout,) if policy.bands else ())


class Moves(Enum):
    """What a rescale does with a row.

    DIVIDED: by events. Events that still have a row count in their new partition, all others in their stream's home,
    one of the new partitions. Each kind of row that is divided has code in `state.rescale_stream`.

    After a SUM, a revision is counted in its event's partition, and the label that it replaces at the home. So only the
    sum over all partitions means something. Slots follow the home's names: such a key ends with its layout and slot.

    TAUGHT: the row goes where its calibrator goes. The calibrator's configuration stands second in the key.
    """

    EVENT = "goes with its event"
    DIVIDED = "divided by events"
    SUM = "added up at the stream's home"
    SHARED = "added up, each partition has the sum"
    TAUGHT = "goes with the calibrator that it taught"
    PARTS = "each part as its kind says"
    ANEW = "made anew"
    LEFT = "stays behind"
    OUTSIDE = "stays behind, no engine reads it"


#: How the rows of a stream may move. If the whole stream moves from one partition to one other, its rows do not change.
OF_STREAM: Final = (Moves.DIVIDED, Moves.SUM, Moves.SHARED, Moves.TAUGHT, Moves.PARTS)


class Form(NamedTuple):
    """The content of a row of one version: its type, and how its payload is written and read."""

    type: type
    encode: Callable[[Any], bytes]
    decode: Callable[..., Any]


class StreamGauge(NamedTuple):
    """A gauge with a value for each stream, computed from rows of one kind."""

    #: What the gauge means; ``remedy``: what to do about it.
    help: str
    #: Returns its value from the values of all partitions' rows; None or NaN if there is none.
    of: Callable[[Sequence[Any]], float | None]
    remedy: str = ""


class Kind(Generic[T]):
    """A kind of row.

    ``letter``: first byte of its keys and its rows. It keeps kinds apart when keys are sorted.
    ``name``: name for people.
    ``key``: parts of its keys after the letter. A text part is listed first, and ends the key.
    ``forms``: what it holds, by version; a value is written in the version of its type.
    ``moves``: what a rescale does with it.
    ``rows``: how many rows there are and what they hold, for people.
    ``shown``: whether metrics, pages and ``trueup streams show`` read it.
    ``asks``: returns more arguments for `decode`, given the row's key and a function that reads other rows.
    ``part``: whether it is stored as a part of its stream's counts, see `state.stream_counts`. Its key is the stream.
    ``figures``: gauges that are computed from it, by name.
    """

    def __init__(
        self,
        letter: str,
        name: str,
        key: tuple[KeyPart, ...],
        forms: Mapping[int, Form],
        moves: Moves,
        rows: str,
        *,
        shown: bool = False,
        asks: Callable[[bytes, Get], tuple[Any, ...]] | None = None,
        figures: Mapping[str, StreamGauge] | None = None,
        part: bool = False,
    ) -> None:
        self.letter = letter.encode()
        self.name = name
        self.parts = key
        self.forms = dict(forms)
        #: The version of a kind; the first one if there are several.
        self.version = min(self.forms)
        self.moves = moves
        self.rows = rows
        self.shown = shown
        self._asks = asks
        self.figures = dict(figures or {})
        self.part = part
        self._text = bool(key) and not key[0].format
        self._ids = key[1:] if self._text else key
        self._hex = tuple([each.hex for each in self._ids])
        packed = Struct(">" + "".join([each.format for each in self._ids]))
        self._pack, self._unpack, self._at = packed.pack, packed.unpack_from, 1 + packed.size
        self._versions = {form.type: version for version, form in self.forms.items()}
        self._encoders = {form.type: form.encode for form in self.forms.values()}
        if self.letter in KINDS:
            raise ValueError(f"two kinds of rows have the letter {letter}")
        if moves is Moves.TAUGHT and key[:2] != (STREAM, CONFIG):
            raise ValueError(f"{name}: rows that a calibrator taught have stream and configuration first in their keys")
        if SLOT in key and moves in (Moves.SUM, Moves.SHARED) and (key[-1] != SLOT or key[-2].name != LAYOUT.name):
            raise ValueError(f"{name}: rows that are added up have layout and slot last in their keys")
        KINDS[self.letter] = self

    @property
    def configured(self) -> bool:
        """Whether such a row belongs to a calibrator: a stream has one for each version of its model."""
        return CONFIG in self.parts or CHAMPION in self.parts

    @property
    def of_stream(self) -> bool:
        """Whether rows of this kind belong to a stream, and move with it."""
        return self.moves in OF_STREAM

    def key(self, *of: Any) -> bytes:  # noqa: ANN401 - as the parts say
        """Return the key of a row from the value of each part."""
        if not self._ids:
            return self.letter + of[0].encode() if of else self.letter
        ids: Sequence[Any] = of[1:] if self._text else of
        if True in self._hex:
            ids = [bytes.fromhex(each) if in_hex else each for each, in_hex in zip(ids, self._hex, strict=True)]
        made = self.letter + self._pack(*ids)
        return made + of[0].encode() if self._text else made

    def of(self, key: bytes) -> tuple[Any, ...]:
        """Return the parts of a key, as `key` takes them."""
        ids = self._unpack(key, 1)
        if True in self._hex:
            ids = tuple([each.hex() if in_hex else each for each, in_hex in zip(ids, self._hex, strict=True)])
        return (key[self._at :].decode(), *ids) if self._text else ids

    def stream(self, key: bytes) -> str:
        """Return the text at the end of a key."""
        return key[self._at :].decode(errors="backslashreplace")

    def present(self, key: bytes, policy: object) -> bool:
        """Whether a row belongs to the present configuration; ``policy`` is None if the stream has none.

        If the model has versions, rows of all calibrators do: only the rows list the versions.
        """
        if self.configured and policy is not None and cast("Any", policy).model_version:
            return True
        for part, value in zip(self._ids, self.of(key)[1:], strict=True):
            if policy is None or (part.now is not None and value not in part.now(policy)):
                return False
        return True

    def seal(self, payload: bytes) -> bytes:
        """Return the row of a payload. Only for a kind with one version."""
        return seal(self.letter[0], self.version, payload)

    def open(self, row: bytes, parse: Callable[..., Parsed], *more: Any, version: int = 0) -> Parsed:  # noqa: ANN401 - as ``parse`` takes it
        """Return ``parse`` of a row's payload and of ``more``.

        Raises CorruptFrame if the row is not intact, or not of this kind and one of its versions.
        """
        return self._parsed(unseal(self.letter[0], version or self.version, row), parse, more)

    def _parsed(self, payload: bytes, parse: Callable[..., Parsed], more: tuple[Any, ...]) -> Parsed:
        try:
            return parse(payload, *more) if more else parse(payload)
        except CorruptFrame:
            raise
        except DAMAGE as exc:
            raise damaged(self.letter[0], exc) from exc

    def payload(self, value: T) -> bytes:
        """Return the payload of a value's row."""
        return self._encoders[type(value)](value)

    def parse(self, key: bytes, payload: bytes, get: Get) -> T:
        """Return the value of a payload, as `read` does. Only for a kind with one version."""
        more = () if self._asks is None else self._asks(key, get)
        return cast("T", self._parsed(payload, self.forms[self.version].decode, more))

    def encode(self, value: T) -> bytes:
        """Return the row of a value."""
        return seal(self.letter[0], self._versions[type(value)], self.payload(value))

    def decode(self, row: bytes, *more: Any) -> T:  # noqa: ANN401 - what the form asks for beside the payload
        """Return the value of a row; raises `CorruptFrame` as `open` does."""
        version = row[1] if len(row) > 1 and row[1] in self.forms else self.version
        return cast("T", self.open(row, self.forms[version].decode, *more, version=version))

    def read(self, key: bytes, row: bytes, get: Get) -> T:
        """Return the value of a row from its key and a reader of other rows; raises `CorruptFrame` as `open` does."""
        return self.decode(row, *(() if self._asks is None else self._asks(key, get)))


@final
class Live(Generic[T]):
    """The one working copy of a row's value, and the row's key."""

    __slots__ = ("key", "value")

    def __init__(self, key: bytes, value: T) -> None:
        self.key = key
        self.value = value


#: Returns the working copy of a stream's row. Arguments: stream, kind, a function that makes a new value, and the other
#: parts of the key.
Open = Callable[..., Live[Any]]

#: All declared kinds, by letter.
KINDS: Final[dict[bytes, Kind[Any]]] = {}


#: The form of rows whose payload stays bytes.
PLAIN: Final = Form(bytes, bytes, bytes)


def form(of: Any) -> Form:  # noqa: ANN401 - a type with both methods
    """Return the form of a type that has `encode` and `decode`."""
    return Form(of, of.encode, of.decode)


def kind_of(key: bytes) -> Kind[Any]:
    """Return the kind of a row by its key; raises `KeyError` if its letter is unknown."""
    return KINDS[key[:1]]


def shown(key: bytes) -> str:
    """Return what a row is, for people: its kind, and the stream or event in its key."""
    kind = KINDS.get(key[:1])
    if kind is None:
        return f"the row {key!r}"
    text = kind.parts[0].name if kind.parts and not kind.parts[0].format else ""
    return f"{kind.name} of {text.removesuffix(' id')} {kind.stream(key)!r}" if text else kind.name
