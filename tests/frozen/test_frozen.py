"""Outputs are what they were frozen as, byte for byte."""

import pytest

from tests.frozen.scenarios import QUICK, Scenario, difference


@pytest.mark.parametrize("scenario", QUICK, ids=lambda each: each.name)
def test_outputs_are_as_they_were_frozen(scenario: Scenario) -> None:
    assert not difference(scenario.path.read_text(), scenario.make().text())


def test_a_changed_output_is_found_with_its_place() -> None:
    stored = "inputs 1\ncalibrated 1500\n  a\n  b\n"
    assert difference(stored, stored.replace("  b", "  c")) == (
        "calibrated: the first difference is among records 1000 to 1999"
    )
