"""The page: one file of HTML with its style and its pictures inside, that asks for nothing and runs nothing."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count as numbers
from pathlib import Path

from agents.status.markup import Child, Markup, prose, tag, text
from agents.status.number_format import count, day, period, share
from replay.report import labels, provenance, recommendation, reliability, tables, time_series
from replay.report.definitions import DEFINITIONS
from replay.report.figure import Figure, Series, series_of
from replay.report.recommendation import RULE, Recommendation
from replay.report.table import Table
from replay.report.warnings import cautions, limits
from replay.result import RAW, Contender, Result

_NO_THRESHOLD = "No threshold was given, so no alerts were counted: --threshold P counts them."
_BRACKETS = (
    "Differences, below 0 where the first is better, of AUC and recall above 0; in brackets their 95% intervals."
)
_DELAYS = "The choice and all figures below are of the delay {}; the other delays stand in the tables of this section."
_NO_FEATURES = "No stream has features, so no bias was measured: the streams' configuration names them."
_STYLE = Path(__file__).with_name("page.css")


def page(result: Result) -> bytes:
    """Return the report of a replay: the same result, the same bytes."""
    style = _STYLE.read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    title = f"Calibration replay {result.run}: {subject(result)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        # Whatever a name might smuggle in: nothing runs, nothing is fetched, and no style but ours counts.
        tag("meta", http_equiv="Content-Security-Policy", content=f"default-src 'none'; style-src 'sha256-{digest}'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("main", *_body(result)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".encode()


def subject(result: Result) -> str:
    """Return what the replay is of: its stream, or how many there are."""
    names = sorted({name for each in result.contenders for name in each.configs})
    return names[0] if len(names) == 1 else f"{count(len(names))} streams"


def _body(result: Result) -> Iterator[Markup]:
    chosen = recommendation.choose(result)
    contenders = recommendation.base(result)
    drawn = series_of(contenders, chosen.name)
    figures, numbered = numbers(1), numbers(1)

    def section(title: str, key: str, *parts: Figure | Table | Child) -> Markup:
        """Return a section of what there is; nothing if there is nothing."""
        held = [
            part.markup(next(numbered))
            if isinstance(part, Table)
            else part.markup(next(figures))
            if isinstance(part, Figure)
            else part
            for part in parts
            if part
        ]
        return tag("section", tag("h2", title), *held, id=key) if held else text("")

    yield _header(result, contenders)
    yield _choice(recommendation.verdicts(result), compared=bool(result.differences or result.vector_differences))
    yield _warnings(result)
    if contenders and contenders[0].overall:
        every = [(_series(each, drawn), each) for each in result.contenders if each.overall]
        mine = [(series, each) for series, each in every if each in contenders]
        others = len(every) > len(mine)
        yield section(
            "Comparison",
            "compared",
            tag("p", _DELAYS.format(contenders[0].delay)) if others else None,
            tables.comparison(every, chosen.name),
            tables.ranks(every, result),
            tables.differences(result) if result.differences else None,
            tables.warmup(every),
        )
        yield section("Reliability", "reliable", reliability.figure(drawn))
        yield section("Over time", "time", *time_series.figures(drawn), tables.worst(mine))
        first = contenders[0].overall
        yield section("Labels", "known", *labels.figures(first), tables.labels(first))
        yield section("Bands", "banded", tables.bands_of(drawn))
        yield section("Alerts", "alerting", tables.alerts(mine) or tag("p", _NO_THRESHOLD))
        yield section(
            "Bias along features",
            "bias",
            tables.features(drawn) or tag("p", _NO_FEATURES),
            tables.functions(drawn),
        )
        yield section(
            "Segments", "segmented", tables.segments(drawn), tables.bands(drawn), tables.recent_segments(drawn)
        )
        yield section("Streams", "apart", tables.streams(drawn))
    yield section(
        "Classes and numbers",
        "others",
        tables.vectors(result.contenders),
        tables.vector_differences(result),
        tables.vector_segments(result.contenders),
        tables.recent_vector_segments(result.contenders),
    )
    yield section("How the figures are defined", "defined", _definitions())
    yield section("What cannot be concluded", "limits", tag("ul", *(tag("li", prose(each)) for each in limits(result))))
    yield section("How the choice is made", "rule", tag("p", RULE))
    yield section(
        "Where the figures come from",
        "origin",
        provenance.sources(result.manifest),
        provenance.configurations(result.contenders),
        provenance.fates(result.contenders) if result.contenders else None,
        tag(
            "p",
            f"Replay {result.run}, trueup {result.version}. The name of the replay is a hash of the sources, the "
            "configurations and the options. The same replay gives this page again, byte for byte; so it bears no date "
            "of its making.",
        ),
    )


def _series(contender: Contender, drawn: Sequence[tuple[Series, Contender]]) -> Series:
    return next((series for series, each in drawn if each is contender), Series(contender.name, "none"))


def _header(result: Result, contenders: Sequence[Contender]) -> Markup:
    facts: list[tuple[str, Child]] = []
    if result.start_ms is not None and result.end_ms is not None:
        facts.append(("Data", period(result.start_ms, result.end_ms)))
    facts.append(("Records", count(result.records)))
    if contenders and contenders[0].overall:
        overall = contenders[0].overall
        known = overall.raw.n / overall.issued if overall.issued else None
        facts += [
            ("Forecasts", count(overall.issued)),
            ("With an outcome", f"{count(overall.raw.n)} ({share(known)})"),
            ("Share of yes", share(overall.raw.base_rate)),
        ]
    delays = len({each.delay for each in result.contenders})
    facts.append(("Configurations", count(len(contenders or result.contenders))))
    if delays > 1:
        facts.append(("Delays", count(delays)))
    facts.append(("Replay", tag("code", result.run)))
    when = (
        ""
        if result.start_ms is None or result.end_ms is None
        else f", {day(result.start_ms)} to {day(result.end_ms)}, played again through each configuration as if live."
    )
    return tag(
        "header",
        tag("p", "Calibration replay", class_="kind"),
        tag("h1", tag("bdi", subject(result))),
        tag("p", "Forecasts and outcomes", when, class_="lead"),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts"),
    )


def _choice(found: Sequence[Recommendation], *, compared: bool) -> Markup:
    parts: list[Child] = []
    for each in found:
        parts.append(tag("p", tag("strong", prose(each.headline)), class_="headline"))
        parts.append(tag("ul", *(tag("li", prose(said)) for said in each.reasons)) if each.reasons else None)
    return tag(
        "section",
        tag("h2", "Which configuration"),
        *parts,
        tag("p", _BRACKETS, class_="note") if compared else None,
        id="choice",
        class_="keep" if all(each.name in {None, RAW} for each in found) else "take",
    )


def _warnings(result: Result) -> Markup:
    found = cautions(result)
    if not found:
        return text("")
    return tag(
        "section",
        tag("h2", "Before you read on"),
        tag("ul", *(tag("li", tag("b", prose(each.title)), " ", prose(each.sentence)) for each in found)),
        id="cautions",
    )


def _definitions() -> Markup:
    return tag(
        "dl", *(tag("div", tag("dt", name), tag("dd", said)) for name, said in DEFINITIONS), class_="definitions"
    )
