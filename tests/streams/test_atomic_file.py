"""Files that are there whole, or not at all, and through which nobody is led elsewhere."""

import os
import secrets
from pathlib import Path

import pytest

from streams import atomic_file
from streams.config.settings import SettingsError


def test_a_file_takes_its_name_when_all_went_well(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    with atomic_file.written(path) as file:
        file.write(b"after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_finished_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")

    def write() -> None:
        with atomic_file.written(path) as file:
            file.write(b"after")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        write()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_where_nothing_can_be_written_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(SettingsError, match=r"cannot write .*report.html: No such file"),
        atomic_file.written(tmp_path / "none" / "report.html"),
    ):
        pass


def test_a_directory_and_a_device_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    (out := tmp_path / "stdout").symlink_to(pipe)
    for path in (tmp_path, pipe, out):
        with pytest.raises(SettingsError, match=f"cannot write {path}: it is no file"), atomic_file.written(path):
            pytest.fail("it is refused before anything is written")
    assert pipe.is_fifo()
    assert out.is_symlink()


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = tmp_path / "report.html"
    path.symlink_to(victim)
    with atomic_file.written(path) as file:
        file.write(b"report")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()


def test_the_name_of_the_part_cannot_be_guessed_nor_taken_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "report.html", tmp_path / "victim"
    names = set()
    for _ in range(20):
        with atomic_file.beside(path) as (new, _):
            names.add(new.name)
    assert len(names) == 20
    monkeypatch.setattr(secrets, "token_hex", lambda n: "a" * 2 * n)
    (tmp_path / f".report.html.{'a' * 32}.part").symlink_to(victim)
    with pytest.raises(SettingsError, match="File exists"), atomic_file.written(path) as file:
        file.write(b"report")
    assert not victim.exists()


def test_a_line_is_appended_to_a_file_and_never_through_a_link(tmp_path: Path) -> None:
    path, victim = tmp_path / "audit.jsonl", tmp_path / "victim"
    atomic_file.append(path, b"one\n")
    atomic_file.append(path, b"two\n")
    assert path.read_text() == "one\ntwo\n"
    (link := tmp_path / "link").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        atomic_file.append(link, b"three\n")
    assert not victim.exists()
