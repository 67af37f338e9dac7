"""The default: an answer that keeps the order of the raw forecasts, and beside it a draw that nobody can fool."""

from collections.abc import Sequence
from typing import ClassVar, Final

from state.calibrators.base import Prediction, new
from state.calibrators.options import Option
from state.calibrators.regret_matching import RegretMatching
from state.calibrators.sizes import largest
from state.calibrators.twospeed import TwoSpeed

#: Outcomes after which a draw is drawn even where there is no evidence for `TwoSpeed`: an opponent may answer with ones
#: alone for as long as he is served .5.
DRAWN: Final = 150
#: Buckets of the draws' forecasts, which `TwoSpeed` has calibrated already. With 1, 4, 16: worst ℓ1 of six opponents of
#: 20,000 .028, .031, .042; bound after the flights, were they prompt, .030, .029, .031; Brier of the draws there .1632,
#: .1631, .1629.
BUCKETS: Final = 4


class Prudent:
    """Serve `TwoSpeed`'s answer as ``p``, and beside it a ``draw`` of `RegretMatching` that has ``p`` as its forecast.

    Parameters
    ----------
    slope, offset, prior_rate, model_rate
        As in `TwoSpeed`.
    name, seed
        Key the draws.

    Notes
    -----
    ``p`` is deterministic, increases strictly with the raw forecast, and is the raw forecast until there is evidence:
    see `TwoSpeed`, of which all is true here. An opponent who sees ``p`` can make it wrong by .5, as any deterministic
    answer. The draw is for those whom that concerns: over the rounds that were drawn, the theorem of `RegretMatching`
    holds on any sequence of outcomes that does not see the draw itself.

    Until there is evidence, or `DRAWN` outcomes are learnt, the draw is ``p`` and is not counted, so no later draw pays
    back what was served then. Error and bound are those of the draws, over the rounds that were drawn.

    Ticket: that of `TwoSpeed`, then that of `RegretMatching` where a draw was drawn; its length tells which there are.
    Bytes: those of `TwoSpeed`, always as many, then those of `RegretMatching`.

    Examples
    --------
    >>> calibrator = Prudent(name="fraud")
    >>> for t in range(2000):
    ...     calibrator.update(calibrator.predict(0.2, key=b"%d" % t).ticket, t % 50 < 1)
    >>> p, draw, _ = calibrator.predict(0.2, key=b"2000")
    >>> round(p, 2), 0.0 <= draw <= 0.05
    (0.02, True)
    """

    name: ClassVar[str] = "prudent"
    order_free: ClassVar[bool] = False
    options: ClassVar[dict[str, Option]] = TwoSpeed.options

    def __init__(
        self,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
        prior_rate: float = 0.0,
        model_rate: float = 0.0,
        name: str = "",
        seed: int = 0,
    ) -> None:
        self._map = TwoSpeed(slope=slope, offset=offset, prior_rate=prior_rate, model_rate=model_rate)
        #: What draws, and counts what was drawn.
        self.back = RegretMatching(buckets=BUCKETS, name=name, seed=seed)
        self._size = len(self._map.encode())

    @property
    def learnt(self) -> int:
        """Outcomes learnt so far."""
        return self._map.learnt

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"") -> Prediction:
        """Serve the map's answer, and a draw from the points around it; see `Calibrator.predict`."""
        p, _, ticket = self._map.predict(p)
        if self._map.learnt < DRAWN and not self._map.evident():
            return new(Prediction, (p, p, ticket))
        _, draw, drawn = self.back.predict(p, x, key)
        return new(Prediction, (p, draw, ticket + drawn))

    def update(self, ticket: bytes, y: float) -> None:
        """Let the map learn, and count the draw if there was one; y is 0 or 1."""
        ticket, drawn = _parts(ticket)
        self._map.update(ticket, y)
        if drawn:
            self.back.update(drawn, y)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Let the map revise, and correct the count of the draw exactly; y is 0 or 1."""
        ticket, drawn = _parts(ticket)
        self._map.revise(ticket, was, y)
        if drawn:
            self.back.revise(drawn, was, y)

    def encode(self) -> bytes:
        """Return both states; layout in the class's notes."""
        return self._map.encode() + self.back.encode()

    def largest(self) -> int:
        """Return the most bytes that `encode` ever returns."""
        return self._size + largest(self.back)

    def decode(self, payload: bytes) -> None:
        """Take over both states; ValueError if either does not fit."""
        self._map.decode(payload[: self._size])
        self.back.decode(payload[self._size :])

    def error(self) -> float | None:
        """Return the measured ℓ1 error of the draws."""
        return self.back.error()

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on the draws' error; all delays may be of outcomes that were drawn."""
        drawn = self.back.learnt
        return self.back.bound(-(-outstanding * self.learnt // drawn)) if drawn else None


def _parts(ticket: bytes) -> tuple[bytes, bytes]:
    """Return the map's ticket, 16 or 24 bytes, and the draw's, which has 4 or none."""
    end = len(ticket) & ~7
    return ticket[:end], ticket[end:]
