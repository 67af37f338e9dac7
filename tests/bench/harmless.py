"""The default beside raw forecasts, every front and what was the default: real streams, thinned, late, revised, split.

``python -m tests.bench.harmless [--quick] [--rows]``: bank-full, Elec2 and the flights (after ``make data``) as they
are, and with ones dropped at random until .2, .5, 1 and 5 % are left; each with outcomes

- prompt,
- late: 2,000 forecasts later,
- ones first: a one at once, a zero 2,000 forecasts later; zeros first: a zero after 20, a one after 1,000,
- revised: after 2,000 forecasts all labels that nobody has reported become 0, of which 1 % are wrong at first, and of
  those that were reported too; both are corrected 1,000 forecasts later;

by one partition, and prompt and late ones also by eight, which learn apart. Then the opponent, who answers the other
side of ``p``, for 20,000 rounds, and what an event costs. A bar is that p is not worse than raw forecasts beyond two
standard errors of the paired difference (Brier score, log loss, AUC), and that its Brier score is within .002 of the
best front's. AUC and recall leave out the first tenth of a partition, in which the answers pass from raw to calibrated
ones: no order is promised between forecasts of different moments. What following a drift costs shows within tenths.

``--quick`` plays the flights only, which need no ``make data``, as they are and with 1 % of ones left, by one
partition; so does ``tests/bench/test_harmless.py`` in every run of the tests. ``--rows`` prints every row, not only a
summary of each stream. The exit status is 1 if a bar fails.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from research import calibrators
from research.experiments.measure import l1
from research.experiments.streams import stream
from state.arrays import Floats, Integers
from state.calibrators import Calibrator, make
from state.calibrators.runs import SPAN
from state.policy import DEFAULT_CALIBRATOR
from tests.bench.figures import table

FRONTS: Final = ("platt", "beta", "histogram", "auto")
BEFORE: Final = "auto+regret_matching"
STREAMS: Final = ("bank", "elec2", "flights")
RATES: Final = (None, 0.05, 0.01, 0.005, 0.002)
OUTCOMES: Final = ("prompt", "late", "ones first", "zeros first", "revised")
VOLUMES: Final = (0.005, 0.01, 0.02, 0.05)
PARTITIONS: Final = (1, 8)
#: Forecasts of a stream that are played: all of bank and Elec2, the first eighth of the flights.
ROWS: Final = 40_312
#: What is played where time is short.
QUICK_STREAMS, QUICK_RATES = ("flights",), (None, 0.01)
LATE, FIRST, SOON, LATER, REVISED = 2000, 20, 1, 1000, 1000
WRONG: Final = 0.01
SLACK, ERRORS, L1 = 0.002, 2.0, 0.05
ROUNDS: Final = 20_000
SEED: Final = 11
#: Bands of what is served, and the least share of events of one that is judged.
BANDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LEAST: Final = 0.005
_CLIP: Final = 1e-6


class Labels(NamedTuple):
    """What becomes known of one forecast, in the order of time."""

    #: Forecasts that are made before it, [m].
    due: Integers
    #: The forecast, [m].
    row: Integers
    #: Its label, [m].
    y: Floats
    #: Whether it replaces the opposite label, [m].
    revised: Integers


@dataclass(frozen=True)
class Case:
    """A stream of n forecasts and one way in which its outcomes come."""

    name: str
    #: Forecasts and true outcomes, [n].
    raw: Floats
    y: Floats
    #: Own delay of each outcome, in forecasts, [n].
    delay: Integers
    outcomes: str
    partition: Integers

    @property
    def partitions(self) -> list[Integers]:
        """The forecasts of each partition."""
        return [np.flatnonzero(self.partition == k) for k in range(int(self.partition.max()) + 1)]


def cases(quick: bool) -> Iterator[Case]:  # noqa: FBT001 - the flag of the command line
    """Yield every case; FileNotFoundError without data."""
    rng = np.random.default_rng(SEED)
    for name in QUICK_STREAMS if quick else STREAMS:
        whole = stream(name)
        known = np.flatnonzero(~np.isnan(whole.y))[:ROWS]
        for rate in QUICK_RATES if quick else RATES:
            kept = known
            if rate is not None:
                ones = whole.y[known] == 1
                share = rate / (1 - rate) * np.count_nonzero(~ones) / np.count_nonzero(ones)
                kept = known[~ones | (rng.random(len(known)) < share)]
            raw, y = whole.p[kept], whole.y[kept]
            # How many of those kept come before it is due: thinned, the same time holds fewer forecasts.
            delay = np.searchsorted(kept, whole.due[kept]) - np.arange(len(kept))
            split = rng.integers(0, PARTITIONS[-1], len(kept))
            label = name if rate is None else f"{name} {rate:.1%}"
            for outcomes in OUTCOMES:
                for partitions in PARTITIONS if outcomes in OUTCOMES[:2] and not quick else PARTITIONS[:1]:
                    partition = split if partitions > 1 else np.zeros_like(split)
                    yield Case(label, raw, y, delay, outcomes, partition)


def labels(case: Case, rows: Integers) -> Labels:
    """Return what becomes known of the forecasts of one partition, whose places are counted in it."""
    y, n, many = case.y[rows], len(rows), len(case.partitions)
    one = y == 1
    extra = {
        "prompt": np.zeros(n),
        "late": np.full(n, LATE),
        "ones first": np.where(one, SOON, LATE),
        "zeros first": np.where(one, LATER, FIRST),
        "revised": np.full(n, LATE),
    }[case.outcomes]
    place = np.arange(n)
    # The flights' own delays, in forecasts of the whole stream, are longer than in those of a part.
    due = place + np.maximum((case.delay[rows] + extra) // many, 1).astype(np.int64)
    wrong = np.zeros(n, dtype=bool)
    if case.outcomes == "revised":
        wrong = np.random.default_rng(SEED).random(n) < WRONG
    late = np.flatnonzero(wrong)
    corrected = Labels(due[late] + REVISED // many, late, y[late], np.ones(len(late), dtype=np.int64))
    first = Labels(due, place, np.where(wrong, 1 - y, y), np.zeros(n, dtype=np.int64))
    both = [np.concatenate(pair) for pair in zip(first, corrected, strict=True)]
    order = np.lexsort((both[3], both[1], both[0]))
    return Labels(*(each[order] for each in both))


def play(calibrator: Calibrator, raw: Floats, known: Labels) -> Floats:
    """Return ``p`` of each forecast of a partition, [n]."""
    served, tickets = [0.0] * len(raw), [b""] * len(raw)
    due, row, y, revised = (each.tolist() for each in known)
    k, last = 0, len(due)
    predict, update = calibrator.predict, calibrator.update
    for t, p in enumerate(raw.tolist()):
        while k < last and due[k] <= t:
            if revised[k]:
                calibrator.revise(tickets[row[k]], 1.0 - y[k], y[k])
            else:
                update(tickets[row[k]], y[k], SPAN * (due[k] + 1))
            k += 1
        served[t], _, tickets[t] = predict(p, (), b"%d" % t)
    return np.array(served)


def serve(spec: str, case: Case) -> Floats:
    """Return what a calibrator serves to a case, [n], every partition learning apart."""
    served = np.empty(len(case.raw))
    for k, rows in enumerate(case.partitions):
        served[rows] = play(make(spec, name=f"{case.name} {k}", seed=SEED), case.raw[rows], labels(case, rows))
    return served


class Ranked(NamedTuple):
    """Ranks after the first tenth: AUC of both, their difference with its error, that within tenths, recall of both."""

    raw: float
    served: float
    gain: float
    error: float
    within: float
    recall: list[tuple[float, float]]


def ranked(case: Case, p: Floats) -> Ranked:
    """Rank within each partition; the difference's error is DeLong's."""
    later = [rows[len(rows) // 10 :] for rows in case.partitions]
    raw, served, gain, error = _auc(case, p, later)
    _, _, within, _ = _auc(case, p, [cell for rows in case.partitions for cell in np.array_split(rows, 10)[1:]])
    caught = np.zeros((len(VOLUMES), 2))
    for rows in later:
        one = case.y[rows] == 1
        for i, volume in enumerate(VOLUMES):
            most = max(round(volume * len(rows)), 1)
            for j, score in enumerate((case.raw[rows], p[rows])):
                caught[i, j] += one[np.argsort(-score, kind="stable")[:most]].sum()
    ones = max(sum(float(case.y[rows].sum()) for rows in later), 1.0)
    return Ranked(raw, served, gain, error, within, [(float(a), float(b)) for a, b in caught / ones])


def _auc(case: Case, p: Floats, cells: Sequence[Integers]) -> tuple[float, float, float, float]:
    """Return AUC within cells of raw and of what was served, the gain, and its standard error."""
    total = raw_auc = served_auc = variance = 0.0
    for cell in cells:
        one = case.y[cell] == 1
        ones = int(one.sum())
        if ones in {0, len(cell)}:
            continue
        places = [_places(score[cell], one) for score in (case.raw, p)]
        total += ones
        raw_auc += ones * float(places[0][0].mean())
        served_auc += ones * float(places[1][0].mean())
        moved = [after - before for before, after in zip(*places, strict=True)]
        variance += ones**2 * sum(float(each.var()) / len(each) for each in moved)
    if not total:
        return np.nan, np.nan, 0.0, np.inf
    error = max(float(np.sqrt(variance)) / total, 1e-9)
    return raw_auc / total, served_auc / total, (served_auc - raw_auc) / total, error


def _places(score: Floats, one: Integers) -> tuple[Floats, Floats]:
    """Return the share of zeros below each one, and of ones above each zero; ties count half."""

    def ranks(values: Floats) -> Floats:
        _, index, count = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(count) - (count - 1) / 2)[index]

    among = ranks(score)
    below = (among[one] - ranks(score[one])) / np.count_nonzero(~one)
    above = 1 - (among[~one] - ranks(score[~one])) / np.count_nonzero(one)
    return below, above


class Compared(NamedTuple):
    """A mean loss of what was served, raw's, and how many standard errors it is above that."""

    served: float
    raw: float
    errors: float


def compare(served: Floats, raw: Floats) -> Compared:
    """Compare two losses of the same events, [n] each."""
    moved = served - raw
    spread = float(moved.std()) / np.sqrt(len(moved))
    return Compared(float(served.mean()), float(raw.mean()), float(moved.mean()) / spread if spread > 0 else 0.0)


def log_losses(p: Floats, y: Floats) -> Floats:
    """Return the log loss of each, in nats, [n]."""
    p = np.clip(p, _CLIP, 1 - _CLIP)
    return np.asarray(-np.where(y == 1, np.log(p), np.log1p(-p)))


def worst_band(p: Floats, y: Floats) -> float:
    """Return the largest mean of served less happened of the `BANDS` that hold a share of `LEAST`."""
    band = np.searchsorted(BANDS, p)
    n = np.bincount(band, minlength=len(BANDS) + 1)
    off = np.bincount(band, weights=p - y, minlength=len(BANDS) + 1)
    some = n >= LEAST * len(p)
    means = off[some] / n[some]
    return float(means[np.argmax(np.abs(means))])


class Harm(NamedTuple):
    """What was served to a case beside raw forecasts."""

    brier: Compared
    log_loss: Compared
    ranked: Ranked

    @property
    def errors(self) -> dict[str, float]:
        """How many standard errors it is worse than raw, by metric; negative where it is better."""
        return {
            "Brier": self.brier.errors,
            "log loss": self.log_loss.errors,
            "AUC": -self.ranked.gain / self.ranked.error,
        }


def harm(case: Case, p: Floats) -> Harm:
    """Compare what was served with raw forecasts."""
    y, raw = case.y, case.raw
    return Harm(
        compare(np.square(p - y), np.square(raw - y)),
        compare(log_losses(p, y), log_losses(raw, y)),
        ranked(case, p),
    )


class Row(NamedTuple):
    """A case, judged."""

    case: Case
    brier: Compared
    log_loss: Compared
    ranked: Ranked
    off: tuple[float, float]
    band: tuple[float, float]
    best: tuple[float, str]
    before: float

    @property
    def failed(self) -> list[str]:
        """The bars that fail."""
        found = [
            f"{name} {each.errors:+.1f} errors"
            for name, each in (("Brier", self.brier), ("log loss", self.log_loss))
            if each.errors > ERRORS
        ]
        if self.ranked.gain < -ERRORS * self.ranked.error:
            found.append(f"AUC {self.ranked.gain:+.4f}, {self.ranked.gain / self.ranked.error:+.1f} errors")
        if self.brier.served > self.best[0] + SLACK:
            found.append(f"Brier {self.brier.served - self.best[0]:+.4f} beside {self.best[1]}")
        return found

    def cells(self) -> Sequence[str]:
        """Return it as a row of the table."""
        volumes = ", ".join(f"{a:.2f}→{b:.2f}" for a, b in self.ranked.recall)
        return (
            f"{self.case.name}, {self.case.outcomes}, {len(self.case.partitions)}",
            f"{self.brier.raw:.4f}",
            f"{self.brier.served:.4f} ({self.brier.errors:+.0f})",
            f"{self.best[0]:.4f} {self.best[1]}",
            f"{self.before:.4f}",
            f"{self.log_loss.raw:.4f}→{self.log_loss.served:.4f} ({self.log_loss.errors:+.0f})",
            f"{self.off[0]:+.0%}→{self.off[1]:+.0%}",
            f"{self.ranked.raw:.3f}→{self.ranked.served:.3f} ({self.ranked.gain / self.ranked.error:+.1f})",
            f"{self.ranked.within:+.4f}",
            volumes,
            f"{self.band[0]:+.3f}→{self.band[1]:+.3f}",
            "; ".join(self.failed) or "held",
        )


HEAD: Final = (
    "stream, outcomes, partitions", "raw", "p (errors)", "best front", BEFORE, "log loss", "mean off", "AUC",
    "in tenths", "recall " + ", ".join(f"{each:.1%}" for each in VOLUMES), "worst band", "bars",
)  # fmt: skip


def judge(case: Case) -> Row:
    """Play a case and judge what was served."""
    y, raw = case.y, case.raw
    p = serve(DEFAULT_CALIBRATOR, case)
    fronts = {spec: float(np.square(serve(spec, case) - y).mean()) for spec in FRONTS}
    fronts["raw"] = float(np.square(raw - y).mean())
    best = min(fronts, key=fronts.__getitem__)
    rate = max(float(y.mean()), 1e-9)
    return Row(
        case,
        *harm(case, p),
        (float(raw.mean()) / rate - 1, float(p.mean()) / rate - 1),
        (worst_band(raw, y), worst_band(p, y)),
        (fronts[best], best),
        float(np.square(serve(BEFORE, case) - y).mean()),
    )


def opposed(spec: str) -> dict[str, float]:
    """Return the ℓ1 error of the draws against an opponent who answers the other side of ``p``, by raw forecast."""
    rng = np.random.default_rng(SEED)
    found = {}
    for name, raw in (
        ("always .5", np.full(ROUNDS, 0.5)),
        ("even in [0, 1]", rng.random(ROUNDS)),
        ("even in [0, .1]", rng.random(ROUNDS) / 10),
    ):
        calibrator = make(spec, name="opponent", seed=SEED)
        draws, happened = [], []
        for t, q in enumerate(raw.tolist()):
            p, draw, ticket = calibrator.predict(q, (), b"%d" % t)
            happened.append(float(p <= 0.5))
            calibrator.update(ticket, happened[-1])
            draws.append(draw)
        found[name] = l1(np.array(draws), np.array(happened))
    return found


def cost(specs: Sequence[str], n: int = 20_000, rounds: int = 5) -> dict[str, float]:
    """Return the processor time of predict and update of one event, µs, the least of some rounds that take turns."""
    rng = np.random.default_rng(SEED)
    raw = rng.random(n)
    y = (rng.random(n) < raw / 2).astype(float)
    prompt = Labels(np.arange(n) + 1, np.arange(n), y, np.zeros(n, dtype=np.int64))
    best = dict.fromkeys(specs, np.inf)
    for _ in range(rounds):
        for spec in specs:
            calibrator = make(spec, name="cost", seed=SEED)
            began = time.process_time()
            play(calibrator, raw, prompt)
            best[spec] = min(best[spec], (time.process_time() - began) / n * 1e6)
    return best


def summary(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    """Yield a row for each stream: what its worst case is in each respect."""
    for name in dict.fromkeys(row.case.name for row in rows):
        mine = [row for row in rows if row.case.name == name]
        yield (
            name,
            f"{max(row.brier.errors for row in mine):+.1f}",
            f"{max(row.log_loss.errors for row in mine):+.1f}",
            f"{min(row.ranked.gain / row.ranked.error for row in mine):+.1f}",
            f"{min(row.ranked.within for row in mine):+.4f}",
            f"{max(row.brier.served - row.best[0] for row in mine):+.4f}",
            f"{max(row.before - row.best[0] for row in mine):+.4f}",
            f"{sum(not row.failed for row in mine)} of {len(mine)}",
        )


SUMMARY: Final = (
    "stream", "Brier less raw's, errors", "log loss, errors", "AUC, errors", "in tenths", "less best front's",
    f"{BEFORE}'s", "held",
)  # fmt: skip


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="the default beside raw forecasts and every front")
    parser.add_argument("--quick", action="store_true", help="the flights only, by one partition")
    parser.add_argument("--rows", action="store_true", help="print every row")
    given = parser.parse_args()
    calibrators.register()
    rows = [judge(case) for case in cases(given.quick)]
    if given.rows:
        print(table(HEAD, [row.cells() for row in rows]), end="\n\n")
    print(table(SUMMARY, list(summary(rows))), end="\n\n")
    failed = [row for row in rows if row.failed]
    for row in failed:
        print(f"FAIL {row.cells()[0]}: {'; '.join(row.failed)}")
    opponent = opposed(DEFAULT_CALIBRATOR)
    for name, error in opponent.items():
        print(f"{'PASS' if error <= L1 else 'FAIL'} opponent, raw {name}: ℓ1 of the draws {error:.4f}, at most {L1}")
    times = cost((DEFAULT_CALIBRATOR, BEFORE, "platt"))
    cheap = times[DEFAULT_CALIBRATOR] <= times[BEFORE]
    said = ", ".join(f"{spec} {each:.1f}" for spec, each in times.items())
    print(f"{'PASS' if cheap else 'FAIL'} cost of an event, µs: {said}")
    return int(bool(failed) or max(opponent.values()) > L1 or not cheap)


if __name__ == "__main__":
    sys.exit(main())
