"""Diagrams as inline SVG. Colours are classes of the style sheet, so they follow the reader's light or dark mode."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from state.scoring.history import KINDS
from state.scoring.scores import SCORED
from state.scoring.wilson import wilson

#: Bins with a smaller share of the events are drawn hollow and off the line: few events, little weight.
SPARSE: Final = 0.001
#: Bins with fewer events are not drawn: their intervals span most of the axis.
FEWEST: Final = 10
#: Partitions whose maps are drawn; more lines than this nobody can tell apart.
LINES: Final = 6

#: Length of an axis in the picture's units.
_SIDE = 100.0
#: From the back to the front: what is served must be seen where others lie at the same place.
_LAYERS = ("raw", "draw", "calibrated")


def reliability(described: dict[str, Any], label: str) -> str:
    """Draw what was forecast against what happened: raw, drawn and on top served, with 95 % intervals of Wilson."""
    kinds = [kind for kind in SCORED if kind in described]
    curves = [_curve(described[kind].get("reliability", ()), kind) for kind in sorted(kinds, key=_LAYERS.index)]
    return _picture([_key(kinds), _frame("forecast", "happened"), _diagonal(), *curves], label)


def coverage(scored: dict[str, Any], label: str) -> str:
    """Draw, of quantiles, how many outcomes lay at or below each against its level."""
    parts = [_key(KINDS), _frame("level", "at or below"), _diagonal()]
    for kind in KINDS:
        points = [(each["level"], each["upto"]) for each in scored[kind]["coverage"]]
        parts += [_line(points, kind), *(_dot(x, y, kind) for x, y in points)]
    return _picture(parts, label)


def maps(found: Sequence[dict[str, Any]], label: str) -> str:
    """Draw calibrated against raw, a line a partition."""
    parts = [_frame("raw", "calibrated"), _diagonal()]
    for i, each in enumerate(found[:LINES]):
        points = list(zip(each["raw"], each["calibrated"], strict=True))
        parts.append(_line(points, f"map m{i}", title=f"partition {each['partition']}"))
    return _picture(parts, label)


def gauge(error: float, bound: float) -> str:
    """Draw an error as a bar on the way to its bound."""
    over = error > bound
    width = min(error / bound, 1.0) * _SIDE if bound > 0 else _SIDE
    said = f"error {error:.4f} {'over' if over else 'under'} its bound {bound:.4f}"
    return (
        f'<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{said}">'
        f'<rect class="track" width="100" height="6"/>'
        f'<rect class="{"over" if over else "under"}" width="{width:.2f}" height="6"/></svg>'
    )


def _picture(parts: Iterable[str], label: str) -> str:
    # The margins hold the axes' labels, and above the frame the key.
    return (
        f'<svg class="diagram" viewBox="-13 -11 117 120" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def _frame(x: str, y: str) -> str:
    ticks = (0.0, 0.5, 1.0)
    grid = "".join(f'<path class="grid" d="M0 {_at(t)}H100M{_along(t)} 0V100"/>' for t in ticks)
    words = "".join(
        f'<text class="tick" x="{_along(t)}" y="106" text-anchor="middle">{t:g}</text>'
        f'<text class="tick" x="-2" y="{_at(t)}" dy="1.6" text-anchor="end">{t:g}</text>'
        for t in ticks
    )
    return (
        f'{grid}{words}<text class="tick" x="75" y="106" text-anchor="middle">{x}</text>'
        f'<text class="tick" x="-5" y="25" text-anchor="middle" transform="rotate(-90 -5 25)">{y}</text>'
    )


def _key(kinds: Sequence[str]) -> str:
    """Say which colour is which, above the frame."""
    return "".join(
        f'<path class="line {kind}" d="M{36 * i} -6h7"/><text class="tick" x="{36 * i + 9}" y="-4.4">{kind}</text>'
        for i, kind in enumerate(kinds)
    )


def _diagonal() -> str:
    return '<path class="perfect" d="M0 100L100 0"/>'


def _curve(curve: Sequence[dict[str, float]], kind: str) -> str:
    whole = sum(each["n"] for each in curve)
    known = [(each, *wilson(each["outcome"], each["n"])) for each in curve if each["n"] >= FEWEST]
    firm = [(each, low, high) for each, low, high in known if each["n"] >= SPARSE * whole]
    band = [(each["forecast"], high) for each, _, high in firm]
    band += [(each["forecast"], low) for each, low, _ in reversed(firm)]
    parts = []
    if len(firm) > 1:
        parts.append(f'<polygon class="band {kind}" points="{_points(band)}"/>')
    parts.append(_line([(each["forecast"], each["outcome"]) for each, _, _ in firm], kind))
    for each, low, high in known:
        sparse = each["n"] < SPARSE * whole
        said = (
            f"{kind}: {each['n']:,} events, forecast {each['forecast']:.3f}, happened {each['outcome']:.3f} "
            f"({max(low, 0.0):.3f} to {min(high, 1.0):.3f})"
        )
        parts.append(_dot(each["forecast"], each["outcome"], f"{kind} sparse" if sparse else kind, said))
    return "".join(parts)


def _line(points: Sequence[tuple[float, float]], kind: str, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<polyline class="line {kind}" points="{_points(points)}">{told}</polyline>' if len(points) > 1 else ""


def _dot(x: float, y: float, kind: str, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="dot {kind}" cx="{_along(x)}" cy="{_at(y)}" r="1.9">{told}</circle>'


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_along(x)},{_at(y)}" for x, y in points)


def _along(x: float) -> str:
    return f"{min(max(x, 0.0), 1.0) * _SIDE:.2f}".rstrip("0").rstrip(".")


def _at(y: float) -> str:
    return f"{(1.0 - min(max(y, 0.0), 1.0)) * _SIDE:.2f}".rstrip("0").rstrip(".")
