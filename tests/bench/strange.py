"""Streams that were made to harm: scores, drifts and labels that no other benchmark has, served against raw.

``python -m tests.bench.strange [--seeds N] [--case NAME]... [CALIBRATOR]...``: made streams of 24,000 forecasts in 180
days, whose labels come as those of risk teams do: by chargeback, by analysts, by silence, taken back, late, or of some
forecasts only. They go through replay's player with the settings that `trueup config suggest` proposes for them, and
three of them without any, but for what one says of forecasts without a label.

Of each stream and calibrator: Brier score and log loss less raw's in standard errors (100 blocks of time, over all
seeds), of everything and of the second half. More than +3 is harm, if it is .1 % of raw's. Then the mean score through
what happened, AUC within twentieths of the time, and precision among the highest hundredth, raw's first. What was found
to do harm and is not repaired is marked as known, with its reason. The exit status is 1 if another row does harm, also
of a calibrator that was asked for.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from cli import suggest
from replay.column_file import played
from replay.configuration import with_calibrator
from replay.measure import log_losses
from replay.player import Player
from replay.ranking import ranks
from replay.sources.files import FileSource
from state.arrays import Floats, Integers
from state.events import Event, Forecast, Outcome
from state.policy import ALIKE, DEFAULT_CALIBRATOR, UNKNOWN, Policies, Policy
from streams.config import stream_config
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from tests.bench.figures import table

STREAM: Final = "made"
ROWS, DAYS = 24_000, 180.0
SEEDS: Final = 2
START_MS, DAY_MS = 1_767_225_600_000, 86_400_000
#: A fraud is reported after a median of so many days, and at most so many.
MEDIAN, LATEST = 12.0, 45.0
#: Standard errors by which a loss may be above raw's, and the share of it that counts as nothing: a mixture that is
#: nearly raw's differs by nearly nothing, and always to one side.
ERRORS, NOTHING = 3.0, 0.001
BLOCKS, PARTS = 100, 20
VOLUME: Final = 0.01

Random = np.random.Generator


class Told(NamedTuple):
    """Outcomes: of which forecast, the label, the day, the revision; [m] each."""

    row: Integers
    y: Floats
    day: Floats
    revision: Integers


@dataclass(frozen=True)
class Made:
    """A stream of n forecasts.

    Attributes
    ----------
    raw, y
        Scores and what happened, [n].
    at
        Day of each forecast, ascending, [n].
    names
        The stream of each; None: all of one.
    """

    raw: Floats
    y: Floats
    at: Floats
    names: list[str] | None = None


@dataclass(frozen=True)
class Case:
    """A stream and how its labels come.

    Attributes
    ----------
    made, told
        Make them.
    configured
        Whether the settings are those that are proposed; else none.
    known
        Why harm is known and stays; empty: there must be none.
    unlabelled
        What is said of forecasts without a label, where nothing else is configured.
    """

    name: str
    made: Callable[[Random], Made]
    told: Callable[[Made, Random], Told]
    configured: bool = True
    known: str = ""
    unlabelled: str = UNKNOWN


def logistic(z: Floats) -> Floats:
    """Return probabilities of log-odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def made(
    rate: float,
    raw: Callable[[Floats, Floats], Floats] = lambda z, _: logistic(z),
    shift: Callable[[Floats], Floats] = np.zeros_like,
    names: Callable[[Floats], list[str]] | None = None,
) -> Callable[[Random], Made]:
    """Return what makes a stream.

    Parameters
    ----------
    rate
        Share of ones where nothing is shifted.
    raw
        The score, of the log-odds that the model sees and the day.
    shift
        What the model does not see of the log-odds, of the day.
    names
        The stream, of the day.
    """

    def make(rng: Random) -> Made:
        at = np.sort(rng.random(ROWS) * DAYS)
        z = 1.35 * rng.standard_normal(ROWS)
        low, high = -30.0, 30.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if logistic(z + middle).mean() < rate else (low, middle)
        z = z + low
        y = (rng.random(ROWS) < logistic(z + shift(at))).astype(np.float64)
        return Made(raw(z, at), y, at, None if names is None else names(at))

    return make


def certain(rng: Random) -> Made:
    """Make a stream in which a fifth of the scores are exactly 0 or 1, and wrong once in 30 or 100 times."""
    honest = made(0.1)(rng)
    ruled, one = rng.random(ROWS) < 0.2, rng.random(ROWS) < 0.1
    y = np.where(ruled, rng.random(ROWS) < np.where(one, 0.97, 0.01), honest.y).astype(np.float64)
    return Made(np.where(ruled, one, honest.raw).astype(np.float64), y, honest.at)


def even(rng: Random) -> Made:
    """Make a stream whose scores are all .5, and right."""
    return Made(np.full(ROWS, 0.5), (rng.random(ROWS) < 0.5).astype(np.float64), np.sort(rng.random(ROWS) * DAYS))


def attacked(rng: Random) -> Made:
    """Make a stream in which half of the forecasts of one hour are ones, three days' as many, and no score says so."""
    honest = made(0.01)(rng)
    hour = slice(ROWS // 2, ROWS // 2 + 400)
    honest.at[hour] = honest.at[hour.start] + np.linspace(0.0, 1 / 24, 400)
    honest.y[hour] = rng.random(400) < 0.5
    return honest


def told(row: Integers, y: Any, day: Floats, revision: int = 0) -> Told:
    """Return outcomes of some forecasts."""
    return Told(row, np.broadcast_to(y, row.shape).astype(np.float64), day, np.full(len(row), revision))


def joined(*parts: Told) -> Told:
    """Return all outcomes in the order of time."""
    row, y, day, revision = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((revision, day))
    return Told(row[order], y[order], day[order], revision[order])


def after(days: float) -> Callable[[Made, Random], Told]:
    """Return a way of labels: all of them so many days later."""
    return lambda stream, _: told(np.arange(ROWS), stream.y, stream.at + days)


def _chargebacks(stream: Made, row: Integers, rng: Random) -> Told:
    lag = MEDIAN * np.exp(0.8 * rng.standard_normal(len(row)))
    return told(row, 1.0, stream.at[row] + np.minimum(lag, LATEST * (0.9 + 0.1 * rng.random(len(row)))))


def chargebacks(stream: Made, rng: Random) -> Told:
    """Report ones after weeks, and zeros never."""
    return joined(_chargebacks(stream, np.flatnonzero(stream.y == 1), rng))


def taken_back(stream: Made, rng: Random) -> Told:
    """Report ones after weeks; one report in 21 is of a zero, and is taken back up to 20 days later."""
    ones = chargebacks(stream, rng)
    row = rng.choice(np.flatnonzero(stream.y == 0), max(len(ones.row) // 20, 1), replace=False)
    day = stream.at[row] + 20 * rng.random(len(row))
    return joined(ones, told(row, 1.0, day), told(row, 0.0, day + 20 * rng.random(len(row)), 1))


def analysts(stream: Made, rng: Random) -> Told:
    """Report the highest twentieth within three days, of the rest the ones after weeks, and zeros never."""
    high = stream.raw >= np.quantile(stream.raw, 0.95)
    row = np.flatnonzero(high)
    seen = told(row, stream.y[row], stream.at[row] + 0.2 + 2.8 * rng.random(len(row)))
    return joined(seen, _chargebacks(stream, np.flatnonzero(~high & (stream.y == 1)), rng))


def corrected(stream: Made, rng: Random) -> Told:
    """Report everything within 5 days, a twentieth wrongly; that is corrected 5 to 30 days later."""
    wrong = rng.random(ROWS) < 0.05
    day = stream.at + 5 * rng.random(ROWS)
    row = np.flatnonzero(wrong)
    right = told(row, stream.y[row], day[row] + 5 + 25 * rng.random(len(row)), 1)
    return joined(told(np.arange(ROWS), np.where(wrong, 1 - stream.y, stream.y), day), right)


def flipped(stream: Made, rng: Random) -> Told:
    """Report everything after 4 days; an eighth becomes false on day 5, and true again on day 10."""
    row = np.flatnonzero(rng.random(ROWS) < 0.125)
    day = stream.at[row]
    first = told(np.arange(ROWS), stream.y, stream.at + 4)
    return joined(first, told(row, 1 - stream.y[row], day + 5, 1), told(row, stream.y[row], day + 10, 2))


def flagged(stream: Made, rng: Random) -> Told:
    """Report the highest 3 % within 5 days, and nothing else ever."""
    row = np.flatnonzero(stream.raw >= np.quantile(stream.raw, 0.97))
    return joined(told(row, stream.y[row], stream.at[row] + 5 * rng.random(len(row))))


def declined(stream: Made, rng: Random) -> Told:
    """Report everything within 5 days, but for the highest 3 %, which were declined."""
    row = np.flatnonzero(stream.raw < np.quantile(stream.raw, 0.97))
    return joined(told(row, stream.y[row], stream.at[row] + 5 * rng.random(len(row))))


def vintages(stream: Made, rng: Random) -> Told:
    """Report ones after 8 to 30 days, and zeros on day 30."""
    day = np.where(stream.y == 1, 8 + 22 * rng.beta(1.5, 1.5, ROWS), 30.0)
    return joined(told(np.arange(ROWS), stream.y, stream.at + day))


def weekly(first: int) -> Callable[[Made, Random], Told]:
    """Return a file of everything every seventh day, at least three days later, sorted by label."""

    def tell(stream: Made, rng: Random) -> Told:
        file = (np.floor((stream.at + 3) / 7) + 1) * 7
        return joined(told(np.arange(ROWS), stream.y, file + 1e-4 * (stream.y != first) + 1e-5 * rng.random(ROWS)))

    return tell


def _between(first: float, last: float, by: float) -> Callable[[Floats], Floats]:
    return lambda at: np.where((at >= first) & (at < last), by, 0.0)


def _replaced(z: Floats, at: Floats) -> Floats:
    return logistic(np.where(at < DAYS / 2, 1.2 * z + 3.5, z))


def _zero_for_ten_days(z: Floats, at: Floats) -> Floats:
    return np.where((at > 50) & (at < 60), 0.0, logistic(z))


def _mild(z: Floats, at: Floats) -> Floats:  # noqa: ARG001 - of every day
    return logistic(0.8 * z - 0.2)


def _rounded(step: float) -> Callable[[Floats, Floats], Floats]:
    return lambda z, _: np.asarray(np.round(logistic(z) / step) * step)


def _seasons(at: Floats) -> Floats:
    return 0.6 * np.sin(np.pi * at / 37.5)


def _mended(z: Floats, at: Floats) -> Floats:
    return logistic(z + 2.3 * np.clip((110 - at) / 60, 0.0, 1.0))


_SAID: Final = "it is said of labels that are not alike"
_LATE: Final = "the map of the past is served until labels say otherwise"
_WAVE: Final = "late outcomes teach a wave in another phase; today's map is right about what it learns"
_UNLEARNT: Final = "ones that come before the first 20 zeros are not learnt, their zeros are"
_ONE_CELL: Final = "certified alone: one cell has all events, and chance leaves its margin"
_ATTACK: Final = _between(80, 95, np.log(10.0))

CASES: Final = (
    Case("honest .02, chargebacks", made(0.02), chargebacks),
    Case("honest .0005, chargebacks", made(0.0005), chargebacks),
    Case("40 times too high, chargebacks", made(0.004, lambda z, _: logistic(1.2 * z + 4.2)), chargebacks),
    Case("honest, ones taken back, no settings", made(0.02), taken_back, configured=False),
    Case("honest, analysts", made(0.02), analysts),
    Case("40 times too high, analysts", made(0.004, lambda z, _: logistic(1.2 * z + 4.2)), analysts),
    Case("honest, analysts, no settings", made(0.02), analysts, configured=False),
    Case("honest, 5 % corrected", made(0.02), corrected),
    Case("honest, flagged only", made(0.02), flagged),
    Case("10 times too high, flagged only", made(0.02, lambda z, _: logistic(1.2 * z + 3.0)), flagged),
    Case("honest, declined never", made(0.02), declined),
    Case("wave of 20 days, 5 days late", made(0.05, shift=lambda at: 0.8 * np.sin(np.pi * at / 10)), after(5.0)),
    Case("tenfold for 15 days, 5 days late", made(0.004, shift=_ATTACK), after(5.0)),
    Case("tenfold for 15 days, chargebacks", made(0.004, shift=_ATTACK), chargebacks, known=_LATE),
    Case("an hour of fraud that no score sees, 5 days late", attacked, after(5.0)),
    Case("an hour of fraud that no score sees, chargebacks", attacked, chargebacks),
    Case("scores of 0 for 10 days, 5 days late", made(0.02, _zero_for_ten_days), after(5.0), known=_LATE),
    Case("scores of 0 for 10 days, chargebacks", made(0.02, _zero_for_ten_days), chargebacks, known=_LATE),
    Case("model replaced, 5 days late", made(0.02, _replaced), after(5.0), known=_LATE),
    Case(
        "model replaced under a new name",
        made(0.02, _replaced, names=lambda at: np.where(at < DAYS / 2, "made", "made-2").tolist()),
        after(5.0),
    ),
    Case("a fifth exactly 0 or 1, some wrong", certain, after(0.01)),
    Case("all .5, and right", even, after(0.01), known=_ONE_CELL),
    Case("honest, analysts, said to be alike", made(0.02), analysts, configured=False, unlabelled=ALIKE, known=_SAID),
    Case("vintages of 30 days, a wave of 75", made(0.06, _mild, _seasons), vintages, known=_WAVE),
    Case("honest, a weekly file, zeros first, no settings", made(0.03), weekly(0), configured=False),
    Case("honest, a weekly file, ones first, no settings", made(0.03), weekly(1), configured=False, known=_UNLEARNT),
    Case("3 times too high, a weekly file, ones first", made(0.03, lambda z, _: logistic(z + 1.1)), weekly(1)),
    Case("honest, an eighth is false for five days", made(0.03), flipped),
    Case("right again after 110 days, chargebacks", made(0.02, _mended), chargebacks, known=_LATE),
    Case("honest, in tenths, 5 days late", made(0.2, _rounded(0.1)), after(5.0)),
    Case("honest, in twentieths, 5 days late", made(0.02, _rounded(0.05)), after(5.0)),
)  # fmt: skip


def events(stream: Made, labels: Told) -> list[Event]:
    """Return forecasts and outcomes in the order of time, up to the last forecast."""
    day = np.concatenate([stream.at, labels.day])
    order = np.lexsort((np.arange(len(day)) >= ROWS, day))
    ms = (START_MS + day * DAY_MS).astype(np.int64).tolist()
    raw, row, y, revision = (each.tolist() for each in (stream.raw, labels.row, labels.y, labels.revision))
    names = stream.names or [STREAM] * ROWS
    found: list[Event] = []
    for k in order[day[order] <= stream.at[-1]].tolist():
        if k < ROWS:
            found.append(Forecast(k, None, f"e{k}", names[k], raw[k], (), ms[k]))
        else:
            j = k - ROWS
            found.append(Outcome(j, None, f"e{row[j]}", y[j], ms[k], None, revision[j]))
    return found


def lines(history: Sequence[Event]) -> tuple[list[bytes], list[bytes]]:
    """Return forecasts and outcomes as the lines of two files."""
    found: tuple[list[bytes], list[bytes]] = [], []
    for each in history:
        if isinstance(each, Forecast):
            said: dict[str, object] = {"event_id": each.event_id, "stream": each.stream, "p": each.raw, "ts": each.ts}
            found[0].append(orjson.dumps(said))
        elif isinstance(each, Outcome):
            said = {"event_id": each.event_id, "y": each.y, "ts": each.ts}
            found[1].append(orjson.dumps(said | ({"revision": each.revision} if each.revision else {})))
    return found


def proposed(history: Sequence[Event], directory: Path) -> Policy:
    """Return the policy that `trueup config suggest` proposes for a history."""
    paths = directory / "forecasts", directory / "outcomes"
    for path, written in zip(paths, lines(history), strict=True):
        path.write_bytes(b"\n".join(written))
    found = suggest.propose(suggest.read(FileSource(*paths), Decoder(Policies([], Policy()), Limits()), STREAM))
    policy = stream_config.parse(found.toml(STREAM), DEFAULT_CALIBRATOR).of(STREAM)
    if policy is None:
        raise LookupError("the proposal has no policy of the stream")
    return policy


def configured(case: Case, history: Sequence[Event], directory: Path) -> Policy:
    """Return the policy of a case."""
    if case.configured:
        return proposed(history, directory)
    return Policy(ttl_ms=1000 * DAY_MS, unlabelled=case.unlabelled)


def serve(case: Case, seed: int, specs: Sequence[str]) -> tuple[Made, dict[str, Floats]]:
    """Play a case; return its stream and ``p`` of each calibrator, [n]."""
    rng = np.random.default_rng([seed, CASES.index(case)])
    stream = case.made(rng)
    history = events(stream, case.told(stream, rng))
    directory = Path(tempfile.mkdtemp(prefix="trueup-strange-"))
    try:
        policy = configured(case, history, directory)
        plan = Policies([], policy, early_ttl_ms=policy.ttl_ms)
        engine = Player([with_calibrator(plan, spec) for spec in specs], directory / "tape")
        engine.play(history)
        engine.end()
        served = {spec: np.array(played(directory / "tape", f"p{n}", "d")) for n, spec in enumerate(specs)}
    finally:
        shutil.rmtree(directory)
    return stream, served


@dataclass
class Tally:
    """Differences of a loss to raw's, by block, over seeds."""

    means: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)

    def add(self, moved: Floats) -> None:
        """Take in the differences of one seed, in the order of time."""
        sums = np.array([each.sum() for each in np.array_split(moved, BLOCKS)])
        self.means.append(float(moved.mean()))
        self.variances.append(float(np.square(sums - sums.mean()).sum()) / len(moved) ** 2)

    @property
    def errors(self) -> float:
        """The mean in standard errors; 0 where nothing moved."""
        spread = float(np.sqrt(np.sum(self.variances)))
        return float(np.sum(self.means)) / spread if spread > 0 else 0.0


class Row(NamedTuple):
    """A case and a calibrator, judged."""

    case: Case
    spec: str
    errors: tuple[float, float, float, float]
    shares: tuple[float, float, float, float]
    mean: tuple[float, float]
    auc: float
    precision: tuple[float, float]

    @property
    def harm(self) -> bool:
        """Whether a loss is above raw's by more than chance."""
        pairs = zip(self.errors, self.shares, strict=True)
        return any(errors > ERRORS and share > NOTHING for errors, share in pairs)

    def cells(self) -> Sequence[str]:
        """Return it as a row of the table."""
        said = (f"known: {self.case.known}" if self.case.known else "FAIL") if self.harm else "held"
        return (
            self.case.name,
            self.spec,
            ", ".join(f"{each:+.1f}" for each in self.errors[:2]),
            ", ".join(f"{each:+.1f}" for each in self.errors[2:]),
            ", ".join(f"{each:+.1%}" for each in self.shares[2:]),
            f"{self.mean[0]:.2f}→{self.mean[1]:.2f}",
            f"{self.auc:+.4f}",
            f"{self.precision[0]:.2f}→{self.precision[1]:.2f}",
            said,
        )


HEAD: Final = (
    "stream", "calibrator", "Brier, log loss: errors", "second half", "of raw's there", "mean/rate", "AUC in 20ths",
    "precision 1 %", "",
)  # fmt: skip


def judge(case: Case, specs: Sequence[str], seeds: int) -> Iterator[Row]:
    """Play a case with some seeds and yield a row of each calibrator."""
    runs = [serve(case, seed, specs) for seed in range(seeds)]
    half = slice(ROWS // 2, None)
    for spec in specs:
        tallies = [Tally() for _ in range(4)]
        losses: list[tuple[float, ...]] = []
        for stream, served in runs:
            p, raw, y = served[spec], stream.raw, stream.y
            brier, log = np.square(p - y), log_losses(p, y)
            raw_brier, raw_log = np.square(raw - y), log_losses(raw, y)
            moved = brier - raw_brier, log - raw_log
            for tally, each in zip(tallies, (*moved, moved[0][half], moved[1][half]), strict=True):
                tally.add(each)
            rate = max(float(y[half].mean()), 1e-9)
            losses.append(
                (
                    float(brier.sum() / raw_brier.sum() - 1),
                    float(log.sum() / raw_log.sum() - 1),
                    float(brier[half].sum() / raw_brier[half].sum() - 1),
                    float(log[half].sum() / raw_log[half].sum() - 1),
                    float(raw[half].mean()) / rate,
                    float(p[half].mean()) / rate,
                    _within(p, y) - _within(raw, y),
                    _precision(raw[half], y[half]),
                    _precision(p[half], y[half]),
                )
            )
        e, f, g, h, before, mean, auc, least, most = np.mean(losses, axis=0).tolist()
        a, b, c, d = (each.errors for each in tallies)
        yield Row(case, spec, (a, b, c, d), (e, f, g, h), (before, mean), auc, (least, most))


def _within(p: Floats, y: Floats) -> float:
    """Return AUC within parts of the time, weighed by their ones; NaN parts left out."""
    total = ones = 0.0
    for part in np.array_split(np.arange(len(p)), PARTS):
        found = ranks(p[part], y[part], (VOLUME,)).auc
        if not np.isnan(found):
            ones += float(y[part].sum())
            total += found * float(y[part].sum())
    return total / ones if ones else 0.0


def _precision(p: Floats, y: Floats) -> float:
    most = max(round(VOLUME * len(p)), 1)
    return float(y[np.argsort(-p, kind="stable")[:most]].mean())


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="streams that were made to harm")
    parser.add_argument("calibrators", nargs="*", metavar="CALIBRATOR", help="the default, unless said otherwise")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each stream, {SEEDS} unless said otherwise")
    parser.add_argument("--case", action="append", metavar="NAME", help="only streams whose name contains this")
    given = parser.parse_args()
    specs = given.calibrators or [DEFAULT_CALIBRATOR]
    rows = []
    for case in CASES:
        if not given.case or any(each in case.name for each in given.case):
            rows += list(judge(case, specs, given.seeds))
    print(table(HEAD, [row.cells() for row in rows]))
    return int(any(row.harm and not row.case.known for row in rows))


if __name__ == "__main__":
    sys.exit(main())
