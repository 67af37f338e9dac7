"""What outcomes leave open of a score: coverage of the true risk, what it says before and without outcomes, and why."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.events import Calibrated
from state.evidence import Evidence, band_of, interval, issue, learn
from state.odds import cut_log_odds, probability
from state.policies import Policies
from state.policy import Challenger, Policy
from tests.state.histories import Worker
from tests.state.test_bands import CARD, SHARES, Fed

CHANCES = st.floats(0.0, 1.0) | st.sampled_from([0.0, 5e-324, 0.02, 0.3, 1.0])
OUTCOMES = st.lists(st.tuples(CHANCES, CHANCES, st.sampled_from([0.0, 1.0])), max_size=30)


def told(outcomes: list[tuple[float, float, float]]) -> Evidence:
    """Return what outcomes say of forecasts: raw score, what is served, label."""
    made = Evidence()
    for raw, p, y in outcomes:
        issue(band_of(raw), p, made, [])
        learn(band_of(raw), y, made, [])
    return made


def fed(policy: Policy, outcomes: int, *, seed: int = 7, asked: int = 0) -> tuple[Fed, list[tuple[Calibrated, float]]]:
    """Return what was fed with raw scores too high, more so in one country, and answers with their true risk."""
    made, rng, answers = Fed(policy), Random(seed), []
    for n in range(outcomes + asked):
        country, z = rng.choice(("DE", "BR")), rng.gauss(-1.0, 1.0)
        true = probability(z - 1.0 - (country == "DE"))
        answers.append((made.forecast(f"e{n}", probability(z), 1000 + n, segments=(country,)), true))
        if n < outcomes:
            made.outcome(f"e{n}", float(rng.random() < true), 1000 + n)
    return made, answers


def evidence(of: Fed, policy: Policy) -> Evidence:
    return kinds.EVIDENCE.decode(of.worker.table[kinds.EVIDENCE.key("s", policy.config, *kinds.WHOLE)])


@given(CHANCES, CHANCES, OUTCOMES, st.lists(OUTCOMES, max_size=3))
def test_an_interval_holds_its_score(p: float, raw: float, whole: Any, segments: Any) -> None:
    low, high = interval(band_of(raw), p, 1.6, told(whole), [told(each) for each in segments])
    assert 0.0 <= low <= p <= high <= 1.0


def test_without_outcomes_nearly_all_is_open_and_with_them_little() -> None:
    low, high = interval(0, 0.1, 1.645, Evidence(), [])
    assert low < 0.002
    assert high > 0.9
    low, high = interval(0, 0.1, 1.645, told([(0.5, 0.1, float(n % 10 == 0)) for n in range(4000)]), [])
    assert low > 0.07
    assert high < 0.13


def test_where_outcomes_contradict_the_score_the_interval_reaches_to_them() -> None:
    made = told([(0.5, 0.3, 0.0)] * 200)
    low, high = interval(0, 0.3, 1.645, made, [])
    assert low < 0.1
    assert high == 0.3


def test_what_an_earlier_map_served_says_nothing_of_what_is_served_now() -> None:
    """Raw scores were served that were five times too high; today's are right, and the interval is around them."""
    outcomes = [(0.5, 0.5 if n < 1000 else 0.1, float(n % 10 == 0)) for n in range(2000)]
    low, high = interval(0, 0.1, 1.645, told(outcomes), [])
    assert low > 0.07
    assert high < 0.13


def test_old_outcomes_are_forgotten() -> None:
    made = told([(0.5, 0.5, float((n % 10 > 0) == (n < 4000))) for n in range(8000)])
    assert made.band(0).rate() < 0.15


def test_nine_of_ten_intervals_hold_the_true_risk() -> None:
    policy = Policy("prudent+certified", segments=("country",), interval=0.9, unlabelled="alike")
    _, answers = fed(policy, 2000, asked=200)
    last = answers[-200:]
    held = [answer.low <= true <= answer.high for answer, true in last if answer.low is not None and answer.high]
    assert len(held) == 200
    assert sum(held) >= 0.85 * len(held)
    wide = [cut_log_odds(answer.high or 0.0) - cut_log_odds(answer.low or 0.0) for answer, _ in last]
    assert sum(wide) / len(wide) < 1.2


def test_an_answer_says_why_and_says_the_same_again() -> None:
    policy = Policy("identity", segments=("country",), interval=0.9, reasons=True, unlabelled="alike")
    made, _ = fed(policy, 500)
    answer = made.forecast("new", 0.25, 5000, segments=("DE",))
    again = made.forecast("new", 0.25, 5000, segments=("DE",))
    assert (answer.low, answer.high, answer.why) == (again.low, again.high, again.why)
    of = evidence(made, policy).band(band_of(0.25))
    share = f"{100 * of.ever / of.known:.2g} % of {of.known}"
    said = f"raw 0.25 -> 0.25: scores from 0.12 to 0.27 were 1 in {share}; DE in "
    assert answer.why.startswith(said)
    lacking = made.forecast("other", 0.999, 5001, segments=("",))
    assert lacking.why.endswith("no outcome of scores from 1 to 1 is known; no country: none known")


def test_a_label_that_changes_counts_once() -> None:
    policy = Policy("identity", interval=0.9)
    once, twice = Fed(policy), Fed(policy)
    for n in range(40):
        for each in (once, twice):
            each.forecast(f"e{n}", 0.4)
        once.outcome(f"e{n}", 1.0)
        twice.outcome(f"e{n}", float(n % 2))
        twice.outcome(f"e{n}", 1.0, 3000)
    one, other = (evidence(each, policy).band(-1) for each in (once, twice))
    assert (one.known, one.ever) == (other.known, other.ever) == (40, 40)
    assert other.ones == pytest.approx(one.ones, rel=0.15)


def test_while_nothing_that_was_learnt_is_served_all_is_open() -> None:
    made = Fed(Policy(interval=0.9, reasons=True))
    for n in range(400):
        answer = made.forecast(f"e{n}", 0.3, 1000 + n)
        if n % 8 == 0:
            made.outcome(f"e{n}", float(n % 16 == 0), 1000 + n)
    assert (answer.low, answer.high) == (0.0, 1.0)
    assert answer.why.startswith("most forecasts get no label")


def test_bands_points_and_intervals_change_nothing_of_what_is_learnt() -> None:
    plain, rows = Policy(segments=("country",)), []
    banded = replace(plain, bands=SHARES, points=CARD, cost_miss=2.0, cost_alert=1.0)
    for policy in (plain, banded, replace(plain, interval=0.9, reasons=True)):
        assert policy.config == plain.config
        made, _ = fed(policy, 300)
        rows.append({key: row for key, row in made.worker.table.items() if key[:1] in b"CsF"})
        assert bool(made.worker.table.of(kinds.EVIDENCE.letter)) == bool(policy.interval)
    assert rows[0] == rows[1] == rows[2]


def test_a_promoted_calibrator_goes_on_from_the_outcomes_of_the_champion_before_it() -> None:
    """Labels of what the old champion had answered come after the promotion; later it is rolled back."""
    old = Policy("identity", segments=("country",), interval=0.9, unlabelled="alike", shadow=(Challenger("platt", {}),))
    promoted = replace(old, calibrator="platt", shadow=(Challenger("identity", {}),))
    made, _ = fed(old, 1000, asked=200)
    for policy, known in ((promoted, 1000), (old, 1200)):
        made.worker = Worker(Policies([("s", policy)]), made.worker.table)
        for n in range(8):
            answer = made.forecast(f"{policy.calibrator}{n}", 0.25, 7000, segments=("DE",))
        said = evidence(made, policy)
        assert said.known == known
        assert said.band(band_of(0.25)).served == pytest.approx(answer.p, abs=0.02)
        assert cut_log_odds(answer.high or 0.0) - cut_log_odds(answer.low or 0.0) < 4.0  # 10 without outcomes
        for n in range(known, 1200):
            made.outcome(f"e{n}", 0.0, 8000)
        assert evidence(made, policy).known == 1200


@pytest.mark.parametrize(
    ("before", "after"), [({}, {"interval": 0.9}), ({"interval": 0.9}, {"calibrator": "platt", "interval": 0.9})]
)
def test_a_label_that_came_before_the_present_intervals_may_be_revised(before: Any, after: Any) -> None:
    segments: dict[str, Any] = {"segments": ("country",)}
    made = Fed(Policy(**{"calibrator": "identity"} | segments | before))
    for n in range(2):
        made.forecast(f"e{n}", 0.25, segments=("DE",))
        made.outcome(f"e{n}", float(n))
    now = Policy(**{"calibrator": "identity"} | segments | after)
    made.worker = Worker(Policies([("s", now)]), made.worker.table)
    for n in range(2):
        made.outcome(f"e{n}", 1.0 - n, 3000)
    of = evidence(made, now).band(band_of(0.25))
    assert (of.known, of.ever, of.ones) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("of", "said"), [({"interval": 1.0}, "between .5 and .999"), ({"reasons": True}, "set interval, too")]
)
def test_intervals_that_cannot_be_are_refused(of: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Policies([("s", Policy(**of))])
