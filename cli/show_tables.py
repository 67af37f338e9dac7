"""The tables that ``trueup streams show`` prints. Some are those of the status page."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console as Rich
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from agents.status import score_tables, tables, view
from agents.status.markup import Markup
from agents.status.number_format import date, score
from replay.console import Console
from state.scoring.scores import SCORED
from state.scoring.windows import KINDS

#: Row headings with at most this many characters are not folded.
WORDS: Final = 36
#: Row headings are folded to at least this many characters, to make room for the words of other columns.
NAME: Final = 10
#: A width in which every table fits, for measuring it.
MOST: Final = 400


def console() -> Console:
    """Return a console that shows names of streams literally, because records may hold anything."""
    return Console(markup=False, emoji=False)


def show(report: dict[str, dict[str, Any]], counts: dict[str, int], *, whole: bool) -> None:
    """Print each stream, in full if ``whole``, otherwise on one line; then the counts over all streams."""
    shown_on = console()
    caption = "Of classes the ECE and AUC of the likeliest class; of numbers the error of coverage in place of the ECE."
    table = Table(
        "stream",
        "state",
        *(_figures(each) for each in ("resolved", "ECE_raw", "ECE", "AUC_raw", "AUC")),
        "calibrator",
        caption=caption if any("vectors" in each for each in report.values()) else None,
    )
    for name, each in report.items():
        scores = [score(_short(each, kind, name)) for name in ("ece", "auc") for kind in KINDS]
        made = ", ".join(sorted({one["calibrator"] for one in each["calibrators"] if one["config"] in _served(each)}))
        resolved = each["resolved"] + sum(scored["resolved"] for scored in each.get("vectors", {}).values())
        resolved += each.get("warm_up", {}).get("resolved", 0)
        table.add_row(name, each.get("standing", {}).get("state", "–"), f"{resolved:,}", *scores, made)
    _print(shown_on, table)
    if not whole:
        shown_on.print("  ".join(f"{fate} {n:,}" for fate, n in counts.items() if n))
        return
    for each in report.values():
        _whole(shown_on, each)


def _short(each: dict[str, Any], kind: str, name: str) -> float | None:
    """Return a figure for a stream's line. For classes and numbers, that of the configuration with most outcomes."""
    nothing: dict[str, Any] = {}
    vectors = max(each.get("vectors", nothing).values(), key=lambda scored: int(scored["resolved"]), default=nothing)
    scored = each.get(kind) or vectors.get(kind) or nothing
    names = (name, "top_label_ece", "coverage_error") if name == "ece" else (name,)
    return next((scored[each] for each in names if each in scored), None)


def _whole(shown_on: Console, each: dict[str, Any]) -> None:
    if found := each.get("standing"):
        since = f" since {date(found['since_ms'])}" if found["since_ms"] else ""
        todo = f"What to do: {found['todo']}" if found["todo"] else ""
        shown_on.print(f"{found['state'].capitalize()}{since}.", found["words"], todo)
    if said := each.get("warm_up", {}).get("words"):
        shown_on.print(said)
    for name, title in (("reliability", "reliability"), ("low_reliability", "reliability below .1")):
        curve = Table("kind", "events", "mean forecast", "share of events", title=title)
        for kind in SCORED:
            for one in each.get(kind, {}).get(name, ()):
                curve.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.5f}", f"{one['outcome']:.5f}")
        if curve.rows:
            _print(shown_on, curve)
    for what, said in view.notes(each):
        shown_on.print(what, said)
    page_tables(shown_on, tables.of_stream(each))


def page_tables(shown_on: Rich, given: Iterable[score_tables.ScoreTable]) -> None:
    """Print tables of the status page, without colours and without the parts for which the terminal has no room."""
    for each in given:
        if each.wide or not (each.rows or each.words):
            continue
        for said in each.words:
            shown_on.print(said, highlight=False, markup=False)
        if each.rows:
            made = _page_table(each)
            fits = Measurement.get(shown_on, shown_on.options.update(width=MOST), made).maximum <= shown_on.width
            _print(shown_on, made if fits else _page_table(each, each.page_only), apart=0)


def _page_table(of: score_tables.ScoreTable, without: Sequence[str] = ()) -> Table:
    kept = [n for n, head in enumerate(of.head) if head not in without]
    made = Table(title=of.title, caption=of.note or None)
    short = of.names == 1 and all(len(str(row[0])) <= WORDS for row in of.rows)
    for n in kept:
        made.add_column(str(of.head[n]), justify="left" if n < of.names else "right", no_wrap=short and not n)
    for row in of.rows:
        cells = [row[n] for n in kept]
        made.add_row(*(Text(cell.striptags() if isinstance(cell, Markup) else str(cell)) for cell in cells))
    return made


def _figures(heading: str) -> Column:
    return Column(heading.replace("_", "\n"), no_wrap=True)


def _print(shown_on: Rich, table: Table, apart: int = 1) -> None:
    """Print a table so that it can be read at 80 columns: what is too wide is folded, nothing is cut off."""
    table.box, table.pad_edge, table.padding = SIMPLE_HEAD, False, (0, apart, 0, 0)
    for column in table.columns:
        column.overflow = "fold"
    if Measurement.get(shown_on, shown_on.options.update(width=MOST), table).maximum > shown_on.width:
        _keep_words(table, shown_on.width - 2 - (apart + 1) * (len(table.columns) - 1))  # an edge on either side
    shown_on.print(table)


def _keep_words(table: Table, room: int) -> None:
    """Narrow the widest columns until the table has at most this many characters.

    Only the first column may be folded inside words.
    """
    texts = [[str(text) for text in (each.header, *each.cells)] for each in table.columns]
    widths = [max(len(line) for text in of for line in text.split("\n")) for of in texts]
    least = [max(len(word) for text in of for word in ["", *text.split()]) for of in texts]
    least = [width if each.no_wrap else word for width, word, each in zip(widths, least, table.columns, strict=True)]
    for shortest in (max(least[0], NAME) if table.columns[0].no_wrap else NAME, NAME):  # it is folded last
        least[0] = min(widths[0], shortest)
        while sum(widths) > room and (wider := [n for n, width in enumerate(widths) if width > least[n]]):
            widths[max(wider, key=widths.__getitem__)] -= 1
    if sum(widths) <= room:
        for column, width in zip(table.columns, widths, strict=True):
            column.width, column.no_wrap = width, False


def _served(each: dict[str, Any]) -> set[str]:
    """Return the configurations that have served, according to the rows; not those that only challenged."""
    challengers, champions = (
        {one[side]["config"] for one in each.get("shadows", ())} for side in ("challenger", "champion")
    )
    return {one["config"] for one in each["calibrators"]} - (challengers - champions)
