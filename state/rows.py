"""Rows that hold a calibrator or a stream's scores."""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeVar

from state import keys
from state.calibrators import Recalibrator
from state.coverage import Coverage
from state.frames import DAMAGE, damaged, seal, unseal
from state.policy import build
from state.scoring.ages import Ages
from state.scoring.comparison import Comparison
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.pair_scores import AnyComparison, AnySegmentScores, PairScores, SegmentPairScores
from state.scoring.segment_scores import SegmentScores
from state.scoring.vector_history import VectorHistory
from state.scoring.warm_up import LONGEST, differs
from state.segments import Dictionary

#: Raised when the bytes of any calibrator change, too.
CALIBRATOR_VERSION: Final = 7
SCORES_VERSION: Final = 4
WINDOWS_VERSION: Final = 4
VECTORS_VERSION: Final = 5
COMPARISONS_VERSION: Final = 3
#: The same of classes and numbers, which have other sums.
PAIRS_VERSION: Final = 4
AGES_VERSION: Final = 2
COVERAGE_VERSION: Final = 1
DISTRIBUTION_VERSION: Final = 1
NAMES_VERSION: Final = 1
SEGMENT_VERSION: Final = 5
SEGMENT_PAIRS_VERSION: Final = 6

_Found = TypeVar("_Found")

_HEAD: Final = Struct("<HQQ")


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
    warmed_ms
        Event time of the forecast that ended the warm-up, ms, at least 1; 0 before.
    """

    recipe: str
    calibrator: Recalibrator
    late: int = 0
    warmed_ms: int = 0

    @classmethod
    def fresh(cls, recipe: str, stream: str, coin: bytes = b"") -> "Served":
        """Make a calibrator that has learnt nothing; for the coin see `state.policy.build`."""
        return cls(recipe, build(recipe, stream, coin))

    def warms(self, raw: Any, p: Any, ts: int, covered: bool = True) -> bool:  # noqa: ANN401, FBT001, FBT002 - of the calibrator's kind
        """Whether the forecast that is answered now belongs to the warm-up; the first one that does not ends it.

        The warm-up ends with the first forecast that is served other than raw after an outcome was learnt. It ends
        after `LONGEST` outcomes, too: whoever serves raw scores then has no evidence against them. A calibrator that
        never serves another score has none.

        Parameters
        ----------
        raw, p
            The forecast and the answer.
        ts
            Event time, ms.
        covered
            Whether most forecasts get a label, see `state.coverage.Coverage`; before, what was learnt is not served,
            and no warm-up ends.
        """
        if self.warmed_ms:
            return False
        calibrator = self.calibrator
        if not calibrator.serves_raw:
            learnt = calibrator.learnt
            if not covered or (learnt < LONGEST and not (learnt and differs(raw, p))):
                return True
        self.warmed_ms = max(ts, 1)
        return False

    @property
    def outstanding(self) -> int:
        """Mean number of outcomes outstanding when one arrived, rounded up."""
        learnt = self.calibrator.learnt
        return -(-self.late // learnt) if learnt else 0


def encode_calibrator(served: Served) -> bytes:
    """Return a calibrator's row: length of the recipe (u16), ``late`` and ``warmed_ms`` (u64), recipe, calibrator."""
    recipe = served.recipe.encode()
    payload = _HEAD.pack(len(recipe), served.late, served.warmed_ms) + recipe + served.calibrator.encode()
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
        n, late, warmed_ms = _HEAD.unpack_from(payload)
        end = _HEAD.size + n
        recipe = payload[_HEAD.size : end].decode()
        served = Served(recipe, build(recipe, stream, coin), late, warmed_ms)
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


def _decoded(kind: int, version: int, frame: bytes, decode: Callable[[bytes], _Found]) -> _Found:
    """Read the row of a kind by what decodes its payload; raises `CorruptFrame` if it is not intact."""
    payload = unseal(kind, version, frame)
    try:
        return decode(payload)
    except DAMAGE as exc:
        raise damaged(kind, exc) from exc


def encode_vectors(history: VectorHistory) -> bytes:
    """Return the row of the scores of a stream of classes or numbers."""
    return seal(keys.VECTORS[0], VECTORS_VERSION, history.encode())


def decode_vectors(frame: bytes) -> VectorHistory:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.VECTORS[0], VECTORS_VERSION, frame, VectorHistory.decode)


def encode_ages(ages: Ages) -> bytes:
    """Return the row of the ages of a stream's outcomes."""
    return seal(keys.AGES[0], AGES_VERSION, ages.encode())


def decode_ages(frame: bytes) -> Ages:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.AGES[0], AGES_VERSION, frame, Ages.decode)


def encode_coverage(coverage: Coverage) -> bytes:
    """Return the row of which of a stream's forecasts have a label."""
    return seal(keys.COVERAGE[0], COVERAGE_VERSION, coverage.encode())


def decode_coverage(frame: bytes) -> Coverage:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.COVERAGE[0], COVERAGE_VERSION, frame, Coverage.decode)


def encode_distribution(distribution: Distribution) -> bytes:
    """Return the row of the distribution of a stream's raw forecasts."""
    return seal(keys.DISTRIBUTION[0], DISTRIBUTION_VERSION, distribution.encode())


def decode_distribution(frame: bytes) -> Distribution:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.DISTRIBUTION[0], DISTRIBUTION_VERSION, frame, Distribution.decode)


def encode_names(dictionary: Dictionary) -> bytes:
    """Return the row of the slots of a stream's segments."""
    return seal(keys.NAMES[0], NAMES_VERSION, dictionary.encode())


def decode_names(frame: bytes) -> Dictionary:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    return _decoded(keys.NAMES[0], NAMES_VERSION, frame, Dictionary.decode)


def encode_segment(scores: AnySegmentScores) -> bytes:
    """Return the row of the scores of one segment; the version says whether of one probability."""
    version = SEGMENT_VERSION if isinstance(scores, SegmentScores) else SEGMENT_PAIRS_VERSION
    return seal(keys.SEGMENT[0], version, scores.encode())


def decode_segment(frame: bytes) -> AnySegmentScores:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    if frame[1:2] == bytes((SEGMENT_PAIRS_VERSION,)):
        return _decoded(keys.SEGMENT[0], SEGMENT_PAIRS_VERSION, frame, SegmentPairScores.decode)
    return _decoded(keys.SEGMENT[0], SEGMENT_VERSION, frame, SegmentScores.decode)


def encode_comparison(comparison: AnyComparison) -> bytes:
    """Return the row of a challenger beside a champion; the version says whether of one probability."""
    version = COMPARISONS_VERSION if isinstance(comparison, Comparison) else PAIRS_VERSION
    return seal(keys.COMPARISON[0], version, comparison.encode())


def decode_comparison(frame: bytes) -> AnyComparison:
    """Read such a row; raises `CorruptFrame` if it is not intact."""
    if frame[1:2] == bytes((PAIRS_VERSION,)):
        return _decoded(keys.COMPARISON[0], PAIRS_VERSION, frame, PairScores.decode)
    return _decoded(keys.COMPARISON[0], COMPARISONS_VERSION, frame, Comparison.decode)
