"""What ``trueup streams show`` makes of the rows of a stream."""

import random
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from agents.status.score_tables import ScoreTable
from cli import show_tables
from state import kinds
from state.banding import Thresholds
from state.bands import Bands
from state.coverage import Coverage
from state.policy import Policy
from state.scoring import history
from state.scoring.ages import DAY_MS, Ages
from state.scoring.band_counts import UNIT, BandCounts
from state.scoring.history import History
from state.scoring.scores import SCORED
from state.scoring.weighted import Weighted
from state.scoring.windows import KINDS
from state.served import Served
from streams.metrics.description import describe
from streams.metrics.rows import StateRows


def learnt(n: int, policy: Policy, seed: int = 1) -> tuple[History, Served]:
    """Serve events whose raw forecasts are .2 too high."""
    rng, known, served = random.Random(seed), History(), Served.fresh(policy.recipe, "s")
    calibrator = served.calibrator
    for t in range(n):
        raw, x = rng.uniform(0.2, 1), (rng.uniform(-1, 1),) if policy.features else ()
        p, draw, ticket = calibrator.predict(raw, x, b"%d" % t)
        y = float(rng.random() < raw - 0.2)
        calibrator.update(ticket, y)
        known.bias.observe(x, raw, p, y)
        known.observe(raw, p, y, draw)
    return known, served


def found(n: int, policy: Policy) -> StateRows:
    rows = StateRows()
    for partition in (0, 3):
        known, served = learnt(n, policy, seed=partition)
        rows.of(kinds.SCORES, "s")[partition] = known
        rows.of(kinds.CALIBRATOR, "s")[partition, policy.config] = served
    return rows


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 200)


def test_the_worst_window_and_the_alarm_are_described() -> None:
    rows = found(700, Policy("prudent"))
    described = describe(rows, "s")
    assert described["resolved"] == 1400
    assert described["raw"]["alarm"]["sounds"]
    assert not described["calibrated"]["alarm"]["sounds"]
    for kind in KINDS:
        worst = described[kind]["worst_window"]
        of_partition = rows.of(kinds.SCORES, "s")[worst["partition"]].worst(kind)
        assert of_partition is not None
        assert (worst["window"], worst["ece"]) == (of_partition.number, of_partition.scores.error(kind))
        assert sum(each["n"] for each in worst["reliability"]) == 200
    assert described["regret"].keys() == {"brier", "log", "misclassification"}
    assert all(one["noise"] > 0 for one in described["calibrators"])
    assert "feature_bias" not in described["raw"]


def test_bias_along_features_is_described_where_there_are_any() -> None:
    described = describe(found(300, Policy("calibrated_regression", features=1)), "s")
    assert [len(each) for each in described["calibrated"]["feature_bias"].values()] == [1, 1]
    assert described["calibrators"][0]["noise"] is None


def test_biases_of_partitions_are_added_and_features_have_their_names() -> None:
    rows = found(300, Policy("platt+calibrated_regression", features=("age",)))
    described = describe(rows, "s")
    each = {one["partition"]: {bias["name"]: bias for bias in one["biases"]} for one in described["calibrators"]}
    learnt = {one["partition"]: one["version"] for one in described["calibrators"]}
    assert len(learnt) == 2
    (age,) = (one for one in described["biases"] if one["name"] == "age")
    for figure in ("bias", "bound"):
        total = sum(learnt[n] * biases["age"][figure] for n, biases in each.items())
        assert age[figure] == pytest.approx(total / sum(learnt.values()))
    shares = [abs(one["bias"]) / one["bound"] for one in described["biases"]]
    assert shares == sorted(shares, reverse=True)
    front = describe(found(300, Policy("calibrated_regression+platt", features=1)), "s")
    assert "biases" not in front, "what a front bounds is not what is served"


@pytest.mark.parametrize(
    ("n", "words"),
    [(0, ["learnt"]), (1, ["reliability"]), (150, ["reliability"]), (700, ["worst window", "(partition ", "sounds"])],
)
def test_streams_with_few_events_and_with_windows_can_be_shown(
    n: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    described = describe(found(n, Policy()), "s")
    orjson.dumps(described)
    show_tables.show({"s": described}, {}, whole=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each in shown for each in words), shown


def rare(n: int, *, drawn: bool) -> StateRows:
    """Return a stream of 2 % of which half is served."""
    rng, rows, known = random.Random(8), StateRows(), History()
    for _ in range(n):
        chance = 0.04 * rng.random()
        known.observe(10 * chance, chance / 2, float(rng.random() < chance), rng.choice([0.0, 0.02]) if drawn else None)
    rows.of(kinds.SCORES, "s")[0] = known
    for t in range(300):
        rows.of(kinds.AGES, "s").setdefault(0, Ages()).observe(t * DAY_MS // 7, 1)
    rows.of(kinds.AGES, "s")[1] = Ages()
    for _ in range(2000):
        rows.of(kinds.AGES, "s")[1].observe(45 * DAY_MS, 0)
    return rows


@pytest.mark.parametrize("drawn", [False, True])
def test_what_is_served_and_drawn_is_described_by_the_same_figures(drawn: bool) -> None:  # noqa: FBT001 - a parameter of tests
    rows = rare(4000, drawn=drawn)
    described = describe(rows, "s")
    found_kinds = [kind for kind in SCORED if kind in described]
    assert found_kinds == list(SCORED if drawn else KINDS)
    (found,) = rows.of(kinds.SCORES, "s").values()
    scores, order = found.total, found.lately
    for kind in found_kinds:
        one = described[kind]
        assert one["relative_bias"] == scores.relative_bias(kind)
        assert one["auc"] == order.ranking(kind).auc().value
        assert one["gini"] == pytest.approx(2 * one["auc"] - 1)
        recall, precision = order.ranking(kind).at(0.02)
        (top,) = [each for each in one["top"] if each["volume"] == 0.02]
        assert (top["recall"], top["precision"]) == (recall.value, precision.value)
        assert one["last_window"]["n"] == 200
        assert ("alarm" in one) == (kind != "draw")
    assert described["calibrated"]["relative_bias"] == pytest.approx(-0.5, abs=0.15)
    assert described["calibrated"]["alarm"]["sounds"]


def test_ages_are_told_with_what_to_set() -> None:
    rows = rare(100, drawn=False)
    described = describe(rows, "s", Policy(ttl_ms=90 * DAY_MS))
    assert described["ages"]["outcomes"]["1"]["n"] == 300
    assert [finding["name"] for finding in described["ages"]["findings"]] == ["classes"]
    orjson.dumps(described)
    told = describe(rows, "s", Policy(ttl_ms=90 * DAY_MS, matures_ms=60 * DAY_MS, learn="maturity"))
    assert told["ages"]["findings"] == []
    assert describe(rows, "s")["ages"]["late"] is None


def test_a_stream_whose_highest_scores_are_labelled_is_told_to_set_alike_and_never_silence() -> None:
    rows, coverage, ages = StateRows(), Coverage(), Ages()
    for t in range(4000):
        place = t * 7919 % 4000 / 500 - 4.0
        coverage.issue(t + 1, place)
        if place > 3.0:
            coverage.label(t + 1, place, 0)
            ages.observe(DAY_MS, int(t % 3 == 0))
        else:
            ages.expire()
    rows.of(kinds.COVERAGE, "s")[0], rows.of(kinds.AGES, "s")[0] = coverage, ages
    policy = Policy(ttl_ms=90 * DAY_MS)
    (told,) = describe(rows, "s", policy)["ages"]["findings"]
    assert told["name"] == "unlabelled"
    assert "Never set silence = 0" in told["words"]
    assert describe(rows, "s", replace(policy, unlabelled="alike"))["ages"]["findings"] == []


def banded() -> tuple[StateRows, Policy]:
    """Return a stream with bands and what they cost."""
    found, counts = rare(500, drawn=False), BandCounts(3)
    for n in range(1_000_000):
        counts.issue(n % 3, int(n % 10 > 8), 0)
    counts.resolve(0, 1, 1, 0, 0, 1_000_000 * UNIT)
    counts.resolve(0, 1, 0, 1, 0, 2500 * UNIT)
    policy = Policy(bands=Bands(("", "review", "block"), shares=(0.1, 0.01)), cost_miss=300.0, cost_alert=8.0)
    assert policy.bands
    found.of(kinds.BAND_COUNTS, "s")[0, policy.bands.layout, *kinds.WHOLE] = counts
    found.of(kinds.THRESHOLDS, "s")[0, policy.bands.layout] = Thresholds([-2.0, 3.0], 10)
    return found, policy


def weighed() -> tuple[StateRows, Policy]:
    """Return a stream whose forecasts weigh."""
    found, weighted = rare(500, drawn=False), Weighted()
    for n in range(200):
        weighted.observe(0.5, 0.02, float(n < 3), 123_456_789.0)
    found.of(kinds.WEIGHTED, "s")[0, *kinds.WHOLE] = weighted
    return found, Policy(weight="amount")


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        (banded, ("(below)", "review", "0.1192", "0.9526", "10.00%", "0.25%", "399.0", "8,000,000")),
        (weighed, ("By amount", "as good as", "370.4M", "493.8M", "12.35G", "+123.5M")),
    ],
)
def test_what_weighs_and_what_costs_is_shown_at_80_columns(
    rows: Callable[[], tuple[StateRows, Policy]], figures: tuple[str, ...], at_80: Callable[[], str]
) -> None:
    found, policy = rows()
    show_tables.show({"s": describe(found, "s", policy)}, {}, whole=True)
    shown = at_80()
    assert all(figure in shown for figure in figures), shown


@pytest.fixture
def at_80(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Let the terminal have 80 columns; return what returns what it shows, of which nothing may be cut off."""
    monkeypatch.setenv("COLUMNS", "80")

    def shown() -> str:
        said = capsys.readouterr().out
        assert "…" not in said
        assert max(map(len, said.splitlines())) <= 80
        return said

    return shown


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_is_cut_off_at_80_columns(at_80: Callable[[], str], *, whole: bool) -> None:
    described = describe(found(300, Policy("twospeed+certified")), "s")
    for one in described["calibrators"]:
        one |= {"version": 12_345_678, "outstanding": 123_456}
    show_tables.show({"payments-of-a-model-with-a-long-name": described}, {}, whole=whole)
    shown = at_80()
    assert f"{described['calibrated']['ece']:.4f}" in shown
    assert "payments-of" in shown
    one = described["calibrators"][0]
    figures = ["12,345,678", "123,456", f"{one['bound']:.4f}", f"{one['error']:.4f}"]
    assert not whole or all(each in shown for each in figures if one["bound"] != 1.0), shown[-900:]


def test_no_word_of_a_heading_or_a_calibrator_is_broken_at_80_columns(at_80: Callable[[], str]) -> None:
    head = ("segment", "forecasts", "outcomes", "prudent+certified", "came true", "configuration", "off by, points")
    rows = [["country of the customer = DE", *["12,345"] * 6]]
    show_tables.page_tables(show_tables.console(), [ScoreTable("made", head, rows)])
    described = describe(found(300, Policy("prudent+certified")), "s")
    show_tables.show({"payments-of-a-model-with-a-long-name": described}, {}, whole=False)
    shown = at_80()
    assert all(word in shown for word in ("forecasts", "outcomes", "configuration")), shown
    assert shown.count("prudent+certified") == 2, shown
