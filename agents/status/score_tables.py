"""The tables of scores for specialists: raw beside served, the proven bound, and the gain."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agents.status.markup import Markup, tag
from agents.status.number_format import NONE, count, minute, score, signed
from state.scoring.scores import SCORED
from state.scoring.windows import KINDS
from streams.metrics.description import guarantee, promises_p, saturated
from streams.metrics.figures import FIGURES
from streams.metrics.vectors import NORMALISED

Described = Mapping[str, Any]
#: Words for losses whose regret or difference is kept.
_REGRETS: Final = {"brier": "squared error", "log": "log loss", "misclassification": "misclassified at .5"}
LOSSES: Final = {"brier": "Brier score", "log": "log loss", "pinball": "pinball loss"}


@dataclass(frozen=True)
class ScoreTable:
    """A table: introduction, headings, rows, the number of columns that hold words, and a note below.

    A terminal of 80 columns has no room for the columns in ``page_only``, nor for a ``wide`` table.
    """

    title: str
    head: Sequence[object] = ()
    rows: Sequence[Sequence[object]] = ()
    names: int = 1
    note: str = ""
    words: Sequence[object] = field(default=())
    whole: bool = True
    fold: bool = False
    page_only: Sequence[str] = ()
    wide: bool = False


def scores(described: Described) -> Iterator[ScoreTable]:
    """Return the scores, raw beside calibrated, then the proven bound and the gain."""
    for scored in [described, *described.get("vectors", {}).values()]:
        if not all(kind in scored for kind in KINDS):
            continue
        kinds = [kind for kind in SCORED if kind in scored]
        rows: list[list[object]] = [
            # For classes and numbers, this is over the life of the state.
            [
                each.words if scored is described else each.words.removesuffix(", lately"),
                *((_relative if "relative_bias" in each.name else score)(scored[kind][each.name]) for kind in kinds),
            ]
            for each in FIGURES
            if each.words and each.name in scored["raw"]
        ]
        rows += [[words, *cells] for words, cells in _more(scored, kinds)]
        note = NORMALISED if "classwise_ece" in scored["raw"] else ""
        head = ("", *({"raw": "model", "calibrated": "served", "draw": "draw"}[kind] for kind in kinds))
        yield ScoreTable(
            "Scores, for specialists", head, rows, note=note, words=[f"{scored['resolved']:,} outcomes"], fold=True
        )
    yield _promise(described)


def _more(scored: Described, kinds: Sequence[str]) -> Iterator[tuple[str, Iterable[object]]]:
    """Yield, for each kind, the scores that are not one number."""
    if "two_bin_error" in scored["raw"]:
        yield "two-bin error, squared", [f"{scored[kind]['two_bin_error']:.1e}" for kind in kinds]
        for words, end in (("raw's less this", "value"), ("from, 95 %", "low"), ("to", "high")):
            gains = [scored[kind]["two_bin_gain"] for kind in kinds]
            yield words, [f"{gain[end]:+.1e}" if gain else "" for gain in gains]
    for i, each in enumerate(scored["raw"].get("top", ())):
        for name in ("recall", "precision"):
            cells = [score(scored[kind]["top"][i][name]) for kind in kinds]
            yield f"{name}, top {100 * each['volume']:g} %", cells
    for i, each in enumerate(scored["raw"].get("coverage", ())):
        cells = [score(scored[kind]["coverage"][i]["upto"]) for kind in kinds]
        yield f"at or below the quantile of {each['level']:g}", cells
    for words, which in (("alarm, log10", ""), ("recent alarm, log10", "recent_")):
        alarms = [scored[kind].get("alarm") for kind in kinds]
        since_ms = next((alarm["since_ms"] for alarm in alarms if alarm is not None and not which), None)
        yield (
            words if since_ms is None else f"{words}, since {minute(since_ms)}",
            [
                NONE
                if alarm is None
                else bad(f"{alarm[f'{which}log10']:.1f}{' sounds' * alarm[f'{which}sounds']}", alarm[f"{which}sounds"])
                for alarm in alarms
            ],
        )
    windows: list[Described | None] = []
    for words, which in (("last window", "last_window"), ("worst window", "worst_window")):
        windows = [scored[kind].get(which) for kind in kinds]
        yield words, [_placed(each) if each else NONE for each in windows]
    if "noise" in (windows[0] or {}):
        one = "level" if "coverage_error" in scored["raw"] else "window"
        yield f"one {one} by chance alone", [score(each["noise"]) if each else NONE for each in windows]


def _placed(window: Described) -> str:
    place = f" (partition {window['partition']}, window {window['window']})" if "window" in window else ""
    return f"{score(window.get('ece', window.get('error')))}{place}"


def _promise(described: Described) -> ScoreTable:
    """Return the proven bound on the error, and gains and losses against raw."""
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
        # It has no colour, because nothing tells whether chance explains a sum.
        rows.append([f"regret, {words}", f"{signed(value, 1)} {'gained' if value <= 0 else 'lost'}"])
    for each in described.get("vectors", {}).values():
        rows += [
            [f"{LOSSES[loss]}, served − raw", difference(of)]
            for loss, of in each["difference"].items()
            if of["error"] is not None
        ]
    if (answers := saturated(described["calibrators"])) is not None:
        rows.append(["saturated answers", count(answers)])
    waiting = sum(each["outstanding"] for each in described["calibrators"])
    rows.append(["outstanding, on average", f"{waiting:,}"])
    return ScoreTable("What is proven, and what was gained", ("", ""), rows, words=said, whole=False)


def difference(of: Mapping[str, float]) -> Markup:
    """Return the mean loss minus that of raw forecasts, its 95 % interval, and whether chance may explain it."""
    mean, error = of["mean"], 1.96 * of["error"]
    word = None
    if abs(mean) > error:
        word = tag("span", "better", class_="good") if mean < 0 else tag("span", "worse", class_="bad")
    return Markup(f"{signed(mean, 5)} ± {error:.5f} {word or ''}")


def bad(text: str, sounds: bool) -> str:  # noqa: FBT001 - the call reads well
    """Return text, marked if an alarm sounds."""
    return tag("span", text, class_="bad") if sounds else text


def _relative(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:+.1%}".replace("-", "−")
