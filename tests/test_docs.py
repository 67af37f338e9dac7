"""Pages name files that are there, and promises have tests."""

import re
from pathlib import Path

from cli import main
from cli.options import commands
from tests.night import pattern_of
from tests.simulation.planting import MUTANTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
#: A file of the source tree, or a module that can be run.
FILE = re.compile(r"`((?:agents|cli|deploy|lab|replay|state|streams|tests)/[\w./*-]*)`")
MODULE = re.compile(r"python -m ((?:agents|cli|deploy|lab|replay|tests)\.[\w.]+)")
#: Of each row of the table of promises: the page, its words, and the tests.
PROMISES = re.findall(r"^\| (\S+\.md) \| (.+) \| (`.+`) \|$", (ROOT / "tests/promises.md").read_text(), re.MULTILINE)


def words(text: str) -> str:
    """Return text without line breaks, bold type, and where links lead."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "").split())


def test_files_that_pages_name_exist() -> None:
    named = [(page.name, each) for page in PAGES for each in FILE.findall(page.read_text())]
    assert [each for each in named if not list(ROOT.glob(each[1].rstrip("/")))] == []


def test_modules_that_pages_run_exist() -> None:
    named = {
        (page.name, ROOT / each.rstrip(".").replace(".", "/"))
        for page in PAGES
        for each in MODULE.findall(page.read_text())
    }
    assert [
        each for each in named if not each[1].with_suffix(".py").exists() and not (each[1] / "__main__.py").exists()
    ] == []


def anchors(page: Path) -> set[str]:
    """Return what a link to a heading of the page may name."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", words(each).lower()).strip().replace(" ", "-") for each in headings}


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    lost = []
    for page in PAGES:
        for link in re.findall(r"\[[^]]*\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                lost.append((page.name, link))
    assert lost == []


def test_every_command_stands_in_a_page() -> None:
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    names = {name for name, _ in commands(main.parser())}
    assert {each for each in names if not re.search(rf"\b(trueup|make) {each}\b", text)} == set()


def test_the_readme_says_how_the_command_is_reached_before_it_is_used_bare() -> None:
    text = (ROOT / "README.md").read_text()
    first = text.index("`trueup dev demo")
    assert ". .venv/bin/activate" in text[:first]
    assert "make setup" in text[:first]


def test_a_promise_stands_in_its_page_and_its_tests_run_by_day() -> None:
    assert len(PROMISES) > 60
    for page, promise, tests in PROMISES:
        assert promise in words((ROOT / page).read_text()), page
        for test in re.findall(r"`([^`]+)`", tests):
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), test
            assert pattern_of(f"tests/{test}") is None, test


def test_what_finds_a_fault_that_was_found_is_there() -> None:
    rows = re.findall(r"^\| [^*|].*? \| ([`*].+) \|$", (ROOT / "tests/faults.md").read_text(), re.MULTILINE)
    assert len(rows) > 60
    for row in rows:
        for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", row):
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name
        assert set(re.findall(r"\*([^*]+)\*", row)) <= set(MUTANTS), row
