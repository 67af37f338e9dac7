"""A table: a caption that says what to see, words left, numbers right."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.status.markup import Child, Markup, tag
from replay.report.figure import Series, name, swatch


@dataclass(frozen=True)
class Table:
    """A table without its number.

    Attributes
    ----------
    key
        Its id in the page.
    title
        What it shows, a few words.
    see
        What to look for, in sentences.
    head, rows
        Its cells. The first ``names`` columns hold words, the others numbers.
    """

    key: str
    title: str
    see: Child
    head: Sequence[Child]
    rows: Sequence[Sequence[Child]]
    names: int = 1

    def markup(self, number: int) -> Markup:
        """Return the table with its caption."""
        heads = (tag("th", each, scope="col", class_=self._kind(i)) for i, each in enumerate(self.head))
        body = (
            tag(
                "tr",
                *(
                    tag("td" if i else "th", each, class_=self._kind(i), scope=None if i else "row")
                    for i, each in enumerate(row)
                ),
            )
            for row in self.rows
        )
        named = f"Table {number}. {self.title}. "
        made = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), aria_label=named.strip())
        # It is the cells that scroll on a narrow screen; the caption stays, and the keyboard reaches what is beyond.
        scroll = tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=named.strip())
        return tag("figure", tag("figcaption", tag("b", named), self.see), scroll, class_="tabled", id=self.key)

    def _kind(self, column: int) -> str:
        return "name" if column < self.names else "n"


def named(series: Series, chosen: str | None) -> Markup:
    """Return a forecaster as the first cell of its row."""
    mark = tag("span", "chosen", class_="mark") if series.name == chosen else None
    return tag("span", swatch(series.style), tag("span", name(series.name), mark), class_="who")
