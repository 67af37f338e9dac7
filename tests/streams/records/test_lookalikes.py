"""Stream names that look like others."""

import pytest

from state import keys
from streams.records import lookalikes
from streams.records.lookalikes import Lookalikes, scripts


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fraud-cards_7", ["LATIN"]),
        ("müller", ["LATIN"]),
        ("мошенничество", ["CYRILLIC"]),
        ("fr\u0430ud", ["CYRILLIC", "LATIN"]),
        ("fraud\u03bf", ["GREEK", "LATIN"]),
        ("123-é", ["LATIN"]),
        ("", []),
    ],
)
def test_the_scripts_of_a_name_are_those_of_its_letters(name: str, found: list[str]) -> None:
    assert scripts(name) == found


def test_a_name_of_several_scripts_is_told_of_once_and_in_plain_letters() -> None:
    look = Lookalikes()
    rows = [keys.scores("fraud"), keys.scores("fr\u0430ud"), keys.scores("мошенничество"), keys.windows("fr\u0430ud2")]
    assert look.among(rows) == [r"stream fr\u0430ud has letters of CYRILLIC and LATIN: it may look like another's name"]
    assert look.among(rows) == []


def test_however_many_there_are_memory_and_log_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookalikes, "KNOWN", 10)
    monkeypatch.setattr(lookalikes, "TOLD", 3)
    look = Lookalikes()
    said = look.among(keys.scores(f"fr\u0430ud{n}") for n in range(100))
    assert len(said) == 3
    assert len(look._known) <= 10
