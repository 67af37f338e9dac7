"""Fixtures of the report's tests: one replay for all that only look at its page."""

from dataclasses import replace

import pytest

from replay.report.page import page
from replay.result import Result
from tests.replay.report.results import HOSTILE, UNSEEN, played


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return played(tmp_path_factory.mktemp("result"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a page whose streams and configuration have names made to break it."""
    found = played(tmp_path_factory.mktemp("hostile"), [HOSTILE, "x" * 128], ["platt"], n=3000)
    name = HOSTILE + UNSEEN
    contenders = [replace(each, name=name) for each in found.contenders]
    differences = [replace(each, name=name) for each in found.differences]
    return page(replace(found, contenders=contenders, differences=differences)).decode()
