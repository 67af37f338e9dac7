"""Rows that hold a calibrator or a stream's scores."""

from dataclasses import dataclass
from struct import Struct

from state import keys
from state.calibrators import Calibrator
from state.frames import seal, unseal
from state.history import History
from state.policy import build
from state.scores import Scores

CALIBRATOR_VERSION = 1
SCORES_VERSION = 1
WINDOWS_VERSION = 1

_HEAD = Struct("<HQ")


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
    calibrator: Calibrator
    late: int = 0

    @classmethod
    def fresh(cls, recipe: str, stream: str) -> "Served":
        """Make a calibrator that has learnt nothing."""
        return cls(recipe, build(recipe, stream))

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


def decode_calibrator(frame: bytes, stream: str) -> Served:
    """Read a calibrator's row.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact calibrator row of this version.
    """
    payload = unseal(keys.CALIBRATOR[0], CALIBRATOR_VERSION, frame)
    n, late = _HEAD.unpack_from(payload)
    end = _HEAD.size + n
    recipe = payload[_HEAD.size : end].decode()
    served = Served(recipe, build(recipe, stream), late)
    served.calibrator.decode(payload[end:])
    return served


def encode_scores(history: History) -> bytes:
    """Return the row of a stream's scores that every event changes."""
    return seal(keys.SCORES[0], SCORES_VERSION, history.encode())


def encode_windows(history: History) -> bytes:
    """Return the row of a stream's closed windows, which changes when one closes."""
    return seal(keys.WINDOWS[0], WINDOWS_VERSION, history.encode_closed())


def decode_present(scores: bytes) -> Scores:
    """Return the scores of the present window alone; raises `CorruptFrame` if the row is not intact."""
    return History.decode_present(unseal(keys.SCORES[0], SCORES_VERSION, scores))


def decode_history(scores: bytes, windows: bytes | None) -> History:
    """Read both rows of a stream's scores; ``windows`` is None while no window was closed.

    Raises
    ------
    CorruptFrame
        If a frame is not an intact row of its kind and version.
    ValueError
        If the rows do not belong together.
    """
    closed = None if windows is None else unseal(keys.WINDOWS[0], WINDOWS_VERSION, windows)
    return History.decode(unseal(keys.SCORES[0], SCORES_VERSION, scores), closed)
