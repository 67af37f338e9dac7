"""Reads plain records: JSON objects with only the fields that every forecast or outcome has, even after an intake.

Most records are plain. When compiled, this takes a fifth of the time of a JSON parser and the checks of each field.
This module refuses all other and all wrong records. `streams.records.decoding` reads those and says what is wrong. Both
read a plain record alike.
"""

from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from state.entities import number
from state.events import Forecast, Outcome
from state.fence import FORECASTS, OUTCOMES
from state.quick import new
from streams.records.limits import FAR_OFF, LAST_REVISION, LATEST, LONGEST_NAME, SCOPED, Limits
from streams.sources.carrying import Carrier
from streams.sources.references import Headers

if TYPE_CHECKING:
    from mypy_extensions import i64  # machine integers in compiled code, otherwise int

#: The field of an entity, if no other is configured.
ENTITY: Final = "entity"
_ENTITY: Final = ENTITY.encode()
#: After records that were not plain, at most this many are left to the other decoder before the next try.
OTHERS: Final = 63
_NOTHING: Final[dict[str, Any]] = {}

#: Bits of the fields.
_EVENT_ID: Final = 1
_STREAM: Final = 2
_P: Final = 4
_Y: Final = 8
_TS: Final = 16
_SCOPE: Final = 32
_REVISION: Final = 64
_ORIGIN: Final = 128
_OTHER: Final = 256
_FIELDS: Final = 511
#: Optional fields of a forecast and of an outcome.
_OF_FORECAST: Final = _TS | _SCOPE | _ORIGIN | _OTHER
_OF_OUTCOME: Final = _TS | _SCOPE | _REVISION
#: Reading a name gives its field, plus the length of name and colon shifted left by this many bits.
_LENGTH: Final = 9
#: The most decimals of a number that equals its digits divided by a power of ten, correctly rounded. Then the most
#: digits of an integer that fits a machine integer.
_DECIMALS: Final = 15
_DIGITS: Final = 18
_POWERS: Final = [10.0**n for n in range(_DECIMALS + 1)]


class Plain:
    """Reads a record into the attributes of this object."""

    def __init__(self) -> None:
        #: Texts in printable ASCII. ``stream`` is empty for an outcome, ``scope`` if there is none.
        self.event_id = ""
        self.stream = ""
        self.scope = ""
        #: The forecast or the outcome, at least 0 and below 10.
        self.number = 0.0
        #: The time, ms, and the revision number; -1: the record has none.
        self.ts: i64 = -1
        self.revision: i64 = -1
        #: Whether a forecast names its source record, as intake's forecasts do.
        self.of_intake = False
        #: Name and content of one more field, a text. The name is empty if there is none.
        self.name = b""
        self.text = b""
        self._digits: i64 = 0

    def forecast(self, value: bytes) -> bool:
        """Read a forecast of one probability, perhaps with one more text. Return whether it is plain."""
        seen = self._read(value)
        self.of_intake = seen & _ORIGIN != 0
        return seen | _OF_FORECAST == _EVENT_ID | _STREAM | _P | _OF_FORECAST

    def outcome(self, value: bytes) -> bool:
        """Read an outcome. Return whether it is plain."""
        return self._read(value) | _OF_OUTCOME == _EVENT_ID | _Y | _OF_OUTCOME

    def _read(self, value: bytes) -> "i64":
        """Return the bits of an object's fields; 0 if it has other fields, one twice, or anything that is not plain."""
        end: i64 = len(value)
        at: i64 = 1
        seen: i64 = 0
        self.ts = self.revision = -1
        self.scope, self.name = "", b""
        if end < 2 or value[0] != 123 or value[end - 1] != 125:  # braces
            return 0
        while at + 5 < end:  # the shortest field takes this much, value included
            named = _named(value, at)
            field = named & _FIELDS
            if named == 0 or seen & field:
                return 0
            seen |= field
            if field == _OTHER:
                self.name = value[at + 1 : at + (named >> _LENGTH) - 2]
            at += named >> _LENGTH
            if value[at] == 32:
                at += 1
            at = self._content(value, at, field)
            if at == 0 or at >= end - 1:
                return seen if at == end - 1 and value[at] == 125 else 0
            if value[at] != 44:  # comma
                return 0
            at += 2 if value[at + 1] == 32 else 1
        return 0

    def _content(self, value: bytes, at: "i64", field: "i64") -> "i64":
        """Read the value of a field. Return the position after it, or 0."""
        if field & (_TS | _REVISION):
            end = self._whole(value, at)
            if field == _TS:
                self.ts = self._digits
            else:
                self.revision = self._digits
            return end
        if field & (_P | _Y):
            return self._fraction(value, at)
        if field == _ORIGIN:
            return self._origin(value, at)
        end = _closed(value, at)
        if end and field == _EVENT_ID:
            self.event_id = value[at + 1 : end - 1].decode("ascii")
        elif end and field == _STREAM:
            self.stream = value[at + 1 : end - 1].decode("ascii")
        elif end and field == _SCOPE:
            self.scope = value[at + 1 : end - 1].decode("ascii")
        elif end:
            self.text = value[at + 1 : end - 1]
        return end

    def _origin(self, value: bytes, at: "i64") -> "i64":
        """Skip a list of a text and an integer. Return the position after it, or 0."""
        end: i64 = _closed(value, at + 1) if value[at] == 91 else 0  # bracket
        end = self._whole(value, end + 1) if end and value[end] == 44 else 0
        return end + 1 if end and value[end] == 93 else 0

    def _whole(self, value: bytes, at: "i64") -> "i64":
        """Read an integer. Return the position after it, or 0 if it does not have 1 to `_DIGITS` digits."""
        start = at
        n: i64 = 0
        while 48 <= value[at] <= 57 and at - start < _DIGITS:  # a closing brace ends it at the latest
            n = n * 10 + value[at] - 48
            at += 1
        self._digits = n
        return at if at > start and (value[start] != 48 or at == start + 1) else 0

    def _fraction(self, value: bytes, at: "i64") -> "i64":
        """Read a number with one digit before the point. Return the position after it, or 0."""
        start = at
        n: i64 = value[at] - 48
        if not 0 <= n <= 9:
            return 0
        at += 1
        if value[at] == 46:
            at += 1
            first = at
            while 48 <= value[at] <= 57:
                if at - first < _DECIMALS:
                    n = n * 10 + value[at] - 48
                at += 1
            if at == first:
                return 0
            self.number = float(n) / _POWERS[at - first] if at - first <= _DECIMALS else float(value[start:at])
        else:
            self.number = float(n)
        return at


def _named(value: bytes, at: "i64") -> "i64":  # noqa: PLR0911 - one for each field
    """Return the bit of the field named at a position, and the length of name and colon (see `_LENGTH`); or 0."""
    letter: i64 = value[at + 1]
    if letter == 101 and value[at : at + 11] == b'"event_id":':
        return _EVENT_ID | 11 << _LENGTH
    if letter == 115:
        if value[at : at + 9] == b'"stream":':
            return _STREAM | 9 << _LENGTH
        if value[at : at + 8] == b'"scope":':
            return _SCOPE | 8 << _LENGTH
    if letter == 116 and value[at : at + 5] == b'"ts":':
        return _TS | 5 << _LENGTH
    if letter == 111 and value[at : at + 9] == b'"origin":':
        return _ORIGIN | 9 << _LENGTH
    if letter == 114 and value[at : at + 11] == b'"revision":':
        return _REVISION | 11 << _LENGTH
    named = _P if letter == 112 else _Y if letter == 121 else 0
    if named and value[at] == 34 and value[at + 2] == 34 and value[at + 3] == 58:
        return named | 4 << _LENGTH
    end = _closed(value, at)
    return _OTHER | (end + 1 - at) << _LENGTH if end and end < len(value) and value[end] == 58 else 0


def _closed(value: bytes, at: "i64") -> "i64":
    """Return the position after a text that begins here, of printable ASCII without escapes; or 0."""
    if value[at] != 34:
        return 0
    at += 1
    start = at
    while value[at] != 34:
        if not 32 <= value[at] <= 126 or value[at] == 92:
            return 0
        at += 1
        if at == len(value):
            return 0
    return at + 1 if at > start else 0


class PlainDecoder:
    """Decodes plain records. After records that are not plain, it tries less and less often.

    ``carrier, of_intake``: carry headers from forecasts to answers, for records of trueup's producers and for those of
    intake.
    ``key_bytes``: longest key.
    """

    def __init__(self, limits: Limits, carrier: Carrier, of_intake: Carrier, key_bytes: int) -> None:
        self._record_bytes, self._id_bytes, self._ahead_ms = limits.record_bytes, limits.id_bytes, limits.ahead_ms
        self._key_bytes = key_bytes
        self._carrier, self._of_intake = carrier, of_intake
        self._read = Plain()
        #: Streams whose forecasts are one probability and at most an entity; each with the field of the entity.
        self.streams: dict[str, tuple[str, bytes]] = {}
        #: For forecasts and outcomes: how many records to leave to the other decoder after the next failure, and how
        #: many now.
        self._others, self._left = [0, 0], [0, 0]

    def forecast(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> Forecast | None:
        """Decode a forecast as `Decoder.forecast` does; None if it is not plain, or its time is far off."""
        read = self._read
        if value is None or not self._tries(FORECASTS, key, value, timestamp):
            return None
        if read.forecast(value) and read.number <= 1.0 and self._usual(timestamp):
            known = self.streams.get(read.stream)
            if known is not None and (not read.name or self._names_entity(known[1])):
                self._others[FORECASTS] = 0
                ts = timestamp if read.ts < 0 else read.ts
                carrier = self._of_intake if read.of_intake else self._carrier
                carried = carrier.carried(headers, _NOTHING) if headers else None
                entity = number(read.text) if read.name else 0
                made = (
                    offset, key, self._event(), known[0], read.number, (), ts, value, (), carried, entity, 1.0, 1.0, "",
                )  # fmt: skip
                return new(Forecast, made)
        self._leave(FORECASTS)
        return None

    def outcome(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> Outcome | None:
        """Decode an outcome as `Decoder.outcome` does; None if it is not plain, or its time is far off."""
        read = self._read
        if value is None or not self._tries(OUTCOMES, key, value, timestamp):
            return None
        known = read.outcome(value) and read.number in (0.0, 1.0) and read.revision != 0
        if known and read.revision <= LAST_REVISION and self._usual(timestamp):
            self._others[OUTCOMES] = 0
            ts = timestamp if read.ts < 0 else read.ts
            carried = self._carrier.carried(headers, _NOTHING) if headers else None
            return new(Outcome, (offset, key, self._event(), read.number, ts, value, max(read.revision, 0), carried))
        self._leave(OUTCOMES)
        return None

    def _tries(self, topic: int, key: bytes | None, value: bytes, timestamp: int) -> bool:
        """Whether to try a record: it is within the limits, and the records before it were plain."""
        if self._left[topic]:
            self._left[topic] -= 1
            return False
        within = key is None or len(key) <= self._key_bytes
        return within and len(value) <= self._record_bytes and timestamp <= LATEST

    def _usual(self, timestamp: int) -> bool:
        """Whether id, scope and time of the record need no further check."""
        ts, of_id, of_scope = self._read.ts, len(self._read.event_id), len(self._read.scope)
        in_time = ts < 0 or timestamp - FAR_OFF <= ts <= timestamp + self._ahead_ms
        return in_time and of_id <= self._id_bytes and of_scope <= self._id_bytes and of_id + of_scope < LONGEST_NAME

    def _event(self) -> str:
        """Return the engine's name of the event."""
        read = self._read
        return read.event_id + SCOPED + read.scope if read.scope else read.event_id

    def _names_entity(self, field: bytes) -> bool:
        """Whether the additional text is the entity: it stands in this field, or in the usual field."""
        read = self._read
        return read.name in (field, _ENTITY) and len(read.text) <= self._id_bytes

    def _leave(self, topic: int) -> None:
        """Leave the next records to the other decoder, because they are probably not plain, either."""
        self._others[topic] = self._left[topic] = min(2 * self._others[topic] + 1, OTHERS)


#: Whether this module is compiled. Interpreted, it takes longer than the parser.
COMPILED: Final = not isinstance(Plain.forecast, FunctionType)
