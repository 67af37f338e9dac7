"""One partition as a worker leaves it: inputs folded in an order nobody wrote down, crashes and copies included."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from replay.audit.partition_verifier import LABELS, Derivation, Memory, Rederivation, fence_of
from replay.audit.terms import Terms, timeline
from state.engine import Partition
from state.events import Event
from streams.config.in_force import InForce, described
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from tests.events import Sent

#: Largest batch of the made worker: small, so that there are many.
BATCH = 40


class Kept(NamedTuple):
    """A record as it stands in a topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Topics:
    """The records of one partition of every topic."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.records: dict[str, list[Kept]] = {label: [] for label in LABELS}
        self.committed = (0, 0)
        #: What workers wrote of what is in force, and the lines of FILE.audit.jsonl.
        self.in_force: list[InForce] = []
        self.promotions: list[dict[str, Any]] = []

    def append(
        self,
        label: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Append a record to a topic."""
        kept = self.records[label]
        kept.append(Kept(len(kept), key, value, timestamp, tuple(headers)))

    def replace(self, label: str, offset: int, value: bytes) -> None:
        """Change a record where it stands, as only the owner of the brokers' disks could."""
        self.records[label][offset] = self.records[label][offset]._replace(value=value)

    def drop(self, label: str, offset: int) -> None:
        """Lose a record of an output topic."""
        del self.records[label][offset]

    def audit(self, settings: Settings | None = None) -> Rederivation:
        """Audit them and return what was checked."""
        terms = timeline(settings or self.settings, self.in_force)
        return audited(self, terms, Memory())

    def since(self, offsets: Sequence[int]) -> list[Iterator[Kept]]:
        """Return the records of each of `LABELS` from an offset on."""
        return [
            iter([record for record in self.records[label] if record.offset >= offset])
            for label, offset in zip(LABELS, offsets, strict=True)
        ]


def audited(
    topics: Topics,
    terms: Sequence[Terms],
    rows: Memory,
    since: Derivation | None = None,
    settled: Callable[[Derivation], None] = lambda _: None,
) -> Rederivation:
    """Audit topics from their beginning, or from where an earlier audit stopped."""
    offsets = [0] * 5
    if since is not None:
        offsets = [*fence_of(rows).next, since.next_answer, since.joined.next, since.letters.next]
    found = Rederivation(3, terms, topics.since(offsets), topics.committed, rows, topics.promotions, since, settled)
    for _ in found.run():
        pass
    return found


def served(
    sent: Iterable[Sent],
    settings: Settings,
    seed: int = 1,
    crashes: float = 0.0,
    *,
    timely: bool = False,
    topics: Topics | None = None,
    rows: Memory | None = None,
) -> Topics:
    """Return the topics after a worker has folded everything.

    Parameters
    ----------
    sent
        Inputs; each topic keeps its order, and nothing else of the order holds.
    settings
        Of the worker.
    seed
        Of the order, the sizes of the batches and the crashes.
    crashes
        Probability that a worker dies after the state of a batch was stored: before its outputs, after some of them,
        or after all. It comes back to where it was before the batch.
    timely
        Fold by record time, as a worker that is behind does; otherwise interleave the topics by chance.
    topics, rows
        To go on from, as a worker with other settings does after a clean stop.
    """
    rng = random.Random(seed)
    topics = Topics(settings) if topics is None else topics
    for record in sent:
        topics.append(record.topic, record.key, record.value, record.ts, record.headers)
    inputs = [_decoded(settings, topics.records[label], topic) for topic, label in enumerate(LABELS[:2])]
    rows = Memory() if rows is None else rows
    fence = fence_of(rows)
    first, second = fence.next
    claim = len(topics.in_force)
    topics.in_force.append(InForce(claim, fence.applied, (first, second), described(settings), f"worker-{claim}"))
    worker, at, committed = Partition(settings.policies, rows.get), list(fence.next), list(fence.next)
    while any(at[topic] < len(inputs[topic]) for topic in (0, 1)):
        batch = list(_timely(rng, inputs, topics, at) if timely else _taken(rng, inputs, at))
        effects = worker.fold(batch)
        rows.write(effects.rows)
        died = rng.random() < crashes
        told = effects.outputs[: rng.randrange(len(effects.outputs) + 1)] if died else effects.outputs
        for output in told:
            for label, records in encoded([output], settings, 3).items():
                for key, value, ts, headers in records:
                    topics.append(label, key, value, ts or 0, headers)
        if died:
            worker, at = Partition(settings.policies, rows.get), committed.copy()
        else:
            committed = [max(*pair) for pair in zip(at, committed, strict=True)]
    topics.committed = committed[0], committed[1]
    return topics


def _decoded(settings: Settings, records: Sequence[Kept], topic: int) -> list[Event]:
    decoder = Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)
    decode = decoder.outcome if topic else decoder.forecast
    return [decode(each.offset, each.key, each.value, each.timestamp, each.headers) for each in records]


def _taken(rng: random.Random, inputs: Sequence[Sequence[Event]], at: list[int]) -> Iterator[Event]:
    """Yield the next batch: runs of either topic, of random lengths, not by time."""
    for _ in range(rng.randrange(1, 6)):
        topic = rng.randrange(2)
        for _ in range(rng.randrange(1, BATCH // 5)):
            if at[topic] < len(inputs[topic]):
                yield inputs[topic][at[topic]]
                at[topic] += 1


def _timely(rng: random.Random, inputs: Sequence[Sequence[Event]], topics: Topics, at: list[int]) -> Iterator[Event]:
    """Yield the next batch, the earlier record first and a forecast before an outcome of the same time."""
    times = [[record.timestamp for record in topics.records[label]] for label in LABELS[:2]]
    for _ in range(rng.randrange(1, BATCH)):
        left = [(times[topic][at[topic]], topic) for topic in (0, 1) if at[topic] < len(inputs[topic])]
        if left:
            topic = min(left)[1]
            yield inputs[topic][at[topic]]
            at[topic] += 1
