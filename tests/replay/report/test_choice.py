"""Which configuration is chosen: the rule, case by case, and what the page says of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from replay.figures import Phase, Told
from replay.report.page import page
from replay.report.recommendation import Recommendation, choose
from replay.result import COMPARED, MetricDifference, Result, drawn
from tests.replay.report.results import told

USE = "Serve the calibrated scores, by"

A, B = "platt", "platt+regret_matching"
SAME, BETTER, WORSE = (dict.fromkeys(COMPARED, sign) for sign in (0, -1, 1))
#: Worse than raw in nothing that a configuration is refused for.
FADED = {**SAME, "ece": 1}


def settled(result: Result, change: Callable[[Phase], Phase]) -> Result:
    """Return a result of which the phase after the warm-up of every contender is changed."""
    contenders = []
    for each in result.contenders:
        assert each.overall is not None
        contenders.append(replace(each, overall=replace(each.overall, settled=change(each.overall.settled))))
    return replace(result, contenders=contenders)


def calibrated(result: Result) -> Result:
    """Return a result with every ECE after the warm-up what chance gives, and nothing in the warm-up."""

    def by_chance(phase: Phase) -> Phase:
        return replace(phase, calibrated=replace(phase.calibrated, ece=phase.calibrated.ece_noise))

    return settled(replace(result, warming=[]), by_chance)


def said(result: Result, a: dict[str, int], b: dict[str, int], between: dict[str, int]) -> tuple[str | None, str]:
    pairs = told({(A, "raw"): a, (B, "raw"): b, (A, B): between})
    chosen = choose(replace(calibrated(result), differences=pairs))
    return chosen.name, f"{chosen.headline} {' '.join(chosen.reasons)}"


@pytest.mark.parametrize(
    ("a", "b", "between", "name", "words"),
    [
        (BETTER, BETTER, WORSE, B, f"{USE} {B}."),
        (BETTER, BETTER, BETTER, A, f"{USE} {A}."),
        (BETTER, BETTER, SAME, A, f"No clear difference from {B} is shown; it is simpler."),
        (BETTER, SAME, SAME, A, f"{USE} {A}."),
        (SAME, SAME, SAME, "raw", "no configuration is shown to be better"),
        (WORSE, WORSE, SAME, "raw", "they are better than every configuration"),
        # The proper scores outvote calibration error: sharper forecasts are worth a little of it.
        ({**SAME, "brier": -1, "ece": 1}, WORSE, BETTER, A, f"{USE} {A}."),
        ({**SAME, "ece": -1, "ece_smooth": -1}, SAME, SAME, A, f"{USE} {A}."),
        ({**SAME, "ece_smooth": -1}, SAME, SAME, "raw", "no configuration is shown to be better"),
        # They contradict one another: nothing is preferred.
        ({**SAME, "brier": -1, "log_loss": 1}, SAME, SAME, "raw", "no configuration is shown to be better"),
        # Calibration error alone refuses nothing.
        ({**BETTER, "ece": 1}, SAME, BETTER, A, f"{USE} {A}."),
        # Each is beaten by another one.
        (BETTER, FADED, WORSE, None, "contradict one another"),
        # An interval that holds 0 is called no clear difference.
        (BETTER, BETTER, {**SAME, "log_loss": -1}, A, "shows no clear difference in Brier score 0.0000 (−0.0100 to"),
    ],
)
def test_choice_follows_the_rule(
    result: Result, a: dict[str, int], b: dict[str, int], between: dict[str, int], name: str | None, words: str
) -> None:
    chosen, sentences = said(result, a, b, between)
    assert chosen == name
    assert words in sentences


def by(result: Result, share: float, width: float = 0.1) -> dict[str, MetricDifference]:
    """Return clear differences from raw of a share of its Brier score and of its log loss, and of its ECE none."""
    assert result.contenders[0].overall is not None
    raw = result.contenders[0].overall.settled.raw
    found = {}
    for metric, value in (("brier", share * raw.brier), ("log_loss", share * raw.log_loss)):
        found[metric] = MetricDifference(
            A, "raw", metric, value, value - width * abs(value), value + width * abs(value)
        )
    return found


@pytest.mark.parametrize(
    ("share", "width", "name", "words"),
    [
        (-1e-6, 0.1, "raw", f"Keep the raw forecasts: {A} and raw are alike, and nothing is lost by either."),
        (1e-6, 0.1, "raw", f"Keep the raw forecasts: {A} and raw are alike, and nothing is lost by either."),
        (-0.0009, 0.1, "raw", "are alike"),
        # It may be more than what matters.
        (-0.0009, 0.9, "raw", "Keep the raw forecasts: no configuration is shown to be better."),
        (-0.0011, 0.1, A, f"{USE} {A}."),
        (0.0011, 0.1, "raw", "they are better than every"),
    ],
)
def test_a_difference_has_to_matter(result: Result, share: float, width: float, name: str, words: str) -> None:
    one = replace(calibrated(result), contenders=[each for each in calibrated(result).contenders if each.name == A])
    chosen = choose(replace(one, differences=list(by(one, share, width).values())))
    assert (chosen.name, words in chosen.headline) == (name, True), chosen
    small = "differs from raw by too little to matter in Brier score"
    assert (small in chosen.reasons[0]) == (abs(share) < 0.001)
    assert any("does not show" in each for each in chosen.reasons) == (words.endswith("better."))
    shown = page(replace(one, differences=list(by(one, share, width).values()))).decode()
    assert ('class="verdict alike"' in shown) == (abs(share) < 0.001), "no mark contradicts the choice"


def test_calibration_error_decides_only_where_it_matters(result: Result) -> None:
    one = replace(calibrated(result), contenders=[each for each in calibrated(result).contenders if each.name == A])
    assert one.contenders[0].overall is not None
    rate = one.contenders[0].overall.settled.raw.base_rate
    for share, name in ((0.009, "raw"), (0.011, A)):
        value = -share * min(rate, 1 - rate)
        error = MetricDifference(A, "raw", "ece", value, 1.1 * value, 0.9 * value)
        assert choose(replace(one, differences=[*by(one, -1e-6).values(), error])).name == name


def test_two_that_resolved_other_forecasts_are_not_compared(result: Result) -> None:
    found = replace(calibrated(result), differences=told({(A, "raw"): BETTER, (B, "raw"): BETTER}))
    assert (
        choose(found).headline == f"{USE} {A}. It resolved other forecasts than {B}: between them nothing can be said."
    )


def test_few_outcomes_give_no_choice(result: Result) -> None:
    chosen = choose(replace(result, differences=[], bootstrap=None))
    assert chosen.name is None
    assert "too few forecasts have an outcome" in chosen.headline


def test_few_labels_give_a_choice_among_the_labelled_only_unless_their_chance_is_known(result: Result) -> None:
    contenders = [
        replace(each, overall=replace(each.overall, issued=3 * each.overall.raw.n))
        for each in result.contenders
        if each.overall
    ]
    chosen = choose(replace(result, contenders=contenders))
    assert chosen.name is None
    assert chosen.headline == "No choice can be made for all forecasts: 33.3% of them have an outcome."
    assert chosen.reasons
    assert all(each.startswith("Among those: ") for each in chosen.reasons)
    entities = [
        replace(each, overall=replace(each.overall, untaught=each.overall.raw.n)) for each in contenders if each.overall
    ]
    judged = choose(replace(result, contenders=entities))
    assert (judged.name, judged.headline) == (choose(result).name, choose(result).headline), "the others were told"
    assert "The figures count 33.3% of the forecasts: of each entity those whose outcomes taught." in judged.reasons[-1]
    assert judged.reasons[-1].endswith("Another 33.3% have an outcome that their entity had told.")

    def where_told(served: float) -> Recommendation:
        """Choose where the served scores lose so much for outcomes that their entity had told, and raw scores .3."""
        told = Told(1000, 0.08, {"raw": 0.12, "calibrated": 0.03}, {"raw": 0.3, "calibrated": served})
        each_told = [
            replace(each, overall=replace(each.overall, told=told)) for each in entities if each.overall is not None
        ]
        return choose(replace(result, contenders=each_told))

    assert where_told(0.302).name == judged.name, "so little is chance"
    contradicted = where_told(0.33)
    assert contradicted.name is None
    assert contradicted.headline.endswith(f"{judged.name} is better only where outcomes teach.")
    assert "8.0% of them came true; the model said 12.0%, and" in contradicted.reasons[0]
    assert "set `matures`" in contradicted.reasons[1]

    def of_chances(share: float) -> Recommendation:
        """Choose where labels stand for such a share of the forecasts by their chances."""
        known = [
            replace(
                each,
                streams={
                    name: replace(
                        one,
                        weighted={
                            "label_rate": 0.33,
                            "by": "",
                            "events": one.issued // 3,
                            "weight": share * one.issued,
                        },
                    )
                    for name, one in each.streams.items()
                },
            )
            for each in contenders
        ]
        return choose(replace(result, contenders=known))

    assert of_chances(0.06).headline == chosen.headline, "chances that the labels do not bear out are not believed"
    of_chance = of_chances(1.0)
    assert of_chance.name == choose(result).name
    assert of_chance.headline == choose(result).headline
    assert "33.3% of the forecasts have an outcome that teaches, by a known chance" in of_chance.reasons[-1]


def test_real_differences_choose_a_calibrator_over_forecasts_twice_too_high(result: Result) -> None:
    chosen = choose(result)
    assert chosen.name in {A, B}
    assert "is better than the raw forecasts: Brier score −0." in chosen.reasons[0]
    assert choose(replace(result, contenders=[])).name is None


@pytest.mark.parametrize("rarer", [19, 20])
def test_few_of_the_rarer_answer_allow_no_choice(result: Result, rarer: int) -> None:
    def rare(phase: Phase) -> Phase:
        return replace(phase, raw=replace(phase.raw, base_rate=1.0 - rarer / phase.resolved))

    chosen, sentences = said(settled(result, rare), BETTER, SAME, BETTER)
    assert (chosen is None) is (rarer < 20)
    assert ("the rarer answer came 19 times" in sentences) is (rarer < 20)


REFUSED, KEPT = (
    f"{A} is refused: it is worse than raw in ",
    "It keeps the order of forecasts of one moment; what it loses in",
)


@pytest.mark.parametrize(
    ("turned", "a", "b", "name", "words"),
    [
        # What turns the order and is worse than raw in anything that counts is refused, however good all the rest.
        *((0.2, {**BETTER, metric: 1}, SAME, "raw", REFUSED) for metric in ("brier", "log_loss", "auc", "recall")),
        (0.2, {**BETTER, "auc": 1}, {**BETTER, "recall": 1}, "raw", "every configuration that was tried does harm"),
        # Ranks refuse nothing where order is kept and both proper scores are better.
        *((kept, {**BETTER, metric: 1}, SAME, A, KEPT) for kept in (0.0, math.nan) for metric in ("auc", "recall")),
        *(
            (kept, {**BETTER, "log_loss": 0, metric: 1}, SAME, "raw", REFUSED)
            for kept in (0.0, math.nan)
            for metric in ("auc", "recall")
        ),
    ],
)
def test_harm_to_the_order_of_scores_is_refused(
    result: Result, turned: float, a: dict[str, int], b: dict[str, int], name: str, words: str
) -> None:
    moved = replace(result, contenders=[replace(each, turned=turned) for each in result.contenders])
    chosen, sentences = said(moved, a, b, BETTER)
    assert chosen == name
    assert words in sentences
    assert (KEPT in sentences) is (name == A)
    assert ("Serve " in sentences) is (name == A)


def test_what_harms_while_it_warms_up_is_refused(result: Result) -> None:
    found = replace(
        calibrated(result),
        differences=told({(A, "raw"): BETTER, (B, "raw"): BETTER, (A, B): BETTER}),
        warming=told({(A, "raw"): {**SAME, "brier": 1}, (B, "raw"): {**SAME, "auc": 1}}),
    )
    chosen = choose(found)
    assert chosen.name == B
    assert any(f"{A} is refused: it is worse than raw during its warm-up in Brier" in each for each in chosen.reasons)


@pytest.mark.parametrize(("many", "off", "warned"), [(4.9, 1.0, False), (12.0, 0.09, False), (12.0, 0.11, True)])
def test_who_is_told_to_use_what_is_not_calibrated_is_warned(
    result: Result,
    many: float,
    off: float,
    warned: bool,  # noqa: FBT001 - of pytest
) -> None:
    pairs = told({(A, "raw"): BETTER, (B, "raw"): BETTER, (A, B): BETTER})

    def uncalibrated(phase: Phase) -> Phase:
        ece = off * min(phase.raw.base_rate, 1.0 - phase.raw.base_rate)
        return replace(phase, calibrated=replace(phase.calibrated, ece=ece, ece_noise=ece / many))

    chosen = choose(replace(settled(result, uncalibrated), differences=pairs, warming=[]))
    assert chosen.headline.startswith(f"{USE} {A}, but do not rely on their level" if warned else f"{USE} {A}.")
    assert ("their ECE is 12 times what chance gives" in chosen.headline) is warned


def test_a_draw_that_harms_is_named(result: Result) -> None:
    pairs = told({(B, "raw"): BETTER, (A, "raw"): SAME, (A, B): WORSE, (drawn(B), "raw"): {**SAME, "auc": 1}})
    chosen = choose(replace(calibrated(result), differences=pairs))
    assert chosen.name == B
    assert any("Its draw is worse than raw in AUC −0.0200" in each for each in chosen.reasons)
