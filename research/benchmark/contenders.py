"""Who takes part. Each is told a label when it is known, never before, and serves every score of a stream once."""

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from research import nightly_refit
from research.benchmark.streams import DAY_MS, Dated, kept
from research.nightly_refit import Fit, Map
from state.arrays import Floats, Integers
from state.engine import Partition
from state.entities import number
from state.events import Calibrated, Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy

#: A function that serves the scores of a stream, [n].
Contender = Callable[[Dated], Floats]
#: A function that serves some rows of a stream, [k].
Served = Callable[[Integers], Floats]

#: Ones and zeros that must be known before a map is fitted; scores are served raw until then, as by trueup.
FEWEST: Final = 20
#: Labels that a map sees which forgets.
WINDOW: Final = 10_000
#: Nights on which maps are fitted, at most, evenly spread: a stream of decades would take hours.
NIGHTS: Final = 365
#: Fits of MCGrad, and the labels that it sees: each takes 3 s of a processor.
FITS, MOST = 25, 50_000
#: Labels after which streamcal forgets a tenth.
STREAMCAL_BATCH: Final = 500
MCGRAD: Final = Path(sys.prefix) / "mcgrad" / "bin" / "python"
#: Events that the engine is given at a time.
BATCH: Final = 2000
#: How much longer than the latest label a forecast is kept, ms.
SPARE_MS: Final = 30 * DAY_MS
RAW: Final = "raw"
#: Who sees the segments of a stream: the default, and its rival.
SEGMENTED: Final = ("trueup, segments", "MCGrad, segments")


def told(stream: Dated, label_ms: Integers) -> Iterator[tuple[int, int, bool]]:
    """Yield scores, and labels where they come, in the order of time: row, ms, whether it is the label."""
    labelled = np.flatnonzero(label_ms >= 0)
    row = np.concatenate([np.arange(len(stream.p)), labelled])
    time = np.concatenate([stream.forecast_ms, label_ms[labelled]])
    label = np.arange(len(row)) >= len(stream.p)
    order = np.lexsort((label, time))
    return zip(row[order].tolist(), time[order].tolist(), label[order].tolist(), strict=True)


def trueup(stream: Dated, *, by_segment: bool = False) -> Floats:
    """Serve by trueup's engine with its default calibrator and the labels as they were reported.

    Set is what an operator has to know: how late labels come, and what silence means.
    """
    names = tuple(stream.segments) if by_segment else ()
    policy = Policy(
        ttl_ms=int((stream.known_ms - stream.forecast_ms).max()) + SPARE_MS,
        matures_ms=stream.matures_ms,
        silence=0.0 if stream.matures_ms else None,
        segments=names,
    )
    return played(stream, policy)


def played(stream: Dated, policy: Policy) -> Floats:
    """Return what the engine serves under a policy, [n]."""
    partition = Partition(Policies(default=policy), None)
    names = policy.segments
    values = list(zip(*(stream.segments[name].tolist() for name in names), strict=True)) or [()] * len(stream.p)
    p, y, served = stream.p.tolist(), stream.y.tolist(), np.full(len(stream.p), np.nan)
    entity = [number(f"{each}".encode()) if policy.entity else 0 for each in stream.entity.tolist()]
    events: Iterator[Event] = (
        Outcome(k, None, str(i), y[i], ms)
        if label
        else Forecast(k, None, str(i), stream.name, p[i], (), ms, segments=values[i], entity=entity[i])
        for k, (i, ms, label) in enumerate(told(stream, stream.report_ms))
    )
    while batch := list(islice(events, BATCH)):
        partition.begin()
        for output in partition.apply(batch):
            if isinstance(output, Calibrated):
                served[int(output.event_id)] = output.p
        partition.end()
    return served


def nightly(stream: Dated, *, fit: Fit, window: int | None = None) -> Floats:
    """Serve by a map that is fitted at midnight, `NIGHTS` times at most, to all labels known by then, or the last."""

    def learn(seen: Integers) -> Served:
        mapped = fit(stream.p[seen], stream.y[seen])
        return lambda rows: mapped(stream.p[rows])

    return refitted(stream, learn, window, max(1, _days(stream) // NIGHTS))


def mcgrad(stream: Dated) -> Floats:
    """Serve by MCGrad over the stream's segments, fitted `FITS` times to the last labels, at least a week apart.

    Raises FileNotFoundError if it is not installed, or does not run here.

    References
    ----------
    Tax, Perini, Linder et al. 2026, *MCGrad: Multicalibration at web scale*, arXiv 2509.19884.
    """
    if not MCGRAD.exists():
        raise FileNotFoundError("MCGrad is not installed: make data")
    codes = np.column_stack([np.unique(each, return_inverse=True)[1] for each in stream.segments.values()])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": kept("mcgrad-0.1.5")}
    with subprocess.Popen(  # noqa: S603 - our own script
        [MCGRAD, Path(__file__).with_name("mcgrad_worker.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    ) as worker:  # fmt: skip
        to, back = cast("IO[bytes]", worker.stdin), cast("IO[bytes]", worker.stdout)

        def send(rows: Integers, y: Floats | None) -> None:
            pickle.dump((stream.p[rows], y, codes[rows]), to)
            to.flush()

        def answer(rows: Integers) -> Floats:
            send(rows, None)
            return np.asarray(pickle.load(back))  # noqa: S301 - of our own process

        def learn(seen: Integers) -> Served:
            send(seen, stream.y[seen])
            return answer

        try:
            served = refitted(stream, learn, MOST, max(7, _days(stream) // FITS))
            to.close()
        except (EOFError, BrokenPipeError) as exc:
            raise FileNotFoundError(f"MCGrad does not run here: {worker.args!r} ends with {worker.wait()}") from exc
    return served


def streamcal(stream: Dated) -> Floats:
    """Serve by streamcal's isotonic map of 100 bins, which forgets a tenth with each batch of 500 labels: its defaults.

    Raises FileNotFoundError if it is not downloaded.

    References
    ----------
    Sood 2026, *streamcal*, https://finite-sample.github.io/streamcal/.
    """
    wheel = kept("streamcal-0.2.0")
    if wheel not in sys.path:
        sys.path.append(wheel)
    calibrator = import_module("streamcal").StreamingIsotonicCalibrator()
    learnt = 0

    def learn(seen: Integers) -> Served:
        nonlocal learnt
        while learnt < len(seen):
            batch = seen[learnt : learnt + STREAMCAL_BATCH]
            calibrator.update(stream.p[batch], stream.y[batch])
            learnt += len(batch)
        return lambda rows: np.asarray(calibrator.calibrate(stream.p[rows]))

    return refitted(stream, learn, None, max(1, _days(stream) // NIGHTS))


def refitted(stream: Dated, learn: Callable[[Integers], Served], window: int | None, every: int) -> Floats:
    """Serve by a map that is fitted again at midnight, where so many days are over since the last fit.

    ``learn``: gets the rows whose labels are known, and returns the function that serves rows.
    ``window``: labels that it gets, the last ones; None: all.
    ``every``: days.
    """
    served = stream.p.copy()
    known = np.argsort(stream.known_ms, kind="stable")
    known = known[stream.known_ms[known] >= 0]
    when = stream.known_ms[known]
    day = stream.forecast_ms // DAY_MS
    serve: Served | None = None
    fitted, due = 0, 0
    for first, after in pairwise([*np.flatnonzero(np.diff(day, prepend=-1)).tolist(), len(day)]):
        count = int(np.searchsorted(when, day[first] * DAY_MS))
        seen = known[max(count - (window or count), 0) : count]
        ones = int(stream.y[seen].sum())
        if count > fitted and day[first] >= due and min(ones, len(seen) - ones) >= FEWEST:
            serve, fitted, due = learn(seen), count, day[first] + every
        if serve is not None:
            served[first:after] = serve(np.arange(first, after))
    return served


def _days(stream: Dated) -> int:
    return int(stream.forecast_ms[-1] - stream.forecast_ms[0]) // DAY_MS


def isotonic(p: Floats, y: Floats) -> Map:
    """Fit an increasing map that serves nothing so near 0 or 1 as the next label can disprove: 1/(n + 2)."""
    mapped, edge = nightly_refit.isotonic(p, y), 1 / (len(y) + 2)
    return lambda q: np.clip(mapped(q), edge, 1 - edge)


def online_platt(stream: Dated) -> Floats:
    """Serve by a map of log-odds that takes a Newton step with each label, when that is known.

    References
    ----------
    Gupta & Ramdas 2023, *Online Platt scaling with calibeating*, Algorithm 1 and its constants: γ = .1, ρ = 100.
    """
    z, y = nightly_refit.log_odds(stream.p).tolist(), stream.y.tolist()
    served, a, b = np.empty(len(z)), 1.0, 0.0
    aa, ab, bb = 100.0, 0.0, 100.0
    for i, _, label in told(stream, stream.known_ms):
        q = 1.0 / (1.0 + math.exp(-min(max(a * z[i] + b, -30.0), 30.0)))
        if not label:
            served[i] = q
            continue
        ga, gb = (q - y[i]) * z[i], q - y[i]
        aa, ab, bb = aa + ga * ga, ab + ga * gb, bb + gb * gb
        scale = 0.1 * (aa * bb - ab * ab)
        a, b = a - (bb * ga - ab * gb) / scale, b - (aa * gb - ab * ga) / scale
    return served


CONTENDERS: Final[dict[str, Contender]] = {
    RAW: lambda stream: stream.p,
    "trueup": trueup,
    SEGMENTED[0]: partial(trueup, by_segment=True),
    "Platt, every night": partial(nightly, fit=nightly_refit.platt),
    "beta, every night": partial(nightly, fit=nightly_refit.beta),
    "isotonic, every night": partial(nightly, fit=isotonic),
    f"isotonic, the last {WINDOW:,}": partial(nightly, fit=isotonic, window=WINDOW),
    "online Platt (OPS)": online_platt,
    "streamcal, every night": streamcal,
    SEGMENTED[1]: mcgrad,
}
