"""Segments of a stream: their names, their values, and their slots, which are small numbers for values."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Self, TypeGuard

#: The most names of segments, and the most pairs of them.
MOST_NAMES: Final = 8
MOST_PAIRS: Final = 8
#: Longest name and longest value, in UTF-8 bytes.
LONGEST: Final = 64

#: Slots of each name and of each pair. Those of name or pair k begin at k times this number; names come before pairs.
LIMIT: Final = 64
#: Slot of all values that came when no slot was free. For a name, the slot of events without a value.
OTHER: Final = 0
MISSING: Final = 1
#: The most cached combinations of values, see `Dictionary.groups`.
_KNOWN: Final = 4096
_PAIR: Final = Struct("<BB")


def check(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> None:
    """Raise ValueError that says what is allowed, unless a stream can have these segments."""
    if len(names) > MOST_NAMES:
        raise ValueError(f"segments names {len(names)}, at most {MOST_NAMES} are allowed")
    for name in names:
        if not name or not usable(name):
            raise ValueError(f"a segment has a printable name of 1 to {LONGEST} bytes, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("segments must be different names")
    if len(pairs) > MOST_PAIRS:
        raise ValueError(f"pairs names {len(pairs)}, at most {MOST_PAIRS} are allowed")
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        both = frozenset(pair)
        if len(pair) != 2 or len(both) != 2 or not both <= set(names):
            raise ValueError(f"a pair is two different names out of segments, got {list(pair)}")
        if both in seen:
            raise ValueError(f"pairs names {list(pair)} twice")
        seen.add(both)


def usable(value: object) -> TypeGuard[str]:
    """Whether a value of a record can be a segment's value: printable text no longer than `LONGEST`."""
    return (
        type(value) is str
        and len(value) <= LONGEST
        and value.isprintable()
        and (value.isascii() or len(value.encode()) <= LONGEST)
    )


class Segment(NamedTuple):
    """A segment as people read it."""

    #: Name of the segment in the configuration; for a pair ``country*channel``.
    name: str
    #: Value of the segment in records; for a pair ``DE*web``. ``(missing)`` if there is none, ``(other)`` for all
    #: values without a slot.
    value: str


class Dictionary:
    """The slots of a stream's segments on one partition: small numbers by value.

    Notes
    -----
    A value gets the next free slot of its name when its first forecast is answered. A name has `LIMIT` slots: 62 for
    the first values, one for all other values, one for events without a value. A pair has 63 for the first combinations
    and one for all others. A combination consists of slots, not of values. A slot is never given to another value,
    because tickets and calibrators hold it.

    Bytes, little-endian: names (u8), each its length (u8) and its text; pairs (u8), each the numbers of its names (u8
    each); then of each name how many values have a slot (u8), each its length (u8) and its text, in the order of slots;
    then of each pair how many combinations have one (u8), each the slots within their names (u8 each). At most 34 kB.
    """

    __slots__ = ("_known", "_of_names", "_of_pairs", "_places", "names", "pairs", "taken")

    def __init__(self, names: Sequence[str], pairs: Sequence[tuple[str, str]] = ()) -> None:
        self.names = tuple(names)
        self.pairs = tuple(pairs)
        self._places = [(self.names.index(one), self.names.index(other)) for one, other in self.pairs]
        self._of_names: list[dict[str, int]] = [{"": MISSING} for _ in self.names]
        self._of_pairs: list[dict[tuple[int, int], int]] = [{} for _ in self.pairs]
        self._known: dict[tuple[str, ...], tuple[int, ...]] = {}
        #: Number of slots in use. It rises with every change of the bytes.
        self.taken = 0

    def groups(self, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event, one of each name and of each pair; new values take free ones.

        ``values``: one for each name; empty text where the event has none.
        """
        found = self._known.get(values)
        if found is None:
            found = self._found(values)
            if len(self._known) >= _KNOWN:  # values come from records, so the cache must be bounded
                self._known.clear()
            self._known[values] = found
        return found

    def _found(self, values: tuple[str, ...]) -> tuple[int, ...]:
        within: list[int] = []
        for value, slots in zip(values, self._of_names, strict=True):
            slot = slots.get(value, OTHER)
            if slot == OTHER and len(slots) + 1 < LIMIT:
                slot = slots[value] = len(slots) + 1
                self.taken += 1
            within.append(slot)
        for (one, other), crossed in zip(self._places, self._of_pairs, strict=True):
            both = within[one], within[other]
            slot = crossed.get(both, OTHER)
            if slot == OTHER and len(crossed) + 1 < LIMIT:
                slot = crossed[both] = len(crossed) + 1
                self.taken += 1
            within.append(slot)
        return tuple([k * LIMIT + slot for k, slot in enumerate(within)])

    def join(self, other: Self) -> dict[int, int]:
        """Add the values of another partition, as long as slots are free.

        Returns the slot here for each slot there: the slot of other values if none was free.

        ``other``: a dictionary of the same names and pairs.
        """
        slots: dict[int, int] = {}
        for k, (own, theirs) in enumerate(zip(self._of_names, other._of_names, strict=True)):
            slots[k * LIMIT] = k * LIMIT
            for value, slot in theirs.items():
                if value not in own and len(own) + 1 < LIMIT:
                    own[value] = len(own) + 1
                    self.taken += 1
                slots[k * LIMIT + slot] = k * LIMIT + own.get(value, OTHER)
        for n, (one, second) in enumerate(self._places):
            base, crossed = (len(self.names) + n) * LIMIT, self._of_pairs[n]
            slots[base] = base
            for both, slot in other._of_pairs[n].items():
                here = slots[one * LIMIT + both[0]] % LIMIT, slots[second * LIMIT + both[1]] % LIMIT
                if here not in crossed and len(crossed) + 1 < LIMIT:
                    crossed[here] = len(crossed) + 1
                    self.taken += 1
                slots[base + slot] = base + crossed.get(here, OTHER)
        self._known.clear()
        return slots

    @property
    def families(self) -> int:
        """The number of names and pairs."""
        return len(self.names) + len(self.pairs)

    @property
    def slots(self) -> list[int]:
        """All slots that events may have now, in ascending order."""
        own = [MISSING + len(slots) for slots in self._of_names] + [1 + len(each) for each in self._of_pairs]
        return [k * LIMIT + slot for k, n in enumerate(own) for slot in range(n)]

    def given(self) -> tuple[list[list[str]], list[list[tuple[int, int]]]]:
        """Return the values and combinations that have a slot, in the order of slots.

        For each name these are values, from slot 2 on. For each pair they are combinations of its names' slots, from
        slot 1 on.
        """
        return [list(slots)[1:] for slots in self._of_names], [list(crossed) for crossed in self._of_pairs]

    def segment(self, slot: int) -> Segment:
        """Return the segment of a slot; LookupError if the slot is not in use."""
        k, within = divmod(slot, LIMIT)
        if k < len(self.names):
            return Segment(self.names[k], self._value(k, within))
        k -= len(self.names)
        name = "*".join(self.pairs[k])
        if within == OTHER:
            return Segment(name, "(other)")
        both = list(self._of_pairs[k])[within - 1]
        values = (self._value(place, slot) for place, slot in zip(self._places[k], both, strict=True))
        return Segment(name, "*".join(values))

    def _value(self, k: int, within: int) -> str:
        if within in {OTHER, MISSING}:
            return "(other)" if within == OTHER else "(missing)"
        return list(self._of_names[k])[within - MISSING]

    def encode(self) -> bytes:
        """Return the bytes; layout in the class's notes."""
        parts = [_texts(self.names), bytes((len(self.pairs),)), *(_PAIR.pack(*place) for place in self._places)]
        parts += [_texts(list(slots)[1:]) for slots in self._of_names]
        for crossed in self._of_pairs:
            parts += [bytes((len(crossed),)), *(_PAIR.pack(*both) for both in crossed)]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote. Raises ValueError, LookupError or struct.error if it is damaged."""
        names, at = _read_texts(payload, 0)
        places, at = _read_pairs(payload, at)
        pairs = [(names[one], names[other]) for one, other in places]
        check(names, pairs)
        made = cls(names, pairs)
        for slots in made._of_names:
            values, at = _read_texts(payload, at)
            for value in values:
                slots[value] = len(slots) + 1
            made.taken += len(values)
        for crossed in made._of_pairs:
            found, at = _read_pairs(payload, at)
            for both in found:
                crossed[both] = len(crossed) + 1
            made.taken += len(found)
        for (one, other), crossed in zip(made._places, made._of_pairs, strict=True):
            ends = MISSING + len(made._of_names[one]), MISSING + len(made._of_names[other])
            if not all(first < ends[0] and second < ends[1] for first, second in crossed):
                raise ValueError("a pair of segments has a combination of slots that were not given away")
        if made.encode() != payload or len(made.slots) > LIMIT * made.families:
            raise ValueError(f"a dictionary of segments of {len(payload)} bytes gives a value two slots, or has others")
        return made


def _texts(texts: Sequence[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    return bytes((len(texts),)) + b"".join([bytes((len(each),)) + each for each in encoded])


def _read_texts(payload: bytes, at: int) -> tuple[list[str], int]:
    found = []
    n, at = payload[at], at + 1
    for _ in range(n):
        end = at + 1 + payload[at]
        found.append(payload[at + 1 : end].decode())
        at = end
    return found, at


def _read_pairs(payload: bytes, at: int) -> tuple[list[tuple[int, int]], int]:
    start = at + 1
    end = start + _PAIR.size * payload[at]
    found: list[tuple[int, int]] = [(one, other) for one, other in _PAIR.iter_unpack(payload[start:end])]
    return found, end
