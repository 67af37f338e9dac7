"""The pages as HTML: one style sheet and one short script, both inline and named by hash in the content policy.

Names of streams come from records, so they are anybody's: every text goes through `escape`, and the policy lets the
browser run and load nothing else.
"""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from agents.status import diagram
from agents.status.readings import ORDERS
from state.scoring.ages import words as age
from state.scoring.history import KINDS
from state.scoring.scores import SCORED
from streams.metrics import bands
from streams.metrics.description import guarantee, promises_p, saturated
from streams.metrics.segments import ERRORS, LATELY, level, mark, warming
from streams.metrics.vectors import NORMALISED

_HERE: Final = Path(__file__).parent
_STYLE: Final = _HERE.joinpath("page.css").read_text()
_SCRIPT: Final = _HERE.joinpath("page.js").read_text()
#: A picture for the tab, so that no browser asks for one.
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 14 14 2' "
    "stroke='%231f6f8b' stroke-width='2.5' stroke-linecap='round'/%3E%3C/svg%3E"
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


#: What a browser may do with a page.
POLICY: Final = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def listing(
    worker: Mapping[str, Any],
    shown: Sequence[Mapping[str, Any]],
    total: int,
    query: str,
    order: str,
    page: int,
    size: int,
) -> str:
    """Return the page of streams.

    Parameters
    ----------
    worker
        What `Readings.worker` returns.
    shown
        What `Readings.stream` returns of each stream of this page.
    total
        Streams that match the search.
    page, size
        Number of the page from 0, streams a page.
    """
    first = page * size
    where = f"{first + 1:,} to {first + len(shown):,} of {total:,}" if total > len(shown) else f"{total:,}"
    noun = "stream" if total == 1 else "streams"
    search = f" with “{escape(query)}” in its name" if query else ""
    counted = f"{where} {noun}{search}" if shown else f"no stream{search} yet"
    cards = "".join(f'<li class="card">{_card(each)}</li>' for each in shown)
    return _document(
        "trueup",
        f"{_head(worker)}{_stages(worker['stages'])}{_search(query, order)}"
        f'<p class="count">{counted}</p><ul class="cards">{cards}</ul>{_pager(query, order, page, size, total)}',
        worker,
    )


def detail(worker: Mapping[str, Any], described: Mapping[str, Any], maps: Sequence[dict[str, Any]]) -> str:
    """Return the page of one stream; ``maps`` is what `Readings.maps` returns."""
    name = escape(described["stream"])
    parts = [f'<section class="whole">{said}</section>'] if (said := _warm_up(described)) else []
    if picture := _diagram(described):
        parts.append(f'<section><h2>Reliability</h2>{picture}<p class="note">{_legend(described)}</p></section>')
    parts.append(f'<section class="large"><h2>Scores</h2>{_scores(described)}</section>')
    if "forecasts" in described:
        parts.append(
            f"<section><h2>Raw forecasts, lately and before</h2>{_forecasts(described['forecasts'])}</section>"
        )
    if "bands" in described:
        parts.append(f'<section class="whole"><h2>Bands</h2>{_of_bands(described["bands"])}</section>')
    if "segments" in described:
        parts.append(f'<section class="whole"><h2>Segments</h2>{_segments(described["segments"])}</section>')
    if "shadows" in described:
        shown = _challengers(described["shadows"])
        parts.append(f'<section class="whole"><h2>Challengers</h2>{shown}</section>')
    if "biases" in described:
        parts.append(f"<section><h2>Bias along features</h2>{_biases(described['biases'])}</section>")
    if "ages" in described:
        parts.append(f"<section><h2>Age of forecasts when outcomes come</h2>{_ages(described['ages'])}</section>")
    if maps:
        more = f" The first {diagram.LINES} of {len(maps)} partitions." if len(maps) > diagram.LINES else ""
        label = f"calibrated against raw forecasts of {described['stream']}"
        parts.append(
            f"<section><h2>What is served for what is forecast</h2>{diagram.maps(maps, label)}"
            f'<p class="note">Mean answer, by partition; features at 0.{more}</p></section>'
        )
    parts.append(f'<section class="whole"><h2>Calibrators</h2>{_calibrators(described["calibrators"])}</section>')
    return _document(
        f"{name} – trueup",
        f'{_head(worker)}<h2><a href="/">All streams</a> / {name}</h2><div class="wide">{"".join(parts)}</div>',
        worker,
    )


def problem(status: str, worker: Mapping[str, Any], said: str) -> str:
    """Return a page that says what went wrong."""
    return _document(
        f"{escape(status)} – trueup", f'{_head(worker)}<p>{escape(said)} <a href="/">All streams</a></p>', worker
    )


def _document(title: str, body: str, worker: Mapping[str, Any]) -> str:
    """Return a whole page; ``title`` and ``body`` are escaped already."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="{_ICON}"><style>{_STYLE}</style></head>'
        f"<body><main>{body}<footer>trueup {escape(worker['version'])} · configuration {escape(worker['config'])} · "
        'the same as <a href="/api/streams">JSON</a> · <a href="/metrics">metrics</a></footer></main>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def _head(worker: Mapping[str, Any]) -> str:
    own = f" · {escape(worker['instance_id'])}" if worker["instance_id"] else ""
    recovery, bar = worker["recovery"], ""
    if worker["ready"]:
        badge = '<span class="badge good">ready</span>'
    elif recovery["left"]:
        done = recovery["whole"] - recovery["left"]
        badge = '<span class="badge wait">restoring</span>'
        bar = (
            f'<p><progress max="{recovery["whole"]}" value="{done}"></progress><br>{recovery["left"]:,} of '
            f"{recovery['whole']:,} changelog records left to restore</p>"
        )
    else:
        badge = f'<span class="badge wait">not ready: {escape(worker["unready"])}</span>'
    ago = worker["seconds_since_update"]
    numbers = [str(each["partition"]) for each in worker["partitions"]]
    listed = ", ".join(numbers) if len(numbers) <= 12 else f"{len(numbers)}: {numbers[0]} to {numbers[-1]}"
    facts = [
        ("partitions", listed or "none"),
        *_copies(worker["standbys"]),
        ("wait for their outcome", f"{worker['pending']:,}"),
        ("wait until their forecast matures", f"{worker['waiting']:,}"),
        ("outcomes that came early", f"{worker['early']:,}"),
        ("last batch", "none yet" if ago is None else f"{_duration(ago)} ago"),
        ("version", worker["version"]),
        ("configuration", worker["config"]),
    ]
    if worker["hidden"]:
        facts.append(("streams without metrics", f"{worker['hidden']:,}"))
    hanging = "".join(f'<p class="notice bad">{escape(each)}</p>' for each in worker.get("hanging", ()))
    shown = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return (
        f'<header><h1><a href="/">trueup</a></h1><span class="of">{escape(worker["app_id"])}{own}</span>{badge}'
        f'</header><dl class="facts">{shown}</dl>{bar}{hanging}{_notices(worker.get("notices", ()))}'
    )


def _notices(notices: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each kind of dead letter, and of time that lies far off; the newest first."""
    return "".join(
        f'<p class="notice">{datetime.fromtimestamp(each["at"], UTC):%Y-%m-%d %H:%M} UTC: {escape(each["line"])}</p>'
        for each in notices
    )


def _copies(standbys: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the fact about the copies of what others serve, if there are any."""
    if standbys:
        behind = [each for each in standbys if each["lag"] != 0]
        lag = sum(each["lag"] or 0 for each in behind)
        yield (
            "copies of other workers' partitions",
            f"{len(standbys)}" + (f", of which {len(behind)} lack {lag:,} records" if behind else ", all whole"),
        )


def _stages(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what the other stages read; nothing where there are none."""
    if not found:
        return ""
    lines = "".join(
        f'<tr><td class="name">{each["stage"]}</td><td class="name">{escape(one["name"])}</td>'
        f'<td class="name">{escape(", ".join(one["topics"]))}</td>'
        f"<td>{escape(', '.join(f'{n:,} {fate}' for fate, n in one['fates'].items()))}</td>"
        f"<td{' class=bad' if one['dead'] else ''}>{one['dead']:,}</td>"
        f"<td>{'–' if one['lag'] is None else format(one['lag'], ',')}</td></tr>"
        for each in found
        for one in each["inputs"]
    )
    said = "".join(
        f'<p><span class="badge wait">{each["stage"]} is not ready: {escape(each["unready"])}</span></p>'
        for each in found
        if each["unready"]
    )
    heads = '<th class="name">stage</th><th class="name">source</th><th class="name">topic</th>'
    return (
        f'<section class="whole"><h2>Sources</h2>{said}<div class="scroll"><table><thead><tr>{heads}'
        "<th>records, by what became of them</th><th>dead letters</th><th>lag</th></tr></thead>"
        f"<tbody>{lines}</tbody></table></div></section>"
    )


def _search(query: str, order: str) -> str:
    options = "".join(
        f'<option value="{each}"{" selected" if each == order else ""}>by {each}</option>' for each in ORDERS
    )
    return (
        f'<form method="get" action="/" role="search"><input type="search" name="q" value="{escape(query)}" '
        'placeholder="Find a stream" aria-label="Find a stream" maxlength="255">'
        f'<select name="sort" aria-label="Order">{options}</select><button>Show</button></form>'
    )


def _pager(query: str, order: str, page: int, size: int, total: int) -> str:
    def link(to: int, words: str) -> str:
        there = urlencode({"q": query, "sort": order, "page": to + 1})
        return f'<a href="/?{escape(there)}">{words}</a>'

    last = max(-(-total // size) - 1, 0)
    if not last:
        return ""
    back = link(page - 1, "← Previous") if page else ""
    on = link(page + 1, "Next →") if page < last else ""
    return f'<nav aria-label="Pages">{back}<span>{page + 1:,} / {last + 1:,}</span>{on}</nav>'


def _card(described: Mapping[str, Any]) -> str:
    there = urlencode({"stream": described["stream"]})
    badge = ""
    found = [described, *described.get("vectors", {}).values()]
    for kind, word in (("calibrated", "bad"), ("raw", "wait")):
        if any(each.get(kind, {}).get("alarm", {}).get("recent_sounds") for each in found):
            badge = f' <span class="badge {word}">alarm: {kind}</span>'
            break
    return (
        f'<h2><a href="/?{escape(there)}">{escape(described["stream"])}</a>{badge}</h2>'
        f"{_warm_up(described)}{_shifted(described.get('forecasts', {}))}{_findings(described.get('ages', {}))}"
        f"{_worst_segment(described.get('segments', {}))}"
        f"{_diagram(described)}{_scores(described, short=True)}"
    )


def _diagram(described: Mapping[str, Any]) -> str:
    name = described["stream"]
    for scored in described.get("vectors", {}).values():
        if "coverage" in scored["raw"]:
            return diagram.coverage(scored, f"coverage of the quantiles of {name}")
    if "calibrated" in described:
        raw, served = (described[kind]["ece"] for kind in KINDS)
        return diagram.reliability(
            dict(described), f"reliability of {name}: calibration error {raw:.4f} raw, {served:.4f} calibrated"
        )
    if described.get("vectors"):
        return ""
    return "" if described.get("warm_up") else '<p class="note">No outcome yet.</p>'


def _legend(described: Mapping[str, Any]) -> str:
    if "calibrated" in described:
        return "Shades: 95 % intervals. Hollow: bins with less than a thousandth of the events."
    if described.get("vectors"):
        return "How many outcomes lay at or below each quantile, against its level."
    return "It appears with the first outcome."


#: Rows of the tables of scores: words, key, and whether a short table has it.
_SCORED: Final = (
    ("calibration error (ECE)", "ece", True),
    ("by chance alone", "ece_noise", False),
    ("smooth ECE", "smooth_ece", False),
    ("distance to calibration, at most", "certificate", True),
    ("relative error", "relative_error", False),
    ("by chance alone", "relative_error_noise", False),
    ("mean off by", "relative_bias", True),
    ("by chance alone, ±", "relative_bias_noise", False),
    ("AUC, lately", "auc", True),
    ("± its standard error", "auc_error", False),
    ("Gini", "gini", False),
    ("KS", "ks", False),
    ("Brier score", "brier", True),
    ("log loss", "log_loss", True),
    ("misclassified at .5", "misclassification", False),
    ("classwise ECE", "classwise_ece", True),
    ("top-label ECE", "top_label_ece", False),
    ("accuracy", "accuracy", True),
    ("coverage error", "coverage_error", True),
    ("CRPS", "crps", True),
)


#: The losses whose regret is kept, in words.
_LOSSES: Final = {"brier": "squared error", "log": "log loss", "misclassification": "misclassified at .5"}


def _scores(described: Mapping[str, Any], *, short: bool = False) -> str:
    """Return a table of the scores, raw beside calibrated, and error against bound and regret below it."""
    vectors = described.get("vectors", {}).values()
    parts = []
    for scored in [described, *vectors]:
        if not all(kind in scored for kind in KINDS):
            continue
        kinds = [kind for kind in SCORED if kind in scored]
        rows = [
            # Of classes and numbers it is over the life of the state.
            (
                words if scored is described else words.removesuffix(", lately"),
                [_number(scored[kind][key], share="relative_bias" in key) for kind in kinds],
            )
            for words, key, always in _SCORED
            if key in scored["raw"] and (always or not short)
        ]
        if not short:
            rows += _two_bin(scored, kinds)
            rows += _top(scored, kinds)
        lines = "".join(_row(words, (f"<td>{figure}</td>" for figure in figures)) for words, figures in rows)
        if not short and "alarm" in scored["raw"]:
            for words, which in (("alarm, log10", ""), ("recent alarm, log10", "recent_")):
                lines += _row(words, (_alarm(scored[kind].get("alarm"), which) for kind in kinds))
            lines += _row("worst window", (_worst(scored[kind]) for kind in kinds))
            if "noise" in scored["raw"].get("worst_window", {}):
                figures = (scored[kind]["worst_window"]["noise"] for kind in kinds)
                one_of = "level" if "coverage_error" in scored["raw"] else "window"
                lines += _row(f"one {one_of} by chance alone", (f"<td>{_number(figure)}</td>" for figure in figures))
        heads = "".join(f'<th class="{kind}">{kind}</th>' for kind in kinds)
        parts.append(
            f'<p class="note">{scored["resolved"]:,} outcomes</p><div class="scroll"><table><thead><tr><th></th>'
            f"{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
        )
        if not short and "classwise_ece" in scored["raw"]:
            parts.append(f'<p class="note">{NORMALISED}</p>')
    return "".join(parts) + _promise(described, short=short)


def _row(words: str, cells: Iterable[str]) -> str:
    return f"<tr><th>{words}</th>{''.join(cells)}</tr>"


def _two_bin(scored: Mapping[str, Any], kinds: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return rows of the averaged two-bin error and what was gained in it; none of classes and numbers."""
    if "two_bin_error" not in scored["raw"]:
        return []

    def gained(end: str) -> list[str]:
        gains = [scored[kind]["two_bin_gain"] for kind in kinds]
        return [f"{gain[end]:+.1e}" if gain else "" for gain in gains]

    # An end of the interval in a row of its own: in one cell they would take the place of the other columns.
    return [
        ("two-bin error, squared", [f"{scored[kind]['two_bin_error']:.1e}" for kind in kinds]),
        ("raw's less this", gained("value")),
        ("from, 95 %", gained("low")),
        ("to", gained("high")),
    ]


def _top(scored: Mapping[str, Any], kinds: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return rows of recall and precision among the highest forecasts; none of classes and numbers."""
    return [
        (f"{name}, top {100 * each['volume']:g} %", [_number(scored[kind]["top"][i][name]) for kind in kinds])
        for i, each in enumerate(scored["raw"].get("top", ()))
        for name in ("recall", "precision")
    ]


def _warm_up(described: Mapping[str, Any]) -> str:
    """Return until when raw scores are or were served, and what was served since; nothing without a warm-up."""
    said = described.get("warm_up", {}).get("words")
    return f'<p class="note">{escape(said)}</p>' if said else ""


def _findings(ages: Mapping[str, Any]) -> str:
    """Return what to set where outcomes do not come as the stream is configured, in words."""
    return "".join(
        f'<p class="note"><span class="bad">Labels:</span> {escape(each["words"])}.</p>'
        for each in ages.get("findings", ())
    )


def _shifted(found: Mapping[str, Any]) -> str:
    """Return that the raw forecasts have moved, in words; nothing if they have not."""
    if not found.get("shifted"):
        return ""
    before, now = (f"{found[median]:.3g}" for median in ("median_before", "median"))
    said = f"PSI {found['shift']:.2f}, median {before} before, {now} now"
    return f'<p class="note"><span class="bad">Raw forecasts have shifted:</span> {said}.</p>'


#: Segments whose bands a page shows.
BANDED: Final = 8


def _worst_segment(segments: Mapping[str, Any]) -> str:
    """Return how many segments are off and which is the worst, in words; nothing if none is."""
    lately = _lately(segments)
    if not segments.get("off"):
        return lately
    worst = segments["worst"][0]
    if "observed" in worst:
        said = f"{worst['calibrated']['mean']:.3f} served, {worst['observed']:.3f} observed"
    else:
        said = f"error {worst['calibrated']['ece']:.3f}, by chance {worst['calibrated']['ece_noise']:.3f}"
    return (
        f'<p class="note"><span class="bad">Segments:</span> {segments["off"]:,} of {segments["scored"]:,} are off. '
        f"Worst is {escape(worst['segment'])} = {escape(worst['value'])}: {said}.</p>{lately}"
    )


def _lately(segments: Mapping[str, Any]) -> str:
    """Return how many segments went wrong lately and which is the worst, in words; nothing if none did."""
    if not segments.get("recently_off"):
        return ""
    worst = next(each for each in segments["recent"] if each["sounds"])
    return (
        f'<p class="note"><span class="bad">Segments lately:</span> {segments["recently_off"]:,} of '
        f"{segments['scored']:,} are off. Worst is {escape(worst['segment'])} = {escape(worst['value'])}"
        f"{mark(worst, segments['of'])}: {worst['served']:.3f} served, {worst['observed']:.3f} observed "
        f"in {worst['events']:,} events.</p>"
    )


def _recent_segments(segments: Mapping[str, Any]) -> str:
    """Return the segments that are off lately as a table; that there are none, in words."""
    if not segments["recent"]:
        return '<p class="note">Lately no segment is off.</p>'
    lines = ""
    for each in segments["recent"]:
        off = each["off"]
        figures = [
            f"{each['events']:,}",
            *(_number(each[name]) for name in ("observed", "served")),
            _signed(off["mean"], 4),
            f"{_signed(off['low'], 4)} to {_signed(off['high'], 4)}",
            f"{each['alarm_log10']:.1f}",
        ]
        word = "name bad" if each["sounds"] else "name"
        lines += f'<tr><td class="name">{escape(each["segment"])}</td><td class="{word}">'
        lines += f"{escape(each['value'])}{mark(each, segments['of'])}</td>"
        lines += f"{''.join(f'<td>{figure}</td>' for figure in figures)}</tr>"
    heads = ("events", "observed", "served", "off by", "95 %", "alarm, log10")
    return (
        f'<p class="note">Lately {segments["recently_off"]:,} of {segments["scored"]:,} segments are off.</p>'
        '<div class="scroll"><table><thead><tr><th class="name">segment</th><th class="name">value</th>'
        f"{''.join(f'<th>{name}</th>' for name in heads)}</tr></thead><tbody>{lines}</tbody></table></div>"
        '<p class="note">Of the last windows of a segment those with the most evidence. 3 or more is an alarm.'
        f"{LATELY.get(segments['of'], '')}</p>"
    )


def _segments(segments: Mapping[str, Any]) -> str:
    """Return the worst segments as a table, and of probabilities the bands of the first of them."""
    if not segments["scored"]:
        return f'<p class="note">No segment is judged yet{warming(segments)}.</p>'
    if segments["of"] in ERRORS:
        return _recent_segments(segments) + _pair_segments(segments)
    heads = ("events", "observed", "raw", "served", "off by", "95 %", "ECE raw", "ECE", "by chance", "known")
    lines = "".join(_segment(each) for each in segments["worst"])
    note = "Off: chance does not explain the error, and it is .03, or .3 of what happened."
    tables = _worst_segments(segments, heads, lines, note) + _bands(segments["worst"][:BANDED])
    return _recent_segments(segments) + tables


def _worst_segments(segments: Mapping[str, Any], heads: Sequence[str], lines: str, note: str) -> str:
    """Return the table of the worst segments, from its heads and lines, with how many are off."""
    more = f" The {len(segments['worst'])} worst:" if len(segments["worst"]) < segments["scored"] else ""
    return (
        f'<p class="note">{segments["off"]:,} of {segments["scored"]:,} segments are off{warming(segments)}.{more}</p>'
        f'<div class="scroll"><table><thead><tr><th class="name">segment</th><th class="name">value</th>'
        f"{''.join(f'<th>{name}</th>' for name in heads)}</tr></thead><tbody>{lines}</tbody></table></div>"
        f'<p class="note">{note} Known: share of the forecasts whose time is over that had an outcome.</p>'
    )


def _pair_segments(segments: Mapping[str, Any]) -> str:
    """Return the worst segments of a stream of classes or numbers as a table."""
    lines = ""
    for each in segments["worst"]:
        off, loss = each["off"], next(iter(each["difference"].values()))
        figures = [
            f"{each['events']:,}",
            *(_number(value) for value in (each["raw"]["ece"], each["calibrated"]["ece"])),
            _number(each["calibrated"]["ece_noise"]),
            level(off) + _signed(off["mean"], 4),
            "–" if off["low"] is None else f"{_signed(off['low'], 4)} to {_signed(off['high'], 4)}",
            "–" if each["coverage"] is None else f"{each['coverage']:.0%}",
        ]
        word = "name bad" if each["sounds"] else "name"
        lines += f'<tr><td class="name">{escape(each["segment"])}</td><td class="{word}">{escape(each["value"])}</td>'
        lines += f"{''.join(f'<td>{figure}</td>' for figure in figures)}"
        lines += f"{_difference(loss) if loss['error'] is not None else '<td>–</td>'}</tr>"
    heads = ("events", "error raw", "error", "by chance", "off by", "95 %", "known", "loss, served − raw")
    note = f"{ERRORS[segments['of']]} Off: chance does not explain the error, and it is .03."
    return _worst_segments(segments, heads, lines, note)


def _of_bands(described: Mapping[str, Any]) -> str:
    """Return the bands as a table, by the raw and by the served score, and those of segments; what moved, in words."""
    heads = ["from", "forecasts", "share", "labels", "precision", "recall", "false alarms a hit"]
    costs = any(each["raw"]["cost"] is not None for each in described["bands"])
    lines = ""
    for each in described["bands"]:
        for kind in KINDS:
            one = each[kind]
            figures = [
                "–" if each["threshold"] is None else f"{each['threshold']:.4g}",
                f"{one['forecasts']:,}",
                bands.share(one["share"]),
                f"{one['known']:,}",
                bands.share(one["precision"]),
                bands.share(one["recall"]),
                "–" if one["false_alarms"] is None else f"{one['false_alarms']:,.1f}",
                *([f"{one['cost']:,.0f}"] if costs else []),
            ]
            name = f'<td class="name">{escape(each["band"] or bands.BELOW)}</td><td class="name {kind}">{kind}</td>'
            lines += f"<tr>{name}{''.join(f'<td>{figure}</td>' for figure in figures)}</tr>"
    said = "".join(
        f'<p class="note"><span class="bad">Moved:</span> {escape(line)}</p>' for line in bands.words(described)
    )
    columns = "".join(f"<th>{name}</th>" for name in (*heads, *(["cost"] if costs else [])))
    return (
        f'{said}<div class="scroll"><table><thead><tr><th class="name">band</th><th class="name">by</th>{columns}</tr>'
        f'</thead><tbody>{lines}</tbody></table></div><p class="note">{bands.CAPTION}</p>'
        f"{_bands_of_segments(described['segments'])}"
    )


def _bands_of_segments(segments: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of each band and its precision in each segment; nothing without segments."""
    if not segments:
        return ""
    heads = "".join(f"<th>{escape(each['band'] or bands.BELOW)}</th>" for each in segments[0]["bands"])
    lines = ""
    for each in segments:
        cells = "".join(
            f"<td>{bands.share(one['calibrated']['share'])}<br>({bands.share(one['calibrated']['precision'])})</td>"
            for one in each["bands"]
        )
        place = f'<td class="name">{escape(each["segment"])} = {escape(each["value"])}</td>'
        lines += f"<tr>{place}<td>{each['forecasts']:,}</td>{cells}</tr>"
    return (
        f'<p class="note">Share of each band in the segments with most forecasts above the lowest one, as served; in '
        f'parentheses its precision.</p><div class="scroll"><table><thead><tr><th class="name">segment</th>'
        f"<th>forecasts</th>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _challengers(shadows: Sequence[Mapping[str, Any]]) -> str:
    """Return each challenger beside the champion that it challenged, by the losses of both on the same events."""
    lines = ""
    for each in shadows:
        names = "".join(
            f'<td class="name">{escape(each[side]["calibrator"] or "–")} {escape(each[side]["config"])}</td>'
            for side in ("challenger", "champion")
        )
        errors = "".join(f"<td>{_number(each[side]['ece'])}</td>" for side in ("challenger", "champion"))
        for loss, of in each["difference"].items():
            if of["error"] is not None:
                lines += f"<tr>{names}<td>{each['events']:,}</td>{errors}<td>{_DIFFERENCES[loss]}</td>"
                lines += f"{_difference(of)}</tr>"
    if not lines:
        return '<p class="note">No event has resolved under both yet.</p>'
    heads = "".join(f"<th>{name}</th>" for name in ("events", "error", "champion's", "loss", "challenger − champion"))
    return (
        '<div class="scroll"><table><thead><tr><th class="name">challenger</th><th class="name">champion</th>'
        f"{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
        '<p class="note">Mean difference of the losses on the events that both answered ± 95 %, as if events were '
        "independent. Below 0 the challenger is better: see trueup streams promote.</p>"
    )


def _segment(each: Mapping[str, Any]) -> str:
    raw, served, off = each["raw"], each["calibrated"], each["off"]
    figures = [
        f"{each['events']:,}",
        *(_number(value) for value in (each["observed"], raw["mean"], served["mean"])),
        _signed(off["mean"], 4),
        "–" if off["low"] is None else f"{_signed(off['low'], 4)} to {_signed(off['high'], 4)}",
        *(_number(value) for value in (raw["ece"], served["ece"], served["ece_noise"])),
        "–" if each["coverage"] is None else f"{each['coverage']:.0%}",
    ]
    word = "name bad" if each["sounds"] else "name"
    name = f'<td class="name">{escape(each["segment"])}</td><td class="{word}">{escape(each["value"])}</td>'
    return f"<tr>{name}{''.join(f'<td>{figure}</td>' for figure in figures)}</tr>"


def _bands(segments: Sequence[Mapping[str, Any]]) -> str:
    """Return served minus observed by segment and band of the served forecast."""
    found = sorted({(band["low"], band["high"]) for each in segments for band in each["calibrated"]["bands"]})
    lines = ""
    for each in segments:
        bands = {(band["low"], band["high"]): band for band in each["calibrated"]["bands"]}
        cells = "".join(
            f"<td>{_signed(bands[edges]['forecast'] - bands[edges]['outcome'], 3)}<br>({bands[edges]['n']:,})</td>"
            if edges in bands
            else "<td></td>"
            for edges in found
        )
        lines += f'<tr><td class="name">{escape(each["segment"])} = {escape(each["value"])}</td>{cells}</tr>'
    heads = "".join(f"<th>{low:g} to {high:g}</th>" for low, high in found)
    return (
        '<p class="note">Served minus observed, by band of what was served; in parentheses the events.</p>'
        f'<div class="scroll"><table><thead><tr><th class="name">segment</th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


#: Functions whose bias a page shows.
FUNCTIONS: Final = 16


def _biases(biases: Sequence[Mapping[str, Any]]) -> str:
    """Return the biases that the calibrator bounds as a table, the nearest to its bound first."""
    lines = ""
    for each in biases[:FUNCTIONS]:
        word = " class=bad" if abs(each["bias"]) > each["bound"] else ""
        figures = f"<td{word}>{_signed(each['bias'], 5)}</td><td>{each['bound']:.5f}</td>"
        lines += f'<tr><td class="name">{escape(each["name"])}</td>{figures}</tr>'
    more = len(biases) - FUNCTIONS
    rest = f" {more:,} more are in the JSON." if more > 0 else ""
    return (
        '<div class="scroll"><table><thead><tr><th class="name">along f</th><th>mean of f (p − y)</th><th>bound, ±</th>'
        f'</tr></thead><tbody>{lines}</tbody></table></div><p class="note">No sequence of prompt outcomes makes a bias '
        f"larger than its bound.{rest}</p>"
    )


def _signed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def _forecasts(found: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<tr><th>{words}</th><td>{found[n]:,}</td>"
        f"<td>{'–' if found[median] is None else f'{found[median]:.3g}'}</td></tr>"
        for words, n, median in (("since yesterday", "latest", "median"), ("weeks before", "before", "median_before"))
    )
    shift = "– (too few before)" if found["shift"] is None else f"{found['shift']:.3f}"
    lines += f"<tr><th>shift (PSI)</th><td></td><td>{shift}</td></tr>"
    heads = "<th></th><th>forecasts</th><th>median</th>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f'{_shifted(found)}<div class="scroll">{table}</div>'


def _ages(ages: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<tr><th>outcome {escape(label)}</th><td>{one['n']:,}</td><td>{age(1000 * one['median_s'])}</td>"
        f"<td>{age(1000 * one['most_s'])}</td></tr>"
        for label, one in ages["outcomes"].items()
    )
    if ages["expired"]:
        lines += f"<tr><th>none before ttl</th><td>{ages['expired']:,}</td><td></td><td></td></tr>"
    return (
        f'{_findings(ages)}<div class="scroll"><table><thead><tr><th></th><th>events</th><th>half within</th>'
        f"<th>99 % within</th></tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _promise(described: Mapping[str, Any], *, short: bool) -> str:
    held = guarantee(described["calibrators"])
    error, bound = held["error"], held["bound"]
    said = []
    if error is not None and bound is not None and promises_p(described["calibrators"]):
        proven = (
            f"guaranteed beforehand, whoever sees p: {bound:.4f}"
            if bound < 1.0
            else "nothing below 1 is guaranteed beforehand: too few outcomes yet, or hardly any zeros among them"
        )
        drawn = diagram.gauge(error, bound) if bound < 1.0 else ""
        said.append(f'<p class="note">p is at most {error:.4f} from calibrated scores; {proven}</p>{drawn}')
    elif error is not None and bound is not None and bound < 1.0:
        word = "over" if error > bound else "under"
        said.append(f'<p class="note">error {error:.4f}, {word} its bound {bound:.4f}</p>{diagram.gauge(error, bound)}')
    elif error is not None:
        why = (
            "its calibrator has no theorem"
            if bound is None
            else "too few outcomes yet, or too many others come between a forecast and its own"
        )
        said.append(f'<p class="note">error {error:.4f}, no bound below 1 is proven: {why}</p>')
    lines = "".join(
        f"<tr><th>regret, {words}</th>{_regret(described['regret'][loss])}</tr>"
        for loss, words in _LOSSES.items()
        if "regret" in described and (loss == "brier" or not short)
    )
    for each in described.get("vectors", {}).values():
        if (served := each["calibrated"].get("coverage_error")) is not None:
            lines += f"<tr><th>error of what was served</th><td>{served:.4f}</td></tr>"
        lines += "".join(
            f"<tr><th>{_DIFFERENCES[loss]}, served − raw</th>{_difference(of)}</tr>"
            for loss, of in each["difference"].items()
            if of["error"] is not None
        )
    if (count := saturated(described["calibrators"])) is not None:
        lines += f"<tr><th>saturated answers</th><td>{count:,}</td></tr>"
    waiting = sum(each["outstanding"] for each in described["calibrators"])
    lines += f"<tr><th>outstanding, on average</th><td>{waiting:,}</td></tr>"
    return f'{"".join(said)}<div class="scroll"><table><tbody>{lines}</tbody></table></div>'


#: The losses of classes and numbers whose difference is kept, in words.
_DIFFERENCES: Final = {"brier": "Brier score", "log": "log loss", "pinball": "pinball loss"}


def _difference(of: Mapping[str, float]) -> str:
    """Return the mean loss beyond that of the raw forecasts with its 95 % interval, and whether chance explains it."""
    mean, error = of["mean"], 1.96 * of["error"]
    word = ""
    if abs(mean) > error:
        word = ' <span class="good">better</span>' if mean < 0 else ' <span class="bad">worse</span>'
    return f"<td>{_signed(mean, 5)} ± {error:.5f}{word}</td>"


def _regret(value: float) -> str:
    """Return the summed loss beyond that of the raw forecasts; less is a gain."""
    word, colour = ("gained", "good") if value <= 0 else ("lost", "bad")
    return f'<td>{f"{value:+,.1f}".replace("-", "−")} <span class="{colour}">{word}</span></td>'


def _calibrators(found: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{word}</th>" for word in ("learnt", "outstanding", "error", "bound"))
    lines = "".join(
        f'<tr><td class="name">{each["partition"]}</td><td class="name">{escape(each["calibrator"])}</td>'
        f'<td class="name">{escape(each["config"])}</td><td>{each["version"]:,}</td><td>{each["outstanding"]:,}</td>'
        f"<td>{_number(each['error'])}</td><td>{_number(each['bound'])}</td></tr>"
        for each in found
    )
    return (
        '<div class="scroll"><table><thead><tr><th>partition</th><th class="name">calibrator</th>'
        f'<th class="name">configuration</th>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _alarm(alarm: Mapping[str, Any] | None, which: str) -> str:
    if alarm is None:
        return "<td>–</td>"
    sounds = alarm[f"{which}sounds"]
    said = f"{alarm[f'{which}log10']:.1f}{' sounds' if sounds else ''}"
    return f"<td{' class=bad' if sounds else ''}>{said}</td>"


def _worst(scored: Mapping[str, Any]) -> str:
    window = scored.get("worst_window")
    return f"<td>{_number(window['ece' if 'ece' in window else 'error']) if window else '–'}</td>"


def _number(value: float | None, *, share: bool = False) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.1%}".replace("-", "−") if share else f"{value:.4f}"


def _duration(seconds: float) -> str:
    units: tuple[tuple[float, str, Callable[[float], str]], ...] = (
        (86_400, "d", "{:.1f}".format),
        (3600, "h", "{:.1f}".format),
        (60, "min", "{:.0f}".format),
        (0, "s", "{:.0f}".format),
    )
    return next(f"{show(seconds / (size or 1))} {unit}" for size, unit, show in units if seconds >= size)
