"""A figure: panels side by side, who is who, and a caption that says what to see."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agents.status.markup import Markup, tag
from replay.result import RAW, Contender

#: Lines in one diagram; more nobody can tell apart.
LINES: Final = 6


@dataclass(frozen=True)
class Series:
    """Whom a line is of, and the class of the style sheet that gives its colour and dashes."""

    name: str
    style: str


#: The model's forecasts.
BEFORE: Final = Series(RAW, "raw")
#: What happened.
HAPPENED: Final = Series("what happened", "truth")


@dataclass(frozen=True)
class Panel:
    """One diagram and what stands over it."""

    heading: str | None
    picture: Markup


@dataclass(frozen=True)
class Figure:
    """A figure without its number.

    Attributes
    ----------
    key
        Its id in the page.
    title
        What it shows, a few words.
    see
        What to look for, in sentences.
    panels
        Side by side as far as there is room.
    series
        For the legend; empty where panels say it themselves.
    columns
        At most so many panels in a row.
    """

    key: str
    title: str
    see: str
    panels: Sequence[Panel]
    series: Sequence[Series] = ()
    columns: int = 2

    def markup(self, number: int) -> Markup:
        """Return the figure."""
        drawn = [
            tag("div", tag("h4", panel.heading) if panel.heading else None, panel.picture, class_="panel")
            for panel in self.panels
        ]
        return tag(
            "figure",
            tag(
                "div",
                legend(self.series) if self.series else None,
                tag("div", *drawn, class_=f"panels of-{min(self.columns, len(drawn))}"),
            ),
            tag("figcaption", tag("b", f"Figure {number}. {self.title}. "), self.see),
            # Beside a single panel there is room for the caption.
            class_="beside" if len(drawn) == 1 else None,
            id=self.key,
        )


def series_of(contenders: Sequence[Contender], chosen: str | None) -> list[tuple[Series, Contender]]:
    """Return those contenders that lines are drawn for, in their order: the first ones, and the chosen one."""
    styled = [(Series(each.name, f"c{i % LINES}"), each) for i, each in enumerate(contenders)]
    drawn = styled[:LINES]
    left_out = next((pair for pair in styled[LINES:] if pair[0].name == chosen), None)
    if left_out:
        drawn[-1] = Series(left_out[0].name, drawn[-1][0].style), left_out[1]
    return drawn


def legend(series: Sequence[Series]) -> Markup:
    """Return who is who."""
    return tag(
        "p", *(tag("span", swatch(each.style), name(each.name), class_="who") for each in series), class_="legend"
    )


def swatch(style: str) -> Markup:
    """Return a short piece of a series' line."""
    line = tag("line", x1=1, y1=5, x2=25, y2=5, class_=f"line {style}")
    return tag("svg", line, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")


def name(value: str) -> Markup:
    """Return a name: apart from its surroundings whatever way it is written, and broken best after + and _."""
    return tag("bdi", *(part for piece in re.findall(r"[^+_]*[+_]?", value) if piece for part in (piece, tag("wbr"))))
