"""A stream's rows in all partitions, read when they are needed and under the present configuration."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from state import kinds
from state.coverage import Coverage
from state.fence import Fence
from state.kind import Kind
from state.policy import Policy
from state.scoring.sums import added
from state.segments import Segment
from streams.metrics.segments import SegmentRows
from streams.metrics.snapshot import StreamRows

Value = TypeVar("Value")
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})
#: A stream is known if it has a row of one of these kinds.
KNOWN: Final[tuple[Kind[Any], ...]] = kinds.SCORES, kinds.VECTORS, kinds.CALIBRATOR, kinds.DISTRIBUTION
_KNOWN: Final = frozenset(kind.letter for kind in KNOWN)


class StateRows:
    """The newest rows of every partition that describe streams.

    ``held``: rows of each partition, by stream; rows of calibrators and challengers may have several configurations.
    """

    def __init__(
        self, held: Mapping[int, Mapping[str, StreamRows]] = EMPTY, fences: Mapping[int, Fence] = EMPTY
    ) -> None:
        self.fences = dict(fences)
        self._held = held
        self._read: dict[tuple[bytes, str], dict[Any, Any]] = {}

    @property
    def streams(self) -> set[str]:
        """The streams that have any rows."""
        return {stream for rows in self._held.values() for stream in rows}

    def of(self, kind: Kind[Value], stream: str) -> dict[Any, Value]:
        """Return the values of a stream's rows of a kind, by partition and by the other parts of their keys."""
        found = self._read.get((kind.letter, stream))
        if found is None:
            found = self._read[kind.letter, stream] = {}
            for partition, held in self._held.items():
                rows = held.get(stream, {})
                for key in [key for key in rows if key[:1] == kind.letter]:
                    more = kind.of(key)[1:]
                    found[(partition, *more) if more else partition] = kind.read(key, rows[key], rows.get)
        return found

    def knows(self, stream: str) -> bool:
        """Whether a stream has state. No row is read."""
        return any(key[:1] in _KNOWN for rows in self._held.values() for key in rows.get(stream, ()))

    def now_ms(self, stream: str) -> int:
        """Return the stream time of the partitions that have rows of a stream: others may be ahead; 0: not known."""
        held = [n for n, rows in self._held.items() if stream in rows and n in self.fences]
        return max([self.fences[n].stream_time for n in held], default=0)

    def alone(self, stream: str) -> "StateRows":
        """Return the rows of one stream, with their own cache."""
        return StateRows({n: {stream: rows[stream]} for n, rows in self._held.items() if stream in rows})


def covered(found: StateRows, stream: str, policy: Policy | None) -> dict[int, Coverage]:
    """Return which forecasts of a stream have a label, by partition; empty where that does not matter."""
    return found.of(kinds.COVERAGE, stream) if policy is not None and policy.guarded else {}


def serving(found: StateRows, stream: str, policy: Policy | None) -> frozenset[str] | None:
    """Return the configurations that serve a stream now, one for each version of its model; None: any may serve it."""
    if policy is None:
        return None
    if not policy.model_version:
        return frozenset((policy.config,))
    held = found.of(kinds.VERSIONS, stream).values()
    return frozenset(each.config for versions in held for each in versions.of.values())


def summed(
    found: StateRows, stream: str, policy: Policy, slots: Iterable[tuple[int, tuple[bytes, int], Value]]
) -> tuple[list[Value], dict[Segment, Value]]:
    """Return the sum over the whole of a stream, and the sums of its present segments that have a name.

    ``slots``: partition, layout and slot of each row, with what it counts.
    """
    whole: list[Value] = []
    parts: list[tuple[Segment, Value]] = []
    names = {partition: each for (partition, of), each in found.of(kinds.NAMES, stream).items() if of == policy.layout}
    for partition, (layout, slot), each in slots:
        if (layout, slot) == kinds.WHOLE:
            whole.append(each)
        elif layout == policy.layout and partition in names and slot in names[partition].slots:
            parts.append((names[partition].segment(slot), each))
    return whole, added(parts)


def segmented(found: StateRows, stream: str, policy: Policy | None) -> dict[int, SegmentRows]:
    """Return a stream's present segments by partition, without those that do not have a name yet.

    Rows that are read while a worker writes may belong to different batches.
    """
    if policy is None or not policy.segments:
        return {}
    made: dict[int, SegmentRows] = {}
    scores = found.of(kinds.SEGMENT, stream)
    for (partition, layout), names in found.of(kinds.NAMES, stream).items():
        if layout == policy.layout:
            places = {slot: (partition, policy.scored, slot) for slot in names.slots}
            made[partition] = names, {slot: scores[place] for slot, place in places.items() if place in scores}
    return made
