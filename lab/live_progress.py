"""The demo's live display: a progress bar and a table on a terminal, plain lines elsewhere."""

import math
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.scrape import ScrapedSamples

#: Seconds between two plain lines.
PAUSE: Final = 5.0
#: Shortest time over which speed is measured, s.
WINDOW: Final = 0.5

#: Rows of a table: their name, the metric, and the metric's labels except stream and kind.
Figures = Sequence[tuple[str, str, Mapping[str, str]]]


class LiveProgress:
    """Shows the progress of a run. At the end of the context, the display stays in its last state.

    ``total``: events that will be played.
    ``figures``: rows of the table, see `Figures`.
    """

    def __init__(self, console: Console, stream: str, total: int, figures: Figures) -> None:
        self._console = console
        self._stream = stream
        self._total = total
        self._figures = figures
        self._said = self._before = monotonic()
        self._counted = 0
        self._line_before = ""
        self._speed = 0.0
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=40), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console,
        )  # fmt: skip
        self._bars = [self._progress.add_task(name, total=total) for name in ("played", "processed")]
        self._live = Live(Group(self._progress), console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        """Begin."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the display."""
        if self._live:
            self._live.stop()

    def show(self, played: int, reading: ScrapedSamples) -> None:
        """Show a scrape, and how many events were played when it was made."""
        now = monotonic()
        processed = int(reading.total("records_total"))
        if now - self._before >= WINDOW or (processed and not self._speed and now > self._before):
            self._speed = (processed - self._counted) / (now - self._before)
            self._before, self._counted = now, processed
        if self._live:
            for bar, done in zip(self._bars, (played, processed), strict=True):
                self._progress.update(bar, completed=done)
            self._live.update(Group(self._progress, self._table(reading)))
        elif now - self._said >= PAUSE or processed == self._total:
            line, self._said = self._line(processed, reading), now
            if line != self._line_before:  # it may be waiting for the last checkpoint
                self._line_before = line
                self._console.print(line, highlight=False, soft_wrap=True)

    def _of(self, reading: ScrapedSamples, name: str) -> float:
        return reading.value(name, {"stream": self._stream})

    def _table(self, reading: ScrapedSamples) -> Table:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        for column in ("", "raw", "calibrated"):
            table.add_column(column, justify="left" if not column else "right")
        for label, name, more in self._figures:
            pair = (reading.score(name, self._stream, kind, more) for kind in ("raw", "calibrated"))
            table.add_row(label, *map(_number, pair))
        table.add_row("regret, summed Brier score", "", _number(reading.regret("brier", self._stream), 1))
        table.add_row("calibration error of what was played", "", _number(self._of(reading, "calibration_error")))
        table.add_row("  the theorem's bound on it", "", _number(self._of(reading, "calibration_bound")))
        table.add_row("events per second", "", f"{self._speed:,.0f}")
        table.add_row("forecasts that wait for their outcome", "", f"{reading.value('pending_events'):,.0f}")
        if waiting := reading.value("waiting_outcomes"):
            table.add_row("outcomes that wait for maturity", "", f"{waiting:,.0f}")
        return table

    def _line(self, processed: int, reading: ScrapedSamples) -> str:
        scores = ", ".join(
            f"{label} {_number(reading.score(name, self._stream, 'raw', more))} -> "
            f"{_number(reading.score(name, self._stream, 'calibrated', more))}"
            for label, name, more in self._figures
        )
        return (
            f"{processed:>9,} of {self._total:,} events, {self._speed:,.0f}/s, "
            f"{reading.value('pending_events'):,.0f} pending, {scores}"
        )


def _number(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"
