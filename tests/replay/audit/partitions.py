"""One partition as a worker leaves it: inputs in any order, with its journal; crashes and copies included."""

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from replay.audit import checkpoint
from replay.audit.output_matcher import Differs, OutputDifference
from replay.audit.partition_verifier import LABELS, Derivation, Rederivation
from replay.audit.rows import Memory, fence_of
from replay.audit.terms import Configurations
from state.engine import Partition
from state.events import Event, Output
from state.journal import NONE, Entry, Last, last
from streams.config import stream_config
from streams.config.in_force import InForce, described, digest, under
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from tests.events import Sent, mixed

#: Largest batch of the made worker: small, so that there are many.
BATCH = 40
#: What checkpoints are of.
OF: dict[str, Any] = {"application": "trueup", "partition": 3}
#: Forecasts of a third stream are dead letters, and answered with their raw score.
ANSWERING = """
closed = true
on_error = "raw"
[streams.stream-0]
[streams.stream-1]
[streams.another]
[streams.s]
"""


def configured(toml: str) -> Settings:
    """Return settings with a streams file."""
    plain = Settings.from_env({})
    return under(plain, stream_config.parse(toml, plain.default_calibrator))


RAW = configured(ANSWERING)


def carrying(seed: int, n: int = 250) -> list[Sent]:
    """Return everything that happens to events; most records carry a trace, and forecasts a field, each its own."""
    rng = random.Random(seed)
    made = []
    for i, sent in enumerate(mixed(n, seed).sent):
        each = sent
        if rng.random() < 0.8:
            each = each._replace(headers=(("traceparent", b"%d" % i), ("other", b"x")))
            if each.topic == "forecasts" and each.value.endswith(b"}"):
                each = each._replace(value=each.value[:-1] + b',"carried":{"n":%d}}' % i)
        made.append(each)
    return made


def altered(value: bytes | None, **fields: object) -> bytes:
    """Return a JSON value with other fields."""
    return orjson.dumps(orjson.loads(value or b"") | fields)


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
        #: What workers wrote of what is in force.
        self.in_force: list[InForce] = []

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
        """Lose a record."""
        del self.records[label][offset]

    def audit(self, settings: Settings | None = None) -> Rederivation:
        """Audit them and return what was checked."""
        return audited(self, settings)

    def since(self, begins: dict[str, int]) -> list[Iterator[Kept]]:
        """Return the records of each of `LABELS` from an offset on."""
        return [iter([each for each in self.records[label] if each.offset >= begins[label]]) for label in LABELS]

    def sent(self, outputs: Iterable[Output], settings: Settings) -> None:
        """Append what a worker sends."""
        for output in outputs:
            for label, records in encoded([output], settings, 3).items():
                for key, value, ts, headers in records:
                    self.append(label, key, value, ts or 0, headers)


def audited(topics: Topics, settings: Settings | None = None, since: Derivation | None = None) -> Rederivation:
    """Audit topics from their beginning, or from where an earlier audit stopped."""
    since = since or Derivation(Memory())
    settings = settings or topics.settings
    terms = Configurations(settings, 3, topics.in_force)
    found = Rederivation(3, terms, settings, topics.since(since.begins), since)
    for _ in found.run():
        pass
    return found


def served(
    sent: Iterable[Sent],
    settings: Settings,
    seed: int = 1,
    crashes: float = 0.0,
    *,
    topics: Topics | None = None,
    rows: Memory | None = None,
) -> Topics:
    """Return the topics after a worker has folded everything, and stopped.

    ``sent``: inputs; each topic keeps its order, and nothing else of the order holds.
    ``seed``: of the order, the sizes of the batches and the crashes.
    ``crashes``: probability that a worker dies after a batch is in its own journal, with any part of the outputs sent,
      and that it dies between an entry of the topic and its checkpoint. It folds again what is behind the last
      checkpoint.
    ``topics, rows``: to go on from, as a worker with other settings does after a clean stop.
    """
    rng = random.Random(seed)
    topics = Topics(settings) if topics is None else topics
    for record in sent:
        topics.append(record.topic, record.key, record.value, record.ts, record.headers)
    inputs = [_decoded(settings, topics.records[label], topic) for topic, label in enumerate(LABELS[:2])]
    rows = Memory() if rows is None else rows
    fence = fence_of(rows)
    claim, (first, second) = len(topics.in_force), fence.next
    topics.in_force.append(InForce(claim, fence.applied, (first, second), described(settings), f"worker-{claim}"))
    worker, at = Partition(settings.policies, rows.get), [first, second]
    #: Topic and event of what was folded since the last checkpoint.
    order: list[tuple[int, Event]] = []
    while (more := any(at[topic] < len(inputs[topic]) for topic in (0, 1))) or order:
        if more:
            batch = list(_taken(rng, inputs, at))
            outputs = _folded(worker, batch)
            order += batch
            if rng.random() < crashes:
                topics.sent(outputs[: rng.randrange(len(outputs) + 1)], settings)
                worker = Partition(settings.policies, rows.get)
                outputs = _folded(worker, order)[-len(outputs) or len(order) * 9 :]
            topics.sent(outputs, settings)
        if not more or rng.random() < 0.2:
            topics.append("journal", None, _entry(topics, settings, worker, fence_of(rows).next, order).encode())
            if rng.random() < crashes:
                worker = Partition(settings.policies, rows.get)
                topics.sent(_folded(worker, order)[-rng.randrange(1, 20) :], settings)
            else:
                rows.write(worker.checkpoint().rows)
                order = []
    return topics


def difference(topics: Topics, settings: Settings | None = None) -> OutputDifference:
    """Return what an audit of the topics complains of."""
    with pytest.raises(Differs) as found:
        topics.audit(settings)
    complaint: OutputDifference = found.value.args[0]
    return complaint


def resumed(topics: Topics, settings: Settings, path: Path) -> Rederivation:
    """Audit from a checkpoint if there is one, and leave the next one."""
    since = checkpoint.read(path, OF, topics.in_force, Memory()) if path.exists() else None
    found = audited(topics, settings, since)
    checkpoint.write(path, OF, topics.in_force, found.derivation)
    return found


def raws(topics: Topics) -> list[int]:
    """Return where raw answers stand."""
    return [each.offset for each in topics.records["calibrated"] if b'"calibrated":false' in (each.value or b"")]


def _folded(worker: Partition, events: Sequence[tuple[int, Event]]) -> list[Output]:
    worker.begin()
    return worker.apply([event for _, event in events])


def _entry(
    topics: Topics, settings: Settings, worker: Partition, begins: Sequence[int], order: Sequence[tuple[int, Event]]
) -> Entry:
    """Return the entry of what was folded since the last checkpoint."""
    lasts: list[Last] = [NONE, NONE]
    for topic, event in order:
        record = topics.records[LABELS[topic]][event.offset]
        lasts[topic] = last(record.timestamp, record.value)
    (b0, b1), (e0, e1) = begins, worker.fence.next
    config = bytes.fromhex(digest(described(settings)))
    order_of = bytes([topic for topic, _ in order])
    return Entry(0, (b0, b1), (e0, e1), worker.fence.applied, 0, (0, 0, 0), config, (lasts[0], lasts[1]), order_of)


def _decoded(settings: Settings, records: Sequence[Kept], topic: int) -> list[Event]:
    decoder = Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)
    decode = decoder.outcome if topic else decoder.forecast
    return [decode(each.offset, each.key, each.value, each.timestamp, each.headers) for each in records]


def _taken(rng: random.Random, inputs: Sequence[Sequence[Event]], at: list[int]) -> Iterator[tuple[int, Event]]:
    """Yield the next batch: runs of either topic, of random lengths, not by time."""
    for _ in range(rng.randrange(1, 6)):
        topic = rng.randrange(2)
        for _ in range(rng.randrange(1, BATCH // 5)):
            if at[topic] < len(inputs[topic]):
                yield topic, inputs[topic][at[topic]]
                at[topic] += 1
