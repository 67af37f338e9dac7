"""The job that every rival does, apart from Kafka and from storage.

A forecast is answered with the mean outcome of its bin and stream; an outcome teaches the bin of its forecast, once
the two have met. Each answer says how many outcomes its calibrator has ``learnt``, by which the benchmark sees from
outside that none was lost.
"""

from typing import Any

#: Bins of equal width in p.
BINS = 20

#: Outcomes and ones a bin, interleaved: n of bin 0, ones of bin 0, n of bin 1, and so on.
Counts = list[int]


def bin_of(p: float) -> int:
    """Return the bin of a forecast."""
    return min(int(p * BINS), BINS - 1)


def new() -> Counts:
    """Return a calibrator that has seen nothing."""
    return [0] * (2 * BINS)


def learn(counts: Counts, p: float, y: int) -> None:
    """Count an outcome."""
    j = 2 * bin_of(p)
    counts[j] += 1
    counts[j + 1] += y


def answer(counts: Counts, forecast: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a forecast: the mean outcome of its bin, or the forecast itself where there is none."""
    p = forecast["p"]
    j = 2 * bin_of(p)
    n = counts[j]
    return {
        "event_id": forecast["event_id"],
        "stream": forecast["stream"],
        "raw": p,
        "p": counts[j + 1] / n if n else p,
        "learnt": sum(counts[::2]),
    }


def whole(answer: dict[str, Any], record: Any) -> dict[str, Any]:
    """Return an answer with as many fields as trueup's."""
    return answer | {
        "draw": answer["p"],
        "calibrator": "histogram",
        "config": "0123abcd",
        "version": answer["learnt"],
        "ts": record.timestamp,
        "applied": record.offset,
    }


def resolved(event_id: str, stream: str, p: float, y: int, record: Any) -> dict[str, Any]:
    """Return what trueup writes for an outcome."""
    return {
        "event_id": event_id,
        "stream": stream,
        "raw": p,
        "p": p,
        "draw": p,
        "y": y,
        "calibrator": "histogram",
        "version": record.offset,
        "issued_ts": record.timestamp,
        "resolved_ts": record.timestamp,
        "revision": 0,
    }
