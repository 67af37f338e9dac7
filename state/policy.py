"""Policies: what a stream is configured to do."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from state import calibrators, forecasts
from state.bands import Bands, Points
from state.calibrators.carried import CarriedOver
from state.calibrators.multiclass import CLASSES
from state.calibrators.quantile import LEVELS
from state.forecasts import KINDS, MAX_LEVELS, PROBABILITY, PROBS, Probs, Quantiles
from state.policy_checks import ALIKE, ARRIVAL, UNKNOWN, check_bands, check_labels, check_shadow, check_silence
from state.scoring.ages import exact
from state.segments import LIMIT, check

#: It keeps the order of raw forecasts, serves them until outcomes support other scores, and has a guarantee.
#: docs/explanation/calibrators.md has measurements, also of cases in which it fails.
DEFAULT_CALIBRATOR = "prudent+certified"
#: Thirty days. Operators choose longer where chargebacks or delinquencies are reported later.
DEFAULT_TTL_MS = 30 * 24 * 3600 * 1000

#: Options that enlarge a calibrator's state.
SIZES = ("buckets", "grid", "bins", "classes")
#: Bytes of a calibrator's row in addition to recipe and state.
ROW_OVERHEAD = 16

#: Answers to a forecast that becomes a dead letter: none, or the raw score.
NOTHING, RAW = ON_ERROR = ("none", "raw")

#: The most parts of a stream.
MOST_SHARDS = 1000


class Challenger(NamedTuple):
    """A configured challenger: a calibrator that is scored beside the one that serves."""

    calibrator: str
    options: Mapping[str, calibrators.Value]


@dataclass(frozen=True)
class Policy:
    """Configuration of the streams that match one pattern. If the recipe changes, a new calibrator begins."""

    #: Name of a calibrator, or ``front+back``.
    calibrator: str = DEFAULT_CALIBRATOR
    #: Options of the calibrator, by name.
    options: Mapping[str, calibrators.Value] = field(default_factory=dict)
    #: Names of the features in a record's ``x``, in the calibrator's order; or their count, if ``x`` is a list. 0:
    #: ``x`` is not used.
    features: int | tuple[str, ...] = 0
    #: How long a forecast waits for its outcome, in stream time, ms; longer than ``matures_ms``.
    ttl_ms: int = DEFAULT_TTL_MS
    #: Seed of the keyed draws.
    seed: int = 0
    #: Calibrators that are scored on the same events and never served. Not part of the recipe.
    shadow: tuple[Challenger, ...] = ()
    #: Age at which a forecast's label is taken as known, in stream time, ms; 0: never, outcomes are learnt
    #: as they come.
    matures_ms: int = 0
    #: Label of a forecast that has no outcome when it matures; None: the forecast goes on waiting.
    silence: float | None = None
    #: ``maturity``: outcomes that come earlier are kept, and learnt when their forecast matures. ``arrival``: they are
    #: learnt when they come. Empty: at maturity, if forecasts mature.
    learn: str = ""
    #: How long a label may be revised, in stream time since its forecast, ms; at least ``ttl_ms``; 0: ``ttl_ms``.
    revisable_ms: int = 0
    #: Names of the segments whose values records give. In the recipe only if the calibrator uses them.
    segments: tuple[str, ...] = ()
    #: Pairs of these names; combinations of their values are also segments.
    pairs: tuple[tuple[str, str], ...] = ()
    #: Whether a forecast without a usable value of each name is a dead letter.
    segments_required: bool = False
    #: Number of parts into which intake divides the stream, by event id; each has a calibrator of its own.
    shards: int = 1
    #: Answer to a forecast that becomes a dead letter: ``none`` or ``raw``, its raw score. Not in the recipe.
    on_error: str = NOTHING
    #: Whether forecasts without a label are like those with one: ``unknown`` or ``alike``. If ``unknown``, and while
    #: most forecasts get no label, the stream is answered as if nothing had been learnt (`state.coverage`). Not in the
    #: recipe.
    unlabelled: str = UNKNOWN
    #: Path of the record's field with the entity, such as ``customer.account``; empty: the field ``entity``. Forecasts
    #: of one entity share outcomes, so only some teach (`state.entities`). Not in the recipe.
    entity: str = ""
    #: A forecast's chance of a label, in (0, 1], or the path of the record's field with it, such as
    #: ``decision.chance``; empty: not known. See `state.chances`. Not in the recipe.
    label_rate: float | str = ""
    #: Path of the record's field with the weight, such as ``amount``: figures are also shown by weight
    #: (`state.scoring.weighted`). Empty: none. Not in the recipe.
    weight: str = ""
    #: Whether the champion learns nothing; its challengers do. Not in the recipe.
    frozen: bool = False
    #: Stream time from which the alarms count, ms; 0: from the first event. Not in the recipe.
    alarms_since_ms: int = 0
    #: Bands of the calibrated probability; None: none. Not in the recipe, like the next five.
    bands: Bands | None = None
    #: The scorecard that gives points beside the probability; None: none.
    points: Points | None = None
    #: How sure intervals are: the share of them that hold the true risk, in [.5, .999]; 0: there are no intervals.
    interval: float = 0.0
    #: Whether intervals come with the reason in words.
    reasons: bool = False
    #: Cost of a missed one (an outcome of 1), and of looking at a forecast, in the same unit; both 0 if unknown.
    cost_miss: float = 0.0
    cost_alert: float = 0.0
    #: Path of the record's field with the version of the model; each version has a calibrator of its own
    #: (`state.versions`). Empty: one calibrator has all forecasts. Not in the recipe.
    model_version: str = ""
    #: Whether a new version of the model begins with the map of the one before, or with raw scores. Not in the recipe.
    carry_over: bool = True
    #: The model's version that this policy is for, see `of_version`; empty: all. In the recipe.
    version: str = ""

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise ValueError(f"ttl must be positive, got {exact(self.ttl_ms)}")
        if not 1 <= self.shards <= MOST_SHARDS:
            raise ValueError(f"shards must be between 1 and {MOST_SHARDS}, got {self.shards}")
        check_on_error(self.on_error)
        check_labels(self)
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1, got {self.seed}")
        if not 0 <= self.n_features <= calibrators.MAX_FEATURES:
            raise ValueError(f"features must be between 0 and {calibrators.MAX_FEATURES}, got {self.n_features}")
        check(self.segments, self.pairs)
        calibrators.check(self.calibrator, self._options)
        if self.segments_required and not self.segments:
            raise ValueError("segments_required needs segments")
        if self.silence is not None:
            check_silence(self)
        if self.shadow:
            check_shadow(self)
        check_bands(self)
        if self.model_version and self.kind != PROBABILITY:
            raise ValueError(f"model_version: only of one probability, and {self.calibrator} serves {KINDS[self.kind]}")

    @property
    def costs(self) -> tuple[float, float] | None:
        """Cost of a missed one (an outcome of 1), and of looking at a forecast; None if unknown."""
        return (self.cost_miss, self.cost_alert) if self.cost_miss else None

    def of_version(self, version: str) -> "Policy":
        """Return the policy of one version of the model, which has a calibrator of its own.

        It is this policy if all versions share one calibrator, or if no version is named.
        """
        return replace(self, version=version) if self.model_version and version else self

    @property
    def labels(self) -> tuple[object, ...]:
        """All settings that decide which label a forecast gets and when, and how long its row is kept."""
        return self.ttl_ms, self.matures_ms, self.silence, self.waits, self.kept_ms, self.guarded, self.label_rate

    @property
    def guarded(self) -> bool:
        """Whether raw forecasts are served while most forecasts get no label."""
        return self.silence is None and self.unlabelled != ALIKE and not self.label_rate

    @property
    def marked(self) -> bool:
        """Whether forecasts have a band, points or an interval."""
        return self.bands is not None or self.points is not None or self.interval > 0.0

    @property
    def weighed(self) -> bool:
        """Whether events also count by weight: their own, or the number of forecasts that their label stands for."""
        return bool(self.weight or self.label_rate)

    @property
    def waits(self) -> bool:
        """Whether outcomes are learnt when their forecast matures."""
        return self.matures_ms > 0 and self.learn != ARRIVAL

    @property
    def kept_ms(self) -> int:
        """How long the row of an event with a label is kept, in stream time since its forecast, ms."""
        return self.revisable_ms or self.ttl_ms

    @property
    def ticket_bytes(self) -> int:
        """Return the most bytes that it takes in a ledger row as a challenger of classes or numbers, or a few more."""
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
        """What must be equal so that scores can be added: number of classes, or levels; empty for one probability."""
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
        """The most bytes of the calibrator's row: frame, recipe and largest state."""
        slots = LIMIT * (len(self.segments) + len(self.pairs))
        return ROW_OVERHEAD + len(self.recipe.encode()) + build(self.recipe, "").largest(slots)

    def fitting(self, most: int) -> dict[str, int]:
        """Return smaller values for options that set sizes. Any one of them makes the row fit into ``most`` bytes."""
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

    ``recipe``: `Policy.recipe`.
    ``stream``: its name, which keys the draws.
    ``coin``: secret that also keys the draws, at most 64 bytes. Without it, whoever knows an event's id can
    compute its draw.
    """
    name = f"{stream}\0{blake2b(stream.encode(), key=coin).hexdigest()}" if coin else stream
    return _maker(recipe)(name)


@lru_cache(maxsize=256)
def _maker(recipe: str) -> Callable[[str], calibrators.Recalibrator]:
    """Return a function that makes a recipe's calibrators; its argument keys their draws."""
    made = json.loads(recipe)
    make = calibrators.maker(made["calibrator"], seed=made["seed"], **made["options"])
    return (lambda name: CarriedOver(cast("Any", make(name)))) if "model_version" in made else make
