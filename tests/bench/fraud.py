"""Calibrators on rare frauds, by the labels that risk teams have: what they serve against the truth, and each bar.

``python -m tests.bench.fraud [--quick] [--stream NAME]... [CALIBRATOR[:OPTION=VALUE,...]]...``: plays the calibrators
by themselves, without topics or rows, over made payments (`lab.fraud`), with zeros said on day 45, and with silence
and corrections, and over real scores thinned to the same rate (`research.fraud_bank`, after ``make data``). A payment
is learnt when it matures, after 45 days. Beside them stand the raw scores and a Platt map fitted every midnight to all
that had matured.

Differences have 95 % intervals by a paired bootstrap over days. A bar passes where its value does; where it asks for
*no worse*, also where the interval of the difference holds 0, and then says so. ``--draw`` judges the draw, not ``p``.
The last line is one JSON object; the exit status is 1 if a bar fails. ``--quick``: 30,000 payments, of .8 % frauds.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import orjson

from lab import fraud
from lab.fraud import Fraud, Shape
from replay.measure import log_losses
from replay.ranking import Moments, ranks
from research import fraud_bank
from state import calibrators
from state.arrays import Floats
from state.scoring.ages import DAY_MS
from streams.config.settings import Settings
from tests.bench.figures import table
from tests.bench.matured import nightly, play, schedule

#: From day to day: before anything is known, while little is, and after.
PERIODS: Final = ((0, 45), (45, 75), (75, 180))
MATURES: Final = 45.0
VOLUME: Final = 0.02
#: Ranks are also taken within windows of so many days, in which a map moves little.
WINDOW: Final = 10
RESAMPLES, SEED = 500, 20_260_101
RAW, NIGHTLY = "raw", "platt, nightly"
METRICS: Final = ("Brier", "log loss", "AUC", f"AUC in {WINDOW} days", "recall 2 %")
#: Bars: the mean's relative error, AUC and recall below raw, and the share of raw's different scores.
MEAN, AUC, RECALL, DISTINCT = 0.10, 0.005, 0.01, 0.95


@dataclass(frozen=True)
class Card:
    """What a contender did in one period."""

    #: Means of what was served and of the true risk, or of what happened where nobody knows it.
    mean: float
    truth: float
    #: Of `METRICS`.
    values: Floats
    #: The same of each resample, [resamples, metrics].
    resampled: Floats
    #: Different scores.
    distinct: int

    def against(self, other: "Card", metric: str) -> tuple[float, float, float]:
        """Return a metric's difference to that of another, and its 95 % interval."""
        i = METRICS.index(metric)
        value = float(self.values[i] - other.values[i])
        moved = self.resampled[:, i] - other.resampled[:, i]
        low, high = np.quantile(moved, (0.025, 0.975)) - (moved.mean() - value)
        return value, float(low), float(high)


@dataclass(frozen=True)
class Bar:
    """One thing that must hold."""

    name: str
    passed: bool
    said: str


def card(p: Floats, stream: Fraud, chosen: Any, first: int, last: int) -> Card:
    """Judge what was served to the payments of some days.

    ``p``: served, [n].
    ``chosen``: of which payments, [n].
    ``first, last``: the days.
    """
    p, y = p[chosen], stream.y[chosen]
    days = last - first
    day = np.clip(stream.days[chosen].astype(np.int64) - first, 0, days - 1)
    rng = np.random.default_rng(SEED)  # the same days for every contender
    weights = rng.multinomial(days, np.full(days, 1 / days), RESAMPLES).astype(np.float64)
    losses = np.square(p - y), log_losses(p, y)
    per_day = np.column_stack([np.bincount(day, each, days) for each in (np.ones(len(p)), *losses)])
    sums = weights @ per_day
    whole, within = ranks(p, y, (VOLUME,)), ranks(p, y, (VOLUME,), Moments(day // WINDOW, np.arange(len(p))))
    moves = [np.bincount(day, each, days) for each in (whole.moves[:, 0], within.moves[:, 0], whole.moves[:, 1])]
    ranked = np.array([whole.auc, within.auc, whole.recall[VOLUME]])
    truth = stream.truth[chosen]
    return Card(
        float(p.mean()),
        float(y.mean() if np.isnan(truth).any() else truth.mean()),
        np.array([losses[0].mean(), losses[1].mean(), *ranked]),
        np.column_stack([sums[:, 1:] / sums[:, :1], ranked + weights @ np.column_stack(moves)]),
        len(np.unique(p)),
    )


def bars(cards: dict[str, list[Card]], name: str) -> Iterator[Bar]:
    """Hold one contender against each bar."""
    before, _, after = cards[name]
    raw_before, _, raw_after = cards[RAW]
    yield _no_worse("before day 45 Brier no worse than raw", before, raw_before, "Brier")
    off = after.mean / after.truth - 1
    yield Bar(f"from day 75 mean within {MEAN:.0%} of the truth", abs(off) <= MEAN, f"{off:+.1%}")
    for metric in ("Brier", "log loss"):
        yield _no_worse(f"from day 75 {metric} no worse than {NIGHTLY}", after, cards[NIGHTLY][-1], metric)
    for metric, least in ((METRICS[3], AUC), (METRICS[4], RECALL)):
        value, low, high = after.against(raw_after, metric)
        yield Bar(
            f"from day 75 {metric} at least raw's - {least}", value >= -least, f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"
        )
    share = after.distinct / raw_after.distinct
    yield Bar(f"from day 75 at least {DISTINCT:.0%} of raw's different scores", share >= DISTINCT, f"{share:.1%}")


def _no_worse(name: str, mine: Card, other: Card, metric: str) -> Bar:
    value, low, high = mine.against(other, metric)
    said = f"{value:+.6f} [{low:+.6f}, {high:+.6f}]"
    return Bar(name, value <= 0 or low <= 0, said if value <= 0 or low > 0 else f"{said}, within its interval")


def corrected(stream: Fraud) -> Fraud:
    """Return a stream with its last labels reported when the first were."""
    ones = np.flatnonzero(stream.y == 1)
    ms = stream.forecast_ms[ones] + DAY_MS
    return replace(stream, reports=fraud.Reports(ones, np.ones_like(ones), ms, np.zeros_like(ones)))


def made(spec: str) -> Any:
    """Make a calibrator from ``NAME:option=value,...``."""
    name, _, given = spec.partition(":")
    pairs = [pair.split("=", 1) for pair in given.split(",") if pair]
    options: Any = {option: _value(value) for option, value in pairs}
    return calibrators.make(name, name="bench", **options)


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def judged(name: str, stream: Fraud, specs: Sequence[str], *, draw: bool) -> tuple[dict[str, list[Card]], list[Bar]]:
    """Play all calibrators over a stream, print what they did, and return it with the bars."""
    events = schedule(stream, MATURES)
    served = {RAW: stream.raw, NIGHTLY: nightly(stream, events)}
    states = {}
    for spec in specs:
        began = time.process_time()
        match = play(made(spec), stream, events)
        print(f"  {spec}: {(time.process_time() - began) / len(stream) * 1e6:.1f} us a payment", flush=True)
        served[spec], states[spec] = match.draw if draw else match.p, match.state
    day = stream.days
    cards = {
        each: [card(p, stream, (day >= first) & (day < last), first, last) for first, last in PERIODS]
        for each, p in served.items()
    }
    print(f"\n{name}: {len(stream):,} payments, {int(stream.y.sum())} frauds")
    for i, (first, last) in enumerate(PERIODS):
        shown = [cards[each][i] for each in served]
        head = [f"days {first}-{last}, truth {shown[0].truth:.5f}", "mean", "off", *METRICS, "different"]
        rows = [
            [
                each,
                f"{it.mean:.5f}",
                f"{it.mean / it.truth - 1:+.1%}",
                *(f"{value:.5f}" for value in it.values),
                f"{it.distinct:,}",
            ]
            for each, it in zip(served, shown, strict=True)
        ]
        print(f"\n{table(head, rows)}")
    found = []
    for spec in specs:
        print(f"\n{name}, {spec}")
        mine = list(bars(cards, spec))
        if (stream.reports.revision > 0).any() and made(spec).order_free:
            same = play(made(spec), stream, schedule(corrected(stream), MATURES)).state == states[spec]
            mine.append(Bar("after corrections the state is that of the corrected labels", same, "bytes"))
        for each in mine:
            print(f"  {'PASS' if each.passed else 'FAIL'}  {each.name}: {each.said}")
        found += [replace(each, name=f"{name}, {spec}: {each.name}") for each in mine]
    return cards, found


def streams(*, quick: bool, seed: int) -> dict[str, Callable[[], Fraud]]:
    """Return what makes the streams, by name."""
    shape = Shape(rows=30_000, rate=0.008, inflation=20, seed=seed) if quick else Shape(seed=seed)
    said = replace(shape, zeros="explicit", missed=0.0, alarms=0.0)
    return {
        "zeros": lambda: fraud.make(said),
        "silence": lambda: fraud.make(shape),
        "bank": lambda: fraud_bank.make(said),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrators", nargs="*", metavar="CALIBRATOR", help="the default, unless said otherwise")
    parser.add_argument("--quick", action="store_true", help="30,000 payments")
    parser.add_argument("--stream", action="append", choices=("zeros", "silence", "bank"), help="only this one")
    parser.add_argument("--seed", type=int, default=0, help="of the streams")
    parser.add_argument("--draw", action="store_true", help="judge the draw")
    options = parser.parse_args(arguments)
    specs = options.calibrators or [Settings.from_env({}).default_calibrator]
    told: dict[str, object] = {}
    passed = True
    for name, make in streams(quick=options.quick, seed=options.seed).items():
        if options.stream and name not in options.stream:
            continue
        try:
            stream = make()
        except FileNotFoundError as exc:
            print(f"without {name}: {exc}")
            continue
        cards, found = judged(name, stream, specs, draw=options.draw)
        passed = passed and all(each.passed for each in found)
        told[name] = {
            "bars": {each.name: each.passed for each in found},
            "served": {
                each: [
                    {"mean": it.mean, "truth": it.truth, "distinct": it.distinct}
                    | dict(zip(METRICS, it.values.tolist(), strict=True))
                    for it in periods
                ]
                for each, periods in cards.items()
            },
        }
    print(orjson.dumps(told).decode())
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
