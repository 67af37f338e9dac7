"""Records followed from their source: what is lost, doubled or mapped otherwise is named, what is gone is no pass."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition

from replay import moves
from replay.audit import checkpoint, follower, intake_verifier, mapper, router_verifier
from replay.audit.account import Account, Followed, RouterCounts
from replay.audit.along import NOTHING, Along
from replay.audit.checkpoint import AuditProgress, RowsFile
from replay.audit.gatherer import Gatherer
from replay.audit.intake_verifier import IntakeVerifier
from replay.audit.mapper import Mapper
from replay.audit.output_matcher import OutputDifference, Unauditable
from replay.audit.plan import LETTERS, MADE, NAMED, OUTCOMES, WRITTEN, AuditPlan, RouterSpan, SourceSpan
from replay.audit.router_verifier import RouterVerifier
from replay.audit.rows import Memory, digest, read_entry
from replay.topic_reader import Extent
from state.events import Rejected
from state.journal import NONE, Entry
from state.policies import Policies
from state.rescale import rescaled_routes
from state.router import Router
from state.routes import Routed
from streams.config.in_force import described
from streams.config.in_force import digest as hash_of
from streams.config.settings import Settings
from streams.kafka import partitioner
from streams.records import skips
from streams.records.encoding import letter
from streams.records.making import Maker
from streams.records.output_values import OutputValues
from streams.records.refused import Skipped
from streams.records.routing import RouteDecoder, encode_outcome

START = 1_700_000_000_000
DAY = 86_400_000
PARTITIONS = 2
#: Records of an entry of the routers' journals.
ENTRY = 5
FILE = """
early_ttl = "1d"

[streams."model-*"]
calibrator = "platt"
ttl = "1d"

[sources.scores]
topic = "scores"
role = "forecast"
event_id = "id"
stream = "model-{model}"
p = { path = "risk", scale = [0, 1000] }
when = { kind = { not = "test" } }

[sources.verdicts]
topic = "verdicts"
role = "outcome"
event_id = "id"
y = { path = "said", labels = { bad = 1, good = 0, open = "skip" } }
"""


def in_memory(found: Mapping[bytes, bytes], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a dictionary that begin so, in order."""
    return ((key, found[key]) for key in sorted(found) if key.startswith(prefix))


def record(offset: int, ts: int, value: bytes, key: bytes | None = b"card", topic: str = "") -> Any:
    """Return a record as aiokafka hands it over."""
    return SimpleNamespace(offset=offset, timestamp=ts, key=key, value=value, headers=(), topic=topic)


class Logs:
    """Topics that were made up, and what intake and router have made of them."""

    def __init__(self, directory: Path, file: str = FILE) -> None:
        self.sources: dict[str, list[Any]] = {"scores": [], "verdicts": []}
        self.written: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.first: dict[tuple[int, int], int] = {}
        self.cut: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        self.begun = AuditProgress()
        #: What intakes have written down of the source partitions.
        self.mapped: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.files: dict[str, Settings] = {}
        #: The journals of the routers, their policies by hash, and why an audit could not go on.
        self.journal: dict[int, list[Any]] = defaultdict(list)
        self.policies: dict[bytes, Policies] = {}
        self.unable: list[str] = []
        #: Rows of the routers, those that they began with, and those that were derived.
        self.rows: dict[int, dict[bytes, bytes]] = {}
        self.given: dict[int, dict[bytes, bytes]] = {}
        self.derived: dict[int, dict[bytes, bytes]] = {}
        self.stamped = frozenset((0, 1, 2, OUTCOMES))
        #: What stands for source records that are left out, by topic and offset.
        self.stands: dict[str, dict[int, Any]] = {}
        self.settings = self.under(directory, file)
        self.written_down(self.settings)

    def written_down(self, settings: Settings) -> None:
        """Let intake have written down that it maps all sources by these settings."""
        self.files = {"first": settings}
        self.mapped = {(topic, 0): [(0, "first")] for topic in self.sources}

    @staticmethod
    def under(directory: Path, file: str) -> Settings:
        """Return settings with a streams file."""
        (directory / "streams.toml").write_text(file)
        return Settings.from_env({"TRUEUP_STREAMS": str(directory / "streams.toml")})

    def score(self, event: str, ts: int, risk: object = 310, model: str = "a", kind: str = "live") -> None:
        self._add("scores", ts, id=event, risk=risk, model=model, kind=kind)

    def verdict(self, event: str, ts: int, said: str = "bad") -> None:
        self._add("verdicts", ts, id=event, said=said)

    def _add(self, topic: str, ts: int, **said: Any) -> None:
        self.sources[topic].append(record(len(self.sources[topic]), START + ts, orjson.dumps(said), topic=topic))

    def write(self, label: int, partition: int, key: bytes | None, value: bytes, ts: int) -> None:
        """Append a record to a topic."""
        log = self.written[label, partition]
        log.append(record(log[-1].offset + 1 if log else 0, ts, value, key))

    def plan(self) -> AuditPlan:
        """Return what there is to follow."""
        written = {
            (label, n): Extent(self.first.get((label, n), 0), len(self.written[label, n]))
            for label in range(len(WRITTEN))
            for n in range(PARTITIONS)
        }
        spans = [
            SourceSpan(
                topic,
                i,
                0,
                self.cut.get(topic, 0),
                self.committed.get(topic, len(log)),
                len(log),
                begin=self.begun.sources.get(f"{topic}/0", 0),
            )
            for i, (topic, log) in enumerate(self.sources.items())
        ]
        ids = {topic: f"{i}f" for i, topic in enumerate(self.sources)}
        strict, told = frozenset((0, 1, 2, OUTCOMES)), (self.mapped, self.files)
        return AuditPlan(self.settings, PARTITIONS, written, spans, [], ids, strict, self.stamped, *told, self.begun)

    def intake(self, *topics: str, since: int = 0) -> None:
        """Send on what sources hold, from an offset on."""
        plan = self.plan()
        intake = Maker(plan.settings)
        intake.know(dict.fromkeys(MADE, PARTITIONS), plan.ids)
        for topic in topics or self.sources:
            for each in self.sources[topic][since:]:
                making = intake.make([(TopicPartition(topic, 0), each)], START + 10 * DAY)
                for one in mapper.made(making):
                    stamp = each.timestamp if one.stamp is None else one.stamp
                    self.write(one.label, one.partition, one.key, one.value, stamp)

    def inputs(self, n: int) -> list[Iterator[Any]]:
        """Return routes and labels of a partition of the router."""
        return [iter(self.written[label, n]) for label in (1, 2)]

    def route(self, *, labels_last: bool = False) -> None:
        """Let the router send what it makes of its inputs, by record time or with all labels last."""
        config = bytes.fromhex(hash_of(described(self.settings.router)))
        self.policies[config] = self.settings.router.policies
        for n in range(PARTITIONS):
            rows = Memory(self.given.get(n, {}))
            engine = Router(self.settings.router.policies, rows.get)
            merged = [(topic, each) for topic, log in enumerate(self.inputs(n)) for each in log]
            merged.sort(key=lambda pair: (labels_last and pair[0], pair[1].timestamp, pair[0]))
            self.journal[n].clear()
            for at in range(0, len(merged), ENTRY):
                part, (b0, b1) = merged[at : at + ENTRY], engine.fence.next
                for output in engine.apply(RouteDecoder().events(part)):
                    self._send(n, output)
                (e0, e1), topics = engine.fence.next, bytes([topic for topic, _ in part])
                entry = Entry(at, (b0, b1), (e0, e1), engine.fence.applied, 0, (0, 0, 0), config, (NONE, NONE), topics)
                self.journal[n].append(record(at // ENTRY, 0, entry.encode()))
                rows.write(engine.checkpoint().rows)
            self.rows[n] = rows

    def _send(self, n: int, output: Routed | Rejected) -> None:
        if isinstance(output, Routed):
            key = output.target.encode()
            to = partitioner.partition(key, PARTITIONS)
            self.write(OUTCOMES, to, key, encode_outcome(output), output.stamp)
        else:
            self.write(3, n, output.key, self.dead(n, output), START)

    def dead(self, n: int, rejected: Rejected) -> bytes:
        """Return the value of a router's dead letter."""
        topic = (self.settings.routes, self.settings.labels)[rejected.topic]
        return letter(rejected, topic, n, self.settings.limits)[1]

    def gathered(self, plan: AuditPlan) -> tuple[dict[bytes, bytes], Account]:
        """Return what the first pass leaves: entries, and what it found."""
        entries, account = dict(self.begun.left), Account(left=AuditProgress(written=self.ends()))
        for n in range(PARTITIONS):
            gatherer = Gatherer(plan, n)
            for label in (0, 1, 2, LETTERS, OUTCOMES):
                since = max(self.first.get((label, n), 0), plan.since(label, n))
                kept = [each for each in self.written[label, n] if each.offset >= since]
                entries |= dict(gatherer.of(label, kept))
            account.add(gatherer.found)
        return entries, account

    def ends(self) -> dict[str, int]:
        """Return where what was written ends."""
        return {f"{WRITTEN[k]}/{n}": len(log) for (k, n), log in self.written.items()}

    def followed(self) -> tuple[Followed, list[OutputDifference]]:
        """Return what following the sources finds."""
        plan = self.plan()
        entries, account = self.gathered(plan)
        for span in plan.sources:
            earlier = dict(enumerate(self.sources[span.topic])).get
            values = OutputValues(plan.settings.registry)
            verifier = IntakeVerifier(span, Mapper(plan, span), self.served, earlier, values)
            log = self.sources[span.topic][max(span.first, span.begin) :]
            stands = self.stands.get(span.topic, {})
            log = [stands.get(each.offset, each) for each in log]
            found = in_memory(entries, intake_verifier.prefix(span.number, 0))
            verifier.run(log, found)
            account.add(verifier.found)
        self.left = account.left
        return account.sources, account.differences

    def routed(
        self, directory: Path | None = None, upto: int | None = None
    ) -> tuple[RouterCounts, list[OutputDifference]]:
        """Return what following the router finds; with a directory, what another audit needs is left there.

        ``upto`` is how many entries of each journal there are.
        """
        entries, account = self.gathered(self.plan())
        for n in range(PARTITIONS):
            rows, earlier = Memory(), self.begun.routers.get(n)
            begins, reached = (0, 0), NOTHING
            if directory is not None and earlier is not None:
                checkpoint.read_rows(earlier.file, rows)
                begins, reached = earlier.next, earlier.reached
            routes, labels = (Extent(0, len(self.written[label, n])) for label in (1, 2))
            inputs = [iter(self.written[label, n][at:]) for label, at in zip((1, 2), begins, strict=True)]
            journal = iter([each for each in self.journal[n][:upto] if each.offset >= reached.journal])
            along = Along(f"journal/{n}", n, ("routes", "labels"), journal, inputs, begins, reached.order)

            def dead(rejected: Rejected, n: int = n) -> bytes:
                return digest(n, rejected.key, self.dead(n, rejected), None, ())

            places = [(LETTERS, n), *((OUTCOMES, to) for to in range(PARTITIONS))]
            verifier = RouterVerifier(
                RouterSpan(n, routes, labels, Extent(0, 0)),
                self.policies.__getitem__,
                PARTITIONS,
                dead,
                along,
                rows,
                {place: map(read_entry, in_memory(entries, router_verifier.prefix_of(n, *place))) for place in places},
                self.served,
                again=[key for key, _ in in_memory(entries, router_verifier.copies(n))],
            )
            verifier.run()
            counted = verifier.found.router
            assert counted.routes + counted.labels == sum(along.next) - sum(begins)
            self.derived[n] = dict(rows.items())
            if directory is not None:
                reached = along.reached(reached.journal)
                left = checkpoint.write_rows(directory, checkpoint.ROUTER, n, rows, reached)
                verifier.found.left.routers[n] = left
            account.add(verifier.found)
        self.unable = account.unable
        if directory is not None:
            self.begun = account.left
        return account.router, account.differences

    def served(self, label: int, partition: int, offset: int) -> Any:
        """Return a record by its place."""
        return next((each for each in self.written[label, partition] if each.offset == offset), None)

    def find(self, label: int, text: str) -> tuple[int, int]:
        """Return partition and place in the log of the first record whose value has a text."""
        return next(
            (n, i)
            for n in range(PARTITIONS)
            for i, each in enumerate(self.written[label, n])
            if text.encode() in each.value
        )


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """Return logs of forty events of two models, sent on and routed."""
    made = Logs(tmp_path)
    for i in range(40):
        made.score(f"e{i}", i, 25 * i, "ab"[i % 2])
        if i % 4:
            made.verdict(f"e{i}", 100 + i, "bad" if i % 3 else "good")
    made.score("e0", 50, 10, kind="test")
    made.score("e0", 51, "much")
    made.verdict("e0", 52, "open")
    made.intake()
    made.route()
    return made


def test_what_nothing_happened_to_is_clean_and_counted(logs: Logs) -> None:
    checked, differences = logs.followed()
    assert differences == []
    assert (checked.records, checked.sent, checked.dead, checked.passed) == (73, 70, 1, 2)
    assert (checked.forecasts, checked.routes, checked.labels, checked.dead_letters) == (40, 40, 30, 1)
    assert (checked.copies, checked.waiting, checked.gone, checked.unread) == (0, 0, 0, 0)
    sent, differences = logs.routed()
    assert differences == []
    assert (sent.routes, sent.labels, sent.outcomes) == (40, 30, 30)
    assert (sent.copies, sent.waiting) == (0, 0)


@pytest.mark.parametrize("label", ["forecasts", "routes", "labels", "dead-letters"])
def test_a_record_lost_between_intake_and_what_reads_it_is_named_by_its_source(logs: Logs, label: str) -> None:
    number = MADE.index(label)
    if label == "dead-letters":
        n, i, source = *logs.find(number, "scores"), ("scores", 41)
    else:
        n, i = logs.find(number, '"e7"')
        source = ("verdicts", 5) if label == "labels" else ("scores", 7)
    del logs.written[number, n][i]
    _, (difference,) = logs.followed()
    assert (difference.topic, difference.partition, difference.offset) == (source[0], 0, source[1])
    assert difference.what == f"lost: intake has committed it, and {label}/{n} has no record of it"
    logs.committed = {source[0]: source[1]}
    assert logs.followed()[1] == [], "what intake has not committed may still be on its way"


def test_records_sent_again_are_counted_and_one_doubled_with_other_content_is_named(logs: Logs) -> None:
    logs.intake(since=25)
    checked, differences = logs.followed()
    assert (differences, checked.sent, checked.copies) == ([], 70, 15 * 2 + 1 + 5)
    n, i = logs.find(0, '"e30"')
    other = logs.written[0, n][i]
    logs.write(0, n, other.key, other.value.replace(b"0.75", b"0.76"), other.timestamp)
    _, (difference,) = logs.followed()
    assert (difference.topic, difference.partition, difference.event_id) == ("forecasts", n, "e30")
    assert difference.offset == logs.written[0, n][-1].offset
    assert difference.what == "doubled with other content: scores/0@30 has become another record"
    assert difference.fields == {"p": (0.76, 0.75)}


def test_what_was_mapped_under_another_file_is_named_with_what_differs(logs: Logs, tmp_path: Path) -> None:
    logs.written_down(logs.under(tmp_path, FILE.replace("[0, 1000]", "[0, 2000]")))
    checked, differences = logs.followed()
    assert checked.differences == 39, "of a risk of 0 both make the same"
    assert {each.topic for each in differences} == {"forecasts"}
    assert differences[0].what == "not what the mapping in force makes of scores/0@1: altered"
    assert differences[0].fields == {"p": (0.025, 0.0125)}
    assert len(differences) == NAMED
    logs.written_down(logs.under(tmp_path, FILE.replace('{ not = "test" }', '"score"')))
    _, differences = logs.followed()
    assert "makes no such record of scores/0@0, which becomes nothing" in differences[0].what


def test_what_intake_wrote_down_tells_by_which_file_a_record_was_mapped(logs: Logs, tmp_path: Path) -> None:
    then = logs.settings
    now = logs.under(tmp_path, FILE.replace("[0, 1000]", "[0, 2000]"))
    logs.files = {"then": then, "now": now}
    logs.score("late", 90_000)
    logs.settings = now
    logs.intake("scores", since=42)
    logs.mapped = {("scores", 0): [(0, "then"), (42, "now")], ("verdicts", 0): [(0, "then")]}
    checked, differences = logs.followed()
    assert (differences, checked.records) == ([], 74)
    logs.mapped["scores", 0] = [(0, "then"), (30, "now")]
    _, differences = logs.followed()
    assert [each.what for each in differences] == [
        f"not what the mapping in force makes of scores/0@{n}: altered" for n in range(30, 40)
    ]
    # Or intake was killed: what it had not committed was mapped once more, and otherwise.
    logs.intake("scores", since=30)
    _, differences = logs.followed()
    assert [each.what for each in differences] == [
        f"doubled with other content: scores/0@{n} was mapped by the sources file before, too: intake had not "
        "committed it when the file was changed"
        for n in range(30, 40)
    ]


def test_what_routers_wrote_down_tells_how_long_labels_waited(logs: Logs, tmp_path: Path) -> None:
    logs.verdict("early", 200)
    logs.score("early", 5000)
    logs.intake("verdicts", since=31)
    logs.intake("scores", since=42)
    for n in range(PARTITIONS):
        logs.written[OUTCOMES, n].clear()
    logs.route()
    logs.settings = logs.under(tmp_path, FILE.replace('early_ttl = "1d"', 'early_ttl = "1s"'))
    sent, differences = logs.routed()
    assert (differences, sent.outcomes) == ([], 31)
    assert logs.derived == logs.rows
    logs.policies = dict.fromkeys(logs.policies, logs.settings.router.policies)
    (difference,) = logs.routed()[1]
    assert difference.what == "nothing in routes and labels leads to this outcome", "the label is to leave earlier"


def test_in_another_partition_than_its_keys_a_record_is_named(logs: Logs) -> None:
    n, i = logs.find(2, '"e5"')
    moved = logs.written[2, n].pop(i)
    logs.write(2, 1 - n, moved.key, moved.value, moved.timestamp)
    _, (difference,) = logs.followed()
    assert (difference.topic, difference.partition) == ("labels", 1 - n)
    assert difference.fields == {"partition": (1 - n, n)}


def test_what_no_source_leads_to_is_named(logs: Logs) -> None:
    logs.write(0, 1, b"model-a", orjson.dumps({"event_id": "x", "stream": "model-a", "p": 0.5}), START)
    n, i = logs.find(1, '"e9"')
    one = logs.written[1, n][i]
    logs.write(1, n, one.key, one.value.replace(b'/0",9]', b'/0",900]'), one.timestamp)
    _, differences = logs.followed()
    assert sorted(each.what for each in differences) == [
        "a record that intake did not write: it names no source",
        "made of scores/0@900, which is not there: the source has no such record",
    ]


def test_what_retention_took_is_not_there_any_more_and_never_clean(logs: Logs) -> None:
    logs.cut = {"scores": 10}
    checked, differences = logs.followed()
    assert (differences, checked.gone, checked.records) == ([], 10, 63)
    logs.first = {(2, 1): 3}
    with pytest.raises(Unauditable, match=r"deleted by retention \(\S*labels/1 begins at offset 3\)"):
        logs.plan().require_kept()
    logs.begun = AuditProgress(written={"labels/1": 3})
    logs.plan().require_kept()


def test_what_nobody_wrote_down_how_it_was_mapped_is_not_judged(logs: Logs) -> None:
    logs.mapped["verdicts", 0] = [(5, "first")]
    with pytest.raises(Unauditable, match=r"-configurations does not say by which sources intake mapped verdicts/0@0"):
        logs.followed()


def test_an_audit_goes_on_where_the_last_one_stopped(logs: Logs, tmp_path: Path) -> None:
    logs.committed = {"scores": 30, "verdicts": 20}
    checked, differences = logs.followed()
    assert (differences, checked.records, checked.waiting) == ([], 50, 23)
    what = {"application": "trueup", "partitions": PARTITIONS}
    checkpoint.write_begun(tmp_path, what, logs.left)
    logs.begun = checkpoint.read_begun(tmp_path, what)
    assert logs.begun == logs.left
    # What was judged may be deleted now, of the sources and of what was made of them.
    logs.cut = {"scores": 25, "verdicts": 20}
    logs.first = {(label, n): len(logs.written[label, n]) for label in range(3) for n in range(PARTITIONS)}
    logs.committed = {}
    again, differences = logs.followed()
    assert (differences, again.records, again.waiting, again.gone, again.copies) == ([], 23, 0, 0, 0)
    logs.intake("scores", since=28)
    again, differences = logs.followed()
    assert (differences, again.gone, again.copies) == ([], 0, 12 * 2 + 1)
    n, i = logs.find(0, '"e29"')
    one = logs.written[0, n][i]
    logs.write(0, n, one.key, one.value.replace(b"0.725", b"0.5"), one.timestamp)
    assert [each.event_id for each in logs.followed()[1]] == ["e29"]
    del logs.begun.left[-1]
    assert "lost" in logs.followed()[1][-1].what


def test_what_was_left_out_is_kept_until_the_next_audit_begins_behind_it() -> None:
    settings, left = Settings(), AuditProgress(sources={"scores/0": 7}, routers={1: RowsFile(Path(), (5, 3))})
    routes, labels = settings.routes, settings.labels
    kept = [("scores", 0, 7), ("scores", 1, 0), (routes, 1, 5), (labels, 1, 3), (labels, 0, 0)]
    judged = [("scores", 0, 6), (routes, 1, 4), (labels, 1, 2)]
    assert [place for place in kept + judged if not follower.is_judged(settings, left, *place)] == kept


def test_a_source_that_was_made_anew_is_not_judged(logs: Logs) -> None:
    for n in range(PARTITIONS):
        for each in logs.written[2, n]:
            each.value = each.value.replace(b"@1f/", b"@5d/")
    logs.sources["verdicts"] = []
    checked, differences = logs.followed()
    assert (differences, checked.unread) == ([], 30)


def test_dead_letters_of_a_clock_that_ran_behind_are_told_apart(logs: Logs) -> None:
    logs.score("late", 60)
    plan = logs.plan()
    intake = Maker(plan.settings)
    intake.know(dict.fromkeys(MADE, PARTITIONS), plan.ids)
    making = intake.make([(TopicPartition("scores", 0), logs.sources["scores"][-1])], START - DAY)
    for one in mapper.made(making):
        logs.write(one.label, one.partition, one.key, one.value, START)
    checked, differences = logs.followed()
    assert (differences, checked.of_the_moment, checked.dead) == ([], 1, 2)


def test_what_an_intake_sent_before_it_knew_of_a_skip_is_counted_and_all_else_is_a_difference(logs: Logs) -> None:
    plain = logs.sources["scores"][9]
    left = record(9, plain.timestamp, Skipped.of(9, 9, len(plain.value), skips.why(9, "a defect")), topic="scores")
    intake = Maker(logs.settings)
    intake.know(dict.fromkeys(MADE, PARTITIONS), logs.plan().ids)
    (letter,) = mapper.made(intake.make([(TopicPartition("scores", 0), left)], START))
    logs.write(letter.label, letter.partition, letter.key, letter.value, START)
    logs.stands["scores"] = {9: left}
    checked, differences = logs.followed()
    assert (differences, checked.unaware, checked.dead) == ([], 2, 2)
    n, i = logs.find(0, '"e9"')
    logs.written[0, n][i].value = logs.written[0, n][i].value.replace(b"0.225", b"0.226")
    checked, (difference,) = logs.followed()
    assert difference.what == "the sources file makes no such record of scores/0@9, which becomes dead-letters"
    assert checked.unaware == 1


def test_a_record_that_ends_every_router_waits_until_it_is_left_out(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RouteDecoder.events

    def events(self: RouteDecoder, batch: Any) -> Any:
        if any(each.key == b"poison" for _, each in batch):
            raise TypeError("a defect")
        return read(self, batch)

    monkeypatch.setattr(RouteDecoder, "events", events)
    logs.write(2, 0, b"poison", logs.written[2, 0][0].value, START + DAY)
    checked, differences = logs.routed()
    assert (differences, checked.waiting) == ([], 1)


def test_brokers_may_give_records_a_time_of_their_own(logs: Logs) -> None:
    for log in logs.written.values():
        for each in log:
            each.timestamp += 77
    assert logs.followed()[0].differences > 0
    logs.stamped = frozenset()
    assert logs.followed()[1] == []


# -- the router ------------------------------------------------------------------------------------------------------


def test_an_outcome_that_is_missing_is_named_with_the_label_that_leads_to_it(logs: Logs) -> None:
    n, i = logs.find(OUTCOMES, '"e7"')
    del logs.written[OUTCOMES, n][i]
    _, (difference,) = logs.routed()
    assert (difference.topic, difference.partition, difference.event_id) == ("outcomes", n, "e7 (model-b)")
    router = partitioner.partition(b"e7", PARTITIONS)
    label = logs.served(2, router, logs.find(2, '"e7"')[1])
    assert difference.what == f"lost: the outcome that labels/{router}@{label.offset} leads to is missing"
    assert logs.routed(upto=0)[1] == [], "what is in no entry yet may still be on its way"


def test_an_outcome_with_another_label_or_in_another_partition_is_named(logs: Logs) -> None:
    n, i = logs.find(OUTCOMES, '"e7"')
    one = logs.written[OUTCOMES, n][i]
    one.value = one.value.replace(b'"y":1.0', b'"y":0.0')
    _, (difference,) = logs.routed()
    assert (difference.partition, difference.offset) == (n, one.offset)
    assert difference.what == "not the outcome that the router makes of the event's labels"
    assert difference.fields == {"y": (0.0, 1.0)}
    one.value = one.value.replace(b'"y":0.0', b'"y":1.0')
    del logs.written[OUTCOMES, n][i]
    logs.write(OUTCOMES, 1 - n, one.key, one.value, one.timestamp)
    _, (difference,) = logs.routed()
    assert difference.what == "sent to another partition than that of its stream"
    assert difference.fields == {"partition": (1 - n, n)}


def test_an_outcome_without_a_label_is_named_and_copies_are_counted(logs: Logs) -> None:
    n, i = logs.find(OUTCOMES, '"e7"')
    one = logs.written[OUTCOMES, n][i]
    logs.write(OUTCOMES, n, one.key, one.value, one.timestamp)
    sent, differences = logs.routed()
    assert (differences, sent.copies, sent.outcomes) == ([], 1, 30)
    logs.write(OUTCOMES, n, one.key, one.value.replace(b'"e7"', b'"e4"'), one.timestamp)
    _, (difference,) = logs.routed()
    assert (difference.what, difference.event_id) == (
        "nothing in routes and labels leads to this outcome",
        "e4 (model-b)",
    )


def test_a_copy_that_comes_long_afterwards_is_known_by_the_row_of_its_event(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_verifier, "WINDOW", 3)
    n, i = logs.find(OUTCOMES, '"e1"')
    one = logs.written[OUTCOMES, n][i]
    logs.write(OUTCOMES, n, one.key, one.value, one.timestamp)
    sent, differences = logs.routed()
    assert (differences, sent.copies, sent.outcomes) == ([], 1, 30)


def test_a_dead_letter_of_the_router_that_is_altered_or_lost_is_named(logs: Logs) -> None:
    offset = len(logs.written[2, 1])
    logs.write(2, 1, b"card", b"junk", START + 10_000)
    for n in range(PARTITIONS):
        logs.written[OUTCOMES, n].clear()
    logs.route()

    def complaints() -> list[str]:
        return [each.what for each in logs.routed()[1] if each.topic == "dead-letters"]

    assert (logs.routed()[0].dead_letters, complaints()) == (1, [])
    (letter,) = [each for each in logs.written[LETTERS, 1] if b'"topic":"trueup-labels"' in each.value]
    letter.value = letter.value.replace(b'"reason":"', b'"reason":"other_')
    assert complaints() == [f"not the dead letter that the router makes of labels/1@{offset}"]
    logs.written[LETTERS, 1].remove(letter)
    assert complaints() == [f"the dead letter of labels/1@{offset} is missing"]


def changing(directory: Path, *, labels_last: bool) -> Logs:
    """Return logs of events whose labels come early, change and come again."""
    logs = Logs(directory)
    for i in range(30):
        logs.verdict(f"e{i}", i, "bad")
        if i % 3:
            logs.verdict(f"e{i}", 5 + i, "good")
        logs.score(f"e{i}", 20 + i)
        logs.verdict(f"e{i}", 60 + i, "bad")
    logs.sources["verdicts"].sort(key=lambda each: each.timestamp)
    for offset, each in enumerate(logs.sources["verdicts"]):
        each.offset = offset
    logs.intake()
    logs.route(labels_last=labels_last)
    return logs


@pytest.mark.parametrize("labels_last", [False, True])
def test_any_order_of_an_events_own_records_is_right(tmp_path: Path, *, labels_last: bool) -> None:
    logs = changing(tmp_path, labels_last=labels_last)
    assert logs.followed()[1] == []
    sent, differences = logs.routed()
    assert differences == []
    assert sent.outcomes == sum(len(logs.written[OUTCOMES, n]) for n in range(PARTITIONS))
    n, i = logs.find(OUTCOMES, '"e7","scope":"model-a","y":1.0,"ts":1700000000067')
    del logs.written[OUTCOMES, n][i]
    _, differences = logs.routed()
    assert [each.event_id for each in differences] == ["e7 (model-a)"]


def test_an_outcome_whose_event_has_left_is_missed_too(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.score("old", 0)
    logs.verdict("old", 10)
    for i in range(9):
        logs.score(f"e{i}", 2 * DAY + i)
    logs.intake()
    logs.route()
    sent, differences = logs.routed()
    assert (differences, sent.outcomes) == ([], 1)
    n, i = logs.find(OUTCOMES, '"old"')
    del logs.written[OUTCOMES, n][i]
    (difference,) = logs.routed()[1]
    assert "lost: the outcome that labels/" in difference.what


def test_a_gap_in_a_routers_journal_is_no_agreement_and_what_is_before_is_judged(logs: Logs) -> None:
    n, i = logs.find(OUTCOMES, '"e1"')
    router = partitioner.partition(b"e1", PARTITIONS)
    del logs.journal[router][-2]
    sent, differences = logs.routed()
    assert (differences, len(logs.unable)) == ([], 1)
    assert f"journal/{router} goes on at offsets" in logs.unable[0]
    assert sent.differences == 0
    del logs.written[OUTCOMES, n][i]
    assert [each.event_id for each in logs.routed()[1]] == ["e1 (model-b)"]


@pytest.fixture
def moved(tmp_path: Path) -> Logs:
    """Return logs of a group that was moved when its forecasts had come; its labels came then, most of them later."""
    made = Logs(tmp_path)
    for i in range(40):
        made.score(f"e{i}", i, 25 * i, "ab"[i % 2])
    for i in range(0, 40, 4):
        made.verdict(f"e{i}", 0)
    made.intake()
    made.route(labels_last=True)
    assert made.routed()[1] == []
    assert made.derived == made.rows
    width = moves.plan(moves.EVENT, PARTITIONS, [(0, 0)] * PARTITIONS, lambda _: 1, grown=False, routed=())
    given = rescaled_routes([dict(sorted(made.rows[n].items())) for n in range(PARTITIONS)], width)
    later = Logs(tmp_path)
    later.given = dict(enumerate(given))
    later.begun = AuditProgress(
        routers={n: checkpoint.write_rows(tmp_path, checkpoint.BEGAN, n, Memory(part)) for n, part in enumerate(given)}
    )
    later.sources["verdicts"] += made.sources["verdicts"]
    for i in range(40):
        later.verdict(f"e{i}", 1000 + i, "bad" if i % 3 else "good")
    later.intake("verdicts", since=len(made.sources["verdicts"]))
    later.route()
    return later


def test_the_router_of_a_group_that_was_moved_goes_on_with_what_was_known(moved: Logs, tmp_path: Path) -> None:
    sent, differences = moved.routed(tmp_path)
    assert differences == []
    assert sent.outcomes == sum(len(moved.written[OUTCOMES, n]) for n in range(PARTITIONS)) >= 30
    assert (sent.labels, sent.routes) == (40, 0)


def test_an_outcome_that_is_lost_or_altered_behind_a_move_is_named(moved: Logs, tmp_path: Path) -> None:
    n, i = moved.find(OUTCOMES, '"e7"')
    del moved.written[OUTCOMES, n][i]
    m, j = moved.find(OUTCOMES, '"e22"')
    altered = moved.written[OUTCOMES, m][j]
    altered.value = altered.value.replace(b'"y":1.0', b'"y":0.0')
    _, differences = moved.routed(tmp_path)
    found = {str(each.event_id): each.what for each in differences}
    assert set(found) == {"e7 (model-b)", "e22 (model-a)"}
    assert "lost: the outcome that labels/" in found["e7 (model-b)"]
    assert "not the outcome that the router makes" in found["e22 (model-a)"]


@pytest.mark.parametrize("labels_last", [False, True])
@pytest.mark.parametrize("cut", [0, 3, 7, 11, 90])
def test_an_audit_of_the_router_goes_on_where_the_last_one_stopped(
    tmp_path: Path, *, labels_last: bool, cut: int
) -> None:
    logs = changing(tmp_path, labels_last=labels_last)
    whole, differences = logs.routed()
    assert differences == []
    parts = []
    for upto in (cut // 2, cut):
        part, differences = logs.routed(tmp_path, upto)
        assert differences == []
        parts.append(part)
    logs.first = {(label, n): len(logs.written[label, n]) for label in (1, 2, OUTCOMES) for n in range(PARTITIONS)}
    part, differences = logs.routed(tmp_path)
    assert differences == []
    parts.append(part)
    assert sum(each.labels for each in parts) == whole.labels
    assert sum(each.routes for each in parts) == whole.routes
    assert sum(each.outcomes for each in parts) == whole.outcomes
    assert {key[:1] for key, _ in logs.begun.left} == {b"C"}, "copies may come"
    # What was sent last comes again: the router was killed before its checkpoint.
    n = max(range(PARTITIONS), key=lambda n: len(logs.written[OUTCOMES, n]))
    last = logs.written[OUTCOMES, n][-1]
    logs.write(OUTCOMES, n, last.key, last.value, last.timestamp)
    sent, differences = logs.routed(tmp_path)
    assert (differences, sent.outcomes, sent.copies) == ([], 0, 1), "all is judged"


def test_what_is_lost_after_an_audit_is_named_by_the_next(logs: Logs, tmp_path: Path) -> None:
    logs.routed(tmp_path, 1)
    before = logs.begun
    n, i = logs.find(OUTCOMES, '"e39"')
    left = [each for each in before.left if b"e39" in each[1]]
    before.left = [each for each in before.left if each not in left]
    assert left, "its label was not committed"
    _, (difference,) = logs.routed(tmp_path)
    assert (difference.event_id, difference.topic) == ("e39 (model-b)", "outcomes")
    logs.begun = before
    before.left += left
    one = logs.written[OUTCOMES, n][i]
    logs.write(OUTCOMES, n, one.key, one.value.replace(b'"y":0.0', b'"y":1.0'), one.timestamp)
    _, (difference,) = logs.routed(tmp_path)
    assert difference.what == "not the outcome that the router makes of the event's labels"


def test_rows_of_an_earlier_audit_that_are_damaged_are_refused(logs: Logs, tmp_path: Path) -> None:
    logs.routed(tmp_path)
    (path,) = tmp_path.glob("router-0-*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unauditable, match="is damaged"):
        logs.routed(tmp_path)
    checkpoint.tidy(tmp_path, AuditProgress())
    assert list(tmp_path.glob("router-*")) == []
