"""The agent: a batch from its records to acknowledged outputs, on a real table."""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import Mock

import pytest
from aiokafka.errors import KafkaError

from agents.processor import BatchProcessor
from agents.served import CHECKPOINT_BATCHES, CHECKPOINT_RECORDS, ServedPartition
from agents.topology import Topology
from lab.scrape import ScrapedSamples
from state import kinds
from state.engine import Partition
from state.events import Calibrated, Output, Rejected, Resolved
from state.fence import FORECASTS, OUTCOMES, Fence
from state.journal import Entry, Journal
from state.kind import KINDS, Moves
from state.policies import Policies
from state.policy import Policy
from streams.config import stream_config
from streams.config.settings import Settings
from streams.faust.changelog import MovedError
from streams.faust.outputs import Heard, Outputs
from streams.faust.stores import DamagedStoreError
from streams.metrics.catalogue import STAGES
from streams.metrics.slots import REVIEW_SECONDS, Slots
from streams.records.decoding import Decoder
from streams.records.merge import Batch, Merged
from streams.records.skips import PoisonError
from tests.events import Sent, forecast, mixed, outcome
from tests.exposed import exposed
from tests.streams.fakes import Producer, record, restore, wire

pytestmark = pytest.mark.usefixtures("no_warm_up")


class Told:
    """Stands for `Outputs`: remembers what it was told to send, and can be held up."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, list[Output]]] = []
        self.noted: list[tuple[int, Entry]] = []
        self.acknowledged = asyncio.Event()
        self.acknowledged.set()

    def batch(self, partition: int, *_: object) -> Any:
        made: list[Output] = []
        return SimpleNamespace(partition=partition, outputs=made, add=made.extend)

    async def heard(self, starts: Mapping[int, object]) -> dict[int, Heard]:
        await asyncio.sleep(0)
        return {partition: Heard() for partition in starts}

    async def note(self, partition: int, entry: bytes) -> None:
        await asyncio.sleep(0)
        self.noted.append((partition, Entry.decode(entry)))

    async def send(self, batches: Sequence[Any]) -> dict[int, dict[str, int]]:
        await asyncio.sleep(0)
        await self.acknowledged.wait()
        self.sent += [(batch.partition, batch.outputs) for batch in batches]
        return {}

    @property
    def outputs(self) -> list[Output]:
        return [output for _, outputs in self.sent for output in outputs]


async def through(processor: BatchProcessor, batch: Batch) -> None:
    """Take a batch through all steps, as the agent does."""
    await processor.answer(await processor.fold([batch]))


async def reopened(scene: "Scene", partition: int = 0) -> tuple[Fence, Journal]:
    """Restore a partition and take it up."""
    restore(scene.topology, partition)
    return await scene.processor.reopen(partition)


class Scene(NamedTuple):
    """A batch processor, and everything around it."""

    processor: BatchProcessor
    topology: Topology
    producer: Producer
    told: Told
    steps: list[int]

    def fold(self, *batches: Sequence[Merged], partition: int = 0) -> None:
        """Fold batches, one after another, and make a checkpoint."""

        async def run() -> None:
            for records in batches:
                await through(self.processor, Batch(partition, list(records), {}, 0))
            await self.processor.checkpoint(due=False)

        asyncio.run(run())

    def reopen(self, partition: int = 0) -> None:
        asyncio.run(reopened(self, partition))

    def state(self, partition: int = 0) -> dict[bytes, bytes]:
        """Return the rows that the engine made."""
        table, outside = self.topology.table, Moves.OUTSIDE
        kept = [letter for letter, kind in KINDS.items() if kind.moves is not outside]
        return {key: row for letter in kept for key, row in table.store.range(partition, letter)}

    def counted(self, name: str, **labels: str) -> float:
        found = ScrapedSamples(exposed(self.topology.gauges)).value(name, labels)
        return 0.0 if math.isnan(found) else found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    producer, told, steps = Producer(), Told(), list[int]()
    topology = wire(tmp_path, producer=producer)
    processor = BatchProcessor(topology.settings, topology.table, cast("Outputs", told), topology.gauges, steps.append)
    made = Scene(processor, topology, producer, told, steps)
    made.reopen()
    return made


def batch(sent: Iterable[Sent], start: tuple[int, int] = (0, 0)) -> list[Merged]:
    """Return records as the buffer merged them, with offsets that continue each topic's."""
    offsets = list(start)
    records: list[Merged] = []
    for each in sent:
        topic = FORECASTS if each.topic == "forecasts" else OUTCOMES
        records.append((topic, record(each.topic, 0, offsets[topic], each.ts, each.key, each.value)))
        offsets[topic] += 1
    return records


PAIR = [forecast("a", 0.3, 1000), outcome("a", 1, 2000)]


def test_every_step_and_every_forecast_is_timed(scene: Scene) -> None:
    scene.fold(batch([*PAIR, forecast("b", 0.5, 3000)]))
    for stage in STAGES.values():
        assert scene.counted("stage_seconds_count", stage=stage) == 1
    assert scene.counted("forecast_latency_seconds_count") == 2
    # Their timestamps are of 1970.
    assert scene.counted("forecast_latency_seconds_bucket", le="1800.0") == 0


def pure(settings: Settings, *batches: Sequence[Merged]) -> tuple[dict[bytes, bytes], list[Output]]:
    """Return the rows and outputs of the pure engine."""
    rows: dict[bytes, bytes] = {}
    engine, decoder = Partition(settings.policies, rows.get), Decoder(settings.policies, settings.limits)
    outputs: list[Output] = []
    for part in batches:
        effects = engine.fold(decoder.events(part))
        outputs += effects.outputs
        rows.update({key: row for key, row in effects.rows.items() if row is not None})
    return rows, outputs


def test_gauges_do_not_show_a_batch_that_was_folded_in_vain(scene: Scene) -> None:
    made = batch([forecast(f"e{i}", 0.5, 1000 + i) for i in range(200)])
    scene.fold(made[:10])
    scene.producer.failure = KafkaError("refused")
    with pytest.raises(KafkaError):
        scene.fold(made[10:])
    assert scene.counted("pending_events") == 10


def test_a_time_of_a_record_of_ones_own_in_seconds_is_told_and_counted_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_700_000_000_000
    value = b'{"event_id":"a","stream":"s","p":0.5,"ts":1700000000}'
    scene.fold(batch([Sent("forecasts", b"k", value, now)]))
    for _ in range(2):
        scene.processor.tell()
    assert scene.counted("far_off_times_total", topic="forecasts") == 1
    (line,) = [record.getMessage() for record in caplog.records if "far off" in record.getMessage()]
    assert "ts says 1970-01-20 16:13:20 UTC (1700000000 ms), decades from the Kafka timestamp 2023-11-14" in line
    assert 'it seems to be in s. Write ms, or map the topic by a source with unit = "s"' in line


def test_a_record_without_a_timestamp_counts_as_1970(scene: Scene) -> None:
    scene.fold(batch([forecast("a", 0.5, -1)]))
    (answer,) = scene.told.outputs
    assert isinstance(answer, Calibrated)
    assert answer.ts == 0


def test_a_record_from_the_end_of_time_becomes_a_letter_and_stops_nothing(scene: Scene) -> None:
    scene.fold(batch([forecast("a", 0.5, 2**63 - 1)]), batch(PAIR, (1, 0)))
    letter, *others = scene.told.outputs
    assert isinstance(letter, Rejected)
    assert letter.reason == "timestamp"
    assert [type(output) for output in others] == [Calibrated, Resolved]
    assert scene.counted("dead_letters_total", topic="forecasts", reason="timestamp") == 1


# -- what cannot be continued from ---------------------------------------------------------------------------------


def test_a_damaged_disk_is_not_blamed_on_the_record_that_was_looked_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.fold(batch(PAIR))

    def damaged(_: bytes) -> bytes | None:
        raise DamagedStoreError(0, "the rows of partition 0 are damaged on disk")

    scene.reopen()
    monkeypatch.setattr(scene.processor._partitions[0].engine, "_get", damaged)
    with pytest.raises(DamagedStoreError):
        scene.fold(batch([outcome("b", 1, 4000)], (2, 1)))


@pytest.mark.parametrize("n", [0, 7, 9])
def test_a_record_that_cannot_be_folded_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    engine = scene.processor._partitions[0].engine
    apply = engine.apply

    def failing(events: Any) -> list[Any]:
        made = list(events)
        if any(event.event_id == f"e{n}" for event in made):
            raise OverflowError("a number that the row does not hold")
        return apply(made)

    monkeypatch.setattr(engine, "apply", failing)
    made = batch([forecast(f"e{i}", 0.5, 1000 + i) for i in range(10)], (20, 0))
    with pytest.raises(PoisonError, match=f"forecasts/0@{20 + n} cannot be read or folded"):
        scene.fold(made)
    assert (scene.state(), scene.told.sent) == ({}, [])


# -- partitions that come and go -----------------------------------------------------------------------------------


def test_reopening_shows_the_scores_of_the_table_without_counting_them_again(scene: Scene) -> None:
    scene.fold(batch(PAIR))
    scene.processor.close(0)
    assert scene.counted("resolved", stream="s") == 0
    assert scene.counted("outcome_age_seconds", stream="s", label="1", share="0.99") == 0
    scene.reopen()
    assert scene.counted("resolved", stream="s") == 1
    assert scene.counted("scored_events_total", stream="s") == 1
    assert scene.counted("outcome_age_seconds", stream="s", label="1", share="0.99") > 0


async def test_a_batch_is_folded_while_the_one_before_is_answered_and_is_answered_after_it(scene: Scene) -> None:
    scene.told.acknowledged.clear()
    first = await scene.processor.fold([Batch(0, batch([forecast("a", 0.3, 1)]), {}, 0)])
    answering = asyncio.create_task(scene.processor.answer(first))
    second = await scene.processor.fold([Batch(0, batch([forecast("b", 0.3, 2)], (1, 0)), {}, 0)])
    last = asyncio.create_task(scene.processor.answer(second))
    for _ in range(5):
        await asyncio.sleep(0)
    assert scene.steps.count(3) == 2
    assert not scene.told.sent
    scene.told.acknowledged.set()
    await last
    assert answering.done()
    events = [output.event_id for _, outputs in scene.told.sent for output in outputs if isinstance(output, Calibrated)]
    assert events == ["a", "b"]


async def test_a_partition_is_taken_up_again_when_its_answers_are_out(scene: Scene) -> None:
    scene.told.acknowledged.clear()
    folded = await scene.processor.fold([Batch(0, batch(PAIR), {}, 0)])
    answering = asyncio.create_task(scene.processor.answer(folded))
    await asyncio.sleep(0)
    reopening = asyncio.create_task(scene.processor.reopen(0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reopening.done()
    scene.told.acknowledged.set()
    await answering
    await reopening
    _, journal = await reopened(scene)
    assert journal.entries[-1].ends == (1, 1)


async def test_an_answer_of_a_partition_that_was_taken_up_again_is_left_to_the_fold_that_follows(scene: Scene) -> None:
    folded = await scene.processor.fold([Batch(0, batch(PAIR), {}, 0)])
    await scene.processor.reopen(0)
    with pytest.raises(MovedError):
        await scene.processor.answer(folded)
    assert not scene.told.sent


@pytest.mark.parametrize("cut", ["damaged", "cancelled", "refused"])
async def test_no_checkpoint_has_what_was_folded_and_is_in_no_entry(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """Nobody would answer it."""
    made = batch(mixed(60).sent)
    monkeypatch.setattr("agents.applying.PART", 7)
    await through(scene.processor, Batch(0, made[:20], {}, 0))
    folding = asyncio.create_task(scene.processor.fold([Batch(0, made[20:], {}, 0)]))
    await asyncio.sleep(0)  # a part is folded
    if cut == "damaged":
        failing = DamagedStoreError(0, "the rows of partition 0 are damaged on disk")
        monkeypatch.setattr(scene.processor._partitions[0].engine, "apply", Mock(side_effect=failing))
    elif cut == "cancelled":
        folding.cancel()
    else:
        scene.producer.failure = KafkaError("refused")
    with pytest.raises((DamagedStoreError, asyncio.CancelledError, KafkaError)):
        await scene.processor.answer(await folding)
    scene.producer.failure = None
    appended = list(scene.producer.sent)
    await scene.processor.checkpoint(due=False)
    assert scene.producer.sent == appended
    fence, journal = await reopened(scene)
    assert (fence.applied, [len(entry.topics) for entry in journal.entries]) == (0, [20])


async def test_stream_time_follows_the_clock_only_behind_records_that_came_when_they_say(tmp_path: Path) -> None:
    policies = stream_config.parse('[streams.s]\nmatures = "1s"\nsilence = 0\n', "platt")
    settings = Settings(data_dir=tmp_path, policies=policies, quiet_seconds=2.0)
    topology = wire(tmp_path, settings=settings)
    told, now = Told(), int(time.time() * 1000)
    processor = BatchProcessor(settings, topology.table, cast("Outputs", told), topology.gauges)
    for partition, ts in enumerate((now - 86_400_000, now - 10_000, now + 60_000)):
        await processor.reopen(partition)
        three = batch([forecast(f"e{i}", 0.5, ts) for i in range(3)])  # fewer do not move stream time
        await through(processor, Batch(partition, three, {}, 0))
    history, due, young = (processor.tick(partition) for partition in range(3))
    assert (history, young) == (0, 0)
    assert now - 3000 < due <= int(time.time() * 1000) - 2000


async def test_a_checkpoint_waits_for_the_answers_of_its_batches_and_its_rows_are_read_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.served.CHECKPOINT_BATCHES", 3)
    made = batch(mixed(65).sent)
    parts = [made[at : at + 20] for at in range(0, 80, 20)]
    # Behind the third one a checkpoint is due; the events' rows of the last one are in none of the tables.
    folded = [await scene.processor.fold([Batch(0, part, {}, 0)]) for part in parts]
    for each in folded[:3]:
        await scene.processor.checkpoint()
        assert kinds.FENCE.key() not in scene.state()
        await scene.processor.answer(each)
    await scene.processor.checkpoint()
    assert Fence.decode(scene.state()[kinds.FENCE.key()]).applied == 60
    await scene.processor.answer(folded[3])
    await scene.processor.checkpoint(due=False)
    assert (scene.state(), scene.told.outputs) == pure(scene.topology.settings, *parts)
    assert [(len(entry.topics), entry.applied) for _, entry in scene.told.noted] == [(60, 60), (20, 80)]


async def test_no_entry_of_the_journal_is_replaced_before_a_checkpoint_has_its_records(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.served.CHECKPOINT_BATCHES", 2)
    monkeypatch.setattr("state.journal.SLOTS", 8)
    for n in range(20):  # nobody writes checkpoints beside them
        await through(scene.processor, Batch(0, batch([forecast(f"e{n}", 0.3, n)], (n, 0)), {}, 0))
    assert (await reopened(scene))[1].number == 20


def test_a_turn_begins_one_checkpoint_however_many_are_due(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.reopen(1)
    begun, freeze = list[ServedPartition](), ServedPartition.freeze

    def counted(served: ServedPartition, tick: int = 0) -> None:
        begun.append(served)
        freeze(served, tick)

    monkeypatch.setattr(ServedPartition, "due", lambda self, _: self.ready)
    monkeypatch.setattr(ServedPartition, "freeze", counted)
    asyncio.run(scene.processor.fold([Batch(n, batch([forecast("a", 0.3, 1)]), {}, 0) for n in (0, 1)]))
    assert len(begun) == 1


def test_a_batch_that_changes_more_than_a_checkpoint_may_have_is_cut_in_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "enough_bytes", 15_000)
    made = batch(mixed(130).sent)
    scene.fold(made)
    assert (scene.state(), scene.told.outputs) == pure(scene.topology.settings, made)
    assert len(scene.told.noted) > 1


def test_others_go_on_between_the_parts_of_batches_and_after_that_many_records_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.applying.PART", 7)
    monkeypatch.setattr("agents.applying.PAUSE", 7)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        await scene.processor.reopen(1)
        task = asyncio.create_task(others())
        records = batch(mixed(70).sent)[:70]
        for n, served in scene.processor._partitions.items():
            applied = scene.processor._applying.applied
            await applied(Batch(n, records, {}, 0), served, records, scene.told.batch(n))
        task.cancel()

    asyncio.run(run())
    assert turns == 9 + 10


# -- many streams --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> list[float]:
    """Return the one time that slots know."""
    return [0.0]


@pytest.fixture
def crowded(scene: Scene, clock: list[float]) -> Scene:
    """Return a scene with the scores of 300 streams, of which 5 may be shown, and nothing held of them."""
    for n in range(3):
        names = [f"s{i:03d}" for i in range(n * 100, n * 100 + 100)]
        scene.fold(
            batch(
                [each for s in names for each in (forecast(s, 0.3, 1000, stream=s), outcome(s, 1, 2000))],
                (n * 100, n * 100),
            )
        )
    claims = dict(scene.topology.table.changelog._writers)
    scene.processor.close(0)
    scene.topology.table.changelog._writers.update(claims)
    gauges = scene.topology.gauges
    gauges._by_stream["scored_events"].clear()
    gauges.slots = Slots(5, clock=lambda: clock[0])
    return scene


def test_a_stream_that_gains_its_series_late_shows_all_that_is_stored_of_it(crowded: Scene, clock: list[float]) -> None:
    crowded.reopen()
    busy = [
        each for i in range(40) for each in (forecast(f"b{i}", 0.3, 3000, stream="s200"), outcome(f"b{i}", 1, 4000))
    ]
    crowded.fold(batch(busy[:20], (300, 300)))
    assert not crowded.counted("resolved", stream="s200")
    assert crowded.counted("hidden_streams") == 2, "the first that found no slot, and this one"
    clock[0] = REVIEW_SECONDS
    crowded.fold(batch(busy[20:], (310, 310)))
    assert crowded.counted("resolved", stream="s200") == 41
    # The label of nobody goes on, and the stream's own counter begins.
    assert crowded.counted("scored_events_total", stream="") == 40
    more = [forecast("more", 0.3, 5000, stream="s200"), outcome("more", 1, 5000)]
    crowded.fold(batch(more, (340, 340)))
    assert crowded.counted("scored_events_total", stream="s200") == 1
    assert crowded.counted("resolved", stream="s200") == 42


async def test_what_is_folded_again_is_folded_under_the_settings_that_were_in_force(scene: Scene) -> None:
    made = batch([forecast("a", 0.3, 1), forecast("b", 0.3, 2)])
    before = scene.topology.settings
    now = replace(before, policies=Policies(default=Policy("platt")))

    async def recall(_: str) -> Settings:
        await asyncio.sleep(0)
        return before

    await through(scene.processor, Batch(0, made[:1], {}, 0))
    topology = scene.topology
    restarted = BatchProcessor(now, topology.table, cast("Outputs", scene.told), topology.gauges)
    restore(topology, 0)
    _, found = await restarted.reopen(0, recall)
    (entry,) = found.entries
    await through(restarted, Batch(0, made[:1], {}, 0, again=entry, ended=True))
    await through(restarted, Batch(0, made[1:], {}, 0))
    first, again, new = scene.told.outputs
    assert first == again
    assert (cast("Calibrated", first).calibrator, cast("Calibrated", new).calibrator) == ("prudent+certified", "platt")


@pytest.mark.parametrize(
    ("records", "batches", "seconds", "weight", "full", "due", "behind"),
    [
        (1, 1, 0.0, 0, False, False, False),
        (CHECKPOINT_RECORDS, 1, 0.0, 0, False, True, True),
        (CHECKPOINT_RECORDS // 2, 1, 0.0, 0, False, False, True),
        (1, CHECKPOINT_BATCHES, 0.0, 0, False, True, True),
        (1, CHECKPOINT_BATCHES // 2, 0.0, 0, False, False, True),
        (1, 1, 3600.0, 0, False, True, False),
        (1, 1, 0.0, 9_500_001, False, True, False),
        (1, 1, 0.0, 0, True, True, False),
        (0, CHECKPOINT_BATCHES, 3600.0, 9_500_001, True, False, True),
    ],
)
def test_a_checkpoint_is_due_after_records_batches_time_bytes_or_memory(
    records: int,
    batches: int,
    seconds: float,
    weight: int,
    full: bool,  # noqa: FBT001 - a parameter
    due: bool,  # noqa: FBT001 - a parameter
    behind: bool,  # noqa: FBT001 - a parameter
) -> None:
    """While one waits, the next is behind halfway by records or batches."""
    since = time.monotonic() - seconds
    served = ServedPartition(cast("Any", None), number=batches, order=bytearray(records), since=since)
    served.engine = cast("Any", SimpleNamespace(weight=weight, full=full))
    assert served.due(Settings(checkpoint_seconds=60.0)) == due
    assert not served.behind
    served.waiting = cast("Any", SimpleNamespace(entry=SimpleNamespace(number=0)))
    assert served.behind == behind
