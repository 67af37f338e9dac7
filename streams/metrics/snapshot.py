"""The newest rows of a partition that describe streams, still encoded, for readers beside the worker.

One thread replaces rows, and others read them. Nobody changes a row. Only rows of shown streams are held.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from state import kinds
from state.effects import Changes
from state.fence import Fence
from state.kind import KINDS, Kind, kind_of
from state.policies import Policies
from state.policy import Policy
from state.versions import Versions

#: The rows of a stream by key. They are replaced all at once, because rows of different checkpoints do not belong
#: together, and a reader may come between two assignments.
StreamRows = Mapping[bytes, bytes]


@dataclass(slots=True)
class PartitionSnapshot:
    """A partition's present fence, its rows by stream, and the fence that was written with the rows."""

    fence: Fence
    rows: dict[str, StreamRows] = field(default_factory=dict)
    written: Fence = field(default_factory=Fence)

    def row(self, kind: Kind[Any], stream: str, *of: object) -> bytes | None:
        """Return a row of a stream; None if there is none."""
        return self.rows.get(stream, {}).get(kind.key(stream, *of))

    def applied(
        self,
        changes: Changes,
        policies: Policies,
        shows: Callable[[str], bool],
        hides: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Take the rows of a checkpoint if their streams are shown and they belong to the present configuration.

        ``shows, hides``: see `Slots`. A worker may have any number of hidden streams.
        """
        self.written = Fence.decode(changes.rows[kinds.FENCE.key()] or b"")
        gone = {key for key, row in changes.rows.items() if row is None and KINDS[key[:1]].shown}
        for stream in {kind_of(key).stream(key) for key in gone} & self.rows.keys():
            self.rows[stream] = {key: row for key, row in self.rows[stream].items() if key not in gone}
        for stream, changed in changes.of_streams.items():
            if hides(stream):
                continue
            policy = policies.of(stream)
            kinds_of = [(kind_of(key), key, row) for key, row in kinds.apart(changed).items()]
            present = {key: row for kind, key, row in kinds_of if kind.shown and kind.present(key, policy)}
            if present and shows(stream):
                self.rows[stream] = {**self.rows.get(stream, {}), **present}

    def streams(self) -> list[str]:
        """Return the streams that have a row. It is safe while a thread replaces rows."""
        return list(self.rows)


def by_stream(rows: StreamRows) -> dict[str, StreamRows]:
    """Return the rows that describe streams, by stream."""
    found: dict[str, dict[bytes, bytes]] = defaultdict(dict)
    for key, row in kinds.apart(rows).items():
        kind = KINDS.get(key[:1])
        if kind is not None and kind.shown:
            found[kind.stream(key)][key] = row
    return dict(found)


def present(
    rows_from: Callable[[bytes], Iterable[tuple[bytes, object]]], policies: Policies
) -> Iterator[Iterator[str]]:
    """Yield the streams that have rows of the present configuration; it goes through one kind of row after another.

    ``rows_from``: returns the keys that begin with a prefix, in their order, with their rows.
    """
    for kind in (kinds.COUNTS, kinds.VECTORS):
        named = ((kind.stream(key), key) for key, _ in rows_from(kind.letter))
        yield (stream for stream, key in named if kind.present(key, policies.of(stream)))


def read(
    row: Callable[[bytes], bytes | None], policies: Policies, streams: Iterable[str], fence: Fence
) -> PartitionSnapshot:
    """Return the stored rows of streams. Only configured calibrators and challengers count.

    ``row``: returns the row of a key, None if there is none.
    """
    held = PartitionSnapshot(fence, written=fence)
    for stream in streams:
        found = {key: value for key in _keys(stream, policies.of(stream), row) if (value := row(key)) is not None}
        if found:
            held.rows[stream] = kinds.apart(found)
    return held


def _keys(stream: str, policy: Policy | None, row: Callable[[bytes], bytes | None]) -> Iterator[bytes]:
    """Yield the possible keys of a stream's rows under the present configuration."""
    names = row(kinds.NAMES.key(stream, policy.layout)) if policy is not None and policy.segments else None
    slots = [kinds.WHOLE[1]] if names is None else kinds.NAMES.decode(names).slots
    key = kinds.COUNTS.key(stream)
    counts = row(key) if policy is not None and policy.model_version else None
    versions = () if counts is None else kinds.COUNTS.read(key, counts, row).part(kinds.VERSIONS, Versions).of
    policies = [policy, *[policy.of_version(name) for name in versions]] if policy is not None else []
    for kind in [each for each in KINDS.values() if each.shown]:
        if len(kind.parts) == 1:
            yield kind.key(stream)
            continue
        for each in policies if kind.configured else policies[:1]:
            of = [part.now(each) if part.now is not None else slots for part in kind.parts[1:]]
            yield from (kind.key(stream, *values) for values in product(*of))
