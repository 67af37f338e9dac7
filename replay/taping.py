"""The observer of a replay: it records answers and outcomes, for each configuration."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, Final

import numpy as np

from replay.column_file import Tape
from replay.configuration import Configuration
from replay.partition_result import LOSSES, WHOLE, Look, PartitionResult
from state import banding, chances
from state.banding import Thresholds
from state.bands import Bands
from state.forecasts import PROBABILITY, Quantiles
from state.ledger import NAN, NO_WINDOW, UNSAID, UNTAUGHT, LedgerRow
from state.scoring.bias import Bias
from state.scoring.pair_scores import PairScores, at_levels, losses, observe
from state.scoring.segment_pairs import SegmentPairScores, observe_segments, revise_segments
from state.scoring.vector_history import VectorHistory
from state.scoring.weighted import Weighted
from state.served import Served
from state.service import Service

#: A partition remembers the times of the first so many expired forecasts. That takes about 60 MB.
REMEMBERED: Final = 300_000
#: Outcomes learnt between two looks at a calibrator's error and bound: this many, plus a fiftieth of all before.
LOOK: Final = 100


@dataclass(slots=True, eq=False)
class Stream:
    """A stream that is played."""

    name: str
    #: Its number in columns.
    number: int
    #: Each contender's position among the challengers; -1 for the one that serves.
    places: list[int]
    #: The calibrator of each contender.
    served: list[Served]
    #: Bias of each contender; empty without features.
    biases: list[Bias]
    #: The bands of each contender, and the thresholds that move them.
    bands: list[tuple[Bands | None, Thresholds | None]]
    #: Look at the calibrators again when this many outcomes are learnt.
    look_at: int = LOOK
    #: The serving calibrator. With versions of a model, the one that answered last.
    service: Service | None = None
    #: The serving calibrator of each version of the model, by its configuration.
    by_version: dict[str, Served] = field(default_factory=dict)


class _Note:
    """Notes on an event while its row lives: ``index`` at once, the rest when it is known.

    ``index``: for a probability, its number in the order of answers; for classes and numbers, the event's number in the
      order of resolution.
    """

    __slots__ = ("index", "place", "windows", "x")
    #: Number of the event of a probability in the order of resolution.
    place: int
    #: For classes and numbers, the window in which each contender counts it.
    windows: Sequence[int]
    #: Features of the forecast, if they are asked for.
    x: Sequence[float]

    def __init__(self, index: int) -> None:
        self.index = index


class Taping:
    """Records each event for each contender, in `replay.column_file.COLUMNS` and in a `PartitionResult`."""

    def __init__(self, configurations: Sequence[Configuration], tape: Tape, played: PartitionResult) -> None:
        plans = [each.policies for each in configurations]
        self._plans = plans
        self._played = played
        #: Streams that are played, by name.
        self.streams: dict[str, Stream] = {}
        self._resolved_time = 0
        self._issued = self._resolved = self._serial = 0
        self._gone: dict[str, tuple[int, int]] = {}
        self._note_issued_ms = tape.column("issued_ms")
        self._note_stream = tape.column("stream")
        self._note_raw: Callable[[Any], None] = tape.column("raw")
        self._note_version = tape.column("version")
        self._answers = [tuple(tape.column(f"{name}{n}") for name in ("p", "draw", "warm")) for n in range(len(plans))]
        policies = plans[0].all
        most = max((len(each.segments) + len(each.pairs) for each in policies), default=0)
        self._note_slots = [tape.column(f"slot{n}") for n in range(most)]
        banded = any(each.values(None, "bands") for each in configurations)
        #: Columns of bands by contender, if bands are recorded.
        self._note_bands = [(tape.column(f"raw_band{n}"), tape.column(f"band{n}")) for n in range(banded * len(plans))]
        chosen = banded and any(each.label_rate for each in policies)
        self._note_stands = tape.column("stands") if chosen else None
        #: Columns for ends of intervals of the serving contender, if it has any.
        measured = configurations[0].values(None, "interval")
        self._note_ends = (tape.column("low"), tape.column("high")) if measured else None
        self._note_index = tape.column("index")
        self._note_untaught, self._note_untaught_y = tape.column("untaught"), tape.column("untaught_y")
        self._note_y = tape.column("y")
        self._note_delay_ms = tape.column("delay_ms")
        self._note_time = tape.column("time")
        self._note_implied = tape.column("implied")
        self._note_before = tape.column("before") if most else None
        self._note_revised = tape.column("revised"), tape.column("revised_y"), tape.column("revised_ms")
        self._note_vector = tape.column("vector"), tape.column("vector_serial"), tape.column("vector_ms")
        self._note_losses = [
            [(tape.column(f"was{n}_{k}"), tape.column(f"loss{n}_{k}")) for k in range(LOSSES)]
            for n in range(len(plans))
        ]
        self._note_vector_warm = [tape.column(f"vector_warm{n}") for n in range(len(plans))]
        self._note_missed, self._note_missed_ms = tape.column("missed"), tape.column("missed_ms")

    def opened(self, service: Service) -> None:
        """Do nothing before its first forecast."""

    def _begun(self, service: Service) -> Stream:
        played, stream = self._played, service.stream
        version = "" if service.version is None else service.version.name
        policies = [policy.of_version(version) for plan in self._plans if (policy := plan.of(stream)) is not None]
        challenging = [each.learner for each in service.shadows]
        configs = [each.config for each in challenging]
        places = [-1 if each.config == service.config else configs.index(each.config) for each in policies]
        served = [service.learner.served if place < 0 else challenging[place].served for place in places]
        wanted = policies[0].features and service.kind == PROBABILITY
        biases = [Bias() for _ in served] if wanted else []
        bands = [
            (each.bands, Thresholds.of(each.bands) if each.bands and each.bands.moving else None) for each in policies
        ]
        played.streams.append(stream)
        if service.dictionary is not None:
            played.dictionaries[stream] = service.dictionary.value
        played.thresholds |= {(stream, n): moving for n, (_, moving) in enumerate(bands) if moving is not None}
        played.biases |= {(stream, n): bias for n, bias in enumerate(biases)}
        found = self.streams[stream] = Stream(stream, len(self.streams), places, served, biases, bands)
        self._follow(found, service)
        return found

    def _of(self, service: Service) -> Stream:
        of = self.streams.get(service.stream) or self._begun(service)
        if service.version is not None and of.service is not service:
            self._follow(of, service)
        return of

    @staticmethod
    def _follow(of: Stream, service: Service) -> None:
        """From now on, look at the calibrators of this service, which serves a different version of the model."""
        of.service = service
        if service.version is not None:
            of.by_version[service.version.config] = service.learner.served
        of.served = [
            service.learner.served if place < 0 else service.shadows[place].learner.served for place in of.places
        ]
        of.look_at = of.served[0].calibrator.learnt + LOOK

    def issued(self, service: Service, row: LedgerRow, x: Sequence[float], stream_time: int) -> None:  # noqa: ARG002 - not used
        """Note the answers to a forecast."""
        of = self._of(service)
        if service.kind != PROBABILITY:
            row.seen = _Note(-1)
            for n in range(len(of.places)):
                for segment in self._segments(of, n, row).values():
                    segment.issued += 1
            return
        self._note_issued_ms(row.issued_ts)
        self._note_stream(of.number)
        self._note_version(row.version)
        self._note_raw(row.raw)
        for place, (note, note_draw, note_warm) in zip(of.places, self._answers):  # noqa: B905 - runs for every event; lengths are equal
            answer = row if place < 0 else row.shadows[place]
            note(answer.p)
            note_draw(answer.draw)
            note_warm(row.window == NO_WINDOW if place < 0 else row.shadows[place].warm)
        if self._note_bands:
            self._band(of, row)
        if self._note_ends is not None:
            said = banding.marks(row.marks)
            for note, end in zip(self._note_ends, (said.low, said.high), strict=True):
                note(NAN if end is None else end)
        if self._note_slots:
            slots = row.groups
            for n, note_slot in enumerate(self._note_slots):
                note_slot(slots[n] if n < len(slots) else -1)
        row.seen = noted = _Note(self._issued)
        if of.biases:
            noted.x = x
        self._issued += 1

    def _band(self, of: Stream, row: LedgerRow) -> None:
        """Note the bands of a forecast, as `state.marking.Marker` counts them."""
        for (bands, thresholds), p, (note, note_band) in zip(
            of.bands, self._answers_of(of, row), self._note_bands, strict=True
        ):
            before, now = (-1, -1) if bands is None else banding.place(bands, thresholds, row.raw, p)
            note(before)
            note_band(now)
        if self._note_stands is not None:
            self._note_stands(chances.weight(row.chance))

    def parked(self, event_id: str, ts: int) -> None:
        """Note how late an outcome of an expired forecast is."""
        if event_id in self._gone:
            stream, issued_ms = self._gone.pop(event_id)
            self._note_missed(stream)
            self._note_missed_ms(ts - issued_ms)

    def labelled(self, service: Service, row: LedgerRow, y: float, ts: int) -> None:  # noqa: ARG002 - for others
        """Add the age of a forecast at its first outcome to the counts of its segments."""
        for counts in self._labels(service, row):
            counts[0] += 1
            counts[1] += max(ts - row.issued_ts, 0)

    def resolved(self, service: Service, row: LedgerRow, event_id: str, applied: int, now_ms: int) -> int:  # noqa: ARG002 - for others
        """Note the outcome of an event."""
        of = self.streams[service.stream]
        if row.weighed:
            for sums, answer, weight in self._weighted(of, row):
                sums.observe(row.raw, answer, row.y, weight)
        if row.window == UNTAUGHT:
            self._played.untaught += 1
            self._untaught(row)
            return UNTAUGHT
        ts, issued_ms = row.resolved_ts, row.issued_ts
        if ts > self._resolved_time or issued_ms > self._resolved_time:
            self._resolved_time = max(ts, issued_ms)
        if service.kind == PROBABILITY:
            self._note_index(row.seen.index)
            self._note_y(int(row.y))
            self._note_delay_ms(ts - issued_ms)
            self._note_time(self._resolved_time)
            self._note_implied(row.as_of == UNSAID)
            if self._note_before is not None:
                self._note_before(self._issued)
            row.seen.place = self._resolved
            self._resolved += 1
            if of.biases:
                for bias, p in self._biased(of, row):
                    bias.observe(row.seen.x, row.raw, p, row.y)
        else:
            self._score_vectors(of, row, event_id, applied)
            row.seen.index = self._serial
            self._serial += 1
            self._count_losses(of, row)
        learnt = of.served[0].calibrator.learnt
        if learnt >= of.look_at:
            self._look(of)
            of.look_at = learnt + max(LOOK, learnt // 50)
        return row.window

    def revised(self, service: Service, row: LedgerRow, event_id: str, was: float, now_ms: int) -> None:  # noqa: ARG002 - for others
        """Note the revised label of an event."""
        of = self.streams[service.stream]
        y = row.y
        if row.weighed:
            for sums, answer, weight in self._weighted(of, row):
                sums.revise(row.raw, answer, was, y, weight)
        if row.window == UNTAUGHT:
            self._untaught(row)
            return
        if service.kind == PROBABILITY:
            for note, value in zip(self._note_revised, (row.seen.place, int(y), row.resolved_ts), strict=True):
                note(value)
            for bias, p in self._biased(of, row) if of.biases else ():
                bias.observe(row.seen.x, row.raw, p, was, -1)
                bias.observe(row.seen.x, row.raw, p, y)
            return
        warm = self._warm(of, row)
        for n, (p, history) in enumerate(self._vectors(of, row)):
            if n in warm:
                history.warm_up.observe(row.raw, was, -1)
                history.warm_up.observe(row.raw, y)
                continue
            history.revise(row.raw, p, event_id.encode(), was, y, row.seen.windows[n])
            found = {slot: each for slot, each in self._segments(of, n, row).items() if each.warm_up.admitted(row.born)}
            revise_segments(list(found.values()), row.raw, p, was, y, row.seen.windows[n])
            months = self._months(of, n, row, found)
            observe(months, row.raw, p, was, -1)
            observe(months, row.raw, p, y)
        self._count_losses(of, row)

    def expired(self, service: Service, row: LedgerRow, event_id: str) -> None:
        """Count an expired forecast. Remember a forecast of a probability, because its outcome may still come."""
        for counts in self._labels(service, row):
            counts[2] += 1
        if service.kind == PROBABILITY:
            stream = service.stream
            self._played.expired[stream] = self._played.expired.get(stream, 0) + 1
            if len(self._gone) < REMEMBERED:
                self._gone[event_id] = self.streams[stream].number, row.issued_ts

    def end(self) -> None:
        """Look at every calibrator a last time."""
        for of in self.streams.values():
            self._look(of)

    def _untaught(self, row: LedgerRow) -> None:
        """Note the label of a probability that taught nothing."""
        if row.seen.index >= 0:
            self._note_untaught(row.seen.index)
            self._note_untaught_y(int(row.y))

    def _answers_of(self, of: Stream, row: LedgerRow) -> list[Any]:
        return [row.p if place < 0 else row.shadows[place].p for place in of.places]

    def _warm(self, of: Stream, row: LedgerRow) -> list[int]:
        """Return the contenders that were in their warm-up when they answered a forecast."""
        first = row.window == NO_WINDOW
        return [n for n, place in enumerate(of.places) if (first if place < 0 else row.shadows[place].warm)]

    def _weighted(self, of: Stream, row: LedgerRow) -> Iterator[tuple[Weighted, float, float]]:
        """Yield the weighted sums in which a probability's event counts, the answer, and its weight."""
        weight = row.weight * chances.weight(row.chance)
        for n, p in enumerate(self._answers_of(of, row)):
            held = self._played.weighted.setdefault((of.name, n), {})
            for slot in (WHOLE, *row.groups):
                yield held.setdefault(slot, Weighted()), p, weight

    def _biased(self, of: Stream, row: LedgerRow) -> Iterator[tuple[Bias, Any]]:
        """Yield the biases in which a probability's event counts, and the answer."""
        warm = self._warm(of, row)
        for n, (bias, p) in enumerate(zip(of.biases, self._answers_of(of, row), strict=True)):
            if n not in warm:
                yield bias, p

    def _score_vectors(self, of: Stream, row: LedgerRow, event_id: str, applied: int) -> None:
        """Count an event of classes or numbers in the scores of every contender."""
        windows, warm = [], self._warm(of, row)
        for n, (p, history) in enumerate(self._vectors(of, row)):
            windows.append(history.windows)
            if n in warm:
                history.warm_up.observe(row.raw, row.y)
                continue
            history.observe(row.raw, p, row.y, event_id.encode())
            segments = self._segments(of, n, row).items()
            found = {slot: each for slot, each in segments if each.warm_up.admits(row.born, applied)}
            observe_segments(list(found.values()), row.raw, p, row.y, windows[n])
            observe(self._months(of, n, row, found), row.raw, p, row.y)
        row.seen.windows = windows

    def _count_losses(self, of: Stream, row: LedgerRow) -> None:
        """Note the losses of raw and of each contender for an event of classes or numbers with this label."""
        for note, value in zip(self._note_vector, (of.number, row.seen.index, self._resolved_time), strict=True):
            note(value)
        warm = self._warm(of, row)
        for n, note_warm in enumerate(self._note_vector_warm):
            note_warm(n in warm)
        for p, notes in zip(self._answers_of(of, row), self._note_losses, strict=True):
            before = at_levels(row.raw, p) if isinstance(p, Quantiles) else row.raw
            found = losses(before, p, row.y)
            for k, (note_raw, note) in enumerate(notes):
                note_raw(found[3 * k] if 3 * k < len(found) else nan)
                note(found[3 * k + 1] if 3 * k < len(found) else nan)

    def _labels(self, service: Service, row: LedgerRow) -> list[list[int]]:
        """Return the counts of a row's segments in `PartitionResult.labelled`."""
        held = self._played.labelled.setdefault(service.stream, {})
        return [held.setdefault(slot, [0, 0, 0]) for slot in row.groups]

    def _segments(self, of: Stream, contender: int, row: LedgerRow) -> dict[int, SegmentPairScores]:
        """Return a contender's scores, by slot, of the segments of a row of classes or numbers."""
        held = self._played.segments.setdefault((of.name, contender), {})
        return {slot: held.setdefault(slot, SegmentPairScores()) for slot in row.groups}

    def _months(self, of: Stream, contender: int, row: LedgerRow, slots: Iterable[int]) -> list[PairScores]:
        """Return a contender's scores of some segments of a row, in the month of its forecast."""
        held, month = self._played.months.setdefault((of.name, contender), {}), str(np.datetime64(row.issued_ts, "ms"))
        return [held.setdefault((slot, month[:7]), PairScores()) for slot in slots]

    def _vectors(self, of: Stream, row: LedgerRow) -> Iterator[tuple[Any, VectorHistory]]:
        """Yield what each contender answered, and its scores of classes or numbers."""
        for n, p in enumerate(self._answers_of(of, row)):
            history = self._played.vectors.get((of.name, n))
            if history is None:
                history = self._played.vectors[of.name, n] = VectorHistory.of(p)
            yield p, history

    def _look(self, of: Stream) -> None:
        for n, served in enumerate(of.served):
            calibrator = served.calibrator
            error, bound = calibrator.error(), calibrator.bound(served.outstanding)
            self._played.looks.append(Look(self._resolved_time, of.name, n, calibrator.learnt, error, bound))
