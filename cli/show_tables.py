"""The tables that ``trueup streams show`` prints. `streams.metrics.description` has the same figures for JSON."""

from collections.abc import Callable
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from replay.console import Console
from state.scoring.ages import words
from state.scoring.ranking import VOLUMES
from state.scoring.scores import SCORED, Murphy
from state.scoring.windows import KINDS
from streams.metrics import bands, challengers, functions, segments
from streams.metrics.vectors import NORMALISED

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
    _print(shown_on, table)
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
    for config, scored in each.get("vectors", {}).items():
        _print(shown_on, _vector_table(config, scored))
    curve = Table("kind", "events", "mean forecast", "share of events", title="reliability")
    low = Table("kind", "events", "mean forecast", "share of events", title="reliability below .1")
    for kind in SCORED:
        for one in each.get(kind, {}).get("reliability", ()):
            curve.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.4f}", f"{one['outcome']:.4f}")
        for one in each.get(kind, {}).get("low_reliability", ()):
            low.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.5f}", f"{one['outcome']:.5f}")
    if each["resolved"] or "vectors" not in each:
        _print(shown_on, curve, low, _health(each))
    _counted(shown_on, each)
    if "bands" in each:
        shown_on.print(bands.table(each["bands"], "bands"), *bands.words(each["bands"]), sep="\n")
    if "segments" in each:
        _print(shown_on, segments.table(each["segments"]))
        if (lately := segments.recent_table(each["segments"])) is not None:
            _print(shown_on, lately)
    if "biases" in each:
        _print(shown_on, functions.table(each["biases"]))
    if "shadows" in each:
        _print(shown_on, challengers.table(each["shadows"]))
    _calibrators(shown_on, each["calibrators"])


def _counted(shown_on: Console, each: dict[str, Any]) -> None:
    """Show how forecasts are distributed, and how old they are when outcomes come."""
    if "forecasts" in each:
        _print(shown_on, _forecasts_table(each["forecasts"]))
    if "ages" in each:
        _print(shown_on, _ages_table(each["ages"]))
        for finding in each["ages"]["findings"]:
            shown_on.print(f"labels: {finding['words']}.")


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
    _print(shown_on, held)


def _figures(heading: str) -> Column:
    return Column(heading.replace("_", "\n"), no_wrap=True)


def _print(shown_on: Console, *tables: Table) -> None:
    """Print tables so that they can be read at 80 columns: what is too wide is folded, nothing is cut off."""
    for table in tables:
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


def _vector_table(config: str, scored: dict[str, Any]) -> Table:
    title = f"{scored['resolved']:,} events under {config}; differences with their 95 % intervals"
    caption = NORMALISED if "classwise_ece" in scored[KINDS[0]] else None
    table = Table(Column("", no_wrap=True), *KINDS, title=title, caption=caption)
    for name, value in scored[KINDS[0]].items():
        if isinstance(value, float):
            table.add_row(name.replace("_", " "), *(f"{scored[kind][name]:.4f}" for kind in KINDS))
    for i, one in enumerate(scored[KINDS[0]].get("coverage", ())):
        shares = (scored[kind]["coverage"][i]["upto"] for kind in KINDS)
        table.add_row(f"at or below the quantile of {one['level']:g}", *(f"{share:.4f}" for share in shares))
    if "worst_window" in scored[KINDS[0]]:
        for name, which in (("last window's error", "last_window"), ("worst window's error", "worst_window")):
            table.add_row(name, *(_error(scored[kind][which]) for kind in KINDS))
        one_of = "level" if "coverage_error" in scored[KINDS[0]] else "window"
        noises = (f"{scored[kind]['worst_window']['noise']:.4f}" for kind in KINDS)
        table.add_row(f"  one {one_of} by chance alone", *noises)
    table.add_row("alarm, log10", *(_alarm(scored[kind], "") for kind in KINDS))
    table.add_row("recent alarm, log10", *(_alarm(scored[kind], "recent_") for kind in KINDS))
    for loss, of in scored["difference"].items():
        if of["error"] is not None:
            shown = f"{of['mean']:+.5f} ± {1.96 * of['error']:.5f}".replace("-", "−")
            table.add_row(f"{loss.replace('brier', 'Brier')} loss, served − raw", "", shown)
    return table


def _error(window: dict[str, Any]) -> str:
    place = f" (partition {window['partition']}, window {window['window']})" if "window" in window else ""
    return f"{window['error']:.4f}{place}"


def _forecasts_table(found: dict[str, Any]) -> Table:
    shift = "–" if found["shift"] is None else f"{found['shift']:.3f}"
    told = " (shifted)" if found["shifted"] else ""
    table = Table("raw forecasts", "events", "median", title=f"shift of the last week, PSI: {shift}{told}")
    for name, n, median in (("since yesterday", "latest", "median"), ("weeks before", "before", "median_before")):
        table.add_row(name, f"{found[n]:,}", "–" if found[median] is None else f"{found[median]:.5f}")
    return table


def _ages_table(ages: dict[str, Any]) -> Table:
    table = Table("outcome", "events", "half come within", "99 % within", title="age of forecasts when outcomes come")
    for label, one in ages["outcomes"].items():
        table.add_row(label, f"{one['n']:,}", words(1000 * one["median_s"]), words(1000 * one["most_s"]))
    if ages["expired"]:
        table.add_row("none before ttl", f"{ages['expired']:,}", "", "")
    return table


def _health(each: dict[str, Any]) -> Table:
    """Return a table of the figures an alarm is followed by, raw beside what was served."""
    kinds = [kind for kind in SCORED if kind in each]
    table = Table(Column("", no_wrap=True), *kinds, title="scores")

    def row(name: str, figure: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(name, *(figure(each[kind]) for kind in kinds))

    row("ECE", lambda of: f"{of['ece']:.4f}")
    row("  by chance alone", lambda of: f"{of['ece_noise']:.4f}")
    row("smooth ECE", lambda of: f"{of['smooth_ece']:.4f}")
    row("distance to calibration, at most", lambda of: _figure(of["certificate"]))
    row("two-bin error, squared", lambda of: f"{of['two_bin_error']:.2e}")
    row("  by chance alone", lambda of: f"{of['two_bin_noise']:.2e}")
    row("  raw's less this", lambda of: _gain(of["two_bin_gain"], "value"))
    row("  from, 95 %", lambda of: _gain(of["two_bin_gain"], "low"))
    row("  to", lambda of: _gain(of["two_bin_gain"], "high"))
    row("worst window's ECE", lambda of: _worst(of.get("worst_window")))
    row("relative error", lambda of: _figure(of["relative_error"]))
    row("  by chance alone", lambda of: _figure(of["relative_error_noise"]))
    row("mean off by", lambda of: _share(of["relative_bias"]))
    row("  by chance alone", lambda of: _share(of["relative_bias_noise"]).replace("+", "±"))
    row("AUC, lately", lambda of: _with_error(of["auc"], of["auc_error"]))
    row("Gini", lambda of: _figure(of["gini"]))
    row("KS", lambda of: _figure(of["ks"]))
    for i, volume in enumerate(VOLUMES):
        for name in ("recall", "precision"):
            row(
                f"{name}, top {100 * volume:g} %",
                lambda of, i=i, name=name: _with_error(of["top"][i][name], of["top"][i][f"{name}_error"]),  # type: ignore[misc]  # bound now
            )
    row("last window: ECE", lambda of: _figure(of.get("last_window", {}).get("ece")))
    row("last window: mean off by", lambda of: _share(of.get("last_window", {}).get("relative_bias")))
    row("log loss", lambda of: f"{of['log_loss']:.4f}")
    row("misclassified at .5", lambda of: f"{of['misclassification']:.4f}")
    for part in Murphy._fields:
        row(f"Brier score: {part}", lambda of, part=part: f"{of['brier_parts'][part]:.4f}")  # type: ignore[misc]  # bound now
    row("alarm, log10", lambda of: _alarm(of, ""))
    row("recent alarm, log10", lambda of: _alarm(of, "recent_"))
    return table


def _alarm(of: dict[str, Any], which: str) -> str:
    alarm = of.get("alarm")
    return f"{alarm[f'{which}log10']:.1f}{' sounds' if alarm[f'{which}sounds'] else ''}" if alarm else "–"


def _gain(gain: dict[str, float] | None, end: str) -> str:
    return "" if gain is None else f"{gain[end]:+.2e}"


def _with_error(value: float | None, error: float | None) -> str:
    return _figure(value) if value is None or error is None else f"{value:.3f} ± {error:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1%}"


def _worst(window: dict[str, Any] | None) -> str:
    return f"{window['ece']:.4f} (partition {window['partition']}, window {window['window']})" if window else "–"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
