"""Ages of outcomes: a sketch that adds up, and what it says of a configuration."""

import math
import random

import pytest

from state.scoring.ages import DAY_MS, EDGES, LABELS, Ages
from state.scoring.findings import expired, findings, late, suggested

Event = tuple[int, int] | None


def told(events: list[Event]) -> Ages:
    told = Ages()
    for event in events:
        if event is None:
            told.expire()
        else:
            told.observe(*event)
    return told


@pytest.mark.parametrize("n", [255, 256, 65_536, 2**32])
def test_counts_grow_with_their_bytes(n: int) -> None:
    known = told([(DAY_MS, 1)])
    known._counts = [count * n for count in known._counts]
    assert Ages.decode(known.encode()).n(1) == n


def test_bytes_are_bounded() -> None:
    everywhere: list[Event] = [(int(age), label) for age in (0, *EDGES) for label in range(LABELS + 5)]
    known = told(everywhere)
    known._counts = [0x0101_0101_0101_0101 for _ in known._counts]
    assert len(known.encode()) == 36 + LABELS * (2 + 8 * (2 + 47)) == 6340
    rng = random.Random(3)
    usual = told([(rng.randrange(45 * DAY_MS), int(rng.random() < 0.1)) for _ in range(5000)])
    assert len(usual.encode()) < 150


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0" * 7,
        *(
            bytes(8) + block
            for block in (
                b"\1",
                b"\1\3\0\1\1",
                b"\1\1\0\2\1",
                b"\1\1\56\2\1\1",
                b"\20\1\0\1\1",
                b"\1\1\0\1\1\1\1\0\1\1",
                b"\1\1\0\0",
            )
        ),
    ],
)
def test_damaged_ages_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="ages of"):
        Ages.decode(payload)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.99])
def test_quantiles_are_within_a_fifth_of_the_ages(level: float) -> None:
    rng = random.Random(1)
    drawn = sorted(int(rng.lognormvariate(math.log(10 * DAY_MS), 1.0)) for _ in range(5000))
    known = told([(age, 1) for age in drawn])
    assert known.quantile(1, level) == pytest.approx(drawn[int(level * 5000)], rel=0.2)
    assert known.quantile(None, level) == known.quantile(1, level)


def test_nothing_is_known_of_no_outcomes() -> None:
    empty = Ages()
    assert [empty.n(1), empty.total, empty.labels] == [0, 0, []]
    views = [empty.quantile(1, 0.5), empty.after(1), empty.apart(), late(empty, DAY_MS), expired(empty)]
    assert all(map(math.isnan, [*views, suggested(empty)]))
    assert findings(empty, DAY_MS) == []


def uniform(days: float, n: int, label: int, seed: int = 2) -> list[Event]:
    """Return outcomes whose ages are anything up to so many days."""
    rng = random.Random(seed)
    return [(int(rng.uniform(0, days) * DAY_MS), label) for _ in range(n)]


def names(known: Ages, *configured: int, silence: bool = False) -> list[str]:
    return [finding.name for finding in findings(known, *configured, silence=silence)]


@pytest.mark.parametrize(("days", "share"), [(45.0, 0.0), (60.0, 0.0), (90.0, 0.1)])
def test_outcomes_that_run_into_ttl_are_noticed(days: float, share: float) -> None:
    known = told(uniform(days, 2000, 1) + uniform(days, 2000, 0))
    assert late(known, 90 * DAY_MS) == pytest.approx(share, abs=0.02)
    assert ("ttl" in names(known, 90 * DAY_MS)) == (share > 0)


def test_words_say_what_ttl_to_set() -> None:
    # Delays of up to 180 days under a ttl of 90: half of the forecasts expire.
    known = told(uniform(90, 2000, 1) + uniform(90, 2000, 0) + [None] * 4000)
    (finding,) = findings(known, 90 * DAY_MS)
    assert finding.name == "ttl"
    assert 'Set ttl = "180d"' in finding.words
    assert "% of the outcomes came in the last tenth of ttl = '90d'" in finding.words


def test_frauds_early_and_zeros_on_day_45_are_noticed() -> None:
    known = told(uniform(45, 400, 1) + [(45 * DAY_MS, 0)] * 5000)
    assert known.apart() > 0.6
    (finding,) = findings(known, 90 * DAY_MS)
    assert finding.name == "classes"
    assert 'Set matures = "46d"' in finding.words
    # Learnt at maturity they are no trouble.
    assert names(known, 90 * DAY_MS, 70 * DAY_MS) == []


def test_frauds_alone_ask_for_silence() -> None:
    known = told(uniform(45, 400, 1) + [None] * 20_000)
    (finding,) = findings(known, 90 * DAY_MS)
    assert finding.name == "silence"
    assert "only outcomes 1 are reported, and 98% of the forecasts expire" in finding.words
    assert "silence = 0" in finding.words
    assert names(known, 90 * DAY_MS, 50 * DAY_MS, silence=True) == []


def test_labels_of_few_forecasts_ask_for_silence_too() -> None:
    few = uniform(45, 400, 1) + uniform(45, 900, 0)
    (finding,) = findings(told(few + [None] * 20_000), 90 * DAY_MS)
    assert finding.name == "silence"
    assert "94% of the forecasts expire without an outcome" in finding.words
    assert names(told(few + [None] * 1200), 90 * DAY_MS) == []
    assert names(told(few + [None] * 20_000), 90 * DAY_MS, 50 * DAY_MS, silence=True) == []
    assert findings(told(few + [None] * 20_000), 90 * DAY_MS, sampled=True) == []


def test_where_the_score_may_choose_the_labels_silence_is_never_advised_and_the_loop_is_named() -> None:
    few = told(uniform(45, 400, 1) + uniform(45, 900, 0) + [None] * 20_000)
    for labelled, name in ((None, "silence"), (0.06, "unlabelled")):
        (finding,) = findings(few, 90 * DAY_MS, labelled=labelled, unlike=True)
        assert finding.name == name
        assert 'set unlabelled = "alike". Never set silence = 0 there' in finding.words
        assert "served scores would sink" in finding.words
        assert "matures" not in finding.words
    (finding,) = findings(few, 90 * DAY_MS, labelled=0.06)
    assert finding.words.index('"alike"') < finding.words.index("If no report means 0, set matures")
    # Ones differ from all in their scores wherever scores tell classes apart.
    (finding,) = findings(told(uniform(45, 400, 1) + [None] * 20_000), 90 * DAY_MS, labelled=0.02, unlike=True)
    assert "If every 1 is reported, whatever its score, set matures" in finding.words
    assert "leave silence out: what nobody looked at would count as good" in finding.words
    # Silence stands for no number.
    (finding,) = findings(told(uniform(45, 400, 0)), 90 * DAY_MS, labelled=0.02)
    assert "silence" not in finding.words


def test_numbers_that_are_not_all_reported_say_nothing_of_silence() -> None:
    assert names(told(uniform(10, 400, 0) + [None] * 2000), 90 * DAY_MS) == []


def test_labels_after_maturity_are_noticed() -> None:
    known = told(uniform(45, 400, 1))
    assert names(known, 90 * DAY_MS, 30 * DAY_MS, silence=True) == ["matures"]
    assert names(known, 90 * DAY_MS, 50 * DAY_MS, silence=True) == []


@pytest.mark.parametrize("seed", range(20))
def test_labels_of_the_same_ages_are_left_alone(seed: int) -> None:
    # The test is wrong in one stream of a hundred, and what is small is not told.
    known = told(uniform(30, 60, 1, seed) + uniform(30, 2000, 0, seed + 100))
    assert names(known, 90 * DAY_MS) == []


def test_few_outcomes_are_no_evidence() -> None:
    assert names(told(uniform(90, 99, 1)), 90 * DAY_MS) == []
    assert math.isnan(told(uniform(1, 19, 1) + uniform(90, 5000, 0)).apart())


def batches(labels: list[list[int]]) -> Ages:
    """Return the ages of labels, each list of one record time."""
    known = Ages()
    for day, each in enumerate(labels):
        for label in each:
            known.observe(DAY_MS, label, 1 + day)
    return known


def test_runs_of_equal_labels_at_one_time_are_said() -> None:
    teams = [team % 2 for team in range(30) for _ in range(200)]
    assert names(batches([teams]), 90 * DAY_MS) == ["entity"]
    accounts = [[int(account % 5 == 0)] * 40 for account in range(100)]
    assert names(batches(accounts), 90 * DAY_MS) == ["entity"]
    few = [[int(account % 5 == 0)] * 3 for account in range(100)]
    assert names(batches(few), 90 * DAY_MS) == ["entity"]
    both = Ages.decode(batches(accounts[:50]).encode()) + batches(accounts[50:])
    assert both.turns() == batches(accounts).turns()


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01])
def test_labels_that_come_every_night_in_any_order_are_no_runs(rate: float) -> None:
    rng = random.Random(4)
    assert names(batches([[int(rng.random() < rate) for _ in range(1000)] for _ in range(60)]), 90 * DAY_MS) == []
    assert names(batches([[0], [1]] * 4000), 90 * DAY_MS) == []


def test_who_has_said_what_shares_outcomes_is_not_told_for_ever() -> None:
    known = batches([[int(account % 5 == 0)] * 40 for account in range(500)])
    for _ in range(100_000):
        known.observe(DAY_MS, 0)
    assert names(known, 90 * DAY_MS) == []
