"""The newest rows of a partition that say something of streams, still encoded, for whoever reads beside the worker.

One thread replaces rows, others read them; nobody changes a row. Rows are held of the streams that are shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Final

from state import keys
from state.engine import Changes
from state.fence import Fence
from state.policy import Policies
from state.rows import decode_names

#: A stream's scores and its closed windows, None before the first. One value, because rows of different batches do not
#: belong together, and a reader may come between two assignments.
EncodedRow = tuple[bytes, bytes | None]
#: Stream, the challenger's calibrator, its configuration.
Place = tuple[str, str, str]


@dataclass(slots=True)
class PartitionSnapshot:
    """What is held of one partition: its fence, and rows by stream."""

    fence: Fence
    scores: dict[str, EncodedRow] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)
    calibrators: dict[str, bytes] = field(default_factory=dict)
    comparisons: dict[Place, bytes] = field(default_factory=dict)
    ages: dict[str, bytes] = field(default_factory=dict)
    coverages: dict[str, bytes] = field(default_factory=dict)
    distributions: dict[str, bytes] = field(default_factory=dict)
    #: By stream and key: the rows of the segments that it has now.
    segments: dict[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    #: The fence that was written with the rows.
    written: Fence = field(default_factory=Fence)

    def add(self, other: "PartitionSnapshot") -> None:
        """Take the rows of ``other`` in the place of those held; the fences stay."""
        self.scores.update(other.scores)
        self.vectors.update(other.vectors)
        self.calibrators.update(other.calibrators)
        self.comparisons.update(other.comparisons)
        self.ages.update(other.ages)
        self.coverages.update(other.coverages)
        self.distributions.update(other.distributions)
        self.segments.update(other.segments)

    def drop(self, stream: str) -> None:
        """Let go of a stream's rows."""
        one_row: tuple[MutableMapping[str, Any], ...] = self.scores, self.vectors, self.calibrators, self.ages
        for each in (*one_row, self.coverages, self.distributions, self.segments):
            each.pop(stream, None)
        for place in [place for place in self.comparisons if place[0] == stream]:
            del self.comparisons[place]

    def applied(self, changes: Changes, shows: Callable[[str], bool]) -> None:
        """Take what a checkpoint wrote, of the streams that are shown."""
        self.written = Fence.decode(changes.rows[keys.FENCE] or b"")
        self.calibrators.update((s, row) for s, row in changes.calibrators.items() if shows(s))
        self.vectors.update((s, row) for s, row in changes.vectors.items() if shows(s))
        self.comparisons.update((place, row) for place, row in changes.comparisons.items() if shows(place[0]))
        self.ages.update((s, row) for s, row in changes.ages.items() if shows(s))
        self.coverages.update((s, row) for s, row in changes.coverages.items() if shows(s))
        self.distributions.update((s, row) for s, row in changes.distributions.items() if shows(s))
        for stream, changed in changes.segments.items():
            if shows(stream):
                self.segments[stream] = {**self.segments.get(stream, {}), **changed}
        # A revision may change a closed window and leave the present one.
        for stream in {**changes.scores, **changes.windows}:
            row, closed = self.scores.get(stream, (None, None))
            row = changes.scores.get(stream, row)
            if row is not None and shows(stream):
                self.scores[stream] = row, changes.windows.get(stream, closed)

    def streams(self) -> list[str]:
        """Return the streams of which there is a row; safe beside a thread that replaces rows."""
        places = (place[0] for place in list(self.comparisons))
        counted = list(self.ages), list(self.coverages), list(self.distributions)
        of_streams = list(self.calibrators), *counted, list(self.segments)
        rows = list(self.scores), list(self.vectors), *of_streams, places
        return list(dict.fromkeys(chain(*rows)))


#: The fields of a snapshot that hold rows.
KINDS: Final = tuple(each.name for each in fields(PartitionSnapshot) if each.name not in ("fence", "written"))


def present(
    rows_from: Callable[[bytes], Iterable[tuple[bytes, object]]], policies: Policies
) -> Iterator[Iterator[str]]:
    """Yield the streams of a partition: those with scores, then those with vectors as configured now, then all others.

    Parameters
    ----------
    rows_from
        Returns the keys that begin with a prefix, in their order, with their rows.
    policies
        How streams are configured.
    """
    yield (key[len(keys.SCORES) :].decode() for key, _ in rows_from(keys.SCORES))
    vectors = (keys.of_vectors(key) for key, _ in rows_from(keys.VECTORS))
    yield (stream for config, stream in vectors if (policy := policies.of(stream)) and policy.config == config)
    yield (key[len(keys.DISTRIBUTION) :].decode() for key, _ in rows_from(keys.DISTRIBUTION))


def read(
    row: Callable[[bytes], bytes | None], policies: Policies, streams: Iterable[str], fence: Fence
) -> PartitionSnapshot:
    """Return the stored rows of streams: of calibrators and challengers those that are configured now.

    Parameters
    ----------
    row
        Returns the row of a key, None if there is none.
    """
    held = PartitionSnapshot(fence, written=fence)
    for stream in streams:
        if (scores := row(keys.scores(stream))) is not None:
            held.scores[stream] = scores, row(keys.windows(stream))
        policy = policies.of(stream)
        _read_counts(held, row, stream, guarded=policy is not None and policy.guarded)
        if policy is None:
            continue
        if policy.segments and (names := row(keys.names(stream, policy.layout))) is not None:
            of_slots = (keys.segment(stream, policy.scored, slot) for slot in decode_names(names).slots)
            stored = {key: scores for key in of_slots if (scores := row(key)) is not None}
            held.segments[stream] = {keys.names(stream, policy.layout): names, **stored}
        if vectors := row(keys.vectors(stream, policy.config)):
            held.vectors[stream] = vectors
        if calibrator := row(keys.calibrator(stream, policy.config)):
            held.calibrators[stream] = calibrator
        for each in policy.challengers:
            if comparison := row(keys.comparison(stream, policy.config, each.config)):
                held.comparisons[stream, each.calibrator, each.config] = comparison
    return held


def _read_counts(held: PartitionSnapshot, row: Callable[[bytes], bytes | None], stream: str, *, guarded: bool) -> None:
    """Take the rows that count the forecasts of a stream and the ages of its outcomes."""
    if (ages := row(keys.ages(stream))) is not None:
        held.ages[stream] = ages
    if (distribution := row(keys.distribution(stream))) is not None:
        held.distributions[stream] = distribution
    if guarded and (coverage := row(keys.coverage(stream))) is not None:
        held.coverages[stream] = coverage
