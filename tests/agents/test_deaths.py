"""How often a worker has died of the same record."""

from pathlib import Path

from agents import deaths


def test_deaths_of_one_record_in_a_row_are_counted_and_the_third_says_what_helps(tmp_path: Path) -> None:
    said = [deaths.told(tmp_path, place) for place in ("f/0@1", "f/0@2", "f/0@2", "f/0@2", "f/0@2", "f/0@1")]
    assert [("trueup state skip f/0@2 --reason" in each) for each in said] == [False, False, False, True, True, False]
    assert said[4].startswith("it has died of f/0@2 4 times")


def test_a_file_of_deaths_that_is_damaged_or_cannot_be_written_is_no_further_death(tmp_path: Path) -> None:
    (tmp_path / deaths.NAME).write_bytes(b"{")
    assert deaths.counted(tmp_path, "f/0@1") == 1
    assert deaths.counted(tmp_path / deaths.NAME / "no directory", "f/0@1") == 1
    assert [deaths.counted(tmp_path / "not yet there", "f/0@1") for _ in range(2)] == [1, 2]
