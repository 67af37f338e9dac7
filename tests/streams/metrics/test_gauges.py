"""What Prometheus reads: counters count once, and views of sums add up over partitions and streams."""

import math
from collections import defaultdict
from time import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from state import kinds
from state.bands import Bands
from state.effects import Effects
from state.engine import Partition
from state.events import ERASE, Event, Forecast, Outcome, Rejected
from state.fence import FORECASTS, OUTCOMES, Fence, QueueBounds
from state.forecasts import ForecastValue, Normal, Probs
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring import history, vector_history
from state.scoring.ages import DAY_MS
from state.scoring.windows import KINDS
from streams.metrics.catalogue import CATALOGUE, PREFIX
from streams.metrics.description import CELLS
from streams.metrics.gauges import HIDDEN, INPUTS, RECORD_FATES, Gauges
from streams.metrics.slots import REVIEW_SECONDS
from streams.metrics.snapshot import PartitionSnapshot, read
from streams.metrics.stage import Sampler, by_topic
from streams.records.decoding import REASONS
from tests.exposed import exposed
from tests.holding import holding
from tests.streams.metrics.live import Live

pytestmark = pytest.mark.usefixtures("no_warm_up")

#: What a ready topology samples, one value for each metric that is not in the state.
SAMPLES = [
    ("ready", (), 1.0),
    ("registry_waiting_seconds", (), 0.0),
    ("failed_logins", (), 0.0),
    ("written_maps", (), 0.0),
    ("map_failures", (), 0.0),
    ("maps_age_seconds", (), 0.0),
    ("lost_records", ("forecasts",), 0.0),
    ("lost_records", ("outcomes",), 0.0),
    ("raw_answers", (), 0.0),
    ("unlike_outputs", (), 0.0),
    ("uncarried", ("header",), 0.0),
    ("recovery_remaining_records", (), 5.0),
    ("recovery_restored_rows", (), 0.0),
    ("recovery_seconds", (), 2.5),
    ("recovery_left_seconds", (), 1.5),
    ("standby_partitions", (), 1.0),
    ("standby_missing_partitions", (), 0.0),
    ("standby_lag_records", ("1",), 4.0),
    ("standby_rows", (), 0.0),
    ("set_aside", ("damaged",), 0.0),
    ("disk_free_ratio", (), 0.5),
    ("memory_free_ratio", (), 0.5),
    ("held_back_records", ("forecasts", "0"), 7.0),
    ("held_back_seconds", ("forecasts", "0"), 80.0),
    ("lag_records", ("forecasts", "0"), 3.0),
    ("buffered_records", ("outcomes", "0"), 2.0),
    ("buffered_bytes", ("outcomes", "0"), 20.0),
    ("fetch_paused", ("outcomes", "0"), 0.0),
    ("state_rows", ("0",), 7.0),
    ("state_bytes", ("0",), 900.0),
]
#: Labels the client library adds to a metric's own.
ADDED = {"histogram": {"le"}}


def pairs(n: int, stream: str = "s", start: int = 0, x: tuple[float, ...] = ()) -> list[Event]:
    """Return ``n`` forecasts and their outcomes."""
    events: list[Event] = []
    for i in range(start, start + n):
        events.append(Forecast(i, None, f"{stream}-{i}", stream, i % 11 / 10, x, 1000 + i))
        events.append(Outcome(i, None, f"{stream}-{i}", float(i % 3 == 0), 61_000 + i))
    return events


def vectors(n: int) -> list[Event]:
    """Return ``n`` forecasts of a number and ``n`` of classes, and their outcomes."""
    events: list[Event] = []
    for i in range(n):
        events.append(Forecast(1000 + 2 * i, None, f"n-{i}", "numbers", Normal(0.0, 1.0), (), 1000 + i))
        events.append(Outcome(1000 + 2 * i, None, f"n-{i}", float(i % 5 - 2), 61_000 + i))
        events.append(Forecast(1001 + 2 * i, None, f"c-{i}", "classes", Probs((0.5, 0.25, 0.25)), (), 1000 + i))
        events.append(Outcome(1001 + 2 * i, None, f"c-{i}", float(i % 3), 61_000 + i))
    return events


def made(most_streams: int = 200, sampler: Sampler = lambda: SAMPLES) -> Gauges:
    return Gauges(most_streams, "9.9", sampler, Policies(default=Policy()))


def value(gauges: Gauges, name: str, **labels: str) -> float | None:
    return of(samples(gauges), name, **labels)


def of(found: dict[str, dict[tuple[tuple[str, str], ...], float]], name: str, **labels: str) -> float | None:
    """Return one value of what a scrape shows."""
    return found.get(PREFIX + name, {}).get(tuple(sorted(labels.items())))


def samples(gauges: Gauges) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what a scrape shows, by name and labels, read by Prometheus's own parser."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(exposed(gauges)):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found[sample.name], "a series is exported twice"
            found[sample.name][labels] = sample.value
    return found


# -- the catalogue -------------------------------------------------------------------------------------------------


def every_kind_of_stream() -> tuple[Policies, list[Event]]:
    """Return streams that have all there is between them, and events of twenty days of each."""
    bands, half = Bands(("", "review"), (0.0, 0.5)), (Challenger("histogram", {}),)
    rich = Policy(
        segments=("country",), bands=bands, cost_miss=2.0, cost_alert=1.0, weight="amount", interval=0.9, shadow=half,
        entity="account", alarms_since_ms=DAY_MS,
    )  # fmt: skip
    policies = {
        "rich": rich,
        "versions": Policy(model_version="v"),
        "bounded": Policy("calibrated_regression", features=1),
        "counts": Policy("minimax"),
        "frozen": Policy(frozen=True),
        "numbers": Policy("quantile"),
        "classes": Policy("multiclass"),
    }
    vector: dict[str, ForecastValue] = {"numbers": Normal(0.0, 1.0), "classes": Probs((0.5, 0.25, 0.25))}
    events: list[Event] = []
    for i in range(20 * 110):
        ts, late = i * DAY_MS // 110, (i + 40 * (i % 2)) * DAY_MS // 110
        for n, stream in enumerate(policies if i % 5 == 0 else ["rich"]):
            raw = vector.get(stream, i % 11 / 10)
            x = (0.5,) if stream == "bounded" else ()
            named = ("DE", "FR")[i % 2 : i % 2 + 1] if stream == "rich" else ()
            version = "7" if stream == "versions" else ""
            forecast = Forecast(9 * i + n, None, f"{stream}-{i}", stream, raw, x, ts)
            events.append(forecast._replace(segments=named, entity=i // 5, version=version))
            events.append(Outcome(9 * i + n, None, f"{stream}-{i}", float(i % 2), late + 1))
    return Policies(list(policies.items())), events


def test_everything_exported_is_in_the_catalogue_and_everything_in_it_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "WINDOW", 20)
    monkeypatch.setattr(vector_history, "WINDOW", 10)
    gauges = made()
    policies, events = every_kind_of_stream()
    Live(gauges, policies=policies).fold(0, events)
    exported = {}
    for family in text_string_to_metric_families(exposed(gauges)):
        assert family.samples, f"{family.name}: its place is empty here; a line of FIGURES needs its kinds in `gauges`"
        labels = {frozenset(sample.labels) - ADDED.get(family.type, set()) for sample in family.samples}
        exported[family.name] = (family.type, family.documentation, labels)
    assert exported == {
        PREFIX + name: (metric.kind, metric.help, {frozenset(metric.labels)}) for name, metric in CATALOGUE.items()
    }


def test_scores_of_classes_and_numbers_add_up_over_partitions_and_survive_a_restart() -> None:
    gauges = made()
    live = Live(gauges)
    effects = [live.fold(partition, vectors(30)) for partition in (0, 1)]
    assert value(gauges, "resolved_vectors", stream="numbers") == 60
    assert value(gauges, "accuracy", stream="classes", kind="raw") == pytest.approx(1 / 3)
    again = made()
    again.assigned(0, holding({key: row for rows in effects[0].of_streams.values() for key, row in rows.items()}))
    assert value(again, "resolved_vectors", stream="classes") == 30
    for name, stream in (("coverage_error", "numbers"), ("classwise_ece", "classes")):
        for kind in ("raw", "calibrated"):
            shown = value(gauges, name, stream=stream, kind=kind)
            assert shown == pytest.approx(value(again, name, stream=stream, kind=kind))


def test_an_outcome_of_an_earlier_configuration_leaves_the_scores_that_are_shown() -> None:
    stored: dict[bytes, bytes] = {}
    before, now = (Policies([("classes", Policy("multiclass", {"each": each}))]) for each in ("platt", "histogram"))
    snapshot = PartitionSnapshot(Fence())

    def fold(partition: Partition, event: Event) -> None:
        effects = partition.fold([event])
        stored.update({key: row for key, row in effects.rows.items() if row is not None})
        snapshot.applied(effects, now, lambda _: True)

    raw = Probs((0.2, 0.3, 0.5))
    fold(Partition(before, stored.get), Forecast(0, b"k", "old", "classes", raw, (), 1000))
    partition = Partition(now, stored.get)
    fold(partition, Forecast(1, b"k", "new", "classes", raw, (), 1001))
    fold(partition, Outcome(0, b"k", "new", 2.0, 1002))
    fold(partition, Outcome(1, b"k", "old", 0.0, 1003))
    assert snapshot.rows == read(stored.get, now, ["classes"], Fence()).rows


@pytest.mark.parametrize("segments", [(), ("country",)])
def test_bands_intervals_and_weights_are_shown_again_after_a_restart(segments: tuple[str, ...]) -> None:
    policies = Policies(
        [("s", Policy(bands=Bands(("", "high"), (0.0, 0.5)), interval=0.9, weight="amount", segments=segments))]
    )
    stored: dict[bytes, bytes] = {}
    snapshot, partition = PartitionSnapshot(Fence()), Partition(policies, stored.get)
    values = ("DE",)[: len(segments)]
    effects = partition.fold([Forecast(0, b"k", "e", "s", 0.3, (), 1000, segments=values, weight=2.0)])
    stored.update({key: row for key, row in effects.rows.items() if row is not None})
    snapshot.applied(effects, policies, lambda _: True)
    assert read(stored.get, policies, ["s"], Fence()).rows == snapshot.rows
    letters = {key[:1] for key in snapshot.rows["s"]}
    assert {kinds.BAND_COUNTS.letter, kinds.EVIDENCE.letter} < letters


def test_rows_that_leave_bring_no_stream_to_light_that_is_not_shown() -> None:
    snapshot = PartitionSnapshot(Fence())
    rows = {kinds.FENCE.key(): Fence().encode(), kinds.CALIBRATOR.key("hidden", "00000001"): None}
    snapshot.applied(Effects(rows), Policies(default=Policy()), lambda _: False)
    assert snapshot.streams() == []


def test_nothing_says_only_when_a_counter_was_made() -> None:
    assert not any(name.endswith("_created") for name in samples(made()))


def test_every_counter_of_records_starts_at_zero() -> None:
    found = samples(made())
    assert set(found["trueup_records_total"]) == {
        (("fate", fate), ("topic", topic)) for topic, fate in by_topic(RECORD_FATES)
    }
    assert set(found["trueup_dead_letters_total"]) == {
        (("reason", reason), ("topic", topic)) for topic in INPUTS for reason in REASONS
    }
    assert {labels[0][1] for labels in found["trueup_redelivered_records_total"]} == set(INPUTS)
    assert {labels[0][1] for labels in found["trueup_expired_total"]} == {"forecast", "outcome"}
    assert {labels[0][1] for labels in found["trueup_outputs_total"]} == {"calibrated", "resolved", "dead-letters"}
    counters = [each for name, each in found.items() if name.endswith(("_total", "_count", "_sum", "_bucket"))]
    assert {value for each in counters for value in each.values()} == {0.0}


# -- counting ------------------------------------------------------------------------------------------------------


def test_each_fate_is_counted_once() -> None:
    gauges = made()
    live = Live(gauges)
    live.fold(
        0,
        [
            Forecast(0, None, "a", "s", 0.5, (), 1000),
            Forecast(1, None, "a", "s", 0.5, (), 1000),
            Rejected(2, None, b"", FORECASTS, "empty"),
            Outcome(0, None, "a", 1.0, 4000),
            Outcome(1, None, "a", 1.0, 4000),
            Outcome(2, None, "a", 0.0, 4000),
            Outcome(3, None, "a", 1.0, 3999),
            Outcome(4, None, "b", 0.0, 4000),
            Rejected(5, None, b"", OUTCOMES, "label"),
            Outcome(6, None, "c", ERASE, 4000),
        ],
    )
    counted = {
        (topic, fate): value(gauges, "records_total", topic=topic, fate=fate) for topic, fate in by_topic(RECORD_FATES)
    }
    assert counted.pop(("outcomes", "waiting")) == 0.0
    assert set(counted.values()) == {1.0}
    assert value(gauges, "dead_letters_total", topic="forecasts", reason="empty") == 1
    assert value(gauges, "dead_letters_total", topic="outcomes", reason="label") == 1
    assert sum(samples(gauges)["trueup_dead_letters_total"].values()) == 2
    assert (value(gauges, "early_outcomes"), value(gauges, "pending_events")) == (1, 0)
    assert (value(gauges, "label_delay_seconds_count"), value(gauges, "label_delay_seconds_sum")) == (1, 3.0)


def test_events_that_taught_nothing_are_counted_by_stream_from_zero_where_they_may_come() -> None:
    gauges = made()
    gauges._policies = Policies([("accounts", Policy(entity="account"))], Policy())
    held = PartitionSnapshot(Fence(), {"accounts": {}, "s": {}})
    gauges.assigned(0, held)
    assert value(gauges, "untaught_events_total", stream="accounts") == 0
    assert [dict(labels)["stream"] for labels in samples(gauges)["trueup_untaught_events_total"]] == ["accounts"]
    gauges.applied(0, Effects(untaught={"accounts": 2, "s": 5}), Fence())
    assert value(gauges, "untaught_events_total", stream="accounts") == 2
    assert value(gauges, "untaught_events_total", stream="s") == 5


def test_records_that_are_folded_again_after_a_crash_count_only_as_such() -> None:
    gauges = made()
    live = Live(gauges)
    live.fold(0, pairs(5))
    before = samples(gauges)
    gauges.again(0, [FORECASTS, OUTCOMES] * 5, live.gauges.held()[0].fence)
    after = samples(gauges)
    assert value(gauges, "redelivered_records_total", topic="forecasts") == 5
    assert value(gauges, "redelivered_records_total", topic="outcomes") == 5
    for name in ("trueup_redelivered_records_total", "trueup_last_update_timestamp_seconds"):
        del before[name], after[name]
    assert after == before


def test_what_expired_before_its_time_is_counted() -> None:
    gauges = made()
    live = Live(gauges)
    assert value(gauges, "expired_early_total") == 0
    past, future = 1000, int(time() * 1000) + 60 * 86_400_000
    for i, (start, late) in enumerate([(past, past + 40 * 86_400_000), (future - 40 * 86_400_000, future)]):
        for n, ts in enumerate([start] * 3 + [late] * 6):  # the first three are due ten days before the others
            live.fold(0, [Forecast(9 * i + n, None, f"e{i}-{n}", "s", 0.5, (), ts)])
    assert value(gauges, "expired_total", kind="forecast") == 9 + 3
    assert value(gauges, "expired_early_total") == 3


def test_expired_rows_are_counted() -> None:
    gauges = made()
    live = Live(gauges)
    late = 40 * 86_400_000
    live.fold(0, [Forecast(0, None, "a", "s", 0.5, (), 1), Outcome(0, None, "b", 1.0, 1)])
    for start in (1, 601):
        live.fold(0, [Forecast(i, None, f"n{i}", "s", 0.5, (), late) for i in range(start, start + 600)])
    assert value(gauges, "expired_total", kind="forecast") == 1
    assert value(gauges, "expired_total", kind="outcome") == 1
    assert (value(gauges, "pending_events"), value(gauges, "early_outcomes")) == (1200, 0)


def test_outputs_and_batches_are_counted() -> None:
    gauges = made()
    gauges.produced("calibrated", 3)
    gauges.produced("calibrated", 4)
    gauges.batch(10, 0.02)
    gauges.batch(30, 0.5)
    assert value(gauges, "outputs_total", topic="calibrated") == 7
    assert (value(gauges, "batch_records_count"), value(gauges, "batch_records_sum")) == (2, 40)
    assert (value(gauges, "batch_seconds_count"), value(gauges, "batch_seconds_sum")) == (2, 0.52)


def test_stages_and_waits_are_counted() -> None:
    gauges = made()
    gauges.stage(3, 0.02)
    assert value(gauges, "stage_seconds_sum", stage="journal") == 0.02
    assert value(gauges, "stage_seconds_count", stage="fold") == 0
    now = int(time() * 1000)
    # Of the newest, the clock that stamped it runs ahead; the second is an hour old.
    gauges.waited([now + 5000, now - 3_600_000, now - 20_000])
    buckets = {edge: value(gauges, "forecast_latency_seconds_bucket", le=edge) for edge in ("0.005", "30.0", "1800.0")}
    assert buckets == {"0.005": 1, "30.0": 2, "1800.0": 2}
    assert value(gauges, "forecast_latency_seconds_bucket", le="+Inf") == 3
    assert value(gauges, "forecast_latency_seconds_count") == 3
    assert value(gauges, "forecast_latency_seconds_sum") == pytest.approx(3620, abs=60)


def test_partitions_are_counted_when_they_are_taken_up() -> None:
    gauges = made()
    for partition in (0, 1, 0):
        gauges.assigned(partition, PartitionSnapshot(Fence()))
    assert (value(gauges, "held_partitions"), value(gauges, "opened_partitions_total")) == (2, 3)
    gauges.revoked(0)
    assert (value(gauges, "held_partitions"), value(gauges, "opened_partitions_total")) == (1, 3)


# -- views of sums -------------------------------------------------------------------------------------------------


def test_streams_without_a_slot_are_counted_together_under_no_name() -> None:
    gauges = made(most_streams=3)
    live = Live(gauges)
    for partition, (stream, n) in enumerate({"a": 4, "b": 5, "other": 8, "c": 6, "d": 7}.items()):
        live.fold(partition, pairs(n, stream))
    for name in ("scored_events_total", "answered_forecasts_total"):
        assert value(gauges, name, stream=HIDDEN) == 6 + 7
        assert value(gauges, name, stream="other") == 8
    assert value(gauges, "hidden_streams") == 2
    assert {dict(labels)["stream"] for labels in samples(gauges)["trueup_resolved"]} == {"a", "b", "other"}


def test_a_stream_that_the_configuration_names_has_series_whatever_names_came_before_it() -> None:
    gauges = Gauges(2, "9.9", lambda: (), Policies([("fraud", Policy()), ("c-*", Policy())], Policy()))
    live = Live(gauges)
    for i in range(20):
        live.fold(0, pairs(1, f"c-{i}", 2 * i))
    live.fold(0, pairs(3, "fraud", 100))
    assert value(gauges, "resolved", stream="fraud") == 3
    assert {dict(labels)["stream"] for labels in samples(gauges)["trueup_resolved"]} == {"fraud", "c-0"}
    assert value(gauges, "hidden_streams") == 19


def test_a_hidden_stream_that_is_active_takes_the_series_of_one_that_is_not() -> None:
    now = 0.0
    gauges = Gauges(2, "9.9", lambda: (), Policies(default=Policy()), lambda: now)
    live = Live(gauges)
    live.fold(0, [*pairs(1, "junk", 0), *pairs(5, "busy", 10)])
    live.fold(0, pairs(8, "late", 20))
    assert value(gauges, "resolved", stream="late") is None
    now = REVIEW_SECONDS
    live.fold(0, [*pairs(10, "late", 100), *pairs(9, "busy", 200)])
    assert gauges.gained() == ["late"]
    assert gauges.gained() == []
    gauges.restored(0, live.stored(0, "late"))
    assert value(gauges, "resolved", stream="late") == 18
    assert value(gauges, "scored_events_total", stream="late") == 0
    assert value(gauges, "resolved", stream="junk") is None
    assert value(gauges, "resolved", stream="busy") == 14
    assert value(gauges, "hidden_streams") == 1
    assert gauges.slots.hidden_streams == {"junk"}


def test_rows_are_held_of_the_streams_that_are_shown_and_of_no_other() -> None:
    gauges = made(most_streams=3)
    live = Live(gauges)
    for i in range(50):
        live.fold(0, pairs(2, f"stream-{i}", 2 * i))
    held = gauges._held[0]
    assert set(held.rows) == {"stream-0", "stream-1", "stream-2"}
    assert {dict(labels)["stream"] for labels in samples(gauges)["trueup_scored_events_total"]} == {
        "",
        "stream-0",
        "stream-1",
        "stream-2",
    }


@pytest.mark.parametrize("stream", ['"', "\\", 'a"b\\c', "é漢🂡", "{x}", " "])
def test_any_name_of_a_stream_is_exported_so_that_it_parses(stream: str) -> None:
    gauges = made()
    Live(gauges).fold(0, pairs(3, stream))
    assert samples(gauges)["trueup_resolved"] == {(("stream", stream),): 3.0}


def test_counters_of_scores_start_with_this_worker_and_gauges_with_the_state() -> None:
    before = Live(made())
    rows = before.fold(0, pairs(20)).of_streams["s"]
    gauges = made()
    gauges.assigned(0, holding({key: row for key, row in kinds.apart(rows).items() if key == kinds.SCORES.key("s")}))
    assert value(gauges, "resolved", stream="s") == 20
    # Zero and not absent: increase() must see the first events that a new owner scores.
    assert value(gauges, "scored_events_total", stream="s") == 0
    assert value(gauges, "answered_forecasts_total", stream="s") == 0
    before.gauges = gauges
    before.fold(0, pairs(5, start=20))
    assert value(gauges, "resolved", stream="s") == 25
    assert value(gauges, "scored_events_total", stream="s") == 5
    assert value(gauges, "answered_forecasts_total", stream="s") == 5


def test_no_counter_ever_falls() -> None:
    gauges = made()
    live = Live(gauges, "identity")
    last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for i in range(60):
        p = 0.1 + i / 100 if i < 20 else 0.0
        live.fold(0, [Forecast(i, None, f"e{i}", "s", p, (), 1), Outcome(i, None, f"e{i}", 0.0, 2)])
        now = {
            (name, labels): shown
            for name, series in samples(gauges).items()
            if name.endswith("_total")
            for labels, shown in series.items()
        }
        fallen = {series for series, shown in now.items() if shown < last.get(series, 0.0)}
        assert not fallen
        last = now


def test_sums_of_two_workers_make_the_error_of_both() -> None:
    """The sums of two workers, added and then divided, are what one worker that held both partitions would show."""
    one, two, both = made(), made(), made()
    for gauges, partitions in ((one, (0,)), (two, (1,)), (both, (0, 1))):
        live = Live(gauges, "minimax")
        for partition in partitions:
            live.fold(partition, pairs(20 + 90 * partition, start=7 * partition))
        if gauges is both:
            whole = live.scores(0, "s") + live.scores(1, "s")
            ece = {kind: whole.error(kind) for kind in KINDS}
    # A worker that takes over shows the same sums, counters aside: they are views of rows.
    apart, together = [samples(one), samples(two)], samples(both)
    for kind in ("raw", "calibrated"):
        sums = dict.fromkeys(("events", "forecasts", "outcomes"), 0.0)
        gaps: dict[str, float] = defaultdict(float)
        for cell in CELLS:
            labels = {"stream": "s", "kind": kind, "bin": cell}
            each = {what: sum(of(shown, f"resolved_bin_{what}", **labels) or 0.0 for shown in apart) for what in sums}
            assert each == pytest.approx(
                {what: of(together, f"resolved_bin_{what}", **labels) or 0.0 for what in sums}, abs=1e-12
            )
            gaps[cell[0]] += each["forecasts"] - each["outcomes"]
            sums = {what: sums[what] + each[what] for what in sums}
        assert sums["events"] == 130
        assert sum(map(abs, gaps.values())) / 130 == pytest.approx(ece[kind])
    for name in ("calibration_error", "calibration_bound", "calibration_noise"):
        weights = [of(shown, "learnt_outcomes", stream="s") or 0.0 for shown in apart]
        each_shows = [of(shown, name, stream="s") or 0.0 for shown in apart]
        pooled = sum(a * b for a, b in zip(weights, each_shows, strict=True)) / sum(weights)
        assert pooled == pytest.approx(of(together, name, stream="s"))
    assert [of(shown, "scored_partitions", stream="s") for shown in (apart[0], together)] == [1, 2]


def test_a_calibrator_without_a_theorem_exports_no_bound() -> None:
    gauges = made()
    Live(gauges, "platt").fold(0, pairs(10))
    assert value(gauges, "calibration_bound", stream="s") is None


def test_a_stream_that_waits_for_its_first_outcome_exports_no_scores_and_no_nan() -> None:
    gauges = made()
    Live(gauges).fold(0, [Forecast(0, None, "a", "s", 0.5, (), 1)])
    assert value(gauges, "pending_events") == 1
    found = samples(gauges)
    assert "trueup_brier" not in found
    assert not any(math.isnan(shown) for series in found.values() for shown in series.values())


# -- partitions that move ------------------------------------------------------------------------------------------


def test_a_revoked_partition_vanishes_from_the_gauges_and_stays_in_the_counters() -> None:
    gauges = made()
    live = Live(gauges)
    live.fold(0, [*pairs(10), Forecast(10, None, "waits", "s", 0.5, (), 2000)])
    live.fold(1, pairs(4, "t"))
    assert gauges.partitions() == [0, 1]
    gauges.revoked(0)
    gauges.revoked(8)
    assert gauges.partitions() == [1]
    assert value(gauges, "resolved", stream="s") is None
    assert value(gauges, "brier", stream="s", kind="raw") is None
    assert value(gauges, "pending_events") == 0
    assert value(gauges, "resolved", stream="t") == 4
    assert value(gauges, "scored_events_total", stream="s") == 10
    assert value(gauges, "records_total", topic="forecasts", fate="issued") == 15


def test_what_is_sampled_now_is_shown_as_it_is() -> None:
    gauges = made()
    assert value(gauges, "lag_records", topic="forecasts", partition="0") == 3
    assert value(gauges, "state_bytes", partition="0") == 900
    assert value(gauges, "build_info", version="9.9") == 1
    assert value(gauges, "last_update_timestamp_seconds") is None


def test_the_oldest_row_is_that_of_any_partition_and_any_queue() -> None:
    gauges = made()
    assert value(gauges, "oldest_row_seconds") == 0
    short, long = QueueBounds(1, 60_000, 3, 4, due=70_000), QueueBounds(1, 3_600_000, 0, 2, due=3_605_000)
    gauges.assigned(0, PartitionSnapshot(Fence(stream_time=50_000, queues={(1, 60_000): short})))
    assert value(gauges, "oldest_row_seconds") == 40
    gauges.assigned(1, PartitionSnapshot(Fence(stream_time=50_000, queues={(1, 60_000): short, (1, 3_600_000): long})))
    assert value(gauges, "oldest_row_seconds") == 45
    empty = QueueBounds(1, 3_600_000, 2, 2, due=1)
    gauges.assigned(1, PartitionSnapshot(Fence(stream_time=50_000, queues={(1, 3_600_000): empty})))
    assert value(gauges, "oldest_row_seconds") == 40
