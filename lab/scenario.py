"""What a demo shows: a stream that is played, the plan of the worker that serves it, and what the run comes to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from lab.demo_report import DemoRun
from lab.player import Message
from streams.config.settings import Settings


class PlayedStream(Protocol):
    """What is played."""

    def __len__(self) -> int:
        """Return the number of forecasts."""

    @property
    def records(self) -> int:
        """Forecasts and outcomes together."""

    def messages(self, *, forecasts: str, outcomes: str) -> Iterator[Message]:
        """Yield every forecast and outcome in time order, for two topics."""


@dataclass(frozen=True)
class Scenario:
    """A demo.

    Attributes
    ----------
    stream
        Name of its stream.
    doing
        What happens while the broker starts, a few words.
    plan
        The streams file of the worker; empty: none.
    partitions
        Of every topic, unless said otherwise.
    slice_messages
        Messages played at a time (`lab.player.play`): one topic runs ahead of the other by as many at most.
    load
        Makes what is played; its argument is how many forecasts, None for all.
    figures
        Rows of the live table: what they are called, the metric, and its labels beside stream and kind.
    account, draw, summary
        Given what was played and the run: all that is known of it, for JSON, with ``problems``; the picture; and an
        account's table and lines.
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
