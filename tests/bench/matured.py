"""A calibrator played over payments as the engine would: it learns when one matures, and then what was revised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.fraud import START_MS, Fraud
from research import nightly_refit
from state.arrays import Floats
from state.scoring.ages import DAY_MS

_FORECAST, _MATURED, _REVISED = 1, 0, 2


@dataclass(frozen=True)
class Match:
    """What a calibrator served, [n], in the order of the payments, and what it knew in the end."""

    p: Floats
    draw: Floats
    state: bytes


@dataclass(frozen=True)
class Schedule:
    """What happens, in order."""

    #: `_FORECAST`, `_MATURED` or `_REVISED`, [m].
    kind: list[int]
    #: Payment, [m].
    row: list[int]
    #: The label that is learnt, or that it is revised to, [m].
    y: list[int]
    #: Record time of the label that is learnt, ms; 0 where silence implies it, as the engine says it, [m].
    at: list[int]


def schedule(stream: Fraud, matures_days: float, *, until_ms: int | None = None) -> Schedule:
    """Return what a stream does to a calibrator.

    ``stream``: payments and reports. A payment is learnt when it matures, with what was reported last by then, else
      with 0; what is reported later and says something else revises it.
    ``matures_days``: days after which it matures.
    ``until_ms``: nothing later happens; None plays all.
    """
    n = len(stream)
    matures = stream.forecast_ms + int(matures_days * DAY_MS)
    label = np.zeros(n, dtype=np.int64)
    known = stream.reports.ms <= matures[stream.reports.row]
    label[stream.reports.row[known]] = stream.reports.y[known]
    said = np.zeros(n, dtype=np.int64)
    said[stream.reports.row[known]] = stream.reports.ms[known]
    now, late = label.copy(), []
    for i, y, ms in zip(*(each[~known].tolist() for each in stream.reports[:3]), strict=True):
        if now[i] != y:
            now[i] = y
            late.append((ms, i, y))
    revised = np.array(late, dtype=np.int64).reshape(-1, 3).T
    ms = np.concatenate([stream.forecast_ms, matures, revised[0]])
    kind = np.repeat([_FORECAST, _MATURED, _REVISED], [n, n, len(late)])
    row = np.concatenate([np.arange(n), np.arange(n), revised[1]])
    y = np.concatenate([np.zeros(n, dtype=np.int64), label, revised[2]])
    at = np.concatenate([np.zeros(n, dtype=np.int64), said, np.zeros(len(late), dtype=np.int64)])
    order = np.lexsort((kind, ms))
    if until_ms is not None:
        order = order[ms[order] <= until_ms]
    return Schedule(kind[order].tolist(), row[order].tolist(), y[order].tolist(), at[order].tolist())


def play(calibrator: Any, stream: Fraud, events: Schedule) -> Match:
    """Play a stream; the calibrator is one of `state.calibrators` without features."""
    n = len(stream)
    raw, keys = stream.raw.tolist(), [each.encode() for each in stream.event_id]
    p, draw, tickets, labels = [0.0] * n, [0.0] * n, [b""] * n, [0] * n
    predict, update = calibrator.predict, calibrator.update
    for kind, i, y, at in zip(events.kind, events.row, events.y, events.at, strict=True):
        if kind == _FORECAST:
            p[i], draw[i], tickets[i] = predict(raw[i], (), keys[i])
        elif kind == _MATURED:
            update(tickets[i], y, at)
            labels[i] = y
        else:
            calibrator.revise(tickets[i], labels[i], y)
            labels[i] = y
    return Match(np.array(p), np.array(draw), calibrator.encode())


def nightly(stream: Fraud, events: Schedule) -> Floats:
    """Return what a Platt map serves that is fitted every midnight to all that was learnt by then, [n]; raw before.

    It is fitted as `research.nightly_refit.platt`, once each class was seen.
    """
    served = stream.raw.copy()
    labels = np.full(len(stream), -1)
    mapped: nightly_refit.Map | None = None
    midnight = START_MS + DAY_MS
    today: list[int] = []

    def serve() -> None:
        if mapped is not None and today:
            served[today] = mapped(stream.raw[today])
        today.clear()

    clock: Callable[[int], int] = stream.forecast_ms.item
    for kind, i, y in zip(events.kind, events.row, events.y, strict=True):
        if kind != _FORECAST:
            labels[i] = y
            continue
        if clock(i) >= midnight:
            serve()
            known = labels >= 0
            if len(np.unique(labels[known])) == 2:
                mapped = nightly_refit.platt(stream.raw[known], labels[known])
            midnight += (clock(i) - midnight) // DAY_MS * DAY_MS + DAY_MS
        today.append(i)
    serve()
    return served
