"""A figure: panels side by side, a legend, and a caption with the finding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agents.status.markup import Markup
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


@dataclass(frozen=True)
class Panel:
    """One diagram and its title."""

    heading: str | None
    picture: Markup


@dataclass(frozen=True)
class Figure:
    """A figure without its number."""

    #: Its id in the page.
    key: str
    #: What it shows, a few words.
    title: str
    #: What to look for, in sentences.
    see: str
    #: Side by side as far as there is room.
    panels: Sequence[Panel]
    #: For the legend; empty where panels say it themselves.
    series: Sequence[Series] = ()


def series_of(contenders: Sequence[Contender], chosen: str | None) -> list[tuple[Series, Contender]]:
    """Return those contenders that lines are drawn for, in their order: the first ones, and the chosen one."""
    styled = [(Series(each.name, f"c{i % LINES}"), each) for i, each in enumerate(contenders)]
    drawn = styled[:LINES]
    left_out = next((pair for pair in styled[LINES:] if pair[0].name == chosen), None)
    if left_out:
        drawn[-1] = Series(left_out[0].name, drawn[-1][0].style), left_out[1]
    return drawn
