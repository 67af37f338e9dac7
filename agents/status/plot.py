"""One diagram as inline SVG. Colours are classes of the style sheet, so they follow light, dark and paper."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from agents.status.axes import Scale
from agents.status.markup import Markup, tag

#: A point in the axes' values.
XY = tuple[float, float]

#: Room around the axes for words, in units: left, top, right, bottom.
MARGINS: Final = (52.0, 27.0, 14.0, 38.0)
#: Wider pictures shrink on a phone, so their words are larger there.
BROAD: Final = 400.0
#: Width of a letter in the text of a tick, in units.
_WIDE: Final = 7.0


class Plot:
    """Axes, and what is drawn between them, in the order of the calls.

    ``width, height``: those of the whole picture, in units; a unit is about a pixel.
    ``x, y``: axes; their ends lie inside the picture.
    ``label``: what the picture shows, for those who do not see it.
    """

    def __init__(self, width: float, height: float, x: Scale, y: Scale, label: str) -> None:
        self.width, self.height = width, height
        self.x, self.y = x, y
        self._label = label
        self.parts: list[Markup] = []

    def axes(self, x_name: str, y_name: str, x_ticks: int = 6, y_ticks: int = 6) -> None:
        """Draw both axes: a faint line at every tick of y, words at the ticks, and names at the ends."""
        left, right, bottom, top = self.x.first, self.x.last, self.y.first, self.y.last
        for value, said in self.y.ticks(y_ticks):
            at = self.y.at(value)
            self.rule(left, at, right, at, "grid")
            self.write(left - 6, at + 3.6, said, "tick", "end")
        written = -math.inf  # end of the last text; a text that would touch it is left out
        for value, said in self.x.ticks(x_ticks) if x_ticks else ():
            at, side = self.x.at(value), self.side(self.x.at(value), said)
            self.rule(at, bottom, at, bottom + 4, "axis")
            start = at - _WIDE * len(said) * (1.0 if side == "end" else 0.5)
            if start > written:
                self.write(at, bottom + 17, said, "tick", side)
                written = start + _WIDE * (len(said) + 0.5)
        self.rule(left, bottom, right, bottom, "axis")
        for at, down, said, side in ((0, top - 13, y_name, "start"), (right, bottom + 33, x_name, "end")):
            if said:
                self.write(at, down, said, "name", side)

    def side(self, at: float, said: str) -> str:
        """Return how a tick's text is anchored: inwards if it would otherwise leave the picture."""
        return "end" if at + _WIDE * len(said) / 2 > self.width else "middle"

    def line(self, points: Sequence[XY], style: str, title: str | None = None) -> None:
        """Draw a line through points, if there are two or more."""
        if len(points) > 1:
            self._add(
                "path", _title(title), d="M" + "L".join(f"{self._place(p)}" for p in points), class_=f"line {style}"
            )

    def band(self, points: Sequence[tuple[float, float, float]], style: str) -> None:
        """Fill the area from low to high at each x."""
        if len(points) > 1:
            around = [(x, high) for x, _, high in points] + [(x, low) for x, low, _ in reversed(points)]
            self._add("path", d="M" + "L".join(map(self._place, around)) + "Z", class_=f"band {style}")

    def bar(self, start: float, end: float, high: float, style: str, title: str) -> None:
        """Fill a box from 0 upwards, in the axes' values."""
        left, right = sorted((self.x.at(start), self.x.at(end)))
        top, bottom = sorted((self.y.at(0.0), self.y.at(high)))
        self._add("rect", _title(title), x=left, y=top, width=right - left, height=bottom - top, class_=f"bar {style}")

    def dot(self, x: float, y: float, style: str, title: str | None = None) -> None:
        """Draw a dot."""
        self._add("circle", _title(title), cx=self.x.at(x), cy=self.y.at(y), r=3.2, class_=f"dot {style}")

    def segment(self, start: XY, end: XY, style: str) -> None:
        """Draw a straight line between two points."""
        self.rule(self.x.at(start[0]), self.y.at(start[1]), self.x.at(end[0]), self.y.at(end[1]), style)

    def note(self, x: float, y: float, words: str, style: str = "tick", side: str = "middle") -> None:
        """Write words at a point."""
        self.write(self.x.at(x), self.y.at(y), words, style, side)

    def rule(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """Draw a straight line in units of the picture."""
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=style)

    def write(self, x: float, y: float, words: str, style: str, side: str) -> None:
        """Write words in units of the picture."""
        self._add("text", words, x=x, y=y, class_=style, text_anchor=side)

    def svg(self) -> Markup:
        """Return the picture."""
        box = f"0 0 {self.width:g} {self.height:g}"
        return tag(
            "svg",
            tag("title", self._label),
            *self.parts,
            viewBox=box,
            class_="plot broad" if self.width > BROAD else "plot",
            role="img",
            aria_label=self._label,
        )

    def _add(self, name: str, *children: Markup | str | None, **attributes: str | float | None) -> None:
        self.parts.append(tag(name, *children, **attributes))

    def _place(self, point: XY) -> str:
        return f"{self.x.at(point[0]):.1f} {self.y.at(point[1]):.1f}"


def padded(values: Iterable[float], *, zero: bool = True, room: float = 0.06) -> tuple[float, float]:
    """Return the ends of an axis that covers all values (with ``zero``, also 0) and some room above."""
    known = [*values, *([0.0] if zero else [])]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low == high:
        return low, low + 1.0
    more = room * (high - low)
    return (low if zero and low == 0.0 else low - more), (high if zero and high == 0.0 else high + more)


def _title(said: str | None) -> Markup | None:
    return None if said is None else tag("title", said)
