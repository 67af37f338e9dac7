"""What a worker exports of scores: views of rows, under bounded labels."""

import math
import random
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from lab.scrape import ScrapedSamples
from state import keys, rows
from state.engine import Effects, Partition
from state.events import Event, Forecast, Outcome
from state.fence import Fence
from state.policy import Policies, Policy
from state.rows import Served
from state.scoring import history
from state.scoring.ages import DAY_MS, Ages
from state.scoring.certificate import certificate
from state.scoring.history import KINDS, History
from state.scoring.losses import NAMES
from state.scoring.ranking import VOLUMES
from state.scoring.scores import SCORED
from streams.metrics.catalogue import CATALOGUE
from streams.metrics.gauges import PREFIX, Gauges
from streams.metrics.snapshot import PartitionSnapshot


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 100)


def gauges(most_streams: int = 10) -> Gauges:
    return Gauges(most_streams, "0", lambda: ())


def reading(told: Gauges) -> ScrapedSamples:
    return ScrapedSamples(generate_latest(told.registry).decode())


def known(n: int, seed: int = 1, *, off: float = 0.0, drawn: bool = False) -> History:
    rng, known = random.Random(seed), History()
    for _ in range(n):
        p = rng.random() * 0.9
        known.observe(min(1.0, p + off), p, float(rng.random() < p), rng.random() if drawn else p)
    return known


def held(*streams: History) -> PartitionSnapshot:
    found = PartitionSnapshot(Fence())
    for i, each in enumerate(streams):
        found.scores[f"s{i}"] = rows.encode_scores(each), rows.encode_windows(each) if each.windows else None
    return found


def test_gauges_are_the_views_of_the_rows() -> None:
    told, each = gauges(), known(350, off=0.2, drawn=True)
    told.assigned(0, held(each))
    read = reading(told)
    scores = each.total
    for kind in SCORED:
        labels = {"stream": "s0", "kind": kind}
        worst = each.worst(kind)
        assert worst is not None
        expected = {
            "ece": scores.ece(kind),
            "ece_noise": scores.noise(kind),
            "smooth_ece": scores.smooth_ece(kind),
            "certificate": certificate(scores.ranking(kind)),
            "relative_error": scores.relative_error(kind),
            "relative_error_noise": scores.relative_noise(kind),
            "auc": each.order.ranking(kind).auc().value,
            "auc_error": each.order.ranking(kind).auc().error,
            "ks": each.order.ranking(kind).ks(),
            "misclassification": scores.loss("misclassification", kind),
            "worst_window_ece": worst.scores.ece(kind),
        }
        assert {name: read.value(name, labels) for name in expected} == pytest.approx(expected)
        for volume in VOLUMES:
            recall = each.order.ranking(kind).at(volume)[0].value
            assert read.value("recall", {**labels, "volume": f"{volume:g}"}) == pytest.approx(recall)
        filled = {str(i): each.n for i, each in enumerate(scores.bins(kind)) if each.n}
        assert {i: read.value("resolved_bin_events", {**labels, "bin": i}) for i in filled} == filled
    for alarmed in KINDS:
        labels = {"stream": "s0", "kind": alarmed}
        assert read.value("alarm_log10", labels) == pytest.approx(each.log_alarm(alarmed) / math.log(10))
        assert read.value("alarm_recent_log10", labels) == pytest.approx(each.log_recent(alarmed) / math.log(10))
    for loss in NAMES:
        assert read.value("regret", {"stream": "s0", "loss": loss}) == pytest.approx(scores.regret(loss))


def test_every_gauge_of_a_stream_is_in_the_catalogue_and_every_kind_is_bounded() -> None:
    told = gauges(most_streams=2)
    told.assigned(0, held(*(known(150, seed) for seed in range(5))))
    families = {family.name: family for family in told.registry.collect()}
    assert families.keys() == {PREFIX + name for name in CATALOGUE}
    for family in families.values():
        assert {sample.labels.get("stream", "") for sample in family.samples} <= {"s0", "s1", ""}


def test_what_is_drawn_has_series_only_where_something_is() -> None:
    told = gauges()
    told.assigned(0, held(known(150), known(150, drawn=True)))
    text = generate_latest(told.registry).decode()
    drawn = {line.split("{")[0] for line in text.splitlines() if 'kind="draw"' in line}
    assert drawn
    assert not [line for line in text.splitlines() if 'kind="draw"' in line and 'stream="s0"' in line]
    assert "trueup_alarm_log10" not in drawn  # a draw states no chance


#: Most series a stream of probabilities can have, with a challenger's apart; the page on operations names it.
MOST = 175


def test_the_series_of_a_stream_are_bounded() -> None:
    told, live = gauges(), known(350, off=0.05, drawn=True)
    ages = Ages()
    for t in range(200):
        ages.observe(t * DAY_MS // 4, int(t < 100))
        ages.expire()
    found = held(live)
    found.ages["s0"] = rows.encode_ages(ages)
    policy = Policy("calibrated_regression+minimax", features=1)
    served = Served.fresh(policy.recipe, "s0")
    served.calibrator.update(served.calibrator.predict(0.5, (0.5,), b"e").ticket, 1.0)
    found.calibrators["s0"] = rows.encode_calibrator(served)
    live.bias.observe((0.5,), 0.5, 0.5, 1.0)
    found.scores["s0"] = rows.encode_scores(live), rows.encode_windows(live)
    told.assigned(0, found)
    assert 140 < generate_latest(told.registry).decode().count('stream="s0"') <= MOST
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    assert f"at most {MOST} series" in page


def test_ages_are_held_against_the_configuration() -> None:
    told = Gauges(10, "0", lambda: (), Policies(default=Policy(ttl_ms=90 * DAY_MS)))
    first, second = Ages(), Ages()
    for t in range(400):
        first.observe(t * 45 * DAY_MS // 400, 1)
    for _ in range(1000):
        second.observe(45 * DAY_MS, 0)
    for partition, each in enumerate((first, second)):
        found = held(known(10))
        found.ages["s0"] = rows.encode_ages(each)
        told.assigned(partition, found)
    read = reading(told)
    both = first + second
    assert read.value("label_finding", {"stream": "s0", "finding": "classes"}) == 1.0
    assert math.isnan(read.value("label_finding", {"stream": "s0", "finding": "ttl"}))
    assert read.value("label_age_difference", {"stream": "s0"}) == pytest.approx(both.apart())
    assert read.value("late_outcomes_ratio", {"stream": "s0"}) == 0.0
    labels = {"stream": "s0", "label": "1", "share": "0.99"}
    assert read.value("outcome_age_seconds", labels) == pytest.approx(both.quantile(1, 0.99) / 1000)
    assert math.isnan(read.value("outcome_age_seconds", labels | {"label": "2"}))


def test_a_revision_of_a_closed_window_is_shown_at_once() -> None:
    told, each = gauges(), History()
    for _ in range(350):
        each.observe(0.5, 0.5, 0.0, 0.5)
    told.assigned(0, held(each))
    before = reading(told).value("ece", {"stream": "s0", "kind": "raw"})
    for _ in range(20):
        each.revise(0.5, 0.5, 0.5, 0.0, 1.0, 1)
    told.applied(0, Effects(windows={"s0": rows.encode_windows(each)}), Fence())
    after = reading(told).value("ece", {"stream": "s0", "kind": "raw"})
    assert after != before
    assert after == pytest.approx(each.total.ece("raw"))


def test_a_partition_without_a_complete_window_has_no_worst_one() -> None:
    told = gauges()
    told.assigned(0, held(known(99)))
    read = reading(told)
    assert math.isnan(read.value("worst_window_ece", {"stream": "s0", "kind": "raw"}))
    assert not math.isnan(read.value("alarm_log10", {"stream": "s0", "kind": "raw"}))


def test_partitions_share_the_worst_window_and_the_level_of_the_alarm() -> None:
    told, calm, broken = gauges(), known(350), known(350, 2, off=0.3)
    told.assigned(0, held(calm))
    told.assigned(1, held(broken))
    read = reading(told)
    worst = broken.worst("raw")
    assert worst is not None
    labels = {"stream": "s0", "kind": "raw"}
    assert read.value("worst_window_ece", labels) == pytest.approx(worst.scores.ece("raw"))
    alarm = (broken.log_alarm("raw") - math.log(2)) / math.log(10)
    assert read.value("alarm_log10", labels) == pytest.approx(alarm)
    told.revoked(1)
    assert reading(told).value("alarm_log10", labels) == pytest.approx(calm.log_alarm("raw") / math.log(10))


def folded(n: int, size: int, policy: Policy) -> tuple[Gauges, dict[bytes, bytes]]:
    """Fold events of one stream in batches, telling the gauges of each."""
    rng, told, table = random.Random(4), gauges(), dict[bytes, bytes]()
    partition = Partition(Policies(default=policy), table.get)
    told.assigned(0, PartitionSnapshot(partition.fence))
    events: list[Event] = []
    for t in range(n):
        x = (rng.uniform(-1, 1),)
        events.append(Forecast(t, None, f"e{t}", "s", rng.random(), x if policy.features else (), t))
        events.append(Outcome(t, None, f"e{t}", float(rng.random() < 0.4), t))
    for start in range(0, len(events), size):
        effects: Effects = partition.fold(events[start : start + size])
        table.update({key: row for key, row in effects.rows.items() if row is not None})
        told.applied(0, effects, partition.fence)
    return told, table


@pytest.mark.parametrize("size", [1, 60, 900])
def test_counters_count_every_event_once_across_windows(size: int) -> None:
    told, table = folded(450, size, Policy())
    read = reading(told)
    stored = rows.decode_history(table[keys.scores("s")], table[keys.windows("s")])
    assert read.value("scored_events_total", {"stream": "s"}) == stored.total.n == 450


def test_noise_stands_beside_the_error_where_a_calibrator_counts() -> None:
    assert 0 < reading(folded(200, 60, Policy())[0]).value("calibration_noise", {"stream": "s"}) < 1
    assert math.isnan(reading(folded(200, 60, Policy("platt"))[0]).value("calibration_noise", {"stream": "s"}))


def test_bias_along_features_is_exported_where_the_calibrator_takes_them() -> None:
    labels = {"stream": "s", "kind": "calibrated"}
    with_features = reading(folded(200, 60, Policy("calibrated_regression", features=1))[0])
    assert 0 <= with_features.value("feature_bias", labels) <= 1
    assert math.isnan(reading(folded(200, 60, Policy())[0]).value("feature_bias", labels))
