"""The page in a real browser: it runs under its own policy, fits a phone, follows dark mode, and reads itself again."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agents.status.pages import Pages
from tests.agents.serving import HOST, serving
from tests.agents.status.browser import CONTRAST, Browser, find
from tests.agents.status.rows import DEFAULT, learnt, readings, renamed
from tests.agents.status.test_pages import HOSTILE

BINARY = find()
pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium on the PATH: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert BINARY
    with Browser(BINARY, tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield where a worker with a thousand streams shows its pages; the first of them has a hostile name."""
    one = learnt(DEFAULT, ["churn"], 2000)
    held = renamed(one, "churn", [HOSTILE, *(f"tenant-{i:03}/credit" for i in range(999))])
    with serving(pages=Pages(readings(held, one))) as server:
        yield f"http://{HOST}:{server.port}"


def test_a_page_runs_by_its_policy_and_asks_for_nothing_else(browser: Browser, address: str) -> None:
    browser.window(1280, 900)
    browser.complaints.clear()
    browser.asked.clear()
    for path in ("/", "/?" + urlencode({"stream": HOSTILE}), "/?" + urlencode({"q": HOSTILE[:30]}), "/?stream=churn"):
        browser.open(address + path)
        assert browser.evaluate("document.scripts.length") == 1
        assert browser.evaluate("document.images.length") == 0
        assert browser.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "1440px", "no style"
    assert browser.complaints == []
    assert {asked.split("?")[0] for asked in browser.asked} == {address + "/"}
    browser.open(address + "/")
    shown = "document.querySelector('.card h2').textContent"
    assert browser.evaluate(shown).startswith(HOSTILE)


def test_following_the_link_of_a_hostile_name_leads_to_its_page(browser: Browser, address: str) -> None:
    browser.open(address + "/")
    assert browser.evaluate("document.querySelector('.card h2 a').href").startswith(address + "/?stream=")
    browser.open(browser.evaluate("document.querySelector('.card h2 a').href"))
    assert HOSTILE in browser.evaluate("document.querySelector('main').innerText")


@pytest.mark.parametrize("path", ["/", "/?stream=churn", "/?stream=nobody"])
def test_it_fits_the_window_and_follows_the_readers_colours(
    browser: Browser, address: str, tmp_path: Path, path: str
) -> None:
    for mobile, widths in ((True, (360,)), (False, (820, 1440))):
        browser.window(widths[0], 740, mobile=mobile)
        browser.open(address + path)
        for width, dark in product(widths, (False, True)):
            browser.window(width, 740, dark=dark, mobile=mobile)
            assert browser.evaluate("document.documentElement.scrollWidth") == width, "it must not scroll sideways"
            assert (browser.evaluate(LIGHTNESS) < 60) == dark, (width, dark)
            # Text stands out: the contrast that WCAG 2 asks for (4.5 to 1), for every text that is seen.
            assert browser.evaluate(CONTRAST) >= 4.5, (width, dark)
        browser.screenshot(tmp_path / "seen.png")
        assert (tmp_path / "seen.png").stat().st_size > 5_000


def test_every_diagram_has_its_lines_inside_its_frame(browser: Browser, address: str) -> None:
    browser.window(1280, 900)
    browser.open(address + "/?stream=churn")
    assert browser.evaluate("document.querySelectorAll('svg.plot').length") == 2
    assert browser.evaluate(OUTSIDE) == 0
    assert browser.evaluate("document.querySelectorAll('svg.plot path.line').length") == 4, "three curves and the map"


def test_every_column_of_the_scores_is_seen_and_served_lies_over_drawn(browser: Browser, address: str) -> None:
    browser.open(address + "/?stream=churn")
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    for width in (1000, 1300, 1700):
        browser.window(width, 1500)
        assert browser.evaluate(WIDER) == [], width

    def told(selector: str, of: str) -> list[str]:
        return list(browser.evaluate(f"[...document.querySelectorAll('{selector}')].map(each => each.{of})"))

    assert told("details thead th", "textContent") == ["", "model", "served", "draw"]
    # What is drawn last lies on top.
    assert told("svg[aria-label^=reliability] path.line", "classList[1]") == ["raw", "draw", "calibrated"]
    assert told("svg[aria-label^=reliability] line.line + text", "textContent") == ["model", "drawn", "served"]


def test_it_reads_itself_again_while_nobody_types(browser: Browser, address: str) -> None:
    browser.open(address + "/")
    browser.evaluate("document.querySelector('main').id = 'old'; 0")
    # The page's own timer waits ten seconds; here its work is done at once, by a page whose timers do not wait.
    script = browser.command(
        "Page.addScriptToEvaluateOnNewDocument", source="window.setInterval = work => { window.work = work; }"
    )
    try:
        browser.open(address + "/")
        browser.evaluate("document.querySelector('main').id = 'old'; 0")
        browser.evaluate("document.querySelector('input').focus(); window.work()")
        assert browser.evaluate("document.querySelector('main').id") == "old", "somebody types"
        browser.evaluate("document.querySelector('.card a').focus(); window.work()")
        assert browser.evaluate("document.querySelector('main').id") == ""
        assert browser.evaluate("document.querySelectorAll('.card').length") == 24
        assert browser.evaluate("document.activeElement === document.querySelector('.card a')"), "the keyboard goes on"
        browser.open(address + "/?stream=churn")
        browser.evaluate("document.querySelector('details').open = true; window.work()")
        assert browser.evaluate("document.querySelector('details').open"), "what was opened stays open"
        browser.evaluate("window.fetch = () => Promise.reject(); window.work()")
        assert browser.evaluate("document.querySelector('#asof').textContent").startswith("no answer since; as of")
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])


#: Mean of red, green and blue behind the page.
LIGHTNESS = """
getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3
"""
#: Tables that are wider than their place.
WIDER = """
[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.parentElement.querySelector('h2, summary').textContent)
"""
#: Lines, dots and words that leave their picture by more than two pixels.
OUTSIDE = """
[...document.querySelectorAll('svg.plot :is(path, circle, text)')].filter(each => {
  const [a, b] = [each.getBoundingClientRect(), each.ownerSVGElement.getBoundingClientRect()];
  return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2 || a.bottom > b.bottom + 2;
}).length
"""
