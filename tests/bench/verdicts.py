"""What the verdict of a replay says of histories that were made to be better, alike, worse, or degenerate.

``python -m tests.bench.verdicts`` prints a table and takes some ten minutes on one processor; ``--kind NAME`` plays one
kind, ``--rows`` prints every history. The exit status is 1 if a bar fails:

- **too high**: order kept, log-odds 1.2 too high, labels two days late. All say *Use*.
- **off**: slopes, levels and delays of other kinds. None says *harm*, and most say *Use*.
- **honest**: the true probabilities. At most two of forty say *Use*, none says *harm*.
- **harmful**: streams of `tests.bench.strange` and others that calibration harms. None on which the served scores are
  worse in Brier score or log loss says *Use*.
- **degenerate**: equal scores, perfect ones, one answer only.
- **numbers**, **classes**: right forecasts, and such as recalibration helps or harms.

Seeds 1 to 4 of *too high* and the recipe of the README chose the windows and margins of the ranks; the others judge.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from replay.configuration import Configuration, configurations
from replay.report.recommendation import Recommendation, verdicts
from replay.result import Result
from replay.run import Request, replay
from replay.sources.files import FileSource
from state.arrays import Floats
from state.policy import Policies
from streams.config.settings import Settings
from tests.bench import strange
from tests.bench.figures import table

DAY: Final = 86_400_000
START: Final = 1_704_067_200_000


class History(NamedTuple):
    """Forecasts of a model, what happened, and when it became known.

    Attributes
    ----------
    raw, y
        Forecasts, and outcomes in {0, 1}, [n].
    at, known
        Days on which they were made and known, [n].
    """

    raw: Floats
    y: Floats
    at: Floats
    known: Floats


def made(
    n: int, rate: float, seed: int, off: float = 0.0, slope: float = 1.0, delay: float = 2.0, days: float = 60.0
) -> History:
    """Make events whose log-odds are normal; the model's are ``slope`` times those plus ``off``.

    Parameters
    ----------
    delay
        Mean delay of labels, days; it is exponential.
    """
    rng = np.random.default_rng(seed)
    middle = np.log(rate / (1 - rate))
    z = middle + rng.standard_normal(n)
    y = (rng.random(n) < strange.logistic(z)).astype(np.float64)
    at = np.sort(rng.random(n)) * days
    raw = np.round(strange.logistic(middle + slope * (z - middle) + off), 6)
    return History(raw, y, at, at + rng.exponential(delay, n) if delay else at)


def replayed(
    forecasts: Iterable[bytes], outcomes: Iterable[bytes], wanted: Sequence[Configuration], resamples: int = 1000
) -> Result:
    """Replay lines of two files."""
    with TemporaryDirectory() as directory:
        paths = Path(directory, "forecasts.jsonl"), Path(directory, "outcomes.jsonl")
        for path, lines in zip(paths, (forecasts, outcomes), strict=True):
            path.write_bytes(b"\n".join(lines))
        return replay(Request(FileSource(*paths), wanted, resamples=resamples), {})[0]


def present(plan: str = "") -> list[Configuration]:
    """Return the default configuration, or that of a streams file of this text."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "plan.toml")
        path.write_text(plan, encoding="utf-8")
        return configurations(Settings.from_env({}), [], [path] if plan else [])


def lines(
    raw: Sequence[Mapping[str, Any]], y: Sequence[float], at: Floats, known: Floats
) -> tuple[list[bytes], list[bytes]]:
    """Return forecasts and outcomes as lines in the order of time, [n] each; ``raw`` are fields of the record."""
    ms = [(START + days * DAY).astype(np.int64) for days in (at, known)]
    orders = [np.argsort(each, kind="stable").tolist() for each in ms]
    times = [each.tolist() for each in ms]
    return (
        [orjson.dumps({"event_id": f"e{i}", "stream": "made", "ts": times[0][i], **raw[i]}) for i in orders[0]],
        [orjson.dumps({"event_id": f"e{i}", "y": y[i], "ts": times[1][i]}) for i in orders[1]],
    )


def played(history: History, plan: str = "", resamples: int = 1000) -> Result:
    """Replay a history."""
    raw = [{"p": p} for p in history.raw.tolist()]
    y = history.y.astype(int).tolist()
    return replayed(*lines(raw, y, history.at, history.known), present(plan), resamples)


def _played(*args: Any, **how: Any) -> Result:
    return played(made(*args, **how))


@dataclass(frozen=True)
class Case:
    """A history by name, and what plays it."""

    name: str
    play: Callable[[], Result]


def too_high(seeds: Iterable[int]) -> Iterator[Case]:
    """Yield stationary histories that are too high, order kept."""
    for n in (2000, 8000, 30_000):
        for rate in (0.2, 0.02):
            for seed in seeds:
                yield Case(f"{n} at {rate:.0%}, seed {seed}", partial(_played, n, rate, seed, off=1.2))


def off() -> Iterator[Case]:
    """Yield histories that calibration helps, of other kinds."""
    ways: dict[str, dict[str, Any]] = {
        "1.2 too low": {"off": -1.2},
        "twice too steep": {"slope": 2.0},
        "half as steep": {"slope": 0.5},
        "2.5 too high": {"off": 2.5},
        "1.2 too high, at once": {"off": 1.2, "delay": 0.0},
        "1.2 too high, 15 days late": {"off": 1.2, "delay": 15.0},
    }
    for name, how in ways.items():
        for seed, (n, rate) in enumerate(((3000, 0.3), (6000, 0.05), (15_000, 0.01)), 21):
            yield Case(f"{name}: {n} at {rate:.0%}", partial(_played, n, rate, seed, **how))


def honest() -> Iterator[Case]:
    """Yield forty histories of true probabilities."""
    for i in range(40):
        n, rate = (1500, 4000, 10_000, 25_000)[i % 4], (0.3, 0.1, 0.03, 0.01, 0.5)[i % 5]
        delay = (0.0, 0.5, 2.0, 10.0)[i // 4 % 4]
        name = f"{n} at {rate:.0%}, {delay:g} days late, seed {100 + i}"
        yield Case(name, partial(_played, n, rate, 100 + i, delay=delay))


def harmful() -> Iterator[Case]:
    """Yield streams that were made to harm."""
    ways = {
        "jumps of the rate, 30 days late": (_jumps, strange.after(30.0)),
        "three attacks in 40 days, 10 days late": (_attacks, strange.after(10.0)),
        "ones kept back for 30 days": (strange.made(0.25), _held),
    }
    more = [strange.Case(name, *how, configured=False) for name, how in ways.items()]
    for case in (*strange.CASES, *more):
        yield Case(case.name, partial(_strange, case))


def _strange(case: strange.Case) -> Result:
    rng = np.random.default_rng([7, len(case.name)])
    stream = case.made(rng)
    history = strange.events(stream, case.told(stream, rng))
    with TemporaryDirectory() as directory:
        policy = strange.configured(case, history, Path(directory))
    plan = Configuration("present", Policies([], policy, early_ttl_ms=policy.ttl_ms))
    return replayed(*strange.lines(history), [plan])


def _jumps(rng: strange.Random) -> strange.Made:
    levels = np.cumsum(rng.choice((-1.5, 1.5), 9) * (rng.random(9) < 0.7))
    return strange.made(0.05, shift=lambda at: np.clip(levels, -2.5, 2.5)[(at / 20).astype(int).clip(0, 8)])(rng)


def _attacks(rng: strange.Random) -> strange.Made:
    def shift(at: Floats) -> Floats:
        return np.where(np.any([(at > day) & (at < day + 4) for day in (10, 24, 38)], axis=0), 2.5, 0.0)

    return strange.made(0.01, shift=shift)(rng)


def _held(stream: strange.Made, rng: strange.Random) -> strange.Told:
    held = (stream.at > 70) & (stream.at < 100) & (stream.y == 1)
    day = np.where(held, 100.0 + 0.01 * rng.random(len(held)), stream.at + 2)
    return strange.joined(strange.told(np.arange(len(day)), stream.y, day))


def degenerate() -> Iterator[Case]:
    """Yield histories of which little can be said."""
    base = made(5000, 0.2, 31)
    ways = {
        "all .2, and right": base._replace(raw=np.full(5000, base.y.mean())),
        "all .5": base._replace(raw=np.full(5000, 0.5)),
        "perfect": base._replace(raw=base.y),
        "perfect, never certain": base._replace(raw=np.where(base.y == 1, 0.9999, 0.0001)),
        "all 0": base._replace(raw=np.zeros(5000)),
        "all 1": base._replace(raw=np.ones(5000)),
        "the wrong way round": base._replace(raw=1.0 - base.y),
        "no ones": base._replace(y=np.zeros(5000)),
        "no zeros": base._replace(y=np.ones(5000)),
        "three ones": base._replace(y=(np.arange(5000) % 1667 == 5).astype(np.float64)),
        "two scores": base._replace(raw=np.where(base.raw > 0.2, 0.6, 0.1)),
    }
    for name, history in ways.items():
        yield Case(name, partial(played, history))


def numbers() -> Iterator[Case]:
    """Yield forecasts of numbers: right ones, some that are off, and levels that are learnt too late."""
    n, plan = 12_000, '[streams.made]\ncalibrator = "quantile"\n'
    rng = np.random.default_rng(41)
    e, t = rng.standard_normal(n), np.arange(n)
    slow = np.zeros(n)
    for i in range(1, n):
        slow[i] = 0.999 * slow[i - 1] + 0.05 * e[i]
    ways: dict[str, tuple[float, float, Floats, float]] = {
        "right": (0.0, 1.0, e, 0.02),
        "two deviations off": (2.0, 1.0, e, 0.02),
        "a third of the spread": (0.0, 1 / 3, e, 0.02),
        "a slow wave, 1,000 outstanding": (0.0, 1.0, e + 1.5 * np.sin(t / 640), 5.0),
        "a drift that comes back, 2,000 outstanding": (0.0, 1.0, e + 2 * slow, 10.0),
    }
    for name, (mean, std, y, late) in ways.items():
        told = lines([{"normal": {"mean": mean, "std": std}}] * n, y.tolist(), t / 200.0, t / 200.0 + late)
        yield Case(name, partial(replayed, *told, present(plan)))


def classes() -> Iterator[Case]:
    """Yield forecasts of three classes."""
    plan = '[streams.made]\ncalibrator = "multiclass"\noptions = { classes = 3 }\n'
    for kind, late in (("right", 0.1), ("too sharp", 0.1), ("biased", 2.0), ("changed", 0.1), ("drifting", 15.0)):
        for seed in (3, 4):
            p, y = strange_classes(kind, seed)
            at = np.arange(len(y)) / 200.0
            told = lines([{"probs": each} for each in p.tolist()], y.tolist(), at, at + late)
            yield Case(f"{kind}, {late:g} days late, seed {seed}", partial(replayed, *told, present(plan)))


def strange_classes(kind: str, seed: int) -> tuple[Floats, Any]:
    """Return forecasts and outcomes of `tests.bench.classes`."""
    from tests.bench.classes import strange as of  # noqa: PLC0415 - it reads data sets

    return of(kind, seed)


#: By kind: its histories, and the most that may say *Use*, *harm*, or not *Use*; None: any.
KINDS: Final[dict[str, tuple[Callable[[], Iterator[Case]], tuple[int | None, int | None, int | None]]]] = {
    "too high": (lambda: too_high(range(11, 15)), (None, 0, 0)),
    "too high, chose": (lambda: too_high(range(1, 5)), (None, 0, 0)),
    "off": (off, (None, 0, 2)),
    "honest": (honest, (2, 0, None)),
    "harmful": (harmful, (None, None, None)),
    "degenerate": (degenerate, (None, None, None)),
    "numbers": (numbers, (None, None, None)),
    "classes": (classes, (None, None, None)),
}


def worse(result: Result) -> float:
    """Return by what share what was served loses more than raw: by the better proper score if it loses less there."""
    for contender in result.contenders:
        if contender.overall:
            phase = contender.overall.settled
            raw, served = phase.raw, phase.calibrated
            pairs = [(raw.brier, served.brier), (raw.log_loss, served.log_loss)]
        else:
            figures = next(iter(contender.vectors.values())).figures
            names = [each for each in ("brier", "log_loss", "pinball") if each in figures["raw"]]
            pairs = [(figures["raw"][name], figures["calibrated"][name]) for name in names]
        moved = [b / a - 1 if a else float(b > 0) for a, b in pairs]
        return max(moved) if min(moved) > -0.001 else min(moved)
    return float("nan")


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="what the verdict says")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--rows", action="store_true", help="print every history")
    given = parser.parse_args()
    rows, failed = [], 0
    for kind in given.kind or KINDS:
        cases, bars = KINDS[kind]
        said: Counter[str] = Counter()
        for case in cases():
            result = case.play()
            made = verdicts(result)[0]
            word, more = _word(made), worse(result)
            said[word] += 1
            said["harm"] += "does harm" in made.headline
            said["harmed"] += word == "Use" and more > 0.001
            if given.rows:
                print(f"{kind}: {case.name}: {more:+.1%}: {made.headline}", *made.reasons[:1], flush=True)
        counted = said["Use"], said["harm"], said.total() - said["harm"] - said["harmed"] - said["Use"]
        held = all(most is None or n <= most for n, most in zip(counted, bars, strict=True)) and not said["harmed"]
        failed += not held
        words = (said[word] for word in ("Use", "Keep", "No choice", "harm", "harmed"))
        rows.append((kind, *map(str, words), "held" if held else "FAIL"))
    print(table(("histories", "Use", "Keep", "No choice", "does harm", "Use, though worse", ""), rows))
    return failed > 0


def _word(made: Recommendation) -> str:
    return next(word for word in ("Use", "Keep", "No choice") if made.headline.startswith(word))


if __name__ == "__main__":
    sys.exit(main())
