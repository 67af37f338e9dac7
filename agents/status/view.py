"""What the pages say, as plain values: sentences, pictures and tables. Templates only place them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from numpy import interp

from agents.status import pictures as draw
from agents.status.markup import Markup, tag
from agents.status.number_format import NONE, count, date, percent, signed
from state.scoring.ages import DAY_MS
from state.scoring.ages import words as age
from state.scoring.scores import SCORED
from state.scoring.windows import KINDS
from streams.metrics import bands
from streams.metrics.description import guarantee, promises_p, saturated
from streams.metrics.segments import ERRORS, LATELY, level, mark, warming
from streams.metrics.vectors import NORMALISED

Described = Mapping[str, Any]
#: The colour of a state.
_TONES: Final = {"right": "good", "warming up": "wait", "no labels": "wait", "off": "bad", "no input": "bad"}
#: The windows, in words.
_WINDOWS: Final = {"hour": "last hour", "day": "last day", "week": "last 7 days", "month": "last 30 days"}
#: Share of the highest scores of which the first sentences tell.
_TOP: Final = 0.02
#: Partitions whose maps are drawn; more lines than this nobody can tell apart.
LINES: Final = 6
#: Segments whose bands a page shows, and functions whose bias it does.
BANDED: Final = 8
FUNCTIONS: Final = 16
#: The model's scores of which the page says what is served.
_LOOKED: Final = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99)


@dataclass(frozen=True)
class Table:
    """A table: words before it, what columns are called, rows, how many columns are words, and a note below."""

    title: str
    head: Sequence[object] = ()
    rows: Sequence[Sequence[object]] = ()
    names: int = 1
    note: str = ""
    words: Sequence[object] = field(default=())
    whole: bool = True
    fold: bool = False


def facts(worker: Described) -> list[tuple[str, str]]:
    """Return what there is to say of the worker itself, by name."""
    numbers = [str(each["partition"]) for each in worker["partitions"]]
    listed = ", ".join(numbers) if len(numbers) <= 12 else f"{len(numbers)}: {numbers[0]} to {numbers[-1]}"
    ago = worker["seconds_since_update"]
    behind = [each for each in worker["standbys"] if each["lag"] != 0]
    lag = sum(each["lag"] or 0 for each in behind)
    copies = f"{len(worker['standbys'])}" + (
        f", of which {len(behind)} lack {lag:,} records" if behind else ", all whole"
    )
    return [
        ("partitions", listed or "none"),
        *([("copies of other workers' partitions", copies)] if worker["standbys"] else []),
        ("wait for their outcome", count(worker["pending"])),
        ("wait until their forecast matures", count(worker["waiting"])),
        ("outcomes that came early", count(worker["early"])),
        ("last batch", "none yet" if ago is None else f"{age(1000 * ago) if ago >= 60 else f'{ago:.0f}s'} ago"),
        ("version", worker["version"]),
        ("configuration", worker["config"]),
        *([("streams without metrics", count(worker["hidden"]))] if worker["hidden"] else []),
    ]


def stream(
    described: Described, maps: Sequence[Described], *, small: bool = False, large: bool = False
) -> dict[str, Any]:
    """Return what a stream says first: its state, sentences, and two pictures; none if it is ``small``."""
    name: str = described["stream"]
    standing: Described = described.get("standing") or _unknown(described)
    figures, span = _figures(described)
    return {
        "name": name,
        "href": "/?" + urlencode({"stream": name}),
        "state": standing["state"],
        "tone": _TONES[standing["state"]],
        "since": date(standing["since_ms"]) if standing["since_ms"] else "",
        "figures": figures,
        "span": span,
        "words": [each for each in (standing["words"], *_vectors(described)) if each],
        "todo": standing["todo"],
        "top": _top(described),
        "notes": list(_notes(described)),
        "course": _course(described, small=small),
        "map": _map(described, maps, f"what {name} serves for what the model says")
        if maps and described["resolved"] and not large
        else None,
    }


def _unknown(described: Described) -> Described:
    """Return how a stream stands of which no record has come since its course is kept."""
    said = (described.get("warm_up") or {}).get("words", "")
    return {"state": "warming up", "since_ms": None, "words": said, "todo": ""}


def _figures(described: Described) -> tuple[Described | None, str]:
    """Return the means that the first sentence tells, and of which time they are; None of classes and numbers."""
    if "course" not in described or described.get("vectors"):
        return None, ""
    kept = described["course"]["since"]
    return kept, f"{count(kept['known'])} outcomes since {date(kept['from_ms'])}"


def _life(described: Described) -> dict[str, Any]:
    """Return the means since the warm-up, as `streams.metrics.standing.figures` does of other windows."""
    n, raw, served = described["resolved"], described["raw"], described["calibrated"]
    half = served["relative_bias_noise"] or 0.0  # the mean of its absolute value: of a normal error .8 of a deviation
    means = {"happened": raw["observed"], "raw": raw["mean"], "served": served["mean"]}
    chance = 1.96 * math.sqrt(math.pi / 2) * half * raw["observed"]
    return {"forecasts": None, "known": n, **means, "chance": chance}


def _course(described: Described, *, small: bool) -> Markup | None:
    """Draw what came true and what was served by day; None of classes and numbers, and of less than two days."""
    days = [day for day in described.get("course", {}).get("days", ()) if day["known"]]
    if len(days) < 2 or described.get("vectors"):
        return None
    periods = [
        draw.Period(
            day["day"] * DAY_MS,
            (day["day"] + 1) * DAY_MS,
            *(day[name] for name in ("known", "happened", "raw", "served", "chance")),
        )
        for day in days
    ]
    label = f"{described['stream']}: what came true and what was served, by day"
    return draw.course(periods, label, *((240, 70) if small else (520, 180)), bare=small)


def _top(described: Described) -> dict[str, Any] | None:
    """Return the share of what came true that the highest scores hold."""
    if "calibrated" not in described:
        return None
    raw, served = (
        next((each for each in described[kind]["top"] if each["volume"] == _TOP), None)
        for kind in ("raw", "calibrated")
    )
    if not raw or not served or raw["recall"] is None or served["recall"] is None:
        return None
    alike = abs(served["recall"] - raw["recall"]) < max(0.005, raw["recall_error"] or 0.0)
    return {
        "volume": f"{100 * _TOP:g}\N{NO-BREAK SPACE}%",
        "served": served["recall"],
        "raw": raw["recall"],
        "alike": alike,
    }


def _vectors(described: Described) -> Iterator[str]:
    """Say of classes and numbers how far the model's and what is served is off."""
    for scored in described.get("vectors", {}).values():
        name = "coverage_error" if "coverage_error" in scored["raw"] else "top_label_ece"
        what = "The levels of the quantiles are" if name == "coverage_error" else "The likeliest class's probability is"
        raw, served = (percent(scored[kind][name]) for kind in KINDS)
        yield f"{what} off by {raw} in your model, by {served} as served, over {count(scored['resolved'])} outcomes."


def _notes(described: Described) -> Iterator[tuple[str, str]]:
    """Yield what somebody should look at although the state may be right."""
    for each in described.get("ages", {}).get("findings", ()):
        yield "Labels:", f"{each['words']}."
    found = described.get("forecasts", {})
    if found.get("shifted"):
        before, now = (f"{found[median]:.3g}" for median in ("median_before", "median"))
        yield "Raw forecasts have shifted:", f"PSI {found['shift']:.2f}, median {before} before, {now} now."
    segments = described.get("segments", {})
    if segments.get("off"):
        worst = segments["worst"][0]
        pair = (worst["calibrated"]["mean"], worst.get("observed")) if "observed" in worst else None
        said = f"{pair[0]:.3f} served, {pair[1]:.3f} observed" if pair else f"error {worst['calibrated']['ece']:.3f}"
        place = f"{worst['segment']} = {worst['value']}"
        yield "Segments:", f"{segments['off']:,} of {segments['scored']:,} are off. Worst is {place}: {said}."
    for line in bands.words(described["bands"]) if "bands" in described else ():
        yield "Moved:", line


def _map(described: Described, maps: Sequence[Described], label: str, side: float = 125.0) -> Markup:
    """Draw the maps of the partitions, where the model's scores lie."""
    seen = [each["forecast"] for each in described.get("raw", {}).get("quantiles", ())] or [0.001, 0.999]
    lines = [
        (
            f"partition {each['partition']}",
            f"c{n}",
            [
                (x, y)
                for x, y in zip(each["raw"], each["calibrated"], strict=True)
                if 0.7 * seen[0] <= x <= 1.3 * seen[-1]
            ],
        )
        for n, each in enumerate(maps[:LINES])
    ]
    return draw.mapping(lines, label, side=side)


def pictures(described: Described, maps: Sequence[Described]) -> list[dict[str, Any]]:
    """Return the pictures behind the sentence: reliability, and the map from raw to served."""
    name, found = described["stream"], []
    for scored in described.get("vectors", {}).values():
        if "coverage" in scored["raw"]:
            svg = draw.coverage(scored, f"coverage of the quantiles of {name}")
            found.append(("Coverage", svg, "How many outcomes lay at or below each quantile, against its level."))
    if "calibrated" in described:
        kinds = [kind for kind in ("raw", "draw", "calibrated") if kind in described]
        raw, served = (described[kind]["ece"] for kind in KINDS)
        label = f"reliability of {name}: calibration error {raw:.4f} raw, {served:.4f} calibrated"
        svg = draw.reliability({kind: described[kind]["quantiles"] for kind in kinds}, label)
        note = "What came true of what was forecast so high, with 95 % intervals. On the dashed line both are equal."
        found.append(("Reliability", svg, note))
    if maps:
        more = f" The first {LINES} of {len(maps)} partitions." if len(maps) > LINES else ""
        svg = _map(described, maps, f"calibrated against raw forecasts of {name}", 300.0)
        found.append(("What is served for what is forecast", svg, f"A line each partition; features at 0.{more}"))
    return [dict(zip(("title", "svg", "note"), each, strict=True)) for each in found]


def lookup(maps: Sequence[Described]) -> Table:
    """Return what is served for round scores of the model; no rows where there is no map."""
    rows = []
    for raw in _LOOKED if maps else ():
        served = [float(interp(raw, each["raw"], each["calibrated"])) for each in maps]
        low, high = min(served), max(served)
        rows.append(
            [f"{100 * raw:g}\N{NO-BREAK SPACE}%", percent(low) if low == high else f"{percent(low)} to {percent(high)}"]
        )
    return Table("From the model's score to the served one", ("model", "served"), rows, whole=False)


def tables(described: Described) -> list[Table]:
    """Return the tables of a stream's page, those that people ask for first."""
    made = [_windows(described)]
    if "segments" in described:
        made += _segments(described["segments"])
    if "bands" in described:
        made += _bands(described["bands"])
    if "shadows" in described:
        made.append(_challengers(described["shadows"]))
    made += [_ages(described), _forecasts(described), _biases(described), _versions(described["calibrators"])]
    return [each for each in (*made, *_scores(described)) if each.rows or each.words]


def _windows(described: Described) -> Table:
    if "course" not in described or described.get("vectors"):
        return Table("")
    found = [(word, described["course"]["windows"][name]) for name, word in _WINDOWS.items()]
    if described["resolved"]:
        found.append(("life, after the warm-up", _life(described)))
    rows = [
        [
            word,
            count(of["forecasts"]),
            count(of["known"]),
            *(percent(of[name]) for name in ("raw", "served", "happened")),
            NONE if of["served"] is None else _points(of["served"] - of["happened"]),
            NONE if of["chance"] is None else f"±{100 * of['chance']:.2g}",
        ]
        for word, of in found
    ]
    note = (
        "By stream time, in whole hours and days (UTC), the present one included; an outcome counts when it is learnt."
    )
    head = ("", "forecasts", "outcomes", "model", "served", "came true", "off by, points", "by chance")
    return Table("Windows", head, rows, note=note)


def _points(value: float) -> str:
    return signed(100.0 * value, 2)


def _segments(segments: Described) -> Iterator[Table]:
    if not segments["scored"]:
        yield Table("Segments", words=[f"No segment is judged yet{warming(segments)}."])
        return
    of = segments["of"]
    recent = [
        [
            each["segment"],
            _bad(f"{each['value']}{mark(each, of)}", each["sounds"]),
            count(each["events"]),
            *(_number(each[name]) for name in ("observed", "served")),
            _signed(each["off"]["mean"], 4),
            _span(each["off"]),
            f"{each['alarm_log10']:.1f}",
        ]
        for each in segments["recent"]
    ]
    head = ("segment", "value", "events", "observed", "served", "off by", "95 %", "alarm, log10")
    told = f"Lately {segments['recently_off']:,} of {segments['scored']:,} segments are off."
    note = f"Of the last windows of a segment those with the most evidence. 3 or more is an alarm.{LATELY.get(of, '')}"
    if recent:
        yield Table("Segments lately", head, recent, 2, note, [told])
    vectors = of in ERRORS
    rows = [
        [each["segment"], _bad(each["value"], each["sounds"]), *(_pair if vectors else _segment)(each)]
        for each in segments["worst"]
    ]
    heads = (
        ("events", "error raw", "error", "by chance", "off by", "95 %", "known", "loss, served − raw")
        if vectors
        else ("events", "observed", "raw", "served", "off by", "95 %", "ECE raw", "ECE", "by chance", "known")
    )
    more = f" The {len(rows)} worst:" if len(rows) < segments["scored"] else ""
    lately = "" if recent else "Lately no segment is off. "
    told = f"{lately}{segments['off']:,} of {segments['scored']:,} segments are off{warming(segments)}.{more}"
    note = f"{ERRORS[of]} Off: chance does not explain the error, and it is .03." if vectors else (
        "Off: chance does not explain the error, and it is .03, or .3 of what happened."
    )  # fmt: skip
    known = " Known: share of the forecasts whose time is over that had an outcome."
    yield Table("Segments, worst first", ("segment", "value", *heads), rows, 2, note + known, [told])
    if not vectors:
        yield _segment_bands(segments["worst"][:BANDED])


def _segment(each: Described) -> list[object]:
    raw, served = each["raw"], each["calibrated"]
    return [
        count(each["events"]),
        *(_number(value) for value in (each["observed"], raw["mean"], served["mean"])),
        _signed(each["off"]["mean"], 4),
        _span(each["off"]),
        *(_number(value) for value in (raw["ece"], served["ece"], served["ece_noise"])),
        _share(each["coverage"]),
    ]


def _pair(each: Described) -> list[object]:
    """Return the figures of a segment of a stream of classes or numbers."""
    off, loss = each["off"], next(iter(each["difference"].values()))
    errors = (each["raw"]["ece"], each["calibrated"]["ece"], each["calibrated"]["ece_noise"])
    return [
        count(each["events"]),
        *map(_number, errors),
        level(off) + _signed(off["mean"], 4),
        _span(off),
        _share(each["coverage"]),
        _difference(loss) if loss["error"] is not None else NONE,
    ]


def _segment_bands(segments: Sequence[Described]) -> Table:
    """Return served minus observed by segment and band of the served forecast."""
    edges = sorted({(band["low"], band["high"]) for each in segments for band in each["calibrated"]["bands"]})
    rows = []
    for each in segments:
        held = {(band["low"], band["high"]): band for band in each["calibrated"]["bands"]}
        cells = [
            f"{_signed(held[at]['forecast'] - held[at]['outcome'], 3)} ({held[at]['n']:,})" if at in held else ""
            for at in edges
        ]
        rows.append([f"{each['segment']} = {each['value']}", *cells])
    head = ("segment", *(f"{low:g} to {high:g}" for low, high in edges))
    told = "Served minus observed, by band of what was served; in parentheses the events."
    return Table("Segments by band", head, rows, words=[told], fold=True)


def _bands(described: Described) -> Iterator[Table]:
    """Return the bands by the raw and by the served score, and those of segments."""
    costs = any(each["raw"]["cost"] is not None for each in described["bands"])
    rows = [
        [
            each["band"] or bands.BELOW,
            tag("span", {"raw": "model", "calibrated": "served"}[kind], class_=kind),
            NONE if each["threshold"] is None else f"{each['threshold']:.4g}",
            count(one["forecasts"]),
            bands.share(one["share"]),
            count(one["known"]),
            bands.share(one["precision"]),
            bands.share(one["recall"]),
            NONE if one["false_alarms"] is None else f"{one['false_alarms']:,.1f}",
            *([f"{one['cost']:,.0f}"] if costs else []),
        ]
        for each in described["bands"]
        for kind, one in ((kind, each[kind]) for kind in KINDS)
    ]
    head = ("band", "by", "from", "forecasts", "share", "labels", "precision", "recall", "false alarms a hit")
    yield Table("Bands", (*head, *(["cost"] if costs else [])), rows, 2, bands.CAPTION)
    segments = described["segments"]
    rows = [
        [
            f"{each['segment']} = {each['value']}",
            count(each["forecasts"]),
            *(
                f"{bands.share(one['calibrated']['share'])} ({bands.share(one['calibrated']['precision'])})"
                for one in each["bands"]
            ),
        ]
        for each in segments
    ]
    heads = [each["band"] or bands.BELOW for each in segments[0]["bands"]] if segments else []
    note = "Share of each band, as served, and its precision, in the segments with most forecasts above the lowest one."
    yield Table("Bands of segments", ("segment", "forecasts", *heads), rows, note=note)


def _challengers(shadows: Sequence[Described]) -> Table:
    """Return each challenger beside the champion that it challenged, by the losses of both on the same events."""
    rows = [
        [
            *(f"{each[side]['calibrator'] or '–'} {each[side]['config']}" for side in ("challenger", "champion")),
            count(each["events"]),
            *(_number(each[side]["ece"]) for side in ("challenger", "champion")),
            _LOSSES[loss],
            _difference(of),
        ]
        for each in shadows
        for loss, of in each["difference"].items()
        if of["error"] is not None
    ]
    if not rows:
        return Table("Challengers", words=["No event has resolved under both yet."])
    head = ("challenger", "champion", "events", "error", "champion's", "loss", "challenger − champion")
    note = (
        "Mean difference of the losses on the events that both answered ± 95 %, as if events were independent. Below 0 "
        "the challenger is better: see trueup streams promote."
    )
    return Table("Challengers", head, rows, 2, note)


def _ages(described: Described) -> Table:
    ages = described.get("ages")
    if not ages:
        return Table("")
    rows = [
        [f"outcome {label}", count(one["n"]), age(1000 * one["median_s"]), age(1000 * one["most_s"])]
        for label, one in ages["outcomes"].items()
    ]
    if ages["expired"]:
        rows.append(["none before ttl", count(ages["expired"]), "", ""])
    return Table("Age of forecasts when outcomes come", ("", "events", "half within", "99 % within"), rows, whole=False)


def _forecasts(described: Described) -> Table:
    found = described.get("forecasts")
    if not found:
        return Table("")
    rows = [
        [words, count(found[n]), NONE if found[median] is None else f"{found[median]:.3g}"]
        for words, n, median in (("since yesterday", "latest", "median"), ("weeks before", "before", "median_before"))
    ]
    rows.append(["shift (PSI)", "", "– (too few before)" if found["shift"] is None else f"{found['shift']:.3f}"])
    return Table("Raw forecasts, lately and before", ("", "forecasts", "median"), rows, whole=False)


def _biases(described: Described) -> Table:
    """Return the biases that the calibrator bounds, the nearest to its bound first."""
    biases = described.get("biases", ())
    rows = [
        [each["name"], _bad(_signed(each["bias"], 5), abs(each["bias"]) > each["bound"]), f"{each['bound']:.5f}"]
        for each in biases[:FUNCTIONS]
    ]
    more = len(biases) - FUNCTIONS
    rest = f" {more:,} more are in the JSON." if more > 0 else ""
    note = f"No sequence of prompt outcomes makes a bias larger than its bound.{rest}"
    return Table("Bias along features", ("along f", "mean of f (p − y)", "bound, ±"), rows, note=note, whole=False)


def _versions(found: Sequence[Described]) -> Table:
    rows = [
        [
            each["partition"],
            each["calibrator"],
            each["config"],
            count(each["version"]),
            count(each["outstanding"]),
            _number(each["error"]),
            _number(each["bound"]),
        ]
        for each in found
    ]
    head = ("partition", "calibrator", "configuration", "learnt", "outstanding", "error", "bound")
    return Table("Calibrators", head, rows, 3)


#: Rows of the tables of scores: words and key.
_SCORED: Final = (
    ("calibration error (ECE)", "ece"),
    ("by chance alone", "ece_noise"),
    ("smooth ECE", "smooth_ece"),
    ("distance to calibration, at most", "certificate"),
    ("relative error", "relative_error"),
    ("by chance alone", "relative_error_noise"),
    ("mean off by", "relative_bias"),
    ("by chance alone, ±", "relative_bias_noise"),
    ("AUC, lately", "auc"),
    ("± its standard error", "auc_error"),
    ("Gini", "gini"),
    ("KS", "ks"),
    ("Brier score", "brier"),
    ("log loss", "log_loss"),
    ("misclassified at .5", "misclassification"),
    ("classwise ECE", "classwise_ece"),
    ("top-label ECE", "top_label_ece"),
    ("accuracy", "accuracy"),
    ("coverage error", "coverage_error"),
    ("CRPS", "crps"),
)
#: Losses whose regret or difference is kept, in words.
_REGRETS: Final = {"brier": "squared error", "log": "log loss", "misclassification": "misclassified at .5"}
_LOSSES: Final = {"brier": "Brier score", "log": "log loss", "pinball": "pinball loss"}


def _scores(described: Described) -> Iterator[Table]:
    """Return for specialists the scores, raw beside calibrated, then what is promised, and what was gained."""
    for scored in [described, *described.get("vectors", {}).values()]:
        if not all(kind in scored for kind in KINDS):
            continue
        kinds = [kind for kind in SCORED if kind in scored]
        rows: list[list[object]] = [
            # Of classes and numbers it is over the life of the state.
            [
                words if scored is described else words.removesuffix(", lately"),
                *(_number(scored[kind][key], share="relative_bias" in key) for kind in kinds),
            ]
            for words, key in _SCORED
            if key in scored["raw"]
        ]
        rows += [[words, *cells] for words, cells in _more(scored, kinds)]
        note = NORMALISED if "classwise_ece" in scored["raw"] else ""
        head = ("", *({"raw": "model", "calibrated": "served", "draw": "draw"}[kind] for kind in kinds))
        yield Table(
            "Scores, for specialists", head, rows, note=note, words=[f"{scored['resolved']:,} outcomes"], fold=True
        )
    yield _promise(described)


def _more(scored: Described, kinds: Sequence[str]) -> Iterator[tuple[str, Iterable[object]]]:
    """Yield the scores that are not one number of each kind."""
    if "two_bin_error" in scored["raw"]:
        yield "two-bin error, squared", [f"{scored[kind]['two_bin_error']:.1e}" for kind in kinds]
        for words, end in (("raw's less this", "value"), ("from, 95 %", "low"), ("to", "high")):
            gains = [scored[kind]["two_bin_gain"] for kind in kinds]
            yield words, [f"{gain[end]:+.1e}" if gain else "" for gain in gains]
    for i, each in enumerate(scored["raw"].get("top", ())):
        for name in ("recall", "precision"):
            cells = [_number(scored[kind]["top"][i][name]) for kind in kinds]
            yield f"{name}, top {100 * each['volume']:g} %", cells
    for words, which in (("alarm, log10", ""), ("recent alarm, log10", "recent_")):
        alarms = [scored[kind].get("alarm") for kind in kinds]
        yield (
            words,
            [
                NONE
                if alarm is None
                else _bad(f"{alarm[f'{which}log10']:.1f}{' sounds' * alarm[f'{which}sounds']}", alarm[f"{which}sounds"])
                for alarm in alarms
            ],
        )
    windows = [scored[kind].get("worst_window") for kind in kinds]
    yield "worst window", [_number(each["ece" if "ece" in each else "error"]) if each else NONE for each in windows]
    if "noise" in (windows[0] or {}):
        one = "level" if "coverage_error" in scored["raw"] else "window"
        yield f"one {one} by chance alone", [_number(each["noise"]) if each else NONE for each in windows]


def _promise(described: Described) -> Table:
    """Return what is proven of the error, and what was gained and lost beside raw."""
    held = guarantee(described["calibrators"])
    error, bound = held["error"], held["bound"]
    said = []
    if error is not None and bound is not None and promises_p(described["calibrators"]):
        proven = (
            f"guaranteed beforehand, whoever sees p: {bound:.4f}"
            if bound < 1.0
            else "nothing below 1 is guaranteed beforehand: too few outcomes yet, or hardly any zeros among them"
        )
        said.append(f"p is at most {error:.4f} from calibrated scores; {proven}")
    elif error is not None and bound is not None and bound < 1.0:
        said.append(f"error {error:.4f}, {'over' if error > bound else 'under'} its bound {bound:.4f}")
    elif error is not None:
        why = (
            "its calibrator has no theorem"
            if bound is None
            else "too few outcomes yet, or too many others come between a forecast and its own"
        )
        said.append(f"error {error:.4f}, no bound below 1 is proven: {why}")
    rows: list[list[object]] = []
    for loss, words in _REGRETS.items() if "regret" in described else ():
        value = described["regret"][loss]
        word, tone = ("gained", "good") if value <= 0 else ("lost", "bad")
        rows.append([f"regret, {words}", Markup(f"{_signed(value, 1)} {tag('span', word, class_=tone)}")])
    for each in described.get("vectors", {}).values():
        rows += [
            [f"{_LOSSES[loss]}, served − raw", _difference(of)]
            for loss, of in each["difference"].items()
            if of["error"] is not None
        ]
    if (answers := saturated(described["calibrators"])) is not None:
        rows.append(["saturated answers", count(answers)])
    waiting = sum(each["outstanding"] for each in described["calibrators"])
    rows.append(["outstanding, on average", f"{waiting:,}"])
    return Table("What is proven, and what was gained", ("", ""), rows, words=said, whole=False)


def _difference(of: Mapping[str, float]) -> Markup:
    """Return the mean loss beyond that of the raw forecasts with its 95 % interval, and whether chance explains it."""
    mean, error = of["mean"], 1.96 * of["error"]
    word = None
    if abs(mean) > error:
        word = tag("span", "better", class_="good") if mean < 0 else tag("span", "worse", class_="bad")
    return Markup(f"{_signed(mean, 5)} ± {error:.5f} {word or ''}")


def _bad(text: str, sounds: bool) -> str:  # noqa: FBT001 - reads well where it is called
    return tag("span", text, class_="bad") if sounds else text


def _span(of: Mapping[str, float | None]) -> str:
    return NONE if of["low"] is None else f"{_signed(of['low'], 4)} to {_signed(of['high'], 4)}"


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _signed(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:+,.{digits}f}".replace("-", "−")


def _number(value: float | None, *, share: bool = False) -> str:
    if value is None or math.isnan(value):
        return NONE
    return f"{value:+.1%}".replace("-", "−") if share else f"{value:.4f}"
