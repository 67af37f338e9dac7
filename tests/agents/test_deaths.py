"""How often a process has died of the same record."""

from pathlib import Path

from agents import deaths


def test_deaths_of_one_record_in_a_row_are_counted_and_the_third_says_what_helps(tmp_path: Path) -> None:
    said = [deaths.told(tmp_path / "new", place) for place in ("f/0@1", "f/0@2", "f/0@2", "f/0@2", "f/0@2", "f/0@1")]
    assert [("trueup state skip f/0@2 --reason" in each) for each in said] == [False, False, False, True, True, False]
    assert said[4].startswith("it has died of f/0@2 4 times")


def test_a_file_of_deaths_that_is_damaged_or_cannot_be_written_is_no_further_death(tmp_path: Path) -> None:
    (tmp_path / deaths.NAME).write_bytes(b"{")
    for directory in (tmp_path, tmp_path / deaths.NAME / "no directory"):
        assert deaths.told(directory, "f/0@1") == "it died of f/0@1; death 1 of it in a row"
