"""Aggregation of adaptive calibrators: as good as the best of them, without knowing which it will be."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from research.calibrators.beta import Beta
from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator, require_head, require_length, require_probability
from state.calibrators.histogram import Histogram
from state.calibrators.identity import Identity
from state.calibrators.options import Option
from state.calibrators.platt import Platt
from state.quick import new

#: Halflife of the `Platt` that follows drift closely.
FAST: Final = 500
#: Halflife of a bin of the `Histogram`, in outcomes of that bin.
BIN: Final = 200
#: K.
EXPERTS: Final = 4

_ANSWERS: Final = Struct(f"<{EXPERTS}f")
_HEAD: Final = Struct(f"<Q{EXPERTS}d")
_LENGTH: Final = Struct("<I")


class Auto(Calibrator):
    """Serve four calibrators' answers aggregated: on any sequence a Brier score within .7 / T of the best one's.

    The experts are `Identity` (the model is right), `Beta` (it is wrong, and changes slowly), `Platt` with a halflife
    of `FAST` (it drifts) and `Histogram` with one of `BIN` (it is bent anyhow). Meant as a front: ``auto+minimax``.

    Notes
    -----
    Vovk's aggregating algorithm for the Brier game, η = 2. With L_k the loss of expert k so far and q_k its answer,

        w_k = exp(-2 L_k),   served = (G(0) - G(1) + 1) / 2,   G(y) = -ln(Σ w_k exp(-2 (q_k - y)²) / Σ w_k) / 2,

    the substitution that loses at most G(y) for either outcome y; multiplied out,

        served = ln(Σ v_k exp(4 q_k) / Σ v_k) / 4,   v_k = w_k exp(-2 q_k²),

    which lies between the least and the greatest answer. As the sum of the G is -ln(Σ exp(-2 L_k) / K) / 2,

        Σ (served - y)² <= min_k L_k + ln(K) / 2,   ln(4) / 2 = .693,

    on every sequence, if every outcome is known before the next forecast.

    Late outcomes are charged for the answers in their ticket; L is a plain sum, whatever the delay. No theorem is
    claimed then: the weights are those of one delay ago, and an expert that was right can have ceased to be. Where the
    outcome decides how late it comes (ones 1,000 events late, zeros 20), the start looks like a stream without ones,
    and Brier over 20,000 events was .007 to .021 above the best expert's. Charging less for a later outcome was tried,
    and is no remedy.

    Experts are counted at 32-bit precision, so that the ticket can keep their answers. Ticket: answers (4 f32),
    then the experts' tickets, 42 bytes in all. Bytes: outcomes learnt (u64), L_k less the least of them (4 f64), then
    of each expert the length of its state (u32) and its state. Little-endian.

    References
    ----------
    Vovk 1990, *Aggregating strategies*; Vovk & Zhdanov 2009, *Prediction with expert advice for the Brier game*,
    Theorem 1, where two classes count twice, so that its η = 1 is 2 here.

    Examples
    --------
    >>> calibrator = Auto()
    >>> for t in range(1000):
    ...     calibrator.update(calibrator.predict(0.9).ticket, t % 5 < 3)
    >>> round(calibrator.predict(0.9).p, 1)
    0.6
    """

    name: ClassVar[str] = "auto"
    options: ClassVar[dict[str, Option]] = {}

    def __init__(self) -> None:
        self.learnt = 0
        # By their own names, not in a list: compiled, a call of a class that is known costs a third.
        self._identity, self._beta = Identity(), Beta()
        self._platt, self._histogram = Platt(halflife=FAST), Histogram(halflife=BIN)
        self._experts: tuple[Calibrator, ...] = (self._identity, self._beta, self._platt, self._histogram)
        self._losses = [0.0] * EXPERTS
        self._weights = [1.0] * EXPERTS
        # Where the ticket of each begins: those of one expert all have one length.
        lengths = [len(expert.predict(0.5).ticket) for expert in self._experts]
        self._of_identity, self._of_beta, self._of_platt, self._of_histogram = [
            _ANSWERS.size + sum(lengths[:i]) for i in range(EXPERTS)
        ]

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the aggregate of the experts' answers; see `Calibrator.predict`."""
        require_probability(p)
        by_identity, _, identity = self._identity.predict(p)
        by_beta, _, beta = self._beta.predict(p)
        by_platt, _, platt = self._platt.predict(p)
        by_histogram, _, histogram = self._histogram.predict(p)
        answers = _ANSWERS.pack(by_identity, by_beta, by_platt, by_histogram)
        weights = self._weights
        total = tilted = 0.0
        for i, q in enumerate(_floats(answers)):
            v = weights[i] * math.exp(-2.0 * q * q)
            total += v
            tilted += v * math.exp(4.0 * q)
        # The mean lies in [0, 1] but for rounding.
        served = min(max(0.25 * math.log(tilted / total), 0.0), 1.0)
        return new(Answer, (served, served, answers + identity + beta + platt + histogram))

    def breaks(self) -> list[float]:
        """Return the forecasts at which ``p`` may jump: those of the histogram."""
        return self._histogram.breaks()

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Charge every expert for its answer and let it learn; y is 0 or 1, because a histogram counts."""
        self._require_label(y)
        losses = self._losses
        self._weigh([losses[i] + (q - y) * (q - y) for i, q in enumerate(_floats(ticket[: _ANSWERS.size]))])
        self._identity.update(ticket[self._of_identity : self._of_beta], y)
        self._beta.update(ticket[self._of_beta : self._of_platt], y)
        self._platt.update(ticket[self._of_platt : self._of_histogram], y)
        self._histogram.update(ticket[self._of_histogram :], y)
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Charge every expert the difference of the two labels, and let it revise; y is 0 or 1."""
        self._require_label(y)
        losses = self._losses
        change = was - y
        answers = _floats(ticket[: _ANSWERS.size])
        self._weigh([losses[i] + change * (2.0 * q - was - y) for i, q in enumerate(answers)])
        self._identity.revise(ticket[self._of_identity : self._of_beta], was, y)
        self._beta.revise(ticket[self._of_beta : self._of_platt], was, y)
        self._platt.revise(ticket[self._of_platt : self._of_histogram], was, y)
        self._histogram.revise(ticket[self._of_histogram :], was, y)

    def _weigh(self, losses: list[float]) -> None:
        """Take over losses, less the least of them: the best expert's weight is 1, and no weight overflows."""
        least = min(losses)
        self._losses = [loss - least for loss in losses]
        self._weights = [math.exp(-2.0 * loss) for loss in self._losses]

    def encode(self) -> bytes:
        states = [expert.encode() for expert in self._experts]
        head = _HEAD.pack(self.learnt, *self._losses)
        return head + b"".join(_LENGTH.pack(len(state)) + state for state in states)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return _HEAD.size + sum(_LENGTH.size + expert.largest() for expert in self._experts)

    def decode(self, payload: bytes) -> None:
        require_head(payload, _HEAD.size + EXPERTS * _LENGTH.size)
        self.learnt, *losses = _HEAD.unpack_from(payload)
        self._weigh(losses)
        end = _HEAD.size
        for expert in self._experts:
            start = end + _LENGTH.size
            require_length(payload[end:start], _LENGTH.size)
            end = start + _LENGTH.unpack_from(payload, start - _LENGTH.size)[0]
            expert.decode(payload[start:end])
        require_length(payload, end)


def _floats(answers: bytes) -> tuple[float, ...]:
    return _ANSWERS.unpack(answers)
