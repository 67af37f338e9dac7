"""A scenario of the demo: the stream to play, the worker's streams file, and the report of the run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from lab.demo_report import DemoRun
from lab.player import Message
from streams.config.settings import Settings


class PlayedStream(Protocol):
    """A stream to play."""

    def __len__(self) -> int:
        """Return the number of forecasts."""

    @property
    def records(self) -> int:
        """Forecasts and outcomes together."""

    def messages(self, *, forecasts: str, outcomes: str) -> Iterator[Message]:
        """Yield every forecast and outcome in time order, for two topics."""


@dataclass(frozen=True)
class Scenario:
    """A scenario of the demo.

    Attributes
    ----------
    stream
        Name of its stream.
    doing
        What is done while the broker starts, in a few words.
    plan
        Content of the worker's streams file; empty for none.
    partitions
        Partitions of every topic, if the user gives no number.
    slice_messages
        Messages played at a time (`lab.player.play`): no topic is ahead of the other by more.
    load
        Function that makes the stream; its argument is the number of forecasts, None for all.
    figures
        Rows of the live table: their name, the metric, and its labels except stream and kind.
    account, draw, summary
        Functions of the stream and the run. They return the account for JSON, with ``problems``; draw the picture; and
        print the account as a table and lines.
    """

    stream: str
    doing: str
    plan: str
    partitions: int
    slice_messages: int
    load: Callable[[int | None], PlayedStream]
    figures: Sequence[tuple[str, str, Mapping[str, str]]]
    account: Callable[[Settings, Any, DemoRun], dict[str, Any]]
    draw: Callable[[Any, DemoRun, Path], None]
    summary: Callable[[Console, Mapping[str, Any]], None]
