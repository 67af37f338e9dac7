"""Calibrators of papers are known to `make` in their own tests alone."""

import pytest

from research.calibrators import CALIBRATORS
from state.calibrators import REGISTRY


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, each in CALIBRATORS.items():
        monkeypatch.setitem(REGISTRY, name, each)
