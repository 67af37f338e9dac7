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
    """A scenario of the demo."""

    #: Name of its stream.
    stream: str
    #: What is done while the broker starts, in a few words.
    doing: str
    #: Content of the worker's streams file; empty for none.
    plan: str
    #: Partitions of every topic, if the user gives no number.
    partitions: int
    #: Messages played at a time (`lab.player.play`): no topic is ahead of the other by more.
    slice_messages: int
    #: Function that makes the stream; its argument is the number of forecasts, None for all.
    load: Callable[[int | None], PlayedStream]
    #: Rows of the live table: their name, the metric, and its labels except stream and kind.
    figures: Sequence[tuple[str, str, Mapping[str, str]]]
    #: Functions of the stream and the run. They return the account for JSON, with ``problems``; draw the picture; and
    #: print the account as a table and lines.
    account: Callable[[Settings, Any, DemoRun], dict[str, Any]]
    draw: Callable[[Any, DemoRun, Path], None]
    summary: Callable[[Console, Mapping[str, Any]], None]
