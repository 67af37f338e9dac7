"""Which configuration is chosen: the rule, case by case, and what the page says of it."""

from dataclasses import replace

import pytest

from agents.replay.report.choice import Verdicts, choose
from agents.replay.result import COMPARED, Result
from tests.agents.replay.report.results import told

A, B = "platt", "platt+regret_matching"
SAME, BETTER, WORSE = (dict.fromkeys(COMPARED, sign) for sign in (0, -1, 1))


def said(result: Result, a: dict[str, int], b: dict[str, int], between: dict[str, int]) -> tuple[str | None, str]:
    found = replace(result, differences=told({(A, "raw"): a, (B, "raw"): b, (A, B): between}))
    chosen = choose(found)
    return chosen.name, f"{chosen.headline} {' '.join(chosen.reasons)}"


@pytest.mark.parametrize(
    ("a", "b", "between", "name", "words"),
    [
        (BETTER, BETTER, WORSE, B, f"Use {B}."),
        (BETTER, BETTER, BETTER, A, f"Use {A}."),
        (BETTER, BETTER, SAME, A, f"No clear difference from {B} is shown; it is simpler."),
        (BETTER, SAME, SAME, A, f"Use {A}."),
        (SAME, SAME, SAME, "raw", "no configuration is shown to be better"),
        (WORSE, WORSE, SAME, "raw", "they are better than every configuration"),
        # The proper scores outvote calibration error: sharper forecasts are worth a little of it.
        ({**SAME, "brier": -1, "ece": 1}, WORSE, BETTER, A, f"Use {A}."),
        ({**SAME, "ece": -1}, SAME, SAME, A, f"Use {A}."),
        # They contradict one another: nothing is preferred.
        ({**SAME, "brier": -1, "log_loss": 1}, SAME, SAME, "raw", "no configuration is shown to be better"),
    ],
)
def test_choice_follows_the_rule(
    result: Result, a: dict[str, int], b: dict[str, int], between: dict[str, int], name: str, words: str
) -> None:
    chosen, sentences = said(result, a, b, between)
    assert chosen == name
    assert words in sentences


def test_interval_that_holds_0_is_called_no_clear_difference(result: Result) -> None:
    _, sentences = said(result, BETTER, BETTER, {**SAME, "log_loss": -1})
    assert f"{A} is better than {B}: log loss" in sentences
    assert "it shows no clear difference in Brier score 0.0000 (−0.0100 to +0.0100)" in sentences


def test_two_that_resolved_other_forecasts_are_not_compared(result: Result) -> None:
    found = replace(result, differences=told({(A, "raw"): BETTER, (B, "raw"): BETTER}))
    assert choose(found).headline == f"Use {A}. It resolved other forecasts than {B}: between them nothing can be said."


def test_comparisons_in_a_circle_give_no_choice(result: Result) -> None:
    chosen, sentences = said(result, BETTER, WORSE, WORSE)
    assert chosen is None
    assert "contradict one another" in sentences


def test_few_outcomes_give_no_choice(result: Result) -> None:
    chosen = choose(replace(result, differences=[], bootstrap=None))
    assert chosen.name is None
    assert "too few forecasts have an outcome" in chosen.headline


def test_few_labels_give_a_choice_among_the_labelled_only(result: Result) -> None:
    contenders = [
        replace(each, overall=replace(each.overall, issued=3 * each.overall.raw.n))
        for each in result.contenders
        if each.overall
    ]
    chosen = choose(replace(result, contenders=contenders))
    assert chosen.name is None
    assert chosen.headline.startswith("No choice can be made for all forecasts: 33.3% of them have an outcome.")


def test_real_differences_choose_a_calibrator_over_forecasts_twice_too_high(result: Result) -> None:
    chosen = choose(result)
    assert chosen.name in {A, B}
    assert "is better than the raw forecasts: Brier score −0." in chosen.reasons[0]
    assert choose(replace(result, contenders=[])).name is None


def test_verdicts_are_the_same_from_both_sides() -> None:
    verdicts = Verdicts(told({(A, B): BETTER}))
    assert verdicts.preferred(A, B)
    assert not verdicts.preferred(B, A)
    one, other = verdicts.of(A, B)["ece"], verdicts.of(B, A)["ece"]
    assert (one.value, one.low, one.high) == (-other.value, -other.high, -other.low)
    assert not verdicts.preferred(A, "raw")
