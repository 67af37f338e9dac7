"""What a worker exports of scores: views of rows, under bounded labels."""

import math
import random
import re
from collections import Counter

import pytest

from lab.scrape import ScrapedSamples
from state import kinds
from state.coverage import Coverage
from state.effects import Changes
from state.events import Event, Forecast, Outcome
from state.fence import Fence
from state.policies import Policies
from state.policy import Policy
from state.scoring import history, windows
from state.scoring.ages import DAY_MS, Ages
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.two_bin import gain, two_bin
from state.scoring.windows import KINDS
from state.served import Served
from streams.metrics.catalogue import CATALOGUE
from streams.metrics.description import CELLS
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot
from tests.exposed import exposed
from tests.holding import hold, holding
from tests.streams.metrics.live import Live

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 100)


def gauges() -> Gauges:
    return Gauges(10, "0", lambda: ())


def reading(told: Gauges) -> ScrapedSamples:
    return ScrapedSamples(exposed(told))


def known(n: int, seed: int = 1, *, off: float = 0.0, drawn: bool = False) -> History:
    rng, known = random.Random(seed), History()
    for _ in range(n):
        p = rng.random() * 0.9
        known.observe(min(1.0, p + off), p, float(rng.random() < p), rng.random() if drawn else p)
    return known


def held(*streams: History) -> PartitionSnapshot:
    found = PartitionSnapshot(Fence())
    for i, each in enumerate(streams):
        hold(found, kinds.SCORES, kinds.SCORES.encode(each), f"s{i}")
        if each.windows:
            hold(found, kinds.WINDOWS, kinds.WINDOWS.encode(each), f"s{i}")
    return found


def test_gauges_are_the_views_of_the_rows() -> None:
    told, each = gauges(), known(350, off=0.2, drawn=True)
    told.assigned(0, held(each))
    read = reading(told)
    scores = each.total
    for kind in KINDS:
        labels = {"stream": "s0", "kind": kind}
        expected = {
            "brier": scores.brier(kind),
            "log_loss": scores.log_loss(kind),
            "auc": each.lately.ranking(kind).auc().value,
            "alarm_log10": each.log_alarm(kind) / math.log(10),
        }
        assert {name: read.value(name, labels) for name in expected} == pytest.approx(expected)
        recall = each.lately.ranking(kind).at(0.01)[0].value
        assert read.value("recall", {**labels, "volume": "0.01"}) == pytest.approx(recall)
        filled = {name: each.n for name, each in zip(CELLS, scores.cells(kind), strict=True) if each.n}
        assert {i: read.value("resolved_bin_events", {**labels, "bin": i}) for i in filled} == filled
    worst = each.worst("calibrated")
    assert worst is not None
    served = {"stream": "s0", "kind": "calibrated"}
    assert read.value("worst_window_ece", served) == pytest.approx(worst.scores.error("calibrated"))
    assert read.value("alarm_recent_log10", served) == pytest.approx(each.log_recent("calibrated") / math.log(10))
    gained = gain(two_bin(scores, "raw"), two_bin(scores, "calibrated"))
    assert read.value("two_bin_error", served) == pytest.approx(two_bin(scores, "calibrated").value)
    assert [read.value("two_bin_gain", {"stream": "s0", "end": end}) for end in gained._fields] == pytest.approx(gained)
    error = each.lately.ranking("raw").auc().error
    assert read.value("auc_error", {"stream": "s0", "kind": "raw"}) == pytest.approx(error)


def test_what_is_drawn_has_no_series() -> None:
    told = gauges()
    told.assigned(0, held(known(150, drawn=True)))
    assert 'kind="draw"' not in exposed(told)


def shifted() -> Distribution:
    """Return the distribution of scores that were around .02 for twenty days, and have been exactly .5 for one."""
    found = Distribution()
    for n in range(20 * 480):
        found.observe(0.01 + 0.02 * (n % 7) / 7, n * DAY_MS // 480)
    for n in range(20 * 480, 21 * 480):
        found.observe(0.5, n * DAY_MS // 480)
    return found


def test_a_stream_without_any_outcome_says_that_its_forecasts_have_shifted() -> None:
    told = gauges()
    told.assigned(0, holding({kinds.DISTRIBUTION.key("new"): kinds.DISTRIBUTION.encode(shifted())}))
    labels = {"stream": "new"}
    assert reading(told).value("forecast_shift", labels) == pytest.approx(shifted().shift())
    told.assigned(0, holding({kinds.DISTRIBUTION.key("new"): kinds.DISTRIBUTION.encode(Distribution())}))
    assert math.isnan(reading(told).value("forecast_shift", labels)), "nothing is said while too little is known"


def test_the_series_of_a_stream_are_bounded() -> None:
    policy = Policy("calibrated_regression+minimax", features=1)
    told = Gauges(10, "0", lambda: (), Policies(default=policy))
    live = known(350, off=0.05, drawn=True)
    ages = Ages()
    for t in range(200):
        ages.observe(t * DAY_MS // 4, int(t < 100))
        ages.expire()
    found = held(live)
    hold(found, kinds.AGES, kinds.AGES.encode(ages), "s0")
    hold(found, kinds.DISTRIBUTION, kinds.DISTRIBUTION.encode(shifted()), "s0")
    hold(found, kinds.COVERAGE, kinds.COVERAGE.encode(few_labels()), "s0")
    served = Served.fresh(policy.recipe, "s0")
    served.calibrator.update(served.calibrator.predict(0.5, (0.5,), b"e").ticket, 1.0)
    hold(found, kinds.CALIBRATOR, kinds.CALIBRATOR.encode(served), "s0", policy.config)
    live.bias.observe((0.5,), 0.5, 0.5, 1.0)
    hold(found, kinds.SCORES, kinds.SCORES.encode(live), "s0")
    hold(found, kinds.WINDOWS, kinds.WINDOWS.encode(live), "s0")
    told.assigned(0, found)
    series = Counter(re.findall(r'^trueup_(\w+?)(?:_total)?\{stream="s0"', exposed(told), re.MULTILINE))
    assert all(n <= CATALOGUE[name].series for name, n in series.items())
    most = sum(each.series for each in CATALOGUE.values() if not each.name.startswith("shadow") and each.name in series)
    assert 75 < series.total() <= most


def few_labels() -> Coverage:
    """Return the coverage of a stream of which every tenth forecast gets a label."""
    made = Coverage()
    for born in range(1, 1001):
        made.issue(born, 0.0)
        if born % 10 == 0:
            made.label(born, 0.0, 0)
    return made


def test_a_stream_of_which_most_forecasts_get_no_label_says_that_nothing_learnt_is_served() -> None:
    told = Gauges(10, "0", lambda: (), Policies(default=Policy()))
    ages = Ages()
    for t in range(30):
        ages.observe(t * DAY_MS, t % 2)
    for partition, coverage in enumerate((few_labels(), Coverage())):
        found = held(known(10))
        hold(found, kinds.AGES, kinds.AGES.encode(ages), "s0")
        hold(found, kinds.COVERAGE, kinds.COVERAGE.encode(coverage), "s0")
        told.assigned(partition, found)
    read = reading(told)
    assert read.value("withheld_partitions", {"stream": "s0", "reason": "unlabelled"}) == 1.0
    assert read.value("label_finding", {"stream": "s0", "finding": "unlabelled"}) == 1.0


def test_ages_are_held_against_the_configuration() -> None:
    told = Gauges(10, "0", lambda: (), Policies(default=Policy(ttl_ms=90 * DAY_MS)))
    first, second = Ages(), Ages()
    for t in range(400):
        first.observe(t * 45 * DAY_MS // 400, 1)
    for _ in range(1000):
        second.observe(45 * DAY_MS, 0)
    for partition, each in enumerate((first, second)):
        found = held(known(10))
        hold(found, kinds.AGES, kinds.AGES.encode(each), "s0")
        told.assigned(partition, found)
    read = reading(told)
    both = first + second
    assert read.value("label_finding", {"stream": "s0", "finding": "classes"}) == 1.0
    assert math.isnan(read.value("label_finding", {"stream": "s0", "finding": "ttl"}))
    labels = {"stream": "s0", "label": "1", "share": "0.99"}
    assert read.value("outcome_age_seconds", labels) == pytest.approx(both.quantile(1, 0.99) / 1000)
    assert math.isnan(read.value("outcome_age_seconds", labels | {"label": "2"}))
    assert [read.value("reported_outcomes", {"stream": "s0", "label": label}) for label in "01"] == [1000, 400]


def test_a_revision_of_a_closed_window_is_shown_at_once() -> None:
    told, each = gauges(), History()
    for _ in range(350):
        each.observe(0.5, 0.5, 0.0, 0.5)
    told.assigned(0, held(each))
    place = {"stream": "s0", "kind": "raw", "bin": "5"}
    before = reading(told).value("resolved_bin_outcomes", place)
    for _ in range(20):
        each.revise(0.5, 0.5, 0.5, 0.0, 1.0, 1)
    told.written(
        0, Changes({kinds.FENCE.key(): Fence().encode()}, {"s0": {kinds.WINDOWS.key("s0"): kinds.WINDOWS.encode(each)}})
    )
    assert before == 0
    assert reading(told).value("resolved_bin_outcomes", place) == each.total.bins("raw")[5].y == 20


def test_a_partition_without_a_complete_window_has_no_worst_one() -> None:
    told = gauges()
    told.assigned(0, held(known(99)))
    read = reading(told)
    assert math.isnan(read.value("worst_window_ece", {"stream": "s0", "kind": "calibrated"}))
    assert not math.isnan(read.value("alarm_log10", {"stream": "s0", "kind": "raw"}))


def test_partitions_share_the_worst_window_and_the_level_of_the_alarm() -> None:
    told, calm, broken = gauges(), known(350), known(350, 2, off=0.3)
    told.assigned(0, held(calm))
    told.assigned(1, held(broken))
    read = reading(told)
    worst = windows.worst([calm, broken], "calibrated")
    assert worst is not None
    labels = {"stream": "s0", "kind": "calibrated"}
    assert read.value("worst_window_ece", labels) == pytest.approx(worst.scores.error("calibrated"))
    labels = {"stream": "s0", "kind": "raw"}
    alarm = (broken.log_alarm("raw") - math.log(2)) / math.log(10)
    assert read.value("alarm_log10", labels) == pytest.approx(alarm)
    told.revoked(1)
    assert reading(told).value("alarm_log10", labels) == pytest.approx(calm.log_alarm("raw") / math.log(10))


def folded(n: int, size: int, policy: Policy) -> Live:
    """Fold events of one stream in batches, telling the gauges of each."""
    rng, live = random.Random(4), Live(gauges(), policies=Policies(default=policy))
    events: list[Event] = []
    for t in range(n):
        x = (rng.uniform(-1, 1),)
        events.append(Forecast(t, None, f"e{t}", "s", rng.random(), x if policy.features else (), t))
        events.append(Outcome(t, None, f"e{t}", float(rng.random() < 0.4), t))
    for start in range(0, len(events), size):
        live.fold(0, events[start : start + size])
    return live


@pytest.mark.parametrize("size", [1, 60, 900])
def test_counters_count_every_event_once_across_windows(size: int) -> None:
    live = folded(450, size, Policy())
    assert reading(live.gauges).value("scored_events_total", {"stream": "s"}) == live.scores(0, "s").n == 450


def test_noise_stands_beside_the_error_where_a_calibrator_counts() -> None:
    assert 0 < reading(folded(200, 60, Policy("prudent")).gauges).value("calibration_noise", {"stream": "s"}) < 1
    assert math.isnan(reading(folded(200, 60, Policy("platt")).gauges).value("calibration_noise", {"stream": "s"}))
