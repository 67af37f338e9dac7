"""A calibrator that serves one stream."""

from dataclasses import dataclass
from struct import Struct
from sys import intern
from typing import Any, Final

from state.calibrators import Recalibrator
from state.policy import build
from state.scoring.warm_up import LONGEST, differs

_HEAD: Final = Struct("<HQQ")


@dataclass(slots=True)
class Served:
    """A calibrator that serves one stream."""

    #: The recipe of the calibrator (`state.policy.Policy.recipe`), so that the row needs no configuration.
    recipe: str
    #: The calibrator.
    calibrator: Recalibrator
    #: Total over its outcomes: how many others it learnt between the forecast and the outcome. Divided by ``learnt`` it
    #: is the mean number outstanding, which the bounds under delay need.
    late: int = 0
    #: Event time of the forecast that ended the warm-up, ms, at least 1; 0 before.
    warmed_ms: int = 0

    @classmethod
    def fresh(cls, recipe: str, stream: str, coin: bytes = b"") -> "Served":
        """Make a calibrator that has learnt nothing; for ``coin`` see `state.policy.build`."""
        return cls(recipe, build(recipe, stream, coin))

    def warms(self, raw: Any, p: Any, ts: int, covered: bool = True) -> bool:  # noqa: ANN401, FBT001, FBT002 - of the calibrator's kind
        """Return whether this forecast belongs to the warm-up; the first that does not ends the warm-up.

        Once an outcome was learnt, the warm-up ends with the first forecast whose served score is not the raw one. It
        also ends after `LONGEST` outcomes: raw scores are then served because there is no evidence against them. A
        calibrator that always serves raw scores has no warm-up.

        ``ts``: event time, ms.
        ``covered``: whether most forecasts get a label, see `state.coverage`. While it is False, no warm-up ends.
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

    def encode(self) -> bytes:
        """Return its payload: length of the recipe (u16), ``late`` and ``warmed_ms`` (u64), recipe, calibrator."""
        recipe = self.recipe.encode()
        return _HEAD.pack(len(recipe), self.late, self.warmed_ms) + recipe + self.calibrator.encode()

    @classmethod
    def decode(cls, payload: bytes, stream: str, coin: bytes = b"") -> "Served":
        """Read a payload. A calibrator without draws needs no coin, see `state.policy.build`."""
        n, late, warmed_ms = _HEAD.unpack_from(payload)
        end = _HEAD.size + n
        recipe = intern(payload[_HEAD.size : end].decode())  # thousands of streams have the same recipe
        served = cls(recipe, build(recipe, stream, coin), late, warmed_ms)
        served.calibrator.decode(payload[end:])
        return served

    @property
    def outstanding(self) -> int:
        """Mean number of outcomes outstanding when an outcome came, rounded up."""
        learnt = self.calibrator.learnt
        return -(-self.late // learnt) if learnt else 0
