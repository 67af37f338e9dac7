"""Policies: what a stream is configured to do."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from state import calibrators, forecasts
from state.bands import Bands, Points
from state.calibrators.carried import Carried
from state.calibrators.multiclass import CLASSES
from state.calibrators.quantile import LEVELS
from state.forecasts import KINDS, LARGEST, MAX_LEVELS, PROBABILITY, PROBS, Probs, Quantiles
from state.quotas import Quota
from state.scoring.ages import exact
from state.segments import LIMIT, check

#: It keeps the order of raw forecasts, serves them until outcomes support other scores, and has a guarantee.
#: docs/explanation/calibrators.md has the measured cases, and those where it fails.
DEFAULT_CALIBRATOR = "prudent+certified"
#: Thirty days. Operators choose longer where chargebacks or delinquencies are reported later.
DEFAULT_TTL_MS = 30 * 24 * 3600 * 1000

#: Options that make a calibrator's state larger.
SIZES = ("buckets", "grid", "bins", "classes")
#: Bytes of a calibrator's row beside recipe and state.
ROW_OVERHEAD = 16

#: When outcomes are learnt.
MATURITY, ARRIVAL = LEARN = ("maturity", "arrival")

#: How a forecast that is a dead letter is answered: not at all, or with its raw score.
NOTHING, RAW = ON_ERROR = ("none", "raw")

#: Whether forecasts without a label are like those with one: not known, or alike.
UNKNOWN, ALIKE = UNLABELLED = ("unknown", "alike")

#: Most parts of a stream.
MOST_SHARDS = 1000
#: Most challengers of a stream. Each costs about as much as the champion, and their tickets must fit one ledger row.
MOST_CHALLENGERS = 8
#: Most bytes of all challengers' tickets in a ledger row, see `state.ledger`. Those of one probability are far below.
MOST_TICKETS = 65_000


class Challenger(NamedTuple):
    """A configured challenger: a calibrator that is scored beside the one that serves."""

    calibrator: str
    options: Mapping[str, calibrators.Value]


@dataclass(frozen=True)
class Policy:
    """Configuration of the streams that match one pattern. A change of the recipe makes a new calibrator.

    Attributes
    ----------
    calibrator
        Name of a calibrator, or ``front+back``.
    options
        Options of the calibrator, by name.
    features
        Names of the features in a record's ``x``, in the calibrator's order; or their count, if ``x`` is a list. 0:
        ``x`` is not used.
    ttl_ms
        How long a forecast waits for its outcome, in stream time, ms; longer than ``matures_ms``.
    matures_ms
        Age at which a forecast's label is taken as known, in stream time, ms; 0: never, outcomes are learnt when they
        come.
    silence
        Label of a forecast without an outcome when it matures; None: it goes on waiting.
    unlabelled
        Whether forecasts without a label are like those with one: ``unknown`` or ``alike``. If ``unknown``, and while
        most forecasts get no label, the stream is answered as if nothing had been learnt (`state.coverage`). Not in the
        recipe.
    learn
        ``maturity``: outcomes that come earlier are kept, and learnt when their forecast matures. ``arrival``: they are
        learnt when they come. Empty: at maturity, if forecasts mature.
    revisable_ms
        How long a label may be revised, in stream time since its forecast, ms; at least ``ttl_ms``; 0: ``ttl_ms``.
    seed
        Seed of the keyed draws.
    shadow
        Calibrators that are scored on the same events and never served. Not in the recipe.
    segments
        Names of the segments whose values records give. In the recipe only if the calibrator uses them.
    pairs
        Pairs of these names; combinations of their values are also segments.
    segments_required
        Whether a forecast without a usable value of each name is a dead letter.
    entity
        Path of the record's field with the entity, such as ``customer.account``; empty: the field ``entity``. Forecasts
        of one entity share outcomes, so only some teach (`state.entities`). Not in the recipe.
    label_rate
        A forecast's chance of a label, in (0, 1], or the path of the record's field with it, such as
        ``decision.chance``; empty: not known. See `state.chances`. Not in the recipe.
    weight
        Path of the record's field with the weight, such as ``amount``: figures are also shown by weight
        (`state.scoring.weighted`). Empty: none. Not in the recipe.
    shards
        Number of parts into which intake divides the stream, by event id; each has a calibrator of its own.
    quota
        How much each stream may send. Not in the recipe.
    on_error
        Answer to a forecast that becomes a dead letter: ``none`` or ``raw``, its raw score. Not in the recipe.
    frozen
        Whether the champion learns nothing; its challengers do. Not in the recipe.
    bands
        Bands of the calibrated probability; None: none. Not in the recipe, like the next five.
    points
        The scorecard whose points stand beside the probability; None: none.
    interval
        Share of the intervals beside the probability that hold the true risk, in [.5, .999]; 0: there are none.
    reasons
        Whether intervals come with the reason in words.
    cost_miss, cost_alert
        Cost of a missed one, and of looking at a forecast, in one unit; both 0 if not known.
    model_version
        Path of the record's field with the version of the model; each version has a calibrator of its own
        (`state.versions`). Empty: one calibrator has all forecasts. Not in the recipe.
    carry_over
        Whether a new version begins with the map of the one before; else with raw scores. Not in the recipe.
    version
        The model's version that this policy is for, see `of_version`; empty: all. In the recipe.
    """

    calibrator: str = DEFAULT_CALIBRATOR
    options: Mapping[str, calibrators.Value] = field(default_factory=dict)
    features: int | tuple[str, ...] = 0
    ttl_ms: int = DEFAULT_TTL_MS
    seed: int = 0
    shadow: tuple[Challenger, ...] = ()
    matures_ms: int = 0
    silence: float | None = None
    learn: str = ""
    revisable_ms: int = 0
    segments: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    segments_required: bool = False
    shards: int = 1
    quota: Quota | None = None
    on_error: str = NOTHING
    unlabelled: str = UNKNOWN
    entity: str = ""
    label_rate: float | str = ""
    weight: str = ""
    frozen: bool = False
    bands: Bands | None = None
    points: Points | None = None
    interval: float = 0.0
    reasons: bool = False
    cost_miss: float = 0.0
    cost_alert: float = 0.0
    model_version: str = ""
    carry_over: bool = True
    version: str = ""

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise ValueError(f"ttl must be positive, got {exact(self.ttl_ms)}")
        if not 1 <= self.shards <= MOST_SHARDS:
            raise ValueError(f"shards must be between 1 and {MOST_SHARDS}, got {self.shards}")
        check_on_error(self.on_error)
        self._check_labels()
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1, got {self.seed}")
        if not 0 <= self.n_features <= calibrators.MAX_FEATURES:
            raise ValueError(f"features must be between 0 and {calibrators.MAX_FEATURES}, got {self.n_features}")
        check(self.segments, self.pairs)
        calibrators.check(self.calibrator, self._options)
        if self.segments_required and not self.segments:
            raise ValueError("segments_required needs segments")
        if self.silence is not None:
            self._check_silence()
        if self.shadow:
            self._check_shadow()
        self._check_bands()
        if self.model_version and self.kind != PROBABILITY:
            raise ValueError(f"model_version: only of one probability, and {self.calibrator} serves {KINDS[self.kind]}")

    def _check_labels(self) -> None:
        if self.matures_ms < 0:
            raise ValueError(f"matures must be positive, got {exact(self.matures_ms)}")
        if self.matures_ms >= self.ttl_ms:
            raise ValueError(
                f"ttl ({exact(self.ttl_ms)}) must be longer than matures ({exact(self.matures_ms)}): the row of a "
                "forecast has to be there when it matures"
            )
        if self.unlabelled not in UNLABELLED:
            raise ValueError(f"unlabelled must be one of {', '.join(UNLABELLED)}, got {self.unlabelled!r}")
        if self.learn not in ("", *LEARN):
            raise ValueError(f"learn must be one of {', '.join(LEARN)}, got {self.learn!r}")
        if not self.matures_ms and (self.silence is not None or self.learn == MATURITY):
            setting = "silence" if self.silence is not None else 'learn = "maturity"'
            raise ValueError(f"{setting} needs matures: without it, no forecast ever matures")
        rate = self.label_rate
        if not isinstance(rate, str) and not 0.0 < rate <= 1.0:
            raise ValueError(f"label_rate must be a chance above 0 and at most 1, or a path, got {rate!r}")
        if rate and self.silence is not None:
            raise ValueError(
                "label_rate and silence exclude each other: with silence every forecast gets a label, so its chance is "
                "1"
            )
        if self.revisable_ms and self.revisable_ms < self.ttl_ms:
            raise ValueError(
                f"revisable ({exact(self.revisable_ms)}) must not be shorter than ttl ({exact(self.ttl_ms)})"
            )

    def _check_silence(self) -> None:
        y = self.silence
        if self.kind == PROBABILITY:
            if y not in (0.0, 1.0):
                raise ValueError(f"silence must be 0 or 1, got {y!r}")
        elif self.kind == PROBS:
            if y not in range(self.classes):
                raise ValueError(f"silence must be the number of a class, 0 to {self.classes - 1}, got {y!r}")
        elif y is None or not -LARGEST <= y <= LARGEST:
            raise ValueError(f"silence must be a finite number, got {y!r}")

    def _check_bands(self) -> None:
        for name in ("bands", "points", "interval", "weight"):
            if getattr(self, name) and self.kind != PROBABILITY:
                raise ValueError(f"{name}: only of one probability, and {self.calibrator} serves {KINDS[self.kind]}")
        if self.interval and not 0.5 <= self.interval <= 0.999:
            raise ValueError(f"interval must be between .5 and .999, such as 0.9, got {self.interval:g}")
        if self.reasons and not self.interval:
            raise ValueError("reasons are of intervals: set interval, too, such as 0.9")
        costs = self.cost_miss, self.cost_alert
        if not all(0.0 <= cost < float("inf") for cost in costs) or (costs[0] > 0.0) != (costs[1] > 0.0):
            raise ValueError(f"cost_miss and cost_alert belong together, each a number above 0, got {costs}")
        if self.costs and self.bands is None:
            raise ValueError("cost_miss and cost_alert are of bands: set bands, too")

    @property
    def costs(self) -> tuple[float, float] | None:
        """Cost of a missed one, and of looking at a forecast; None if not known."""
        return (self.cost_miss, self.cost_alert) if self.cost_miss else None

    def of_version(self, version: str) -> "Policy":
        """Return the policy of one version of the model, which has a calibrator of its own.

        It is this policy if all versions share one calibrator, or if no version is named.
        """
        return replace(self, version=version) if self.model_version and version else self

    @property
    def labels(self) -> tuple[object, ...]:
        """Everything that decides when a forecast gets which label, and how long its row is kept."""
        return self.ttl_ms, self.matures_ms, self.silence, self.waits, self.kept_ms, self.guarded, self.label_rate

    @property
    def guarded(self) -> bool:
        """Whether raw forecasts are served while most of them get no label."""
        return self.silence is None and self.unlabelled != ALIKE and not self.label_rate

    @property
    def marked(self) -> bool:
        """Whether forecasts have a band, points or an interval."""
        return self.bands is not None or self.points is not None or self.interval > 0.0

    @property
    def weighed(self) -> bool:
        """Whether events also count by weight: by their own, or by how many forecasts a label stands for."""
        return bool(self.weight or self.label_rate)

    @property
    def waits(self) -> bool:
        """Whether outcomes are learnt when their forecast matures."""
        return self.matures_ms > 0 and self.learn != ARRIVAL

    @property
    def kept_ms(self) -> int:
        """How long the row of an event with a label is kept, in stream time since its forecast, ms."""
        return self.revisable_ms or self.ttl_ms

    def _check_shadow(self) -> None:
        if len(self.shadow) > MOST_CHALLENGERS:
            raise ValueError(f"shadow names {len(self.shadow)} challengers, at most {MOST_CHALLENGERS} are allowed")
        seen: set[str] = set()
        for challenger in self.challengers:
            if challenger.kind != self.kind:
                raise ValueError(
                    f"{challenger.calibrator} cannot be a challenger of {self.calibrator}: it takes another forecast"
                )
            if challenger.shape != self.shape:
                said = (
                    f"classes = {self.classes}"
                    if self.kind == PROBS
                    else f"levels = [{', '.join(f'{level:g}' for level in self.levels)}]"
                )
                raise ValueError(
                    f"challenger {challenger.calibrator} cannot be compared with what serves: its options need {said}"
                )
            if challenger.config == self.config:
                raise ValueError(f"challenger {challenger.calibrator} is what serves already ({self.config})")
            if challenger.config in seen:
                raise ValueError(f"shadow names {challenger.calibrator} twice, with the same options")
            seen.add(challenger.config)
        size = 0 if self.kind == PROBABILITY else sum(each.ticket_bytes for each in self.challengers)
        if size > MOST_TICKETS:
            raise ValueError(
                f"the tickets of {len(self.shadow)} challengers may have {size} bytes for one forecast, and there is "
                f"room for {MOST_TICKETS}: fewer challengers, classes or levels"
            )

    @property
    def ticket_bytes(self) -> int:
        """Return the most bytes of a challenger of classes or numbers in a ledger row, or a little more."""
        raw: Probs | Quantiles
        if self.kind == PROBS:
            raw = Probs([1.0 / self.classes] * self.classes)
        else:
            places = tuple([float(i + 1) / (MAX_LEVELS + 1) for i in range(MAX_LEVELS)])
            raw = Quantiles(places, places)
        answer = build(self.recipe, "").predict(raw, (0.0,) * self.n_features, b"")
        return 64 + len(forecasts.encode(answer.p)) + len(answer.ticket)

    @cached_property
    def challengers(self) -> tuple["Policy", ...]:
        """Each challenger's policy as a champion, with the stream's features, seed and time to live."""
        return tuple(
            replace(self, calibrator=calibrator, options=options, shadow=()) for calibrator, options in self.shadow
        )

    @property
    def n_features(self) -> int:
        """Number of features the calibrator sees."""
        return self.features if isinstance(self.features, int) else len(self.features)

    @cached_property
    def kind(self) -> int:
        """Kind of forecast the calibrator takes: `state.forecasts.PROBABILITY` and so on."""
        return KINDS.index(calibrators.kind(self.calibrator))

    @property
    def paired(self) -> list[tuple[int, int]]:
        """Indices of each pair's names in ``segments``."""
        return [(self.segments.index(one), self.segments.index(other)) for one, other in self.pairs]

    @cached_property
    def layout(self) -> bytes:
        """Hash of the names of segments and pairs, 4 bytes; empty without segments. Slots depend on it.

        For classes and numbers it includes `shape`, because scores of different levels cannot be added.
        """
        return layout_of(self.segments, self.pairs, self.kind, self.shape) if self.segments else b""

    @cached_property
    def scored(self) -> bytes:
        """Hash that keys the scores of segments, 4 bytes, see `scored_of`; empty without segments."""
        return scored_of(self.layout, self.kind, self.config) if self.segments else b""

    @property
    def classes(self) -> int:
        """Number of classes, if forecasts are of classes."""
        return int(cast("int", self._options.get("classes", CLASSES)))

    @property
    def levels(self) -> tuple[float, ...]:
        """Served levels, if forecasts are of numbers."""
        return tuple(cast("tuple[float, ...]", self._options.get("levels", ()))) or LEVELS

    @property
    def shape(self) -> tuple[float, ...]:
        """What must be equal for scores to be added: number of classes, or levels; empty for one probability."""
        if self.kind == PROBABILITY:
            return ()
        return (self.classes,) if self.kind == PROBS else self.levels

    @property
    def _options(self) -> dict[str, calibrators.Value]:
        """Every option. Defaults are written out, so that a later version's defaults do not change what was built."""
        allowed = calibrators.options_of(self.calibrator, self.options)
        defaults = {name: option.default for name, option in allowed.items()}
        if self.n_features and "features" in defaults:
            defaults["features"] = self.n_features
        if self.segments and "segments" in defaults:
            defaults["segments"] = len(self.segments) + len(self.pairs)
        return {**defaults, **self.options}

    @cached_property
    def recipe(self) -> str:
        """Everything that `build` needs, as canonical JSON; the calibrator's row holds it.

        It includes names of features, because their order matters, and names of segments that the calibrator uses.
        """
        made = {"calibrator": self.calibrator, "options": self._options, "seed": self.seed}
        if isinstance(self.features, tuple):
            made["features"] = self.features
        if self.segments and calibrators.grouped(self.calibrator, self._options):
            made |= {"segments": self.segments, "pairs": self.pairs}
        if self.version:
            made["model_version"] = self.version
        return json.dumps(made, sort_keys=True, separators=(",", ":"))

    @cached_property
    def row_bytes(self) -> int:
        """Most bytes of the calibrator's row: frame, recipe and largest state."""
        slots = LIMIT * (len(self.segments) + len(self.pairs))
        return ROW_OVERHEAD + len(self.recipe.encode()) + build(self.recipe, "").largest(slots)

    def fitting(self, most: int) -> dict[str, int]:
        """Return sizes of which any one would make the row fit into ``most`` bytes."""
        found = {}
        for name in SIZES:
            size = self._options.get(name, 0)
            size = size if isinstance(size, int) else 0
            while size > 1:
                size = size * 9 // 10
                try:
                    fits = replace(self, options={**self.options, name: size}, shadow=()).row_bytes <= most
                except ValueError:
                    break
                if fits:
                    found[name] = size
                    break
        return found

    @cached_property
    def config(self) -> str:
        """Hash of the recipe, 8 hex digits. Another hash is another calibrator, which has learnt nothing."""
        return blake2b(self.recipe.encode(), digest_size=4).hexdigest()


def layout_of(names: Sequence[str], pairs: Sequence[Sequence[str]], kind: int, shape: Sequence[float]) -> bytes:
    """Return the `Policy.layout` of names and pairs, a kind of forecast and its `Policy.shape`."""
    named: list[object] = [names, pairs]
    if kind != PROBABILITY:
        named += [KINDS[kind], shape]
    return blake2b(json.dumps(named).encode(), digest_size=4).digest()


@lru_cache(maxsize=4096)
def scored_of(layout: bytes, kind: int, config: str) -> bytes:
    """Return the hash that keys the scores of a layout's segments, 4 bytes; for one probability the layout itself.

    For classes and numbers it includes the configuration, because their windows are counted by configuration.
    """
    return layout if kind == PROBABILITY else blake2b(layout + config.encode(), digest_size=4).digest()


def check_on_error(said: str) -> None:
    """Raise ValueError unless it is one of `ON_ERROR`."""
    if said not in ON_ERROR:
        raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}, got {said!r}")


def build(recipe: str, stream: str, coin: bytes = b"") -> calibrators.Recalibrator:
    """Make a new calibrator from a recipe, for one stream.

    Parameters
    ----------
    recipe
        `Policy.recipe`.
    stream
        Its name, which keys the draws.
    coin
        Secret that also keys the draws, at most 64 bytes. Without it, anybody who knows an event's id can compute its
        draw.
    """
    name = f"{stream}\0{blake2b(stream.encode(), key=coin).hexdigest()}" if coin else stream
    return _maker(recipe)(name)


@lru_cache(maxsize=256)
def _maker(recipe: str) -> Callable[[str], calibrators.Recalibrator]:
    """Return what makes calibrators of a recipe, by what keys their draws."""
    made = json.loads(recipe)
    make = calibrators.maker(made["calibrator"], seed=made["seed"], **made["options"])
    return (lambda name: Carried(cast("Any", make(name)))) if "model_version" in made else make


class Policies:
    """The policy of every stream, by the first pattern that matches its name.

    Parameters
    ----------
    patterns
        Pairs of a shell pattern (``fraud-*``) and its policy, tried in order.
    default
        Policy of a stream that no pattern matches; None: its records are rejected.
    early_ttl_ms
        How long an outcome waits for a forecast that has not come, in stream time, ms.
    coin
        Secret that keys every draw, see `build`; empty: none.
    quota
        Limit of all streams that no pattern matches, together with records of unknown streams.
    on_error
        As `Policy.on_error`, for forecasts of unknown streams.
    """

    def __init__(
        self,
        patterns: Sequence[tuple[str, Policy]] = (),
        default: Policy | None = None,
        early_ttl_ms: int = DEFAULT_TTL_MS,
        coin: bytes = b"",
        quota: Quota | None = None,
        on_error: str = NOTHING,
    ) -> None:
        check_on_error(on_error)
        self.patterns = tuple(patterns)
        self.default = default
        self.early_ttl_ms = early_ttl_ms
        self.coin = coin
        self.quota = quota
        self.on_error = on_error
        said = [policy.on_error for policy in (default, *(policy for _, policy in self.patterns)) if policy]
        #: Whether any stream's dead forecasts are answered with raw scores.
        self.answering = RAW in (on_error, *said)
        #: Whether there is any quota.
        self.limited = quota is not None or any(policy.quota is not None for _, policy in self.patterns)
        self._found: dict[str, Policy | None] = {}
        #: Whether every stream forecasts one probability, so that outcomes must be 0 or 1.
        self.binary = all(
            policy.kind == PROBABILITY for policy in (default, *(policy for _, policy in self.patterns)) if policy
        )

    def of(self, stream: str) -> Policy | None:
        """Return the policy of a stream; None if no pattern matches and there is no default."""
        try:
            return self._found[stream]
        except KeyError:
            matched = self.matched(stream)
            policy = self.default if matched is None else matched[1]
            if len(self._found) >= 100_000:  # names come from records, so the cache must be bounded
                self._found.clear()
            self._found[stream] = policy
            return policy

    @property
    def coin_name(self) -> str:
        """Name of the coin that does not reveal it, 8 hex digits; empty without one."""
        return blake2b(b"coin", key=self.coin, digest_size=4).hexdigest() if self.coin else ""

    def matched(self, stream: str) -> tuple[str, Policy] | None:
        """Return the first pattern that matches a stream, with its policy; None if the default applies."""
        return next(((pattern, policy) for pattern, policy in self.patterns if fnmatchcase(stream, pattern)), None)

    def quota_of(self, stream: str) -> tuple[str, Quota] | None:
        """Return the owner of a stream's quota, and the quota; None without one.

        Each stream that matches a pattern has its own, under its name. All others share one under an empty name. An
        empty stream is an unknown one.
        """
        matched = self.matched(stream) if stream else None
        name, quota = ("", self.quota) if matched is None else (stream, matched[1].quota)
        return None if quota is None else (name, quota)

    def answers_raw(self, stream: str) -> bool:
        """Whether a stream's dead forecasts are answered with raw scores; an empty stream could not be read."""
        policy = self.of(stream) if stream else None
        return (self.on_error if policy is None else policy.on_error) == RAW

    def changed(self, patterns: Sequence[tuple[str, Policy]], default: Policy | None) -> "Policies":
        """Return a copy with other patterns and default."""
        return Policies(patterns, default, self.early_ttl_ms, self.coin, self.quota, self.on_error)
