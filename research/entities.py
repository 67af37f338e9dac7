"""Many forecasts, one outcome: what is served beside raw scores, with entities named and without.

``python -m research.entities [--seeds N] [STREAM]...``: made streams of accounts that are scored daily, games with a
forecast each minute, seasons of thirty teams with one batch of labels, and independent labels that come in files. They
go through replay's engine with the default calibrator. Printed is, of every forecast that was answered, the log loss
and Brier score of what was served less raw's, in % of raw's, with a standard error clustered by entity; without
entities, then with them. Scores are honest martingales (ever more is known of the outcome), unless a name says how
far off they are. Seeds begin at 101: others chose what is built in, see docs/calibrators.md.
"""

import argparse
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from replay.column_file import played
from replay.configuration import Configuration
from replay.in_memory_engine import InMemoryEngine
from state.arrays import Floats
from state.entities import number
from state.events import Event, Forecast, Outcome
from state.policy import ALIKE, Policies, Policy

DAY_MS: Final = 86_400_000
START_MS: Final = 1_767_225_600_000
FIRST: Final = 101

Random = np.random.Generator


class Row(NamedTuple):
    """A forecast and its outcome: when each comes (days), of which entity, raw score, label."""

    at: float
    known: float
    entity: int
    p: float
    y: float


class Stream(NamedTuple):
    """A made stream, and the time to live it needs, days."""

    rows: list[Row]
    ttl: float


def logistic(z: Floats) -> Floats:
    """Return probabilities of log-odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def martingale(rng: Random, prior: float, steps: int, known: float) -> tuple[Floats, float]:
    """Return the log-odds of an outcome as ever more is known of it, in all ``known`` units of evidence; and it."""
    y = float(rng.random() < 1.0 / (1.0 + math.exp(-prior)))
    step = known / steps
    moves = rng.standard_normal(steps - 1) * math.sqrt(step) + (step / 2.0 if y else -step / 2.0)
    return prior + np.concatenate([[0.0], np.cumsum(moves)]), y


def accounts(base: float, shift: float, n: int = 1000, days: int = 90) -> Callable[[Random], Stream]:
    """Make accounts that are scored every day for a while, over a year, and get their label 30 days later."""

    def make(rng: Random) -> Stream:
        rows = []
        for account in range(n):
            z, y = martingale(rng, base + rng.standard_normal(), days, 0.02 * days)
            start = rng.random() * 360.0
            scores = logistic(z + shift)
            rows += [Row(start + day, start + days + 30.0, account, float(scores[day]), y) for day in range(days)]
        return Stream(rows, days + 60.0)

    return make


def games(slope: float, n: int = 500, minutes: int = 150) -> Callable[[Random], Stream]:
    """Make games with a forecast each minute, four a day; log-odds are ``slope`` times too far out."""

    def make(rng: Random) -> Stream:
        rows = []
        for game in range(n):
            z, y = martingale(rng, 0.6 * rng.standard_normal(), minutes, 8.0)
            scores, start = logistic(slope * z), 0.25 * game
            end = start + minutes / 1440.0
            rows += [Row(start + k / 1440.0, end, game, float(scores[k]), y) for k in range(minutes)]
        return Stream(rows, 30.0)

    return make


def seasons(slope: float, n: int = 5, teams: int = 30, days: int = 200) -> Callable[[Random], Stream]:
    """Make seasons of teams, a forecast of each a day, whose labels come at the end in one batch, in order of time."""

    def make(rng: Random) -> Stream:
        rows = []
        for season in range(n):
            for team in range(teams):
                z, y = martingale(rng, 0.8 * rng.standard_normal(), days, 5.0)
                scores, start = logistic(slope * z), 365.0 * season
                rows += [
                    Row(start + day + team / 100.0, start + 210.0, team, float(scores[day]), y) for day in range(days)
                ]
        return Stream(rows, 250.0)

    return make


def files(shift: float, every: float, base: float = -2.0, n: int = 200, days: int = 120) -> Callable[[Random], Stream]:
    """Make independent forecasts whose labels come in files, every so many days, of one record time."""

    def make(rng: Random) -> Stream:
        at = np.sort(rng.random(n * days) * days)
        z = base + rng.standard_normal(len(at))
        y = (rng.random(len(at)) < logistic(z)).astype(float)
        scores, known = logistic(z + shift), np.ceil((at + 1e-9) / every) * every
        return Stream([Row(*each) for each in zip(at, known, range(len(at)), scores.tolist(), y, strict=True)], 60.0)

    return make


STREAMS: Final[dict[str, Callable[[Random], Stream]]] = {
    "accounts, honest": accounts(-2.0, 0.0),
    "accounts, off by 1.2": accounts(-2.0, 1.2),
    "accounts of 1 %, honest": accounts(-5.0, 0.0, n=2000),
    "accounts of 1 %, off by 2": accounts(-5.0, 2.0, n=2000),
    "games, honest": games(1.0),
    "games, 1.5 too far out": games(1.5),
    "seasons, honest": seasons(1.0),
    "seasons, 1.6 too far out": seasons(1.6),
    "files of a night, honest": files(0.0, 1.0),
    "files of a night, off by 2": files(2.0, 1.0),
    "files of a month, off by 1.5": files(1.5, 30.0),
}


def served(stream: Stream, *, named: bool) -> Floats:
    """Return what was served to each row of a stream, in their order."""
    timed = [(row.at, 0, i) for i, row in enumerate(stream.rows)]
    timed += [(row.known, 1, i) for i, row in enumerate(stream.rows)]
    timed.sort()
    events: list[Event] = []
    order, offsets = [], [0, 0]
    for day, topic, i in timed:
        row, ts = stream.rows[i], START_MS + int(day * DAY_MS)
        if topic:
            events.append(Outcome(offsets[1], None, f"e{i}", row.y, ts))
        else:
            order.append(i)
            entity = number(f"entity {row.entity}") if named else 0
            events.append(Forecast(offsets[0], None, f"e{i}", "s", row.p, (), ts, entity=entity))
        offsets[topic] += 1
    plan = Policies(default=Policy(ttl_ms=int(stream.ttl * DAY_MS), unlabelled=ALIKE))
    with tempfile.TemporaryDirectory() as directory:
        player = InMemoryEngine([Configuration("present", plan)], Path(directory))
        player.play(events)
        player.end()
        found = np.empty(len(order))
        found[order] = played(Path(directory), "p0", "d")
    return found


def less_raws(stream: Stream, p: Floats) -> list[float]:
    """Return log loss and Brier score of what was served less raw's, in % of raw's, each with its standard error."""
    raw, y = np.array([row.p for row in stream.rows]), np.array([row.y for row in stream.rows])
    _, entity = np.unique([row.entity for row in stream.rows], return_inverse=True)
    found = []
    for of_raw, of_served in ((_log_loss(raw, y), _log_loss(p, y)), ((raw - y) ** 2, (p - y) ** 2)):
        base, of_entity = float(of_raw.sum()), np.bincount(entity, of_served - of_raw)
        error = math.sqrt(max(float((of_entity**2).sum() - of_entity.sum() ** 2 / len(of_entity)), 0.0))
        found += [100.0 * float(of_entity.sum()) / base, 100.0 * error / base]
    return found


def _log_loss(p: Floats, y: Floats) -> Floats:
    return np.asarray(-np.log(np.where(y > 0.5, p, 1.0 - p)))


def main() -> None:
    """Play the streams and print a line of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("streams", nargs="*", metavar="STREAM", help=", ".join(STREAMS))
    options = parser.parse_args()
    for name in options.streams or STREAMS:
        for seed in range(FIRST, FIRST + options.seeds):
            stream = STREAMS[name](np.random.default_rng(seed))
            figures = [f"{name:30} {seed}"]
            for named in (False, True):
                loss, error, brier, off = less_raws(stream, served(stream, named=named))
                figures.append(f"{loss:+7.2f} ± {error:4.2f} {brier:+7.2f} ± {off:4.2f}")
            print(" | ".join(figures), flush=True)


if __name__ == "__main__":
    main()
