"""The bench of streams that were made to harm notices harm, and only that."""

from dataclasses import replace

import pytest

from state.policy import ALIKE
from tests.bench import strange
from tests.bench.strange import CASES, judge


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_what_learns_from_ones_alone_does_harm_and_raw_does_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strange, "ROWS", 3000)
    case = replace(
        next(each for each in CASES if each.name == "honest, ones taken back, no settings"), unlabelled=ALIKE
    )
    monkeypatch.setattr(strange, "CASES", (case,))
    raw, prudent, platt = judge(case, ["identity", "prudent", "platt"], 1)
    assert not raw.harm
    assert set(raw.errors) == {0.0}
    assert not prudent.harm
    assert platt.harm
    assert platt.mean[1] > 5.0
    assert "FAIL" in platt.cells()


@pytest.mark.parametrize("spec", ["prudent+certified", "platt"])
def test_labels_of_part_of_the_forecasts_harm_nobody_who_sets_nothing(
    monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.setattr(strange, "ROWS", 6000)
    (case,) = (each for each in CASES if each.name == "honest, analysts, no settings")
    (row,) = judge(case, [spec], 1)
    assert not row.harm or spec == "platt"
    assert max(map(abs, row.shares[2:])) < 1e-6, "in the second half raw scores are served"


def test_silence_is_proposed_from_the_labels_of_analysts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strange, "ROWS", 6000)
    (case,) = (each for each in CASES if each.name == "honest, analysts")
    (row,) = judge(case, ["platt"], 1)
    assert 0.5 < row.mean[1] < 2.0
