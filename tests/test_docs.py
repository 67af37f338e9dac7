"""Pages name files that are there."""

import re
from pathlib import Path

import pytest

from cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
#: A file of the source tree, or a module that can be run.
FILE = re.compile(r"`((?:agents|cli|deploy|lab|replay|state|streams|tests)/[\w./*-]*)`")
MODULE = re.compile(r"python -m ((?:agents|cli|deploy|lab|replay|tests)\.[\w.]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    text = page.read_text()
    named = [*FILE.findall(text)]
    assert [each for each in named if not list(ROOT.glob(each.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_pages_run_exist(page: Path) -> None:
    named = [ROOT / each.rstrip(".").replace(".", "/") for each in MODULE.findall(page.read_text())]
    assert [
        each for each in named if not each.with_suffix(".py").exists() and not (each / "__main__.py").exists()
    ] == []


@pytest.mark.parametrize("command", sorted(main._COMMANDS))
def test_every_command_stands_in_a_page(command: str) -> None:
    named = re.compile(rf"\b(trueup|make) {command}\b")
    assert any(named.search(page.read_text()) for page in PAGES if page.name != "CHANGELOG.md")


def test_the_readme_says_how_the_command_is_reached_before_it_is_used_bare() -> None:
    text = (ROOT / "README.md").read_text()
    first = text.index("`trueup demo")
    assert ". .venv/bin/activate" in text[:first]
    assert "make setup" in text[:first]
