"""The top part of the pages as plain values: sentences and pictures. Templates only place them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from agents.status import pictures as draw
from agents.status.markup import Markup
from agents.status.number_format import count, date, percent, points
from state.scoring.ages import DAY_MS
from state.scoring.ages import words as age
from state.scoring.windows import KINDS
from streams.metrics import bands

Described = Mapping[str, Any]
#: The colour of a state.
_TONES: Final = {"right": "good", "warming up": "wait", "no labels": "wait"} | dict.fromkeys(
    ("withheld", "off", "no input"), "bad"
)
#: The share of highest scores that the first sentences name.
_TOP: Final = 0.02
#: The most partitions whose maps are drawn. Nobody can tell more lines apart.
LINES: Final = 6


def facts(worker: Described) -> list[tuple[str, str]]:
    """Return facts about the worker, by name."""
    numbers = [str(each["partition"]) for each in worker["partitions"]]
    listed = ", ".join(numbers) if len(numbers) <= 12 else f"{len(numbers)}: {numbers[0]} to {numbers[-1]}"
    ago = worker["seconds_since_update"]
    behind = [each for each in worker["standbys"] if each["lag"] != 0]
    lag = sum(each["lag"] or 0 for each in behind)
    copies = f"{len(worker['standbys'])}" + (
        f", of which {len(behind)} lack {lag:,} records" if behind else ", all whole"
    )
    return [
        ("partitions, by number", listed or "none"),
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
    """Return the top part of a stream's page: its state, sentences and two pictures (no pictures if ``small``)."""
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
        "words": [each for each in (standing["words"], _warmed(described, figures), *_vectors(described)) if each],
        "todo": standing["todo"],
        "top": _top(described),
        "notes": list(notes(described)),
        "course": _course(described, small=small),
        "map": _map(described, maps, f"what {name} serves for what the model says")
        if maps and described["resolved"] and not large
        else None,
    }


def _unknown(described: Described) -> Described:
    """Return the state of a stream that has had no record since its course has been kept."""
    said = (described.get("warm_up") or {}).get("words", "")
    return {"state": "warming up", "since_ms": None, "words": said, "todo": ""}


def _figures(described: Described) -> tuple[Described | None, str]:
    """Return the means for the first sentence, and the time they cover; None for classes and numbers."""
    if "course" not in described or described.get("vectors"):
        return None, ""
    kept = described["course"]["since"]
    return kept, f"{count(kept['known'])} outcomes since {date(kept['from_ms'])}"


def _warmed(described: Described, figures: Described | None) -> str:
    """Say what came true in the warm-up, while no later forecast has an outcome."""
    found = described.get("warm_up") or {}
    if figures is None or figures["known"] or not found.get("resolved"):
        return ""
    happened = f"{percent(found['observed'])} of {count(found['resolved'])} outcomes came true"
    return f"In the warm-up your model said {percent(found['raw'])} on average; {happened}."


def _course(described: Described, *, small: bool) -> Markup | None:
    """Draw observed and served means by day; None for classes and numbers, and for fewer than two days."""
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
    """Return the share of the observed events among the highest scores."""
    if "calibrated" not in described:
        return None
    raw, served = (
        next((each for each in described[kind]["top"] if each["volume"] == _TOP), None)
        for kind in ("raw", "calibrated")
    )
    if not raw or not served or raw["recall"] is None or served["recall"] is None:
        return None
    alike = abs(served["recall"] - raw["recall"]) < max(0.005, 2.0 * (raw["recall_error"] or 0.0))
    return {
        "volume": f"{100 * _TOP:g}\N{NO-BREAK SPACE}%",
        "served": served["recall"],
        "raw": raw["recall"],
        "alike": alike,
    }


def _vectors(described: Described) -> Iterator[str]:
    """Say for classes and numbers how far the model and the served forecasts are off."""
    for scored in described.get("vectors", {}).values():
        n, (raw, served) = count(scored["resolved"]), (scored[kind] for kind in KINDS)
        if "coverage" in raw:
            both = zip(raw["coverage"], served["coverage"], strict=True)
            model, ours = max(both, key=lambda each: _missed(each[0]))
            level, (covered, by_ours) = 100 * model["level"], (percent(each["upto"]) for each in (model, ours))
            yield f"Your model's {level:g} % level covered {covered} of {n} outcomes, the one served {by_ours}."
            yield f"No served level is off by more than {points(served['coverage_error'])} points."
        else:
            model, ours = (points(each["top_label_ece"]) for each in (raw, served))
            yield f"The likeliest class's probability is off by {model} points in your model, by {ours} as served,"
            yield f"over {n} outcomes."


def _missed(of: Described) -> float:
    """Return how far a level is from the share of outcomes at or below its quantile."""
    return float(max(of["below"] - of["level"], of["level"] - of["upto"]))


def notes(described: Described) -> Iterator[tuple[str, str]]:
    """Yield notes for the reader, even if the state is right."""
    if described.get("frozen"):
        yield "Frozen:", "the map stays as it is. Outcomes are scored, and what serves learns nothing."
    for each in described.get("ages", {}).get("findings", ()):
        yield "Labels:", f"{each['words']}."
    if described.get("untaught"):
        why = "their entity had taught, or their label stands for few forecasts"
        yield "Taught nothing:", f"{described['untaught']:,} events since this worker began: {why}."
    found = described.get("forecasts", {})
    if found.get("shifted"):
        before, now = (percent(found[median]) for median in ("median_before", "median"))
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
    """Draw the maps of the partitions, over the range of the model's scores."""
    seen = [each["forecast"] for each in described.get("raw", {}).get("quantiles", ())] or [0.001, 0.999]
    lines = [
        (
            f"partition {each['partition']}",
            f"c{n}",
            [
                (x, y)
                for x, y in zip(each["raw"], each["calibrated"], strict=True)
                if 0.7 * seen[0] <= x <= 1.3 * seen[-1] and 1.0 - x >= 0.7 * (1.0 - seen[-1])
            ],
        )
        for n, each in enumerate(maps[:LINES])
    ]
    return draw.mapping(lines, label, side=side)


def pictures(described: Described, maps: Sequence[Described]) -> list[dict[str, Any]]:
    """Return the pictures below the sentences: reliability, and the map from raw to served."""
    name, found = described["stream"], list[dict[str, Any]]()

    def drawn(title: str, svg: Markup, note: str) -> None:
        found.append({"title": title, "svg": svg, "note": note})

    for scored in described.get("vectors", {}).values():
        if "coverage" in scored["raw"]:
            note = "The share of outcomes at or below each quantile. On the dashed line it is what it should be."
            drawn("Coverage", draw.coverage(scored, f"coverage of the quantiles of {name}"), note)
    if "calibrated" in described:
        kinds = [kind for kind in ("raw", "draw", "calibrated") if kind in described]
        raw, served = (described[kind]["ece"] for kind in KINDS)
        label = f"reliability of {name}: calibration error {raw:.4f} raw, {served:.4f} calibrated"
        svg = draw.reliability({kind: described[kind]["quantiles"] for kind in kinds}, label)
        note = (
            "How many of the forecasts of each height came true, with 95 % intervals. On the dashed line all is right."
        )
        drawn("Reliability", svg, note)
    if maps:
        at = " Features are taken as 0." * any(
            each.get("options", {}).get("features") for each in described["calibrators"]
        )
        more = f" The first {LINES} of {len(maps)} partitions." if len(maps) > LINES else ""
        svg = _map(described, maps, f"calibrated against raw forecasts of {name}", 300.0)
        drawn("What is served for what is forecast", svg, f"One line for each partition.{at}{more}")
    return found
