"""Rows that hold a calibrator or a stream's scores."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeVar, cast

from state import keys
from state.calibrators import Recalibrator
from state.forecasts import PROBS, QUANTILES, Classwise, Law, Quantiles
from state.frames import DAMAGE, damaged, seal, unseal
from state.policy import build
from state.scoring.ages import Ages
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import Comparison
from state.scoring.history import History
from state.scoring.quantile_scores import QuantileScores
from state.scoring.segment_scores import SegmentScores
from state.segments import Dictionary

CALIBRATOR_VERSION: Final = 1
SCORES_VERSION: Final = 3
WINDOWS_VERSION: Final = 3
VECTORS_VERSION: Final = 3
COMPARISONS_VERSION: Final = 3
AGES_VERSION: Final = 1
NAMES_VERSION: Final = 1
SEGMENT_VERSION: Final = 1

#: Scores of forecasts that are more than one probability.
VectorScores = ClassScores | QuantileScores

_Found = TypeVar("_Found")

_HEAD: Final = Struct("<HQ")


@dataclass(slots=True)
class Served:
    """A calibrator as it serves one stream.

    Attributes
    ----------
    recipe
        What it was made from (`state.policy.Policy.recipe`), so that the row explains itself.
    calibrator
        The calibrator.
    late
        Sum over its outcomes of how many others it learnt between forecast and outcome. Divided by ``learnt`` it is
        the mean number outstanding, which the bounds under delay need.
    """

    recipe: str
    calibrator: Recalibrator[Any, Any]
    late: int = 0

    @classmethod
    def fresh(cls, recipe: str, stream: str, coin: bytes = b"") -> "Served":
        """Make a calibrator that has learnt nothing; for the coin see `state.policy.build`."""
        return cls(recipe, build(recipe, stream, coin))

    @property
    def outstanding(self) -> int:
        """Mean number of outcomes outstanding when one arrived, rounded up."""
        learnt = self.calibrator.learnt
        return -(-self.late // learnt) if learnt else 0


def encode_calibrator(served: Served) -> bytes:
    """Return a calibrator's row: length of the recipe (u16), ``late`` (u64), the recipe, the calibrator's bytes."""
    recipe = served.recipe.encode()
    payload = _HEAD.pack(len(recipe), served.late) + recipe + served.calibrator.encode()
    return seal(keys.CALIBRATOR[0], CALIBRATOR_VERSION, payload)


def decode_calibrator(frame: bytes, stream: str, coin: bytes = b"") -> Served:
    """Read a calibrator's row; who does not draw needs no coin, see `state.policy.build`.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact calibrator row of this version.
    """
    payload = unseal(keys.CALIBRATOR[0], CALIBRATOR_VERSION, frame)
    try:
        n, late = _HEAD.unpack_from(payload)
        end = _HEAD.size + n
        recipe = payload[_HEAD.size : end].decode()
        served = Served(recipe, build(recipe, stream, coin), late)
        served.calibrator.decode(payload[end:])
    except DAMAGE as exc:
        raise damaged(keys.CALIBRATOR[0], exc) from exc
    return served


def encode_scores(history: History) -> bytes:
    """Return the row of a stream's scores that every event changes."""
    return seal(keys.SCORES[0], SCORES_VERSION, history.encode())


def encode_windows(history: History) -> bytes:
    """Return the row of a stream's closed windows, which changes when one closes."""
    return seal(keys.WINDOWS[0], WINDOWS_VERSION, history.encode_closed())


def decode_history(scores: bytes, windows: bytes | None) -> History:
    """Read both rows of a stream's scores; ``windows`` is None while no window was closed.

    Raises
    ------
    CorruptFrame
        If a frame is not an intact row of its kind and version, or the rows do not belong together.
    """
    closed = None if windows is None else unseal(keys.WINDOWS[0], WINDOWS_VERSION, windows)
    present = unseal(keys.SCORES[0], SCORES_VERSION, scores)
    try:
        return History.decode(present, closed)
    except DAMAGE as exc:
        raise damaged((keys.SCORES if windows is None else keys.WINDOWS)[0], exc) from exc


def vector_scores(served: Classwise | Quantiles) -> VectorScores:
    """Return the scores of no events, for forecasts that are answered like this one."""
    return QuantileScores(served.levels) if isinstance(served, Quantiles) else ClassScores(len(served))


def observe(
    scores: VectorScores, raw: Classwise | Law, served: Classwise | Quantiles, y: float, event_id: bytes, sign: int = 1
) -> None:
    """Add an event to the scores of its kind of forecast, or take it out again."""
    if isinstance(scores, ClassScores):
        scores.observe(cast("Classwise", raw), cast("Classwise", served), int(y), sign)
    else:
        scores.observe(cast("Law", raw), cast("Quantiles", served), y, event_id, sign)


def total_vectors(found: Iterable[VectorScores]) -> VectorScores:
    """Return the sum of scores of partitions, at least one; of those that differ in shape, of that with most events.

    They differ while a new configuration serves some partitions and not yet all.
    """
    sums: dict[object, Any] = {}
    for scores in found:
        shape = scores.classes if isinstance(scores, ClassScores) else scores.levels
        sums[shape] = sums[shape] + scores if shape in sums else scores
    most: VectorScores = max(sums.values(), key=lambda scores: int(scores.n))
    return most


def encode_vector_scores(scores: VectorScores) -> bytes:
    """Return the row of such scores: the kind of forecast (u8), the scores."""
    kind = PROBS if isinstance(scores, ClassScores) else QUANTILES
    return seal(keys.VECTORS[0], VECTORS_VERSION, bytes((kind,)) + scores.encode())


def decode_vector_scores(frame: bytes) -> VectorScores:
    """Read a row of such scores; raises `CorruptFrame` if it is not intact."""
    payload = unseal(keys.VECTORS[0], VECTORS_VERSION, frame)
    try:
        return (ClassScores if payload[0] == PROBS else QuantileScores).decode(payload[1:])
    except DAMAGE as exc:
        raise damaged(keys.VECTORS[0], exc) from exc


def _decoded(kind: int, version: int, frame: bytes, decode: Callable[[bytes], _Found]) -> _Found:
    """Read the row of a kind by what decodes its payload; raises `CorruptFrame` if it is not intact."""
    payload = unseal(kind, version, frame)
    try:
        return decode(payload)
    except DAMAGE as exc:
        raise damaged(kind, exc) from exc


def encode_ages(ages: Ages) -> bytes:
    """Return the row of the ages of a stream's outcomes."""
    return seal(keys.AGES[0], AGES_VERSION, ages.encode())


def decode_ages(frame: bytes) -> Ages:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.AGES[0], AGES_VERSION, frame, Ages.decode)


def encode_names(dictionary: Dictionary) -> bytes:
    """Return the row of the slots of a stream's segments."""
    return seal(keys.NAMES[0], NAMES_VERSION, dictionary.encode())


def decode_names(frame: bytes) -> Dictionary:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.NAMES[0], NAMES_VERSION, frame, Dictionary.decode)


def encode_segment(scores: SegmentScores) -> bytes:
    """Return the row of the scores of one segment."""
    return seal(keys.SEGMENT[0], SEGMENT_VERSION, scores.encode())


def decode_segment(frame: bytes) -> SegmentScores:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.SEGMENT[0], SEGMENT_VERSION, frame, SegmentScores.decode)


def encode_comparison(comparison: Comparison) -> bytes:
    """Return the row of a challenger beside a champion."""
    return seal(keys.COMPARISON[0], COMPARISONS_VERSION, comparison.encode())


def decode_comparison(frame: bytes) -> Comparison:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.COMPARISON[0], COMPARISONS_VERSION, frame, Comparison.decode)
