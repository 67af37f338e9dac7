"""The services of a partition: the working copies of calibrators, and of all other rows of streams."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from state import calibrators, kinds, ledger
from state.calibrators.carried import CarriedOver
from state.chances import Chances
from state.coverage import Coverage
from state.effects import Changes
from state.fence import EXPIRY, MATURITY
from state.forecasts import KINDS, PROBABILITY
from state.kind import Get, Kind, Live, kind_of
from state.ledger import LedgerRow
from state.marking import Marker
from state.policies import Policies
from state.policy import DEFAULT_TTL_MS, Policy
from state.scoring.pair_scores import of_challenger
from state.segments import Dictionary
from state.served import Served
from state.service import ChallengerService, Learner, Service
from state.stream_counts import StreamCounts
from state.versions import OTHER, Version, Versions, line

#: Bytes that a value of a stream takes in memory: a fixed number, and a number for each byte of its row.
VALUE, VALUE_OF_ROW = 300, 6
#: The value of a stream's row.
Value = TypeVar("Value")


class Services:
    """The working copies of a partition's streams.

    ``opened``: called with each new service.
    ``beside``: policies, all different, whose calibrators challenge every stream in place of its own challengers.
    """

    def __init__(
        self, policies: Policies, get: Get, opened: Callable[[Service], None], beside: Sequence[Policies] = ()
    ) -> None:
        self._policies = policies
        self._get = get
        self._opened = opened
        self._beside = beside
        #: Values of rows that changed since the last checkpoint, by key.
        self.touched: dict[bytes, Any] = {}
        #: The last checkpoint. Some rows of streams may not be packed yet.
        self.frozen = Changes()
        #: The present service of each stream, by name. Then the services that issued tickets, by the tickets' names.
        self._active: dict[str, Service] = {}
        self._by_names: dict[bytes, Service] = {}
        #: The present service of each version of a model, by stream and version.
        self._by_version: dict[str, dict[str, Service]] = {}
        #: The one live copy of each row's value, by stream and key. A promoted challenger still learns from its earlier
        #: tickets, so there is only one.
        self._values: dict[str, dict[bytes, Any]] = {}
        self._held = 0
        #: The keys in `_by_names`, by stream.
        self._names: dict[str, tuple[bytes, ...]] = {}

    def of(self, stream: str) -> Service:
        """Return the present service of a stream. The caller may change the stream's values."""
        if self.frozen.streams:
            self.frozen.make(stream)
        return self._active.get(stream) or self._open(stream)

    def of_version(self, stream: str, version: str, now_ms: int) -> Service:
        """Return the service of a version at a stream time, ms. The caller may change the stream's values."""
        if self.frozen.streams:
            self.frozen.make(stream)
        served = self._by_version.get(stream)
        found = None if served is None else served.get(version)
        return found or self._open_version(stream, version, now_ms)

    def by(self, row: LedgerRow) -> Service:
        """Return the service that answered a row's forecast. The caller may change the stream's values."""
        if self.frozen.streams:
            self.frozen.make(row.stream)
        return self._by_names.get(row.names) or self._service(row.names, row.stream, row.calibrator, row.config, None)

    def active(self) -> list[Service]:
        """Return the present services of all streams and versions that were used so far."""
        return [*self._active.values(), *[each for served in self._by_version.values() for each in served.values()]]

    def live(self, stream: str, kind: Kind[Value], new: Callable[[], Value], *of: object) -> Live[Value]:
        """Return the one working copy of a stream's row. ``new`` makes its value if there is no row.

        ``of``: parts of its key after the stream.
        """
        key, values = kind.key(stream, *of), self._values_of(stream)
        live: Live[Value] | None = values.get(key)
        if live is None:
            row = self._stored(key)
            live = values[key] = Live(key, new() if row is None else kind.read(key, row, self._get))
            self._held += 1
        return live

    def change(self, live: Live[Value]) -> Value:
        """Return the value of a working copy, to be changed by the caller."""
        self.touched[live.key] = live.value
        return live.value

    def counts(self, stream: str) -> Live[StreamCounts]:
        """Return the counts of a stream."""
        return self.live(stream, kinds.COUNTS, lambda: StreamCounts(stream, self._get))

    def challenger(self, service: Service, config: str, policy: Policy | None = None) -> ChallengerService:
        """Return a challenger of a service; without a policy, one that a ticket names."""
        if service.challengers is None:
            service.challengers = {}
        challenger = service.challengers.get(config)
        if challenger is None:
            learner = self._learner(service.stream, config, policy)
            new = partial(of_challenger, service.kind)
            comparison = self.live(service.stream, kinds.COMPARISON, new, service.config, config)
            challenger = service.challengers[config] = ChallengerService(learner, comparison)
        return challenger

    def blank(self, service: Service, learner: Learner) -> Any:  # noqa: ANN401 - a calibrator of any kind
        """Return the calibrator of a learner as it was before its first outcome."""
        if learner.blank is None:
            learner.blank = Served.fresh(learner.served.recipe, service.stream, self._policies.coin).calibrator
        return learner.blank

    def marker(self, service: Service) -> Marker:
        """Return the marker of a service. A stream without bands may still get labels of forecasts that had bands."""
        return service.marker or Marker(service.stream, None, self.live)

    def freeze(self, changes: Changes) -> None:
        """Hand over the changes since the last checkpoint."""
        self.frozen, touched, self.touched = changes, self.touched, {}
        for key, value in touched.items():
            stream = kind_of(key).stream(key)
            held = changes.streams.get(stream)
            if held is None:
                held = changes.streams[stream] = {}
            held[key] = value

    def trim(self, most: int) -> None:
        """Drop streams if more than ``most`` values are in memory; later calls drop more if that is not enough.

        Streams with changes that are not packed yet stay, because they are in use and in memory anyway. The dropped
        streams are spread over all others. Dropping the least recently used would be worse: if streams take turns, and
        there are a few more than the memory holds, each would be dropped just before its turn.
        """
        excess = self._held - most
        if excess <= 0:
            return
        excess += most // 64  # drop more than necessary, because a call that drops looks through all streams
        touched, frozen = self.touched.keys(), self.frozen.streams
        for stream in list(islice(self._values, 0, None, max(self._held // excess, 1))):
            if excess > 0 and stream not in frozen and touched.isdisjoint(self._values[stream]):
                gone = len(self._values.pop(stream))
                self._held -= gone
                excess -= gone
                self._active.pop(stream, None)
                self._close(stream)

    def _open(self, stream: str) -> Service:
        policy = self._policy(stream)
        service = self._active[stream] = self._opened_by(stream, policy)
        return service

    def _policy(self, stream: str) -> Policy:
        policy = self._policies.of(stream)
        if policy is None:
            raise LookupError(f"stream {stream!r} has no policy; decoding rejects such records")
        return policy

    def _open_version(self, stream: str, version: str, now_ms: int) -> Service:
        """Open a version of the model.

        A new version takes a place of its own. If no place is free, it shares that of `OTHER`.
        """
        policy = self._policy(stream)
        versions = self._versions(stream)
        first = not versions.of
        if version not in versions.of:
            for each in versions.gone(now_ms, policy.kept_ms):
                self._leave(stream, policy, versions, each)
            if versions.full():
                version = OTHER
                if (others := self._by_version.get(stream, {}).get(OTHER)) is not None:
                    return others
        own = policy.of_version(version)
        known = versions.admit(version, own.config, now_ms)
        if known.config != own.config:
            # The version's calibrator has a new configuration. Rows of the old calibrator no longer count, nor do those
            # of services that were opened for outcomes of its forecasts.
            known.config, known.held = own.config, 0
            self._close(stream)
        service = self._opened_by(stream, own)
        if first:
            self._take_over(service, policy)
        self._by_version.setdefault(stream, {})[version] = service
        return service

    def _versions(self, stream: str) -> Versions:
        return self.counts(stream).value.part(kinds.VERSIONS, Versions)

    def _has_versions(self, stream: str, config: str) -> bool:
        """Whether a configuration may belong to a version of a stream's model.

        The stream may have had versions earlier. Its present one then belongs to none; an earlier one may.
        """
        policy = self._policies.of(stream)
        if policy is not None and (policy.model_version or policy.config == config):
            return bool(policy.model_version)
        return self.counts(stream).value.has(kinds.VERSIONS)

    def _take_over(self, service: Service, policy: Policy) -> None:
        """Give the first version what its stream had learnt before there were versions."""
        served = service.learner.served
        if served.calibrator.learnt == 0 and self._has(service.stream, policy.config):
            before = self._learner(service.stream, policy.config, None).served
            cast("CarriedOver", served.calibrator).take_over(before.calibrator.encode())
            served.late, served.warmed_ms = before.late, before.warmed_ms
            self.touched[service.learner.key] = served

    def _has(self, stream: str, config: str) -> bool:
        """Whether a stream has a calibrator of this configuration."""
        key = kinds.CALIBRATOR.key(stream, config)
        return key in self._values_of(stream) or self._stored(key) is not None

    def _stored(self, key: bytes) -> bytes | None:
        """Return a stored row; None if it has left since the last checkpoint."""
        return None if key in self.touched and self.touched[key] is None else self._get(key)

    def release(self, row: LedgerRow) -> None:
        """Note that the row of an answered forecast leaves the ledger. A version may be waiting for that."""
        service = self._by_names.get(row.names)
        if not (self._has_versions(row.stream, row.config) if service is None else service.versions is not None):
            return
        if self.frozen.streams:
            self.frozen.make(row.stream)
        version = self._versions(row.stream).by(row.config)
        if version is not None and version.held:
            version.held -= 1
            self.change(self.counts(row.stream))

    def _leave(self, stream: str, policy: Policy, versions: Versions, gone: Version) -> None:
        """Remove the rows of a version when no ledger row names it any more."""
        del versions.of[gone.name]
        own = policy.of_version(gone.name)
        configs = [each.config for each in (own, *own.challengers)]
        keys = [kinds.CALIBRATOR.key(stream, config) for config in configs]
        keys += [kinds.COMPARISON.key(stream, own.config, config) for config in configs[1:]]
        places = self._places(stream, policy)
        keys += [kinds.EVIDENCE.key(stream, config, *place) for config in configs for place in places]
        values = self._values_of(stream)
        for key in keys:
            if values.pop(key, None) is not None:
                self._held -= 1
            elif self._stored(key) is None:
                continue
            self.touched[key] = None
        self._close(stream)

    def _close(self, stream: str) -> None:
        """Forget the services of a stream's tickets and versions. Its rows are read again when it is opened again."""
        for names in self._names.pop(stream, ()):
            del self._by_names[names]
        self._by_version.pop(stream, None)

    def _places(self, stream: str, policy: Policy) -> list[tuple[bytes, int]]:
        """Return layout and slot: of the whole stream, and of each segment."""
        if not policy.segments:
            return [kinds.WHOLE]
        known = self._dictionary(stream, policy).value
        return [kinds.WHOLE, *[(policy.layout, slot) for slot in known.slots]]

    def _dictionary(self, stream: str, policy: Policy) -> Live[Dictionary]:
        return self.live(stream, kinds.NAMES, lambda: Dictionary(policy.segments, policy.pairs), policy.layout)

    def carry(self, service: Service) -> None:
        """Carry the map of the version before over to a new one, see `state.versions`; nothing if there is none."""
        new, versions = service.version, service.versions
        before = None if new is None or versions is None else versions.before(new)
        if new is None or before is None or new.name == OTHER:
            return
        policy = self._policy(service.stream)
        if not policy.carry_over:
            return
        theirs, ours = policy.of_version(before.name), policy.of_version(new.name)
        beside = [self._challenging(service.stream, each) for each in (theirs, ours)]
        for their, our in zip((theirs, *beside[0]), (ours, *beside[1]), strict=True):
            if their.config == our.config or not self._has(service.stream, their.config):
                continue
            old = cast("CarriedOver", self._learner(service.stream, their.config, None).served.calibrator)
            learner = self._learner(service.stream, our.config, our)
            carried = cast("CarriedOver", learner.served.calibrator)
            if (old.learnt or old.line.seen) and carried.due(new.forecasts):
                found = line(new, before, old.answers(policy.n_features))
                carried.carry(found.slope, found.offset, new.forecasts)
                new.after = before.name
                self.touched[learner.key] = learner.served

    def _opened_by(self, stream: str, policy: Policy) -> Service:
        names = ledger.names(policy.config, policy.calibrator, stream)
        service = self._by_names.get(names) or self._service(names, stream, policy.calibrator, policy.config, policy)
        matures = policy.matures_ms > 0
        service.role, service.due_ms = (MATURITY, policy.matures_ms) if matures else (EXPIRY, policy.ttl_ms)
        service.status = ledger.IMMATURE if policy.waits else ledger.ISSUED
        service.shadows = tuple(
            [self.challenger(service, each.config, each) for each in self._challenging(stream, policy)]
        )
        if policy.segments:
            service.layout, service.dictionary = policy.layout, self._dictionary(stream, policy)
            if self._get(service.dictionary.key) is None:  # its row is written even if no event ever has a value
                self.change(service.dictionary)
        return service

    def _challenging(self, stream: str, policy: Policy) -> Sequence[Policy]:
        if not self._beside:
            return policy.challengers
        plans = [each for plan in self._beside if (each := plan.of(stream)) is not None]
        found = {each.config: each for each in [plan.of_version(policy.version) for plan in plans]}
        found.pop(policy.config, None)
        return list(found.values())

    def _service(self, names: bytes, stream: str, calibrator: str, config: str, policy: Policy | None) -> Service:
        learner = self._learner(stream, config, policy)
        now = self._policies.of(stream)
        counts = self.counts(stream)
        coverage = counts.value.part(kinds.COVERAGE, Coverage) if now is not None and now.guarded else None
        kind = KINDS.index(calibrators.kind(calibrator))
        self._names[stream] = (*self._names.get(stream, ()), names)
        service = self._by_names[names] = Service(stream, kind, calibrator, config, names, learner, coverage, counts)
        service.frozen = now is not None and now.frozen
        service.ttl_ms = DEFAULT_TTL_MS if now is None else now.ttl_ms
        service.weighed = now is not None and now.weighed and kind == PROBABILITY
        if now is not None and now.label_rate:
            service.chances = counts.value.part(kinds.CHANCES, Chances)
        if self._has_versions(stream, config):
            service.versions = self._versions(stream)
            service.version = service.versions.by(config)
        own = now if now is None or service.version is None else now.of_version(service.version.name)
        # Outcomes may come before the first forecast. Those of the earlier champion are evidence on what serves now.
        follows = own is not None and (own.config == config or not own.model_version)
        if own is not None and own.marked and follows and kind == PROBABILITY:
            service.marker = Marker(stream, own, self.live)
        self._opened(service)
        return service

    def _learner(self, stream: str, config: str, policy: Policy | None) -> Learner:
        """Return the calibrator of a stream and configuration. If it has no row it is new, and needs its policy."""
        key = kinds.CALIBRATOR.key(stream, config)
        values = self._values_of(stream)
        learner: Learner | None = values.get(key)
        if learner is None:
            row, coin = self._stored(key), self._policies.coin
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
