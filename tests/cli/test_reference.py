"""The reference page says what the program does."""

from pathlib import Path

from cli import reference


def test_the_reference_page_is_up_to_date() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
    assert written.read_text() == reference.page(), "run 'make docs'"
