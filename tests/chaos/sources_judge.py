"""The judge of the other shape: counts source records to answers, from what the topics hold alone.

Each stage is judged by its own pure engine over what it read: what intake must have made of the source records, what
the router must have sent by its journal, and the workers as in ``judge.py``. Beside that, sets that need neither an
engine nor a stage in between: every score of the sources has an answer, and of every label the last one was learnt.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import orjson
from aiokafka.client import AIOKafkaClient

from state.engine import BATCH_LIMIT
from state.events import Rejected
from state.journal import Entry
from state.router import Router
from streams.config.settings import Settings
from streams.kafka import partitioner, provenance
from streams.records.making import Maker
from streams.records.routing import RouteDecoder, encode_outcome, place
from tests.chaos.judge import Verdict, judge_all
from tests.chaos.sources import NAME, Sources
from tests.e2e.test_intake import Source, expected, in_order, read
from tests.e2e.world import BESIDE, Read, journaled

#: A stream whose rows leave the router early: whether one had left when its label came, only the engines can say.
SHORT_LIVED = "model-b"
#: What a record is in its topic: partition, key, value and Kafka timestamp.
Sent = tuple[int, bytes | None, bytes | None, int]


@dataclass
class Recorded:
    """What the topics hold.

    Attributes
    ----------
    settings, partitions
        Of all stages, and of the topics that are trueup's.
    sources
        Records by the label of the source topic.
    ids
        Ids of the source topics, by their labels.
    topics
        Records of the topics that are trueup's, by their labels; the changelog is the router's.
    """

    settings: Settings
    partitions: int
    sources: dict[str, list[Read]]
    ids: dict[str, str]
    topics: dict[str, list[Read]]

    @classmethod
    def of(cls, on: Sources) -> "Recorded":
        """Read them."""
        w = on.world
        settings = w.settings
        names = {
            "forecasts": settings.forecasts,
            "routes": settings.routes,
            "labels": settings.labels,
            "outcomes": settings.outcomes,
            "changelog": settings.router.changelog,
            "calibrated": settings.calibrated,
            "resolved": settings.resolved,
            "dead-letters": settings.dead_letters,
        }
        return cls(
            settings,
            w.partitions,
            {label: read(w.bootstrap, f"{NAME}-{label}", n) for label, n in on.widths.items()},
            asyncio.run(_ids(w.bootstrap, on.widths)),
            {label: read(w.bootstrap, name, w.partitions) for label, name in names.items()},
        )


async def _ids(bootstrap: str, labels: Iterable[str]) -> dict[str, str]:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        return {label: (await provenance.identity(client, f"{NAME}-{label}")).id for label in labels}
    finally:
        await client.close()


class _Findings:
    """Sets of what is wrong, so that nothing found in two ways counts twice."""

    def __init__(self) -> None:
        self.lost: set[object] = set()
        self.doubled: set[object] = set()
        self.differing: set[object] = set()
        self.told: list[str] = []

    def add(self, found: set[object], name: object, sentence: str) -> None:
        if name not in found:
            found.add(name)
            if len(self.told) < 10:
                self.told.append(f"sources: {sentence}")

    def compare(self, label: str, held: Iterable[Sent], wanted: set[Sent]) -> int:
        """Note what a topic lacks and what it should not have; return how many of its records are copies."""
        counted = Counter(held)
        for each in wanted - counted.keys():
            self.add(self.lost, (label, each), f"nothing in {label} like {each}")
        for each in counted.keys() - wanted:
            self.add(self.doubled, (label, each), f"{label} has {each}, which nobody asked for")
        return sum(counted.values()) - len(counted)


def judge(recorded: Recorded) -> Verdict:
    """Judge intake and router, and the way from the sources to the answers."""
    found = _Findings()
    copies = _judge_intake(recorded, found) + _judge_router(recorded, found)
    _judge_ends(recorded, found)
    lost, doubled, differing = map(len, (found.lost, found.doubled, found.differing))
    records = sum(map(len, recorded.sources.values()))
    return Verdict(records, 0, lost, doubled, differing, copies, found.told)


def judge_sources(on: Sources) -> Verdict:
    """Judge every stage; the records are those of the sources, the events those that workers issued."""
    of_workers, of_the_rest = judge_all(on.world), judge(Recorded.of(on))
    return replace(of_workers + of_the_rest, records=of_the_rest.records)


def _judge_intake(recorded: Recorded, found: _Findings) -> int:
    """Every source record became what the pure mapping makes of it, in the order of its partition."""
    intake = Maker(recorded.settings)
    wanted: dict[str, set[Sent]] = defaultdict(set)
    letters: set[tuple[Any, ...]] = set()
    for label, records in recorded.sources.items():
        topic = f"{NAME}-{label}"
        (reader,) = intake.readers[topic]
        for record in records:
            origin = place(reader.name, recorded.ids[label], record.partition), record.offset
            came = SimpleNamespace(**record._asdict(), timestamp=record.ts, headers=())
            became = reader.canonical(came, topic, origin, record.ts)
            if isinstance(became, Rejected):
                letters.add((topic, record.partition, record.offset, became.reason))
            elif became is not None:
                for each in filter(None, became):
                    there = partitioner.partition(each.key, recorded.partitions)
                    wanted[each.topic].add((there, each.key, each.value, record.ts))
    copies = sum(
        found.compare(label, _sent(recorded, label), wanted[label]) for label in ("forecasts", "routes", "labels")
    )
    for label in ("routes", "labels"):
        _judge_order(label, recorded.topics[label], found)
    said = Counter(_letters(recorded, {f"{NAME}-{label}" for label in recorded.sources}))
    for letter in letters - said.keys():
        found.add(found.lost, letter, f"no letter for {letter}")
    for letter in said.keys() - letters:
        found.add(found.doubled, letter, f"a letter for {letter}, which nobody asked for")
    return copies + sum(said.values()) - len(said)


def _judge_order(label: str, records: Iterable[Read], found: _Findings) -> None:
    """The router takes what comes behind a later record of its source partition for a copy, so it must be one."""
    seen: set[tuple[int, str, int]] = set()
    last: dict[tuple[int, str], int] = {}
    for record in records:
        where, offset = orjson.loads(record.value or b"")["origin"]
        lane = record.partition, where
        if (*lane, offset) not in seen and offset < last.get(lane, -1):
            found.add(found.lost, (label, *lane, offset), f"{label}: {where} {offset} came first behind {last[lane]}")
        seen.add((*lane, offset))
        last[lane] = max(last.get(lane, -1), offset)


def _judge_router(recorded: Recorded, found: _Findings) -> int:
    """The router sent what its engine sends of what it read, batch by batch as its journal says."""
    rows, entries = _state(recorded), journaled(recorded.topics["changelog"])
    wanted: set[Sent] = set()
    for n in range(recorded.partitions):
        table, sent = _routed(recorded, n, entries.get(n, []), found)
        wanted |= sent
        for key in table.keys() | rows[n].keys():
            if rows[n].get(key) != table.get(key):
                kind = found.doubled if key in rows[n] else found.lost
                found.add(kind, (n, key), f"the router's row {key!r} is not the engine's")
    return found.compare("outcomes", _sent(recorded, "outcomes"), wanted)


def _state(recorded: Recorded) -> dict[int, dict[bytes, bytes]]:
    """Return the router's rows by partition."""
    rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    for record in recorded.topics["changelog"]:
        if record.key is None or record.key[:1] in BESIDE:
            continue
        if record.value is None:
            rows[record.partition].pop(record.key, None)
        else:
            rows[record.partition][record.key] = record.value
    return rows


def _routed(
    recorded: Recorded, n: int, entries: Iterable[Entry], found: _Findings
) -> tuple[dict[bytes, bytes], set[Sent]]:
    """Return the rows of a partition and what it sent, by the pure engine."""
    inputs = [[r for r in recorded.topics[label] if r.partition == n] for label in ("routes", "labels")]
    table: dict[bytes, bytes] = {}
    sent: set[Sent] = set()
    engine = Router(recorded.settings.router.policies, table.get)
    for entry in entries:
        if list(entry.begins) != engine.fence.next or len(entry.topics) > BATCH_LIMIT:
            at = f"{engine.fence.next}: {entry.begins} to {entry.ends}"
            found.add(found.doubled, ("entry", n, entry.number), f"the router's journal goes on at {at}")
            continue
        order = in_order(entry, inputs, engine.fence.next)
        engine.begin()
        for output in engine.apply(RouteDecoder().events(order)):
            if isinstance(output, Rejected):
                found.add(found.lost, ("letter", n, output.topic, output.offset), f"the router could not read {output}")
                continue
            key = output.target.encode()
            to = partitioner.partition(key, recorded.partitions)
            sent.add((to, key, encode_outcome(output), output.stamp))
        for key, value in engine.checkpoint().rows.items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
    for topic, mine in enumerate(inputs):
        for record in mine[engine.fence.next[topic] :]:
            found.add(found.lost, ("router", n, topic, record.offset), f"the router never applied {record}")
    return table, sent


def _judge_ends(recorded: Recorded, found: _Findings) -> None:
    """Every score of the sources has one answer, and of every event the last label was learnt."""
    sources = sorted(
        (
            Source(label, record.key or b"", record.value or b"", record.ts)
            for label, records in recorded.sources.items()
            for record in records
        ),
        key=lambda each: each.ts,
    )
    scored = set(_scored(sources))
    answers: dict[tuple[str, str], set[bytes]] = defaultdict(set)
    for record in recorded.topics["calibrated"]:
        said = orjson.loads(record.value or b"")
        answers[said["stream"], said["event_id"]].add(record.value or b"")
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for record in recorded.topics["resolved"]:
        said = orjson.loads(record.value or b"")
        where = said["stream"], said["event_id"]
        last[where] = max(last.get(where, (-1, 0.0)), (said["revision"], said["y"]))
    for name in scored - answers.keys():
        found.add(found.lost, ("answer", name), f"score {name} has no answer")
    for name in answers.keys() - scored:
        found.add(found.doubled, ("answer", name), f"{name} was answered, and nobody scored it")
    for name, values in answers.items():
        if len(values) > 1:
            found.add(found.differing, ("answer", name), f"{name} has {len(values)} answers")
    labels = {name: y for name, y in expected(sources).items() if name[0] != SHORT_LIVED}
    learnt = {name: y for name, (_, y) in last.items() if name[0] != SHORT_LIVED}
    for name in labels.keys() - learnt.keys():
        found.add(found.lost, ("label", name), f"the label of {name} was never learnt")
    for name in learnt.keys() - labels.keys():
        found.add(found.doubled, ("label", name), f"a label of {name} was learnt, and nobody gave one")
    for name in labels.keys() & learnt.keys():
        if labels[name] != learnt[name]:
            found.add(found.differing, ("label", name), f"{name} ended as {learnt[name]}, not {labels[name]}")


def _scored(sources: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """Yield stream and event of every score that can be used."""
    for each in sources:
        if each.topic == "scores.v3":
            said = orjson.loads(each.value)
            if said["riskScore"] != "much":
                yield f"model-{said['model']}", said["transaction"]["id"]


def _sent(recorded: Recorded, label: str) -> Iterator[Sent]:
    for record in recorded.topics[label]:
        yield record.partition, record.key, record.value, record.ts


def _letters(recorded: Recorded, topics: set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the places and reasons of the letters of some topics."""
    for record in recorded.topics["dead-letters"]:
        said = orjson.loads(record.value or b"")
        if said["topic"] in topics:
            yield said["topic"], said["partition"], said["offset"], said["reason"]
