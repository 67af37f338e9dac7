"""Many forecasts that share one outcome: what they cost without ``entity``, and with it.

``python -m research.entities [--games DIRECTORY] [--seeds 1,2,3]`` prints log loss less raw's, in %, ± a standard error
clustered by entity and week: of `prudent` and of the default without the key, and of the default with it. Made streams
play always; FiveThirtyEight's forecasts do with the directory of the CSV files that they published (*checking our
work*): games that are forecast many times while they are played, and teams whose season is forecast day by day.
docs/explanation/calibrators.md, *Many forecasts, one outcome*, has the table. Nothing was chosen on it.
"""

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from research.benchmark.contenders import RAW, SPARE_MS, played
from research.benchmark.judge import judge
from research.benchmark.streams import DAY_MS, Dated
from state.arrays import Floats
from state.policy import DEFAULT_CALIBRATOR, Policy

#: Accounts, and days on which each is scored.
ACCOUNTS, DAYS = 1000, 30
#: Teams and days of a season that is forecast every day, and told at its end.
TEAMS, SEASON = 30, 200
MINUTE_MS, TICK_MS = 60_000, 10_000
#: Files of games.
GAMES: Final = {
    "march_madness_in_game_men": "basketball, men",
    "march_madness_in_game_women": "basketball, women",
    "world_cup_matches_in_game_men": "football, men",
}
#: Files of seasons, each with a column and what it means.
SEASONS: Final = {
    "mlb_playoffs": ("baseball: playoffs", "make_playoffs"),
    "nfl_playoffs": ("American football: playoffs", "make_playoffs"),
    "nhl_playoffs": ("ice hockey: playoffs", "make_playoffs"),
}


def accounts(seed: int, shift: float, *, monthly: bool = False) -> Dated:
    """Make accounts that are scored every day for a month; all labels of one come five days later.

    ``shift``: how far scores are off, in log-odds.
    ``monthly``: labels come in one file a month, of all accounts.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 1.0, ACCOUNTS)
    y = (rng.random(ACCOUNTS) < 1 / (1 + np.exp(-z))).astype(np.float64)
    began = rng.integers(0, 150, ACCOUNTS)
    # Scores know a little more every day, and stay honest: the odds move by what a hint is worth.
    hints = rng.normal(0.0, 0.2, (ACCOUNTS, DAYS)) + 0.04 * (y[:, None] - 0.5)
    z = z[:, None] + np.cumsum(hints, axis=1) - hints
    day = began[:, None] + np.arange(DAYS)
    known = np.repeat(began + DAYS + 5, DAYS).reshape(day.shape)
    if monthly:
        known = (known // 30 + 1) * 30
    # Of accounts that begin on one day none has the time of another.
    moment = np.arange(ACCOUNTS)[:, None] * MINUTE_MS
    told = known * DAY_MS + (0 if monthly else moment)
    entity = np.repeat(np.arange(ACCOUNTS), DAYS)
    name = "accounts, a file a month" if monthly else "accounts, each day"
    return _dated(
        f"{name}, {shift:+.1f}" if shift else name,
        1 / (1 + np.exp(-z - shift)).ravel(),
        np.repeat(y, DAYS),
        (day * DAY_MS + moment).ravel(),
        told.ravel(),
        entity,
    )


def season(seed: int, years: int) -> Dated:
    """Make seasons of teams: an honest forecast of each every day, and all labels at one time after the season."""
    rng = np.random.default_rng([seed, 1])
    teams = TEAMS * years
    # What will decide is known bit by bit: a sum of which the rest is normal.
    steps = rng.normal(0.0, 1 / math.sqrt(SEASON), (teams, SEASON))
    before = np.cumsum(steps, axis=1) - steps
    left = np.sqrt(1 - np.arange(SEASON) / SEASON)
    y = (steps.sum(axis=1) > 0).astype(np.float64)
    p = np.clip(_normal(before / left), 0.001, 0.999)
    year = np.repeat(np.arange(years), TEAMS)
    at = (365 * year[:, None] + np.arange(SEASON)) * DAY_MS
    told = np.repeat((365 * year + SEASON + 1) * DAY_MS, SEASON)
    return _dated(
        f"{years} seasons of {TEAMS} teams" if years > 1 else f"a season of {TEAMS} teams, then nothing",
        p.ravel(),
        np.repeat(y, SEASON),
        at.ravel(),
        told,
        np.repeat(np.arange(teams), SEASON),
    )


def _normal(x: Floats) -> Floats:
    return np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in x.ravel()]).reshape(x.shape)


def games(file: Path, name: str) -> Dated:
    """Read forecasts of games while they were played, game after game; the label of all comes when one ends."""
    rows = [row for row in csv.DictReader(file.open()) if row["prob1"] and row["prob1_outcome"]]
    played = [(row["season"], row["team1"], row["team2"]) for row in rows]
    order = {game: n for n, game in enumerate(dict.fromkeys(played))}
    entity = np.array([order[game] for game in played])
    # Files list the moments of a game one after the other: they are played ten seconds apart.
    moment = np.arange(len(entity)) - np.unique(entity, return_index=True)[1][entity]
    at = entity * DAY_MS // 4 + moment * TICK_MS
    known = (entity + 1) * DAY_MS // 4 - 1
    p, y = (np.array([float(row[column]) for row in rows]) for column in ("prob1", "prob1_outcome"))
    return _dated(f"{name}, in play", p, y, at, known, entity)


def seasons(file: Path, name: str, column: str) -> Dated:
    """Read daily forecasts of teams' seasons; all labels of a season come the day after its last forecast."""
    rows = [row for row in csv.DictReader(file.open()) if row[column] and row[f"{column}_outcome"]]
    rows.sort(key=lambda row: row["forecast_date"])
    day = np.array([row["forecast_date"] for row in rows], dtype="datetime64[D]").astype(np.int64)
    year = np.array([int(row["season"]) for row in rows])
    last = {each: int(day[year == each].max()) + 1 for each in np.unique(year)}
    known = np.array([last[each] for each in year])
    _, entity = np.unique([f"{row['season']} {row['team']}" for row in rows], return_inverse=True)
    p, y = (np.array([float(row[each]) for row in rows]) for each in (column, f"{column}_outcome"))
    return _dated(name, p, y, day * DAY_MS, known * DAY_MS, entity)


def _dated(name: str, p: Floats, y: Floats, at: object, known: object, entity: object) -> Dated:
    """Return the stream in the order of time."""
    at, known, entity = (np.asarray(each, dtype=np.int64) for each in (at, known, entity))
    order = np.argsort(at, kind="stable")
    return Dated(name, "", p[order], y[order], at[order], known[order], 0, entity[order], {})


def streams(directory: Path | None, seeds: list[int]) -> Iterator[list[Dated]]:
    """Yield the streams that a row is the mean of."""
    yield [accounts(seed, 0.0) for seed in seeds]
    yield [accounts(seed, 0.0, monthly=True) for seed in seeds]
    yield [accounts(seed, 1.2) for seed in seeds]
    yield [season(seed, 4) for seed in seeds]
    if directory is not None:
        for file, name in GAMES.items():
            yield [games(directory / f"{file}.csv", name)]
        for file, about in SEASONS.items():
            yield [seasons(directory / f"{file}.csv", *about)]


def main() -> None:
    """Print a row a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=Path, help="directory of FiveThirtyEight's CSV files")
    parser.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args()
    for drawn in streams(options.games, [int(seed) for seed in options.seeds.split(",")]):
        found = []
        for stream in drawn:
            ttl = int((stream.known_ms - stream.forecast_ms).max()) + SPARE_MS
            served = {RAW: stream.p}
            for name, calibrator, entity in (
                ("prudent", "prudent", ""),
                ("default", DEFAULT_CALIBRATOR, ""),
                ("key", DEFAULT_CALIBRATOR, "entity"),
            ):
                served[name] = played(stream, Policy(calibrator, ttl_ms=ttl, entity=entity))
            judged = judge(stream, served)
            found.append([(each.log_loss.value, each.log_loss.error) for name, each in judged.items() if name != RAW])
        mean = np.mean(found, axis=0)
        error = mean[:, 1] / math.sqrt(len(found))
        first = drawn[0]
        cells = [f"{100 * value:+.1f} ± {100 * off:.1f}" for value, off in zip(mean[:, 0], error, strict=True)]
        about = (first.name, f"{len(first.p):,}", f"{len(np.unique(first.entity)):,}", f"{first.y.mean():.0%}")
        print("|", " | ".join((*about, *cells)), "|", flush=True)


if __name__ == "__main__":
    main()
