"""The page in a real browser: it asks for nothing, every figure is seen, and the numbers are those of the JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.report.page import page
from replay.result import COMPARED, Result
from tests.agents.status.browser import CONTRAST, Browser, find

BINARY = find()
pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium on the PATH: apt-get install chromium")
FIGURES = ["reliability", "course", "bound", "delays", "coverage"]
TABLES = ["cuts", "lookup", "months", "fits", "comparison", "ranks", "differences", "warmup", "worst"]
TABLES += ["labels", "features", "streams", "sources", "configurations", "fates"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert BINARY
    with Browser(BINARY, tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def address(result: Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(page(result))
    return path.as_uri()


def opened(browser: Browser, address: str) -> None:
    browser.complaints.clear()
    browser.asked.clear()
    browser.open(address)


def test_it_asks_for_nothing_else_and_nothing_complains(browser: Browser, address: str) -> None:
    browser.window(1200, 900)
    opened(browser, address)
    assert browser.evaluate("document.scripts.length + document.images.length + document.links.length") == 0
    assert browser.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "1120px", "no style"
    assert browser.complaints == []
    assert browser.asked == [address]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 768, 375])
def test_every_figure_and_table_is_seen_and_text_stands_out(
    browser: Browser, address: str, width: int, *, dark: bool
) -> None:
    browser.window(width, 900, dark=dark, mobile=width < 500)
    opened(browser, address)
    assert browser.evaluate("[...document.querySelectorAll('figure:not(.tabled)')].map(each => each.id)") == FIGURES
    assert browser.evaluate("[...document.querySelectorAll('figure.tabled')].map(each => each.id)") == TABLES
    sizes = browser.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(each => each.getBoundingClientRect())"
        ".map(({width, height}) => [width, height])"
    )
    assert len(sizes) == 2 + 2 + 2 + 1 + 1 + 1
    assert all(wide > 200 and high > 100 for wide, high in sizes)
    assert all(wide <= width for wide, _ in sizes)
    assert browser.evaluate("document.documentElement.scrollWidth") == width, "it must not scroll sideways"
    # Words in diagrams can be read: their height in CSS pixels.
    assert browser.evaluate(TALL) >= 9
    assert browser.evaluate(OUTSIDE) == 0
    lightness = browser.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number).reduce((a, b) => a + b) / 3"
    )
    assert (lightness < 60) == dark
    assert browser.evaluate(CONTRAST) >= 4.5


def numbers(browser: Browser, table: str) -> list[list[float]]:
    """Return the full values behind a table's numbers, by row."""
    found: list[list[float]] = browser.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        ".map(row => [...row.querySelectorAll('data')].map(each => Number(each.value)))"
    )
    return found


def test_numbers_of_the_tables_are_those_of_the_json(browser: Browser, address: str, result: Result) -> None:
    opened(browser, address)
    json: dict[str, Any] = orjson.loads(result.encode())
    contenders = json["contenders"]
    columns = ("n", "ece", "ece_noise", "ece_smooth", "certificate", "two_bin", "worst_window_ece", "brier", "log_loss")
    rows = [[contenders[0]["overall"]["raw"][name] for name in columns]]
    for each in (contender["overall"] for contender in contenders):
        more = [each["regret_brier"], each["l1"], each["bound"]]
        rows.append([*(each["calibrated"][name] for name in columns), *more])
    assert numbers(browser, "comparison") == [[v for v in row if v is not None] for row in rows]
    told = json["differences"]
    assert numbers(browser, "differences") == [
        [each[name] for each in told[at : at + len(COMPARED)] for name in ("value", "low", "high")]
        for at in range(0, len(told), len(COMPARED))
    ]
    seen = browser.evaluate("[...document.querySelectorAll('#comparison tbody tr')].map(row => row.cells[2].innerText)")
    assert seen == [f"{row[1]:.4f}" for row in rows], "what is shown is what stands behind it"


def test_hostile_names_run_nothing(browser: Browser, hostile: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(hostile)
    browser.window(375, 800, mobile=True)
    opened(browser, path.as_uri())
    assert browser.complaints == []
    assert browser.asked == [path.as_uri()]
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert browser.evaluate("document.title").startswith("Calibration replay")
    assert browser.evaluate("document.documentElement.scrollWidth") == 375, "a long name must not widen the page"


def test_it_prints_in_the_colours_of_paper(browser: Browser, address: str) -> None:
    browser.window(1200, 900, dark=True)
    browser.command("Emulation.setEmulatedMedia", media="print")
    try:
        opened(browser, address)
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        printed = browser.command("Page.printToPDF", preferCSSPageSize=True)["data"]
        assert len(printed) > 50_000
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")


#: Least height of a diagram's words, CSS pixels.
TALL = """
Math.min(...[...document.querySelectorAll('svg.plot text')].map(each => each.getBoundingClientRect().height))
"""
#: Words of diagrams that leave their picture by more than two pixels.
OUTSIDE = """
[...document.querySelectorAll('svg.plot text')].filter(each => {
  const [a, b] = [each.getBoundingClientRect(), each.ownerSVGElement.getBoundingClientRect()];
  return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2 || a.bottom > b.bottom + 2;
}).length
"""
