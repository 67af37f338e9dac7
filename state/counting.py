"""The counts of a worker, by stream and segment: scores, ages of outcomes, distribution of forecasts.

They change nothing that is served: counting is an observer, see `state.observer`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from state import chances, kinds, ledger
from state.forecasts import PROBABILITY, QUANTILES
from state.kind import Live
from state.ledger import LedgerRow
from state.policies import Policies
from state.policy import scored_of
from state.scoring.ages import Ages
from state.scoring.begun import Begun
from state.scoring.course import Course
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.pair_scores import compare
from state.scoring.segment_pairs import observe_segments, of_segment, revise_segments
from state.scoring.vector_history import VectorHistory
from state.scoring.weighted import Weighted
from state.service import Service
from state.services import Services

#: Reads an event's features from its ticket.
Features = Callable[[bytes], Sequence[float]]


@dataclass(slots=True, eq=False)
class _Counted:
    """The counts of one service: parts of its stream's row, and separate rows."""

    #: Reads the features of its tickets; None if they hold none, or hold those of an earlier configuration.
    features: Features | None
    #: Stream time from which its alarms are to begin anew, ms; 0: they have begun already.
    anew_ms: int
    #: Parts of the stream's counts; None until they are needed.
    ages: Ages | None = None
    course: Course | None = None
    distribution: Distribution | None = None
    history: History | None = None
    #: Scores of classes or numbers; None before the first event, which shows the number of classes or levels.
    vectors: Live[VectorHistory] | None = None
    #: Scores, by layout and slot; None until there are any.
    segments: dict[bytes, dict[int, Live[Any]]] | None = None
    #: Weighted sums of segments and of the whole, by layout and slot; None until there are any.
    weighted: dict[tuple[bytes, int], Live[Weighted]] | None = None


class Counting:
    """The observer of workers: its counts are rows. A caller that reports an event marks the counts as changed."""

    def __init__(self, policies: Policies, services: Services) -> None:
        self._policies = policies
        self.services = services

    def opened(self, service: Service) -> None:
        """Open the scores of a stream."""
        config, policy = service.config, self._policies.of(service.stream)
        calibrator = service.learner.served.calibrator
        keeps = calibrator.keeps_features and policy is not None and policy.config == config
        service.seen = _Counted(
            calibrator.features_in if keeps else None,
            # Classes and numbers have scores for each configuration; those of the present one are shown.
            policy.alarms_since_ms
            if policy is not None and (service.kind == PROBABILITY or policy.config == config)
            else 0,
        )

    def issued(self, service: Service, row: LedgerRow, x: Sequence[float], stream_time: int) -> None:  # noqa: ARG002 - for others
        """Count a forecast in the distribution of its stream, and in its segments."""
        seen: _Counted = service.seen
        if service.kind != QUANTILES:  # for classes, the highest probability is counted; numbers are not counted
            found = seen.distribution
            if found is None:
                found = seen.distribution = service.counts.value.part(kinds.DISTRIBUTION, Distribution)
            found.observe(row.raw if service.kind == PROBABILITY else max(row.raw), stream_time)
        course = seen.course or self._course(service)
        course.issue(stream_time)
        if row.groups:
            for scores in self._segments(service, row):
                scores.issued += 1

    def parked(self, event_id: str, ts: int) -> None:
        """Count nothing."""

    def labelled(self, service: Service, row: LedgerRow, y: float, ts: int) -> None:
        """Count how old a forecast was when its first outcome came."""
        age_ms = ts - row.issued_ts if ts > row.issued_ts else 0
        at = 0 if row.entity else ts  # with an entity it is known which labels belong together
        seen: _Counted = service.seen
        ages = seen.ages or self._ages(service)
        ages.observe(age_ms, int(y) if service.kind != QUANTILES else 0, at)
        course = seen.course or self._course(service)
        course.label_ms = max(course.label_ms, ts)
        if row.groups:
            for scores in self._segments(service, row):
                scores.known += 1
                scores.age_ms += age_ms

    def resolved(self, service: Service, row: LedgerRow, event_id: str, applied: int, now_ms: int) -> int:
        """Count an event in the scores of its stream and segments, or in a warm-up, and compare the challengers."""
        window = row.window
        seen: _Counted = service.seen
        if row.weighed:
            self._weigh(service, row)
        if window == ledger.UNTAUGHT:
            return window
        if window != ledger.NO_WINDOW or not service.learner.served.warmed_ms:
            course = seen.course or self._course(service)
            one = service.kind == PROBABILITY
            course.resolve(row.raw if one else 0.0, row.p if one else 0.0, row.y if one else 0.0, now_ms)
        if row.shadows:
            self._compare(service, row, row.y)
        history: Any = seen.history or self._scores(service, row)
        if window == ledger.NO_WINDOW:
            history.warm_up.observe(row.raw, row.y)
            return window
        if 0 < seen.anew_ms <= now_ms:
            self._begin_anew(service, history)
        window = int(history.windows)
        if seen.features:
            history.bias.observe(seen.features(row.ticket), row.raw, row.p, row.y)
        aside = row.draw if service.kind == PROBABILITY else event_id.encode()
        if history.observe(row.raw, row.p, row.y, aside):
            self.services.touched[kinds.WINDOWS.key(service.stream)] = history
        if row.groups:
            segments = [each for each in self._segments(service, row) if each.warm_up.admits(row.born, applied)]
            if segments:
                observe_segments(segments, row.raw, row.p, row.y, window)
        return window

    def _begin_anew(self, service: Service, history: Any) -> None:  # noqa: ANN401 - of either kind
        """Let the alarms of a stream count from its next event on, once for each configured time."""
        seen: _Counted = service.seen
        begun = service.counts.value.part(kinds.ALARMS, Begun)
        if begun.ms < seen.anew_ms:
            history.begin_anew()
            begun.ms = seen.anew_ms
            if service.kind == PROBABILITY and history.windows:
                self.services.touched[kinds.WINDOWS.key(service.stream)] = history
        seen.anew_ms = 0

    def revised(self, service: Service, row: LedgerRow, event_id: str, was: float, now_ms: int) -> None:
        """Replace an event's old label by its new one in all scores."""
        window, y = row.window, row.y
        if row.weighed:
            self._weigh(service, row, was)
        if window == ledger.UNTAUGHT:
            return
        if service.kind == PROBABILITY and (window != ledger.NO_WINDOW or not service.learner.served.warmed_ms):
            self._course(service).revise(y - was, now_ms)
        if row.shadows:
            self._compare(service, row, was, -1)
            self._compare(service, row, y)
        seen: _Counted = service.seen
        history: Any = seen.history or self._scores(service, row)
        if window == ledger.NO_WINDOW:
            history.warm_up.observe(row.raw, was, -1)
            history.warm_up.observe(row.raw, y)
            return
        if seen.features:
            x = seen.features(row.ticket)
            history.bias.observe(x, row.raw, row.p, was, -1)
            history.bias.observe(x, row.raw, row.p, y)
        aside = row.draw if service.kind == PROBABILITY else event_id.encode()
        if history.revise(row.raw, row.p, aside, was, y, window):
            self.services.touched[kinds.WINDOWS.key(service.stream)] = history
        segments = [each for each in self._segments(service, row) if each.warm_up.admitted(row.born)]
        if segments:
            revise_segments(segments, row.raw, row.p, was, y, window)

    def expired(self, service: Service, row: LedgerRow, event_id: str) -> None:  # noqa: ARG002 - for others
        """Count a forecast without a label."""
        self._ages(service).expire()
        for scores in self._segments(service, row):
            scores.expired += 1

    def _ages(self, service: Service) -> Ages:
        seen: _Counted = service.seen
        if seen.ages is None:
            seen.ages = service.counts.value.part(kinds.AGES, Ages)
        return seen.ages

    def _course(self, service: Service) -> Course:
        seen: _Counted = service.seen
        if seen.course is None:
            seen.course = service.counts.value.part(kinds.COURSE, Course)
        return seen.course

    def _segments(self, service: Service, row: LedgerRow) -> list[Any]:
        """Return the scores of a row's segments, to be changed by the caller."""
        found: list[Any] = []
        if not row.groups:
            return found
        seen: _Counted = service.seen
        if seen.segments is None:
            seen.segments = {}
        known = seen.segments.setdefault(row.layout, {})
        for slot in row.groups:
            live = known.get(slot)
            if live is None:
                kind = service.kind
                scored = row.layout if kind == PROBABILITY else scored_of(row.layout, kind, service.config)
                new = partial(of_segment, kind)
                live = known[slot] = self.services.live(service.stream, kinds.SEGMENT, new, scored, slot)
            found.append(self.services.change(live))
        return found

    def _weigh(self, service: Service, row: LedgerRow, was: float | None = None) -> None:
        """Count an event in the weighted sums of its stream and segments, or replace the label that it had."""
        weight = row.weight * chances.weight(row.chance)
        seen: _Counted = service.seen
        if seen.weighted is None:
            seen.weighted = {}
        known = seen.weighted
        for where in (kinds.WHOLE, *[(row.layout, slot) for slot in row.groups]):
            live = known.get(where)
            if live is None:
                live = known[where] = self.services.live(service.stream, kinds.WEIGHTED, Weighted, *where)
            sums = self.services.change(live)
            if was is None:
                sums.observe(row.raw, row.p, row.y, weight)
            else:
                sums.revise(row.raw, row.p, was, row.y, weight)

    def _scores(self, service: Service, row: LedgerRow) -> Any:  # noqa: ANN401 - of either kind
        """Return a stream's scores, to be changed by the caller."""
        seen: _Counted = service.seen
        if service.kind == PROBABILITY:
            if seen.history is None:
                seen.history = service.counts.value.part(kinds.SCORES, History)
            return seen.history
        if seen.vectors is None:  # an event shows the number of classes or levels
            new = partial(VectorHistory.of, row.p)
            seen.vectors = self.services.live(service.stream, kinds.VECTORS, new, service.config)
        return self.services.change(seen.vectors)

    def _compare(self, service: Service, row: LedgerRow, y: float, sign: int = 1) -> None:
        """Compare challengers with what was served, except in warm-ups."""
        if row.window == ledger.NO_WINDOW:
            return
        for shadow in row.shadows:
            if not shadow.warm:
                challenger = self.services.challenger(service, shadow.config)
                compare(self.services.change(challenger.comparison), row.p, shadow.p, y, shadow.draw, sign)
