"""The result of a replay, on a terminal."""

import math
from collections.abc import Iterator, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column
from rich.table import Table as Rich

from agents.status.number_format import minute, score
from cli.show_tables import page_tables
from replay.figures import Scorecard
from replay.report import message, recommendation, sentences, stream_tables
from replay.report.rule import Verdicts, judged
from replay.report.warnings import lateness, turned, unresolved, unsegmented, unsorted
from replay.result import LARGER, RAW, Contender, MetricDifference, ReplayPace, Result, drawn

#: Metrics in the tables of differences, with their headings. The JSON has all metrics.
_SHOWN = ({"ece": "ECE", "brier": "Brier"}, {"auc": "AUC", "recall": "recall"})


def show(console: Console, result: Result, pace: ReplayPace) -> None:
    """Print the result: what was read, scores, differences, warnings."""
    span = ""
    if result.start_ms is not None and result.end_ms is not None:
        span = f" from {minute(result.start_ms)} to {minute(result.end_ms)}"
    runs, processes = len(result.contenders), pace.processes
    console.print(f"replay {result.run}: {result.records:,} records{span}", highlight=False)
    console.print(
        f"{pace.records_per_s:,.0f} records/s, {runs} configuration{'s' * (runs > 1)} side by side, "
        f"{processes} process{'es' * (processes > 1)}",
        highlight=False,
    )
    for sentence in result.taken:
        console.print(sentence, soft_wrap=True, highlight=False)
    for each in (*turned(result), *unsegmented(result), *lateness(result)):
        console.print(f"{each.title} {each.sentence}", soft_wrap=True, highlight=False)
    scored = [each for each in result.contenders if each.overall]
    if scored:
        console.print(_scores(scored))
        console.print(_ranks(scored, result))
    if result.differences:
        for shown in _SHOWN:
            console.print(_differences(result, shown))
    for contender in result.contenders:
        page_tables(console, stream_tables.of_vectors(contender, result))
        page_tables(console, stream_tables.of_probabilities(contender))
    for line in warnings(result):
        console.print(line, soft_wrap=True, highlight=False)
    found = recommendation.verdicts(result)
    changed = message.changed(message.chosen(scored, found[0].name)) if scored else ()
    for line in (*(line for made in found for line in (made.headline, *made.reasons)), *changed):
        console.print(line, soft_wrap=True, highlight=False)


def _scores(contenders: list[Contender]) -> Rich:
    """Return a row for each contender and one for raw: the scores after the warm-up."""
    table = _table("ECE", "chance", "worst", "Brier", "log", "regret", "own error", "bound")
    table.title = "after the warm-up; regret, own error and bound are of all"
    for contender in contenders:
        overall = contender.overall
        if overall is None:
            continue
        if not table.row_count:
            table.add_row(RAW, *_card(overall.judged.raw))
        table.add_row(
            contender.name,
            *_card(overall.judged.calibrated),
            f"{overall.regret_brier:+,.0f}",
            score(overall.l1),
            score(overall.bound),
        )
    return table


def _ranks(contenders: list[Contender], result: Result) -> Rich:
    """Return a row for each contender, its draw, and raw: ranking and level after the warm-up."""
    table = _table("warm-up", "mean", "off", "AUC", f"recall {100 * result.volume:g}%", "different")
    table.title = "after the warm-up"
    for contender in contenders:
        if contender.overall is None:
            continue
        phase, learnt = contender.overall.settled, sentences.learning(contender)
        if not table.row_count:
            table.add_row(RAW, "", *_order(phase.raw))
        issued = sum(each.issued for each in learnt)
        spent = f"{sum(each.warmup.issued for each in learnt) / issued:.1%}" if issued else ""
        table.add_row(contender.name, spent, *_order(phase.calibrated))
        if phase.draw:
            table.add_row(drawn(contender.name), "", *_order(phase.draw))
    return table


def _order(card: Scorecard) -> Iterator[str]:
    off = "–" if math.isnan(card.relative_error) else f"{card.relative_error:+.1%}"
    yield from (score(card.mean_forecast), off, score(card.auc), score(card.recall), f"{card.distinct:,}")


def _table(*figures: str) -> Rich:
    """Return a table that shortens only its first column, so that 80 columns show every figure in full."""
    table = Rich(Column("", overflow="fold"), box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _card(card: Scorecard) -> Iterator[str]:
    return map(score, (card.ece, card.ece_noise, card.worst_window_ece, card.brier, card.log_loss))


def _differences(result: Result, shown: Mapping[str, str]) -> Rich:
    how = result.bootstrap
    made = "" if how is None else f": 95 % by {how.resamples:,} resamples, blocks of {how.block:,}"
    table = _table(*shown.values())
    table.title = f"{'above' if LARGER & shown.keys() else 'below'} 0 is better{made}"
    rows: dict[tuple[str, str], dict[str, MetricDifference]] = {}
    for each in result.differences:
        rows.setdefault((each.name, each.against), {})[each.metric] = each
    verdicts = judged(result)
    for (name, against), found in rows.items():
        table.add_row(f"{name} − {against}", *(_interval(found[metric], verdicts) for metric in shown))
    return table


def _interval(each: MetricDifference, verdicts: Verdicts) -> str:
    """Return a difference. It is marked if it is clear and large enough to matter."""
    if math.isnan(each.low):
        return "–"
    mark = (" ✓", "", " ✗")[verdicts.sign(each) + 1]
    return f"{each.value:+.4f} [{each.low:+.4f}, {each.high:+.4f}]{mark}"


def warnings(result: Result) -> list[str]:
    """Return the warnings that belong to the figures, one sentence each."""
    found = []
    for topic, reasons in result.dead.items():
        if reasons:
            listed = ", ".join(f"{reason} {n:,}" for reason, n in reasons.items())
            found.append(f"dead letters of {topic}: {sum(reasons.values()):,} ({listed})")
    found += [f"{each.title} {each.sentence}" for each in unsorted(result)]
    for contender in result.contenders[:1]:
        found += [f"{each.title} {each.sentence}" for each in unresolved(contender)]
        bands = [each for each in contender.overall.coverage if not each.identifiable] if contender.overall else []
        if bands:
            listed = ", ".join(f"{each.low:.1f}-{each.high:.1f} ({each.share:.0%})" for each in bands)
            found.append(f"few forecasts of these scores have outcomes, nothing can be said of them: {listed}")
    return found
