"""The scenarios of the demo, and the report of the flights: figures, a picture, and where to look next."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from agents.status import pictures
from lab import flights, picture
from lab.flights import Flights
from lab.outputs import OutputRecords
from lab.player import SLICE, TimedRecord
from lab.scrape import ScrapedSamples
from replay.measure import errors
from replay.ranking import ranks
from streams.config.settings import Settings
from streams.metrics.figures import or_none
from streams.metrics.segments import LARGE

#: Side of the diagram, in units.
SIDE: Final = 560.0
#: Share of the highest scores whose recall is given.
VOLUME: Final = 0.02


@dataclass(frozen=True)
class DemoRun:
    """The result of a run."""

    #: Records that were acknowledged to the player, by topic; and the time until all were processed.
    sent: Mapping[str, int]
    seconds: float
    #: The worker's last metrics; and its exit status.
    reading: ScrapedSamples
    worker_exit: int | None
    #: The contents of the output topics.
    held: OutputRecords
    #: Exit status of ``trueup audit``, which derives every output again.
    audit: int = 0

    @property
    def events_per_s(self) -> float:
        """Events a second, from the first event played to the last one processed."""
        return sum(self.sent.values()) / self.seconds


class PlayedStream(Protocol):
    """A stream to play."""

    def __len__(self) -> int:
        """Return the number of forecasts."""

    @property
    def records(self) -> int:
        """Forecasts and outcomes together."""

    def messages(self, *, forecasts: str, outcomes: str) -> Iterator[TimedRecord]:
        """Yield every forecast and outcome in time order, for two topics."""


@dataclass(frozen=True)
class Scenario:
    """A scenario of the demo."""

    #: Name of its stream.
    stream: str
    #: What is done while the broker starts, in a few words.
    doing: str
    #: The worker's streams file; empty for none.
    plan: str
    #: Partitions of every topic, if the user gives no number.
    partitions: int
    #: Messages played at a time (`lab.player.play`). Neither topic is ahead of the other by more.
    slice_messages: int
    #: Makes the stream. Its argument is the number of forecasts; None for all.
    load: Callable[[int | None], PlayedStream]
    #: Rows of the live table: their name, the metric, and the metric's labels except stream and kind.
    figures: Sequence[tuple[str, str, Mapping[str, str]]]
    #: Functions of the stream and the run. They return the account for JSON, with ``problems``; draw the picture; print
    #: the account as a table and lines.
    account: Callable[[Settings, Any, DemoRun], dict[str, Any]]
    draw: Callable[[Any, DemoRun, Path], None]
    summary: Callable[[Console, Mapping[str, Any]], None]


def problems(done: DemoRun) -> list[str]:
    """Return what is wrong with a run, one sentence each; an empty list if all is well."""
    found = []
    for topic in ("forecasts", "outcomes"):
        sent, n = done.sent[topic], int(done.reading.total("records_total", topic=topic))
        if sent != n:
            found.append(f"{topic} sent: {sent:,}, but applied: {n:,}")
    if done.audit:
        found.append(f"trueup audit ended with status {done.audit}: the outputs are not those that are derived again")
    if done.worker_exit:
        found.append(f"the worker ended with status {done.worker_exit} after SIGTERM")
    return found


def account(settings: Settings, played: Flights, done: DemoRun) -> dict[str, Any]:
    """Return the account of a run, as in the JSON. ``problems`` is empty if all counts agree."""
    fates = done.reading.fates()
    raw, p, y = done.held.scored()
    forecasts = {"raw": raw, "calibrated": p}
    stream = {"stream": flights.STREAM}
    return {
        "rows": len(played),
        **fates,
        **{topic: {"sent": done.sent[topic], **fates[topic]} for topic in ("forecasts", "outcomes")},
        "answered_once": len(done.held.served),
        **{kind: errors(each, y)._asdict() for kind, each in forecasts.items()},
        "auc": {kind: or_none(ranks(each, y, (VOLUME,)).auc) for kind, each in forecasts.items()},
        "mean_off": {kind: float(each.sum() / y.sum() - 1) if y.any() else None for kind, each in forecasts.items()},
        "segments": {"scored": _whole(done.reading.value("segments_scored", stream)), **_segments(played, done.held)},
        "regret": {loss: done.reading.regret(loss, flights.STREAM) for loss in ("brier", "log")},
        "calibration_error": done.reading.value("calibration_error", stream),
        "calibration_bound": done.reading.value("calibration_bound", stream),
        **identity(settings, done),
    }


def _segments(played: Flights, held: OutputRecords) -> dict[str, Any]:
    """Return the mean and worst ECE of the segments that have many outcomes, and how many these are."""
    carried = dict(zip(played.event_id, played.segments, strict=True))
    raw, p, y = held.scored()
    kept = {"raw": list[float](), "calibrated": list[float]()}
    for name in flights.SEGMENTS:
        values = np.array([carried[event][name] for event in held.resolved])
        for value in np.unique(values):
            mine = values == value
            if mine.sum() >= LARGE:
                for kind, forecasts in (("raw", raw), ("calibrated", p)):
                    kept[kind].append(errors(forecasts[mine], y[mine]).ece)
    described: dict[str, Any] = {"large": len(kept["raw"])}
    for kind, eces in kept.items():
        described[kind] = {"mean_ece": float(np.mean(eces)), "worst_ece": max(eces)} if eces else None
    return described


def identity(settings: Settings, done: DemoRun) -> dict[str, Any]:
    """Return facts about a run: its calibrator, its speed, the place of its topics, and what is wrong with it."""
    return {
        "problems": problems(done),
        "calibrator": done.held.calibrator,
        "seconds": round(done.seconds, 3),
        "events_per_s": round(done.events_per_s, 1),
        "worker_exit": done.worker_exit,
        "brokers": ",".join(settings.brokers),
        "app_id": settings.app_id,
        "topics": {
            name: getattr(settings, name.replace("-", "_"))
            for name in ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")
        },
    }


def _whole(value: float) -> int:
    return 0 if math.isnan(value) else int(value)


def draw(_: Flights, done: DemoRun, out: Path) -> None:
    """Draw the reliability diagram."""
    raw, p, y = done.held.scored()
    before, after = errors(raw, y), errors(p, y)
    curves = {"raw": picture.bins(raw, y), "calibrated": picture.bins(p, y)}
    drawn = pictures.reliability(curves, "What came true of forecasts, by the model and as served", side=SIDE)
    picture.write(
        out,
        f"Will the flight arrive more than {flights.LATE} minutes late?",
        [
            f"{len(y):,} flights from New York in 2013, by forecast; the model learnt January, then stood still",
            f"ECE {before.ece:.4f} → {after.ece:.4f}, Brier score {before.brier:.4f} → {after.brier:.4f}",
        ],
        [drawn],
    )


def table_of(*figures: str) -> Table:
    """Return a table for a demo: words, then figures by these names."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("", *figures):
        table.add_column(column, justify="right" if column else "left")
    return table


def tell(console: Console, table: Table, account: Mapping[str, Any], said: str) -> None:
    """Print a table, and what is to be said about a run's records if nothing is wrong with it."""
    console.print()
    console.print(table)
    speed = f"{account['events_per_s']:,.0f} events a second by {account['calibrator']}; every record is accounted for"
    wrong = f"{len(account['problems'])} things do not add up"
    console.print(f"\n{wrong}" if account["problems"] else f"\n{said}\n{speed}", highlight=False, soft_wrap=True)


def summary(console: Console, account: Mapping[str, Any]) -> None:
    """Print an account as a table and a few lines."""
    table = table_of("raw", "calibrated", "change")
    for label, before, after in zip(
        ("ECE", "Brier score", "log loss"), account["raw"].values(), account["calibrated"].values(), strict=True
    ):
        table.add_row(label, f"{before:.4f}", f"{after:.4f}", f"{(after - before) / before:+.1%}" if before else "-")
    for label, figures, form in (("mean off by", account["mean_off"], "+.1%"), ("AUC", account["auc"], ".4f")):
        shown = ("-" if value is None else format(value, form) for value in figures.values())
        table.add_row(label, *shown, "")
    segments = account["segments"]
    if segments["large"]:
        for words, figure in (("mean", "mean_ece"), ("worst", "worst_ece")):
            before, after = segments["raw"][figure], segments["calibrated"][figure]
            label = f"{words} ECE of {segments['large']} segments"
            table.add_row(label, f"{before:.4f}", f"{after:.4f}", f"{(after - before) / before:+.1%}")
    forecasts, outcomes, expired = account["forecasts"], account["outcomes"], account["expired"]
    tell(
        console,
        table,
        account,
        f"{forecasts['sent']:,} forecasts: {forecasts['issued']:,} issued, {forecasts['duplicate']:,} duplicate, "
        f"{forecasts['dead']:,} dead; {account['answered_once']:,} events with exactly one answer\n"
        f"{outcomes['sent']:,} outcomes: {outcomes['resolved']:,} resolved, {outcomes['early']:,} early, "
        f"{expired['outcome']:,} expired, {outcomes['duplicate']:,} duplicate, "
        f"{outcomes['revised']:,} revised, {outcomes['stale']:,} stale, {outcomes['dead']:,} dead\n"
        f"without an outcome: {account['pending']:,} pending, {expired['forecast']:,} expired",
    )


def next_steps(console: Console, settings: Settings, out: Path, stream: str, *, left: bool) -> None:
    """Print where to look next. ``left``: the topics still exist."""
    brokers = ",".join(settings.brokers)
    console.print(f"\n[bold]{out}[/]  the picture", highlight=False)
    if left:
        look = f"TRUEUP_BROKERS={brokers} TRUEUP_APP_ID={settings.app_id} trueup streams show {stream}"
        console.print(f"[bold]{look}[/]  the state it learnt; its topics were left", highlight=False, soft_wrap=True)
    else:
        console.print(
            "[bold]trueup dev broker[/]  a broker that stays; the demo uses it by TRUEUP_BROKERS", highlight=False
        )
    console.print("[bold]trueup run --help[/]  every setting", highlight=False)


SCENARIO: Final = Scenario(
    stream=flights.STREAM,
    doing="training on January",
    plan=f"[streams.{flights.STREAM}]\nsegments = {json.dumps(flights.SEGMENTS)}\n",
    partitions=2,
    slice_messages=SLICE,
    load=flights.load,
    figures=(("ECE", "ece", {}), ("Brier score", "brier", {}), ("log loss", "log_loss", {})),
    account=account,
    draw=draw,
    summary=summary,
)
