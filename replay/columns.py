"""The columns of one group on all partitions, and the losses of its streams of classes and numbers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay import bands
from replay.figures import Kind, Told
from replay.measure import log_losses
from replay.partition_result import LOSSES, PartitionResult
from replay.ranking import Moments, turned, windows
from state.arrays import Floats, Integers
from state.scoring.warm_up import SAME
from state.scoring.windows import KINDS

Flags = NDArray[np.bool_]

#: Names of metrics, by number: two for classes, one for numbers.
METRICS = {2: ("brier", "log_loss"), 1: ("pinball",)}


@dataclass(frozen=True)
class ResolvedColumns:
    """The columns of one group over all partitions. Resolved forecasts are ordered by time, then by partition."""

    streams: list[str]
    #: All forecasts, by partition: the stream's number in ``streams``, time, raw, what each contender served, and
    #: whether the contender was in its warm-up (`replay.result.Phase`).
    issued_stream: NDArray[Any]
    issued_ms: NDArray[np.int64]
    issued_raw: Floats
    issued_p: list[Floats]
    issued_warm: list[Flags]
    #: By contender: share of neighbours whose order it changed after the warm-up, see `replay.ranking.turned`.
    issued_turned: list[float]
    #: All forecasts: whether an outcome counts. It does not count if it taught nothing (`state.ledger.UNTAUGHT`).
    issued_counting: Flags
    #: All forecasts: how many the label stands for; and the last label if the outcome taught nothing, otherwise NaN.
    #: None if no chance is known.
    issued_stands: Floats | None
    issued_untaught: Floats
    #: Place among all forecasts. This and all fields up to ``partition`` are about resolved forecasts.
    at: Integers
    #: Which resolved forecasts are ranked against one another.
    moments: Moments
    #: A ``draw`` is None if nothing was drawn. ``y`` is the last label after all revisions. ``implied``: silence gave
    #: the first label.
    stream: NDArray[Any]
    raw: Floats
    p: list[Floats]
    draw: list[Floats | None]
    warm: list[Flags]
    y: Floats
    implied: Flags
    delay_ms: NDArray[np.int64]
    time: NDArray[np.int64]
    partition: NDArray[Any]
    #: Outcomes whose forecast had expired, by partition: the stream's number, and the delay.
    missed_stream: NDArray[Any]
    missed_ms: NDArray[np.int64]
    #: Low and high ends of the intervals of all forecasts, from the first contender; empty without intervals.
    ends: list[Floats]
    #: The bands of all forecasts, by contender; empty without bands.
    bands: list[bands.Placed]

    @classmethod
    def of(cls, parts: Sequence[PartitionResult], contenders: int) -> "ResolvedColumns":
        """Join the partitions."""

        def joined(of: Callable[[PartitionResult], NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([of(part) for part in parts])

        def column(name: str) -> NDArray[Any]:
            return joined(lambda part: part.column(name))

        def of_each(name: str) -> list[NDArray[Any]]:
            return [column(f"{name}{n}") for n in range(contenders)]

        streams = sorted({name for part in parts for name in part.streams})
        number = {name: i for i, name in enumerate(streams)}

        def numbers(name: str) -> NDArray[Any]:
            own = [np.array([number[each] for each in part.streams], dtype=np.int32) for part in parts]
            return np.concatenate([own[n][part.column(name)] for n, part in enumerate(parts)])

        sizes, known = ([len(part.column(name)) for part in parts] for name in ("raw", "index"))
        first = np.cumsum([0, *sizes[:-1]])

        def places(name: str) -> Integers:
            """Return the numbers of forecasts in a partition as places among all forecasts."""
            found: Integers = np.concatenate([part.column(name) + first[n] for n, part in enumerate(parts)])
            return found

        order = np.argsort(column("time"), kind="stable")
        at, raw, served = places("index")[order], column("raw"), of_each("p")
        untaught = np.full(len(raw), np.nan)
        untaught[places("untaught")] = column("untaught_y")
        stream, outcomes = numbers("stream"), column("version")
        # A contender that never leaves its warm-up is compared from the first outcome on.
        warming = [joined(lambda part, n=n: _warm(part, n)) for n in range(contenders)]  # type: ignore[misc]
        warm = [outcomes == 0 if each.all() else each for each in warming]
        settled = ~np.any(warm, axis=0)
        # At any one time, one map answers all forecasts that have the same calibrator and segments.
        calibrator = np.repeat(np.arange(len(parts)), sizes) * len(streams) + stream
        segment = _numbered(*(np.concatenate(slots) for slots in zip(*(part.slots for part in parts), strict=True)))
        kept = _numbered(calibrator, segment)[settled], outcomes[settled]
        window = windows(calibrator[at], at)
        # Features may distinguish equal raw forecasts.
        featured = np.isin(stream, [number[name] for part in parts for name, _ in part.biases])
        own = np.where(featured[at], np.arange(len(at)), -1)
        return cls(
            streams=streams,
            issued_stream=stream,
            issued_ms=column("issued_ms"),
            issued_raw=raw,
            issued_p=served,
            issued_warm=warm,
            issued_turned=[turned(raw[settled], p[settled], *kept) for p in served],
            issued_counting=np.isnan(untaught),
            issued_stands=column("stands") if all(part.has("stands") for part in parts) else None,
            issued_untaught=untaught,
            at=at,
            moments=Moments(window, _numbered(window, raw[at], segment[at], own)),
            stream=stream[at],
            raw=raw[at],
            p=[p[at] for p in served],
            draw=[
                None if np.array_equal(draw, p) else draw[at] for draw, p in zip(of_each("draw"), served, strict=True)
            ],
            warm=[each[at] for each in warm],
            y=joined(lambda part: part.labels)[order],
            implied=column("implied")[order] > 0,
            delay_ms=column("delay_ms")[order],
            time=column("time")[order],
            partition=np.repeat(np.arange(len(parts), dtype=np.int32), known)[order],
            missed_stream=numbers("missed"),
            missed_ms=column("missed_ms"),
            ends=[column("low"), column("high")] if all(part.has("low") for part in parts) else [],
            bands=list(zip(of_each("raw_band"), of_each("band"), strict=True))
            if all(part.has("band0") for part in parts)
            else [],
        )

    @property
    def settled(self) -> Flags:
        """Which resolved forecasts are outside the warm-up of every contender, [m]."""
        settled: Flags = ~np.any(self.warm, axis=0)
        return settled

    @property
    def issued_settled(self) -> Flags:
        """The same for all forecasts, [n]."""
        settled: Flags = ~np.any(self.issued_warm, axis=0)
        return settled

    def told(self, i: int, issued: Any) -> Told | None:  # noqa: ANN401 - an index
        """Score the outcomes of some forecasts that taught nothing, after the warm-up of a contender; None for none."""
        left = ~self.issued_counting[issued] & ~self.issued_warm[i][issued]
        y = self.issued_untaught[issued][left]
        if not len(y):
            return None
        kinds = dict(zip(KINDS, (each[issued][left] for each in (self.issued_raw, self.issued_p[i])), strict=True))
        means: dict[Kind, float] = {kind: float(p.mean()) for kind, p in kinds.items()}
        return Told(len(y), float(y.mean()), means, {kind: float(log_losses(p, y).mean()) for kind, p in kinds.items()})


def _numbered(*keys: NDArray[Any]) -> Integers:
    """Number the groups of events that are equal in all keys; return each event's number, [n]."""
    order = np.lexsort(keys)
    new = np.any([np.diff(key[order], prepend=key[order[:1]]) != 0 for key in keys], axis=0)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(new)
    return found


def _warm(part: PartitionResult, contender: int) -> Flags:
    """Return which forecasts of a partition one contender answered in its warm-up, [n].

    If it always serves a stream raw scores, these are all forecasts of the stream.
    """
    stream = part.column("stream")
    moved = np.abs(part.column(f"p{contender}") - part.column("raw")) > SAME
    still = np.ones(len(part.streams), dtype=np.bool_)
    still[stream[moved]] = False
    warm: Flags = still[stream] | (part.column(f"warm{contender}") > 0)
    return warm


@dataclass(frozen=True)
class Losses:
    """Losses of the resolved events of a stream of classes or numbers, in the order of time."""

    #: When they were resolved, ms, [m].
    time: Integers
    #: By contender: the losses of raw at the contender's levels, and the losses of what was served, [m, losses] each.
    was: list[Floats]
    served: list[Floats]
    #: By contender: whether it answered in its warm-up, [m].
    warm: list[Flags]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the losses."""
        return METRICS[self.was[0].shape[1]]

    @property
    def settled(self) -> "Losses":
        """Events after the warm-up of all contenders. A contender that never leaves its warm-up is ignored."""
        left = ~np.any([each & ~each.all() for each in self.warm], axis=0)
        every = [[each[left] for each in columns] for columns in (self.was, self.served, self.warm)]
        return Losses(self.time[left], *every)


def losses(parts: Sequence[PartitionResult], contenders: int) -> dict[str, Losses]:
    """Return the losses of each stream of classes or numbers, with the last label of each event."""
    found: dict[str, list[Losses]] = {}
    for part in parts:
        stream, serial, time = map(part.column, ("vector", "vector_serial", "vector_ms"))
        _, first = np.unique(serial, return_index=True)
        latest = np.zeros(len(first), dtype=np.int64)
        latest[serial] = np.arange(len(serial))
        for number in np.unique(stream).tolist():
            mine = np.flatnonzero(stream[first] == number)
            of: list[list[Floats]] = []
            for name in ("was", "loss"):
                columns = [
                    np.column_stack([part.column(f"{name}{n}_{k}")[latest[mine]] for k in range(LOSSES)])
                    for n in range(contenders)
                ]
                of.append([each[:, ~np.isnan(each).all(axis=0)] for each in columns])
            warm = [part.column(f"vector_warm{n}")[latest[mine]] != 0 for n in range(contenders)]
            found.setdefault(part.streams[number], []).append(Losses(time[first[mine]], of[0], of[1], warm))
    return {stream: _joined(several) for stream, several in sorted(found.items())}


def _joined(several: Sequence[Losses]) -> Losses:
    """Return the events of all partitions in the order of time."""
    order = np.argsort(np.concatenate([each.time for each in several]), kind="stable")

    def all_of(columns: Iterable[list[NDArray[Any]]]) -> list[NDArray[Any]]:
        return [np.concatenate(each)[order] for each in zip(*columns, strict=True)]

    time = np.concatenate([each.time for each in several])[order]
    return Losses(time, *(all_of(getattr(each, name) for each in several) for name in ("was", "served", "warm")))
