"""What serves the streams of a partition: the working copies of their calibrators, and of everything kept by stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from state import calibrators, kinds, ledger
from state.chances import Chances
from state.coverage import Coverage
from state.effects import Changes
from state.fence import EXPIRY, MATURITY
from state.forecasts import KINDS, PROBABILITY
from state.kind import Get, Kind, kind_of
from state.ledger import Row
from state.marking import Marker
from state.policy import Policies, Policy
from state.scoring.pair_scores import AnyComparison, of_challenger
from state.segments import Dictionary
from state.served import Served

#: Values of streams that are kept in memory; beyond this those of the streams that were used least recently are read
#: again from their rows.
KEPT = 65_536

#: What a row of a stream holds.
Value = TypeVar("Value")


@dataclass(slots=True, eq=False)
class Learner:
    """The calibrator of one stream and configuration, whatever its part is: it serves, has served, or challenges."""

    config: str
    key: bytes
    served: Served
    #: The same calibrator before its first outcome, once it is asked for.
    blank: Any = None


@dataclass(slots=True, eq=False)
class Challenger:
    """A calibrator that is scored beside one champion, and not served; ``key`` is that of the comparison's row."""

    learner: Learner
    key: bytes
    comparison: AnyComparison


@dataclass(slots=True, eq=False)
class Service:
    """What serves a stream under one configuration, with everything the hot path asks of it.

    Attributes
    ----------
    names
        As `state.ledger.names` has them.
    role, due_ms, ttl_ms, status
        Role and duration of the queue an answered forecast enters, how long its row is kept, and the row's status.
    shadows, challengers
        What challenges it now, and by configuration whatever has since its tickets were issued.
    layout, dictionary
        Slots of the segments that the stream has now; empty and None without segments.
    coverage, coverage_key
        Which forecasts have a label; None where that does not matter. While most have none, nothing that was learnt is
        served.
    chances, chances_key
        Which labels teach by their chance; None where that is not known.
    weighed
        Whether events count by weight, too.
    frozen
        Whether it learns nothing.
    marker
        What gives forecasts their bands, points and intervals; None where the stream has none of them.
    seen
        What an observer keeps with it.
    """

    stream: str
    kind: int
    calibrator: str
    config: str
    names: bytes
    learner: Learner
    coverage: Coverage | None
    coverage_key: bytes
    challengers: dict[str, Challenger]
    role: int = EXPIRY
    due_ms: int = 0
    ttl_ms: int = 0
    status: int = ledger.ISSUED
    shadows: tuple[Challenger, ...] = ()
    layout: bytes = b""
    dictionary: Dictionary | None = None
    chances: Chances | None = None
    chances_key: bytes = b""
    weighed: bool = False
    frozen: bool = False
    marker: Marker | None = None
    seen: Any = None


class Services:
    """The working copies of a partition's streams.

    Parameters
    ----------
    policies
        What each stream is configured to do.
    get
        Reads a stored row by key.
    opened
        Called with each service that is made.
    beside
        Plans whose calibrators challenge every stream, in the place of the challengers that ``policies`` name. One that
        is what serves, or that challenges already, is passed over.

    Attributes
    ----------
    touched
        What the rows hold that changed since the last checkpoint, by key.
    frozen
        The last checkpoint, whose rows of streams may still have to be made.
    """

    def __init__(
        self, policies: Policies, get: Get, opened: Callable[[Service], None], beside: Sequence[Policies] = ()
    ) -> None:
        self._policies = policies
        self._get = get
        self._opened = opened
        self._beside = beside
        self.touched: dict[bytes, Any] = {}
        self.frozen = Changes()
        #: What serves a stream now, by its name; and what served it when a ticket was issued, by the ticket's names.
        self._active: dict[str, Service] = {}
        self._by_names: dict[bytes, Service] = {}
        #: By stream and key, the one live copy of what a row holds: a promoted challenger still learns from tickets it
        #: had before. Streams that were used least recently come first.
        self._values: dict[str, dict[bytes, Any]] = {}
        self._held = 0

    def of(self, stream: str) -> Service:
        """Return what serves a stream now; what the stream holds may then change."""
        if self.frozen.streams:
            self.frozen.make(stream)
        return self._active.get(stream) or self._open(stream)

    def by(self, row: Row) -> Service:
        """Return what answered the forecast of a row; what the stream holds may then change."""
        if self.frozen.streams:
            self.frozen.make(row.stream)
        return self._by_names.get(row.names) or self._service(row.names, row.stream, row.calibrator, row.config, None)

    def active(self) -> list[Service]:
        """Return what serves now, of all streams that were asked for."""
        return list(self._active.values())

    def value(self, stream: str, kind: Kind[Value], key: bytes, new: Callable[[], Value]) -> Value:
        """Return the one live copy of what a row of a stream holds; what is new without a row."""
        values = self._values_of(stream)
        value: Value | None = values.get(key)
        if value is None:
            row = self._get(key)
            value = values[key] = new() if row is None else kind.read(key, row, self._get)
            self._held += 1
        return value

    def challenger(self, service: Service, config: str, policy: Policy | None = None) -> Challenger:
        """Return the challenger of a service; without a policy it is asked for by a ticket."""
        challenger = service.challengers.get(config)
        if challenger is None:
            learner = self._learner(service.stream, config, policy)
            key = kinds.COMPARISON.key(service.stream, service.config, config)
            comparison = self.value(service.stream, kinds.COMPARISON, key, lambda: of_challenger(service.kind))
            challenger = service.challengers[config] = Challenger(learner, key, comparison)
        return challenger

    def blank(self, service: Service, learner: Learner) -> Any:  # noqa: ANN401 - a calibrator of any kind
        """Return a calibrator as it was before its first outcome."""
        if learner.blank is None:
            learner.blank = Served.fresh(learner.served.recipe, service.stream, self._policies.coin).calibrator
        return learner.blank

    def touch(self, key: bytes, value: object) -> None:
        """Note that what a row of a stream holds is about to change."""
        self.touched[key] = value

    def marker(self, service: Service) -> Marker:
        """Return what counts the labels of forecasts that have bands, also where the stream has none any more."""
        return service.marker or Marker(service.stream, None, self.value, self.touch)

    def freeze(self, changes: Changes) -> None:
        """Hand over what changed since the last checkpoint, and forget streams if too much is kept."""
        self.frozen, touched, self.touched = changes, self.touched, {}
        for key, value in touched.items():
            stream = kind_of(key).stream(key)
            held = changes.streams.get(stream)
            if held is None:
                held = changes.streams[stream] = {}
                values = self._values.pop(stream, None)
                if values is not None:
                    self._values[stream] = values
            held[key] = value
        while self._held > KEPT and self._values:
            gone = set(islice(self._values, len(self._values) // 8 + 1))
            for stream in gone:
                self._held -= len(self._values.pop(stream))
                self._active.pop(stream, None)
            for names in [names for names, each in self._by_names.items() if each.stream in gone]:
                del self._by_names[names]

    def _open(self, stream: str) -> Service:
        policy = self._policies.of(stream)
        if policy is None:
            raise LookupError(f"stream {stream!r} has no policy; decoding rejects such records")
        names = ledger.names(policy.config, policy.calibrator, stream)
        service = self._by_names.get(names) or self._service(names, stream, policy.calibrator, policy.config, policy)
        matures = policy.matures_ms > 0
        service.role, service.due_ms = (MATURITY, policy.matures_ms) if matures else (EXPIRY, policy.ttl_ms)
        service.ttl_ms = policy.ttl_ms
        service.status = ledger.IMMATURE if policy.waits else ledger.ISSUED
        service.shadows = tuple(
            [self.challenger(service, each.config, each) for each in self._challenging(stream, policy)]
        )
        if policy.segments:
            key = kinds.NAMES.key(stream, policy.layout)
            stored = self._get(key) is not None
            made = self.value(stream, kinds.NAMES, key, lambda: Dictionary(policy.segments, policy.pairs))
            service.layout, service.dictionary = policy.layout, made
            if not stored:  # also where no event ever has a value
                self.touched[key] = made
        self._active[stream] = service
        return service

    def _challenging(self, stream: str, policy: Policy) -> Sequence[Policy]:
        if not self._beside:
            return policy.challengers
        found = {each.config: each for plan in self._beside if (each := plan.of(stream)) is not None}
        found.pop(policy.config, None)
        return list(found.values())

    def _service(self, names: bytes, stream: str, calibrator: str, config: str, policy: Policy | None) -> Service:
        learner = self._learner(stream, config, policy)
        now = self._policies.of(stream)
        key, coverage = kinds.COVERAGE.key(stream), None
        if now is not None and now.guarded:
            coverage = self.value(stream, kinds.COVERAGE, key, Coverage)
        kind = KINDS.index(calibrators.kind(calibrator))
        service = self._by_names[names] = Service(stream, kind, calibrator, config, names, learner, coverage, key, {})
        service.frozen = now is not None and now.frozen
        if now is not None and now.config == config and now.marked:  # outcomes may come before the first forecast
            service.marker = Marker(stream, now, self.value, self.touch)
        service.weighed = now is not None and now.weighed and kind == PROBABILITY
        if now is not None and now.label_rate:
            service.chances_key = kinds.CHANCES.key(stream)
            service.chances = self.value(stream, kinds.CHANCES, service.chances_key, Chances)
        self._opened(service)
        return service

    def _learner(self, stream: str, config: str, policy: Policy | None) -> Learner:
        """Return the calibrator of a stream and configuration; without a row it is new, and needs its policy."""
        key = kinds.CALIBRATOR.key(stream, config)
        values = self._values_of(stream)
        learner: Learner | None = values.get(key)
        if learner is None:
            row, coin = self._get(key), self._policies.coin
            if row is not None:
                served = kinds.CALIBRATOR.decode(row, stream, coin)
            elif policy is not None:
                served = Served.fresh(policy.recipe, stream, coin)
            else:
                raise LookupError(f"stream {stream!r} has tickets of configuration {config} but no calibrator row")
            learner = values[key] = Learner(config, key, served)
            self._held += 1
        return learner

    def _values_of(self, stream: str) -> dict[bytes, Any]:
        values = self._values.get(stream)
        if values is None:
            values = self._values[stream] = {}
        return values
