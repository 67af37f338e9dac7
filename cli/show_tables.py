"""The tables that ``trueup streams show`` prints, those of the status page among them."""

from collections.abc import Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from agents.status import score_tables, tables, view
from agents.status.markup import Markup
from replay.console import Console
from state.scoring.scores import SCORED
from state.scoring.windows import KINDS
from streams.metrics import bands, challengers, segments, weights

#: Of each partition's calibrator.
MEASURES: Final = ("error", "bound", "noise", "internal_regret")


def console(*, stderr: bool = False) -> Console:
    """Return a console that shows the names of streams as they are: they come from records."""
    return Console(stderr=stderr, markup=False, emoji=False)


def show(report: dict[str, dict[str, Any]], counts: dict[str, int], *, whole: bool) -> None:
    """Print the description of each stream, in full if ``whole``, else one line each; then the counts of all."""
    shown_on = console()
    caption = "Of classes the ECE and AUC of the likeliest class; of numbers the error of coverage in place of the ECE."
    table = Table(
        "stream",
        *(_figures(each) for each in ("resolved", "ECE_raw", "ECE", "AUC_raw", "AUC", "regret")),
        "calibrator",
        caption=caption if any("vectors" in each for each in report.values()) else None,
    )
    for name, each in report.items():
        scores = [_figure(_short(each, kind, score)) for score in ("ece", "auc") for kind in KINDS]
        regret = f"{each['regret']['brier']:+.1f}" if "regret" in each else "–"
        made = ", ".join(sorted({one["calibrator"] for one in each["calibrators"] if one["config"] in _served(each)}))
        resolved = each["resolved"] + sum(scored["resolved"] for scored in each.get("vectors", {}).values())
        resolved += each.get("warm_up", {}).get("resolved", 0)
        table.add_row(name, f"{resolved:,}", *scores, regret, made)
    fitted(shown_on, table)
    if not whole:
        shown_on.print("  ".join(f"{fate} {n:,}" for fate, n in counts.items() if n))
        return
    for each in report.values():
        _whole(shown_on, each)


def _short(each: dict[str, Any], kind: str, score: str) -> float | None:
    """Return a figure of the line of a stream: of classes or numbers that of the configuration with most outcomes."""
    nothing: dict[str, Any] = {}
    vectors = max(each.get("vectors", nothing).values(), key=lambda scored: int(scored["resolved"]), default=nothing)
    scored = each.get(kind) or vectors.get(kind) or nothing
    names = (score, "top_label_ece", "coverage_error") if score == "ece" else (score,)
    return next((scored[name] for name in names if name in scored), None)


def _whole(shown_on: Console, each: dict[str, Any]) -> None:
    if said := each.get("warm_up", {}).get("words"):
        shown_on.print(said)
    for name, title in (("reliability", "reliability"), ("low_reliability", "reliability below .1")):
        curve = Table("kind", "events", "mean forecast", "share of events", title=title)
        for kind in SCORED:
            for one in each.get(kind, {}).get(name, ()):
                curve.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.5f}", f"{one['outcome']:.5f}")
        if each["resolved"] or "vectors" not in each:
            fitted(shown_on, curve)
    _print_those_of_the_page(shown_on, [*score_tables.scores(each), tables.forecasts(each), tables.ages(each)])
    for what, said in view.notes(each):
        shown_on.print(what, said)
    if "bands" in each:
        shown_on.print(bands.table(each["bands"], "bands"))
    if "weighted" in each:
        fitted(shown_on, weights.table(each["weighted"]))
    if "segments" in each:
        fitted(shown_on, segments.table(each["segments"]))
        if (lately := segments.recent_table(each["segments"])) is not None:
            fitted(shown_on, lately)
    _print_those_of_the_page(shown_on, [tables.models(each.get("versions", []))])
    if "shadows" in each:
        fitted(shown_on, challengers.table(each["shadows"]))
    _print_those_of_the_page(shown_on, [tables.biases(each)])
    _calibrators(shown_on, each["calibrators"])


def _print_those_of_the_page(shown_on: Console, given: Sequence[score_tables.Table]) -> None:
    """Print tables of the stream's page, without their colours."""
    for each in given:
        if not each.rows and not each.words:
            continue
        first, *others = map(str, each.head)
        made = Table(Column(first, no_wrap=True), *others, title=each.title, caption=each.note or None)
        for row in each.rows:
            made.add_row(*(cell.striptags() if isinstance(cell, Markup) else str(cell) for cell in row))
        for said in each.words:
            shown_on.print(said)
        fitted(shown_on, made)


def _calibrators(shown_on: Console, calibrators: list[dict[str, Any]]) -> None:
    held = Table("part", "calibrator", *(_figures(each) for each in ("version", "open", *MEASURES)))
    saturated = any(one["saturated"] is not None for one in calibrators)
    if saturated:
        held.add_column("saturated", no_wrap=True)
    for one in calibrators:
        # A bound of 1 says nothing.
        shown = {**one, "bound": None if one["bound"] == 1.0 else one["bound"]}
        figures = ["–" if shown[name] is None else f"{shown[name]:.4f}" for name in MEASURES]
        if saturated:
            figures.append("–" if one["saturated"] is None else f"{one['saturated']:,}")
        of = f"{one['calibrator']} ({one['config']})"
        held.add_row(str(one["partition"]), of, f"{one['version']:,}", f"{one['outstanding']:,}", *figures)
    fitted(shown_on, held)


def _figures(heading: str) -> Column:
    return Column(heading.replace("_", "\n"), no_wrap=True)


def fitted(shown_on: Console, *made: Table) -> None:
    """Print tables so that they can be read at 80 columns: what is too wide is folded, nothing is cut off."""
    for table in made:
        table.box, table.pad_edge, table.padding = SIMPLE_HEAD, False, (0, 1, 0, 0)
        for column in table.columns:
            column.overflow = "fold"
        shown_on.print(table)


def _served(each: dict[str, Any]) -> set[str]:
    """Return the configurations that have served, as far as the rows say: not those that only challenged."""
    challengers, champions = (
        {one[side]["config"] for one in each.get("shadows", ())} for side in ("challenger", "champion")
    )
    return {one["config"] for one in each["calibrators"]} - (challengers - champions)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
