"""Calibrators of papers keep the laws of all calibrators."""

from collections.abc import Callable

import pytest

from research.calibrators import CALIBRATORS
from state.calibrators import Calibrator
from tests.state.calibrators import test_laws, test_sizes
from tests.state.calibrators.test_laws import LAWS, Stream

SPECS = [*CALIBRATORS, *(f"platt+{name}" for name in CALIBRATORS)]
pytestmark = [pytest.mark.usefixtures("registered"), pytest.mark.parametrize("spec", SPECS)]


@pytest.mark.parametrize("law", LAWS)
def test_law(spec: str, law: Callable[[Callable[[], Calibrator], Stream], None]) -> None:
    test_laws.test_law(spec, law)


def test_size_is_bounded(spec: str) -> None:
    test_sizes.test_a_state_is_never_larger_than_its_bound(spec)


def test_one_revision_in_a_hundred_moves_what_is_served_little(spec: str) -> None:
    test_laws.test_one_revision_in_a_hundred_moves_what_is_served_little(spec)
