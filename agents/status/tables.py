"""The tables of a stream's page, as plain values. Templates only place them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agents.status import band_tables
from agents.status.markup import Markup, join
from agents.status.number_format import NONE, count, minute, percent, score, signed, valued
from agents.status.score_tables import LOSSES, ScoreTable, bad, difference, scores
from state.scoring.ages import words as age
from state.scoring.vector_history import WINDOW
from streams.metrics import weights
from streams.metrics.segments import ERRORS, LATELY, large, level, mark, nearer, silent, warming

Described = Mapping[str, Any]
#: Formats of table cells.
_count, _percent, _score, _signed = map(valued, (count, percent, score, signed))
_share, _tenths, _fifth = (valued(each.format) for each in ("{:.0%}", "{:,.1f}", "{:.5f}"))
#: The windows, in words.
_WINDOWS: Final = {"hour": "last hour", "day": "last day", "week": "last 7 days", "month": "last 30 days"}
_OFF: Final = "Off: chance alone calls any segment of a stream off once in 1,000 streams, and the error is at least"
#: The most segments with bands on a page, and the most functions with a bias.
BANDED: Final = 8
FUNCTIONS: Final = 16


def lookup(described: Described) -> ScoreTable:
    """Return what is served for round scores of the model, with its interval; no rows without a map."""
    found = described.get("served", ())
    left = any(each["low"] is not None for each in found)
    apart = any(each["least"] != each["most"] for each in found)
    rows = [
        [
            f"{100 * each['raw']:g}\N{NO-BREAK SPACE}%",
            percent(each["served"]),
            *([f"{percent(each['low'])} to {percent(each['high'])}"] if left else []),
            *([f"{percent(each['least'])} to {percent(each['most'])}"] if apart else []),
        ]
        for each in found
    ]
    note = "Interval: what the outcomes of such scores leave open; without segments." * left
    note += " Each partition learns by itself: served and interval are means over them." * apart
    head = ("model", "served", *(["interval"] * left), *(["partitions"] * apart))
    return ScoreTable("From the model's score to the served one", head, rows, 0, note.strip(), whole=False)


def of_stream(described: Described) -> list[ScoreTable]:
    """Return the tables of a stream's page, in order of importance."""
    made = [lookup(described)]
    if "course" in described and not described.get("vectors"):
        made.append(_windows(described))
    made += _recent(described)
    if "segments" in described:
        made += segments(described["segments"])
    if "bands" in described:
        made += band_tables.banded(described["bands"])
    if "weighted" in described:
        made += weighted(described["weighted"])
    if "versions" in described:
        made.append(models(described["versions"]))
    if "shadows" in described:
        made.append(challengers(described["shadows"]))
    if "ages" in described:
        made.append(ages(described))
    if "forecasts" in described:
        made.append(forecasts(described["forecasts"]))
    made += [biases(described), _versions(described["calibrators"])]
    return [each for each in (*made, *scores(described)) if each.rows or each.words]


def _life(described: Described) -> dict[str, Any]:
    """Return the means since the warm-up, in the form that `streams.metrics.standing.figures` has."""
    n, raw, served = described["resolved"], described["raw"], described["calibrated"]
    half = served["relative_bias_noise"] or 0.0  # the mean absolute value of a normal error is .8 of its deviation
    means = {"happened": raw["observed"], "raw": raw["mean"], "served": served["mean"]}
    chance = 1.96 * math.sqrt(math.pi / 2) * half * raw["observed"]
    return {"forecasts": None, "known": n, **means, "chance": chance}


def _windows(described: Described) -> ScoreTable:
    found = [(word, described["course"]["windows"][name]) for name, word in _WINDOWS.items()]
    if described["resolved"]:
        found.append(("life, after the warm-up", _life(described)))
    rows = [
        [
            word,
            _count(of["forecasts"]),
            _count(of["known"]),
            *(_percent(of[name]) for name in ("raw", "served", "happened")),
            NONE if of["served"] is None else _signed(100.0 * (of["served"] - of["happened"]), 2),
            NONE if of["chance"] is None else f"±{100 * of['chance']:.2g}",
        ]
        for word, of in found
    ]
    note = (
        "By stream time, in whole hours and days (UTC), the present one included; an outcome counts when it is learnt, "
        "one of a warm-up that is over by then does not."
    )
    head = ("", "forecasts", "outcomes", "model", "served", "came true", "off by, points", "by chance")
    return ScoreTable("Windows", head, rows, note=note)


def _recent(described: Described) -> Iterator[ScoreTable]:
    """Yield the errors of classes and numbers in the last windows."""
    head = ("", "outcomes", "model off by", "served off by", "by chance")
    for scored in described.get("vectors", {}).values():
        words = f"The {len(scored['windows'])} last windows of {WINDOW} outcomes of each partition."
        note = (
            "Off by: the level that is most off; by chance: one level."
            if "coverage" in scored["raw"]
            else "Off by: the error of the likeliest class's probability, on average over its tenths."
        )
        rows = [
            [
                f"{n} before" if n else "last",
                _count(each["n"]),
                *(_percent(each[of]) for of in ("raw", "calibrated", "noise")),
            ]
            for n, each in enumerate(scored["windows"])
        ]
        yield ScoreTable("Windows", head, rows, note=note, words=[words] if rows else [])


def segments(found: Described, title: str = "") -> Iterator[ScoreTable]:
    """Yield the segments that are off lately, the worst ones, and their bands; ``title`` begins their titles."""
    if not found["scored"]:
        yield ScoreTable(f"{title}Segments", words=[f"No segment is judged yet{warming(found)}."])
        return
    of = found["of"]
    recent = [
        [
            each["segment"],
            bad(f"{each['value']}{mark(each, of)}", each["sounds"]),
            _count(each["events"]),
            *(_score(each[name]) for name in ("observed", "served")),
            _signed(each["off"]["mean"], 4),
            _span(each["off"]),
            _tenths(each["alarm_log10"]),
        ]
        for each in found["recent"]
    ]
    head = ("segment", "value", "events", "observed", "served", "off by", "95 %", "alarm, log10")
    told = f"Lately {found['recently_off']:,} of {found['scored']:,} segments are off."
    note = f"Of the last windows of a segment those with the most evidence. 3 or more is an alarm.{LATELY.get(of, '')}"
    if recent:
        yield ScoreTable(f"{title}Segments lately", head, recent, 2, note, [told])
    vectors = of in ERRORS
    rows = [
        [each["segment"], bad(each["value"], each["sounds"]), *(_pair if vectors else _segment)(each)]
        for each in found["worst"]
    ]
    heads = (
        ("events", "error raw", "error", "by chance", "off by", "95 %", "known", "loss, served − raw")
        if vectors
        else ("events", "observed", "raw", "served", "off by", "95 %", "ECE raw", "ECE", "by chance", "known")
    )
    more = f" The {len(rows)} worst:" if len(rows) < found["scored"] else ""
    lately = "" if recent else "Lately no segment is off. "
    rest = f"{large(found)}{warming(found)}{silent(found)}."
    told = f"{lately}{found['off']:,} of {found['scored']:,} segments are off{rest}{nearer(found)}{more}"
    note = f"{ERRORS[of]} {_OFF} .03." if vectors else (
        f"{_OFF} .03, or .3 of what happened."
    )  # fmt: skip
    known = " Known: share with an outcome, of the forecasts that had one or expired without."
    head = ("segment", "value", *heads)
    yield ScoreTable(
        f"{title}Segments, worst first", head, rows, 2, note + known, [told], page_only=("by chance", "95 %")
    )
    if not vectors:
        yield _segment_bands(found["worst"][:BANDED])


def _segment(each: Described) -> list[object]:
    raw, served = each["raw"], each["calibrated"]
    return [
        _count(each["events"]),
        *(_score(value) for value in (each["observed"], raw["mean"], served["mean"])),
        _signed(each["off"]["mean"], 4),
        _span(each["off"]),
        *(_score(value) for value in (raw["ece"], served["ece"], served["ece_noise"])),
        _share(each["coverage"]),
    ]


def _pair(each: Described) -> list[object]:
    """Return the figures of a segment of a stream of classes or numbers."""
    off, loss = each["off"], next(iter(each["difference"].values()))
    errors = (each["raw"]["ece"], each["calibrated"]["ece"], each["calibrated"]["ece_noise"])
    return [
        _count(each["events"]),
        *map(_score, errors),
        level(off) + _signed(off["mean"], 4),
        _span(off),
        _share(each["coverage"]),
        difference(loss) if loss["error"] is not None else NONE,
    ]


def _segment_bands(worst: Sequence[Described]) -> ScoreTable:
    """Return served minus observed, by segment and by band of the served forecast."""
    edges = sorted({(band["low"], band["high"]) for each in worst for band in each["calibrated"]["bands"]})
    rows = []
    for each in worst:
        held = {(band["low"], band["high"]): band for band in each["calibrated"]["bands"]}
        cells = [
            join(_signed(held[at]["forecast"] - held[at]["outcome"], 3), f" ({held[at]['n']:,})") if at in held else ""
            for at in edges
        ]
        rows.append([f"{each['segment']} = {each['value']}", *cells])
    head = ("segment", *(f"{low:g} to {high:g}" for low, high in edges))
    told = "Served minus observed, by band of what was served; in parentheses the events."
    return ScoreTable("Segments by band", head, rows, words=[told], fold=True, wide=True)


def weighted(described: Described, title: str = "") -> Iterator[ScoreTable]:
    """Yield expected and observed sums by weight: over all, by segment and by band. ``title`` begins their titles."""
    heading, less = f"{title}{weights.title(described)}", ("weight",)
    yield ScoreTable(heading, ("", *weights.HEAD), weights.rows(described), note=weights.CAPTION, page_only=less)
    head = ("served from", "events", "weight", "served", "came true", "off by")
    yield ScoreTable(f"{heading}, by band", head, weights.by_band(described), fold=True)


def challengers(shadows: Sequence[Described]) -> ScoreTable:
    """Return each challenger beside its champion, with the losses of both on the same events."""
    rows = [
        [
            *(f"{each[side]['calibrator'] or '–'} {each[side]['config']}" for side in ("challenger", "champion")),
            _count(each["events"]),
            *(_score(each[side]["ece"]) for side in ("challenger", "champion")),
            _score(each["challenger"]["ece_noise"]),
            LOSSES[loss],
            difference(of),
        ]
        for each in shadows
        for loss, of in each["difference"].items()
        if of["error"] is not None
    ]
    if not rows:
        return ScoreTable("Challengers", words=["No event has resolved under both yet."])
    head = ("challenger", "champion", "events", "error", "champion's", "by chance", "loss", "challenger − champion")
    note = (
        "Mean difference of the losses on the events that both answered ± 95 %, as if events were independent. Below 0 "
        "the challenger is better: see trueup streams promote."
    )
    return ScoreTable("Challengers", head, rows, 2, note)


def models(versions: Sequence[Described], title: str = "") -> ScoreTable:
    """Return the versions of the model: the map with which each began, and the results of its forecasts."""
    rows = [
        [
            each["version"],
            _count(each["forecasts"]),
            minute(each["last_ms"]),
            NONE if each["slope"] is None else f"{each['after']}: {each['slope']:.2f} z {each['offset']:+.2f}",
            _count(each["outcomes"]),
            *(_percent(each[name]) for name in ("raw", "served", "observed")),
            NONE if each["log_loss_gain"] is None else _signed(-each["log_loss_gain"], 4),
        ]
        for each in versions
    ]
    head = ("version", "forecasts", "last", "began with", "outcomes", "model", "served", "came true", "log loss")
    note = (
        "The latest first. Began with: the version whose map was carried over by ranks, and the line in log-odds that "
        "does it; – begins with raw scores. Log loss: of served scores minus that of raw ones; below 0 is better."
    )
    return ScoreTable(f"{title}Versions of the model", head, rows, note=note)


def ages(described: Described) -> ScoreTable:
    """Return how old forecasts are when outcomes come."""
    found = described["ages"]
    whole = any("coverage" in each["raw"] for each in described.get("vectors", {}).values())  # of numbers
    rows = [
        [
            "all outcomes" if whole else f"outcome {label}",
            _count(one["n"]),
            age(1000 * one["median_s"]),
            age(1000 * one["most_s"]),
        ]
        for label, one in found["outcomes"].items()
    ]
    if found["expired"]:
        rows.append(["none before ttl", _count(found["expired"]), "", ""])
    return ScoreTable(
        "Age of forecasts when outcomes come", ("", "events", "half within", "99 % within"), rows, whole=False
    )


def forecasts(found: Described) -> ScoreTable:
    """Return the numbers of raw forecasts lately and before, and the shift of their distribution."""
    rows = [
        [words, _count(found[n]), _percent(found[median])]
        for words, n, median in (("since yesterday", "latest", "median"), ("weeks before", "before", "median_before"))
    ]
    rows.append(["shift (PSI)", "", "– (too few before)" if found["shift"] is None else f"{found['shift']:.3f}"])
    return ScoreTable("Raw forecasts, lately and before", ("", "forecasts", "median"), rows, whole=False)


def biases(described: Described, title: str = "") -> ScoreTable:
    """Return the biases that the calibrator bounds. The one nearest to its bound comes first."""
    found = described.get("biases", ())
    rows = [
        [each["name"], bad(_signed(each["bias"], 5), abs(each["bias"]) > each["bound"]), _fifth(each["bound"])]
        for each in found[:FUNCTIONS]
    ]
    more = len(found) - FUNCTIONS
    rest = f" {more:,} more are in the JSON." if more > 0 else ""
    note = f"No sequence of prompt outcomes makes a bias larger than its bound.{rest}"
    head = ("along f", "mean of f (p − y)", "bound, ±")
    return ScoreTable(f"{title}Bias along features", head, rows, note=note, whole=False)


def _versions(found: Sequence[Described]) -> ScoreTable:
    rows = [
        [
            each["partition"],
            f"{each['calibrator']} of {each['model_version']}" if "model_version" in each else each["calibrator"],
            each["config"],
            _count(each["version"]),
            _count(each["outstanding"]),
            _score(each["error"]),
            _score(each["bound"] if each["bound"] != 1.0 else None),  # a bound of 1 says nothing
        ]
        for each in found
    ]
    head = ("partition", "calibrator", "configuration", "learnt", "outstanding", "error", "bound")
    return ScoreTable("Calibrators", head, rows, 3)


def _span(of: Mapping[str, float | None]) -> Markup | str:
    return NONE if of["low"] is None else join(_signed(of["low"], 4), " to ", _signed(of["high"], 4))
