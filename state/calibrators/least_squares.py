"""Online ridge least squares: the sums, and the weights that solve them."""

import math
from struct import Struct

import numpy as np

from state.arrays import Floats
from state.calibrators.base import require_length

_HEAD = Struct("<QId")

#: Rounds after which the inverse is computed anew. With 19 coordinates, two of them equal within 1e-3, so many rank-one
#: steps leave A times its inverse within 1e-9 of the identity; a million leave it within 1e-8.
REBUILD = 100_000


class LeastSquares:
    """The θ that minimises Σ (θ·f - y)² + ‖θ - θ₀‖² over the rounds so far, and the sums that give it.

    ``size``: n, the number of coordinates of f. The first is the constant 1.
    ``prior``: the coordinate whose weight starts at 1 and is shrunk to 1 (θ₀); None: all weights are shrunk to 0.

    Notes
    -----
    Each round adds one outer product to each of two symmetric matrices, the *pair*: the sums M = I + Σ zz', whose
    blocks are A = I + Σ ff', -b = -Σ yf - θ₀ and 1 + Σ y² + ‖θ₀‖²; and M swept on A (Goodnight 1979),

        N = [[ c - b'A^-1 b,  θ' ],  with θ = A^-1 b and c = Σ y² + ‖θ₀‖²,
             [ θ,         -A^-1  ]]

    which changes by gg', g = (θ·f - y, -A^-1 f) / sqrt(1 + q) (Sherman & Morrison 1950). M is swept anew (A >= I, so
    every pivot is at least 1) after every `REBUILD` rounds, and when rounding has made q negative.

    Sums are added up in the order of the coordinates, and not by BLAS, whose order depends on the processor: a worker
    on another one, a replay and an audit must give the same bytes.

    With ŷ = clip(θ·f) at each round, y in [0, 1], and for all θ (Azoury & Warmuth 2001, Theorem 4.6, with the constant
    one gets from (ŷ - y)² <= (θ·f - y)²/(1 + q) + q/(1 + q) and Σ (θ·f - y)²/(1 + q) = loss)

        Σ (ŷ - y)² <= Σ (θ·f - y)² + ‖θ - θ₀‖² + ln det A,

    and for features in [-1, 1], ln det A <= n ln(1 + T). With larger features the first line is true but empty: ln det
    A may outgrow T, and so may the regret.

    Bytes, little-endian: rounds (u64), n (u32), ln det A (f64), then the lower triangles of M and N, row by row (f64).

    Examples
    --------
    >>> sums = LeastSquares(2)
    >>> for t in range(1000):
    ...     sums.z[2] = t % 2
    ...     sums.learn(0.2 + 0.6 * (t % 2))
    >>> [round(weight, 2) for weight in sums.theta[1:]]
    [0.2, 0.6]
    """

    __slots__ = ("_both", "_column", "_g", "_outer", "_pair", "_row", "_swept", "learnt", "log_det", "theta", "z")

    def __init__(self, size: int, prior: int | None = None) -> None:
        #: Rounds.
        self.learnt = 0
        #: ln det A = Σ ln(1 + q), q = f'A^-1 f, with A as it was before the round.
        self.log_det = 0.0
        pair = np.stack([np.eye(size + 1), -np.eye(size + 1)])
        pair[1, 0, 0] = 0.0
        if prior is not None:
            at = prior + 1
            pair[0, 0, 0] = 2.0
            pair[0, 0, at] = pair[0, at, 0] = -1.0
            pair[1, 0, at] = pair[1, at, 0] = 1.0
        self._hold(pair)

    def _hold(self, pair: Floats) -> None:
        """Use these as M and N."""
        self._pair = pair
        self._swept: Floats = pair[1]
        self._both = np.zeros((2, pair.shape[1]))
        self._column, self._row = self._both[:, :, None], self._both[:, None, :]
        self._outer = np.empty_like(pair)
        #: Input of a round: (-y, f), shape (n + 1,); write f to ``z[2:]``, then call `learn`. ``z[1]`` is the constant.
        self.z: Floats = self._both[0]
        self._g: Floats = self._both[1]
        self.z[1] = 1.0
        #: (loss, θ_1..θ_n), so that ``theta[i]`` is the weight of ``z[i]``. The loss is the minimum above.
        self.theta: list[float] = self._swept[0].tolist()

    @property
    def a(self) -> Floats:
        """A, shape (n, n)."""
        return self._pair[0, 1:, 1:]

    @property
    def b(self) -> Floats:
        """Σ y f + θ₀, shape (n,)."""
        return -self._pair[0, 0, 1:]

    def loss_of(self, prior: int) -> float:
        """Return Σ (f_i - y)², the loss of weight 1 on coordinate i = ``prior``, with which the sums were made."""
        sums, i = self._pair[0], prior + 1
        return float(sums[i, i] + 2.0 * sums[0, i] + sums[0, 0]) - 1.0

    @property
    def inverse(self) -> Floats:
        """The working inverse of A, shape (n, n)."""
        return -self._swept[1:, 1:]

    def learn(self, y: float) -> None:
        """Add the round whose features are in ``z``."""
        z, g = self.z, self._g
        z[0] = 0.0
        q = self._moved()
        if not q >= 0.0 or self.learnt % REBUILD == REBUILD - 1:
            self._rebuild()
            q = self._moved()
        self.log_det += math.log1p(q)
        z[0] = -y
        g[0] -= y
        g *= 1.0 / math.sqrt(1.0 + q)  # before the product, so that it is symmetric to the last bit
        np.multiply(self._column, self._row, out=self._outer)
        self._pair += self._outer
        self.theta = self._swept[0].tolist()
        self.learnt += 1

    def _moved(self) -> float:
        """Set g to N z, and return q = -g·z."""
        np.multiply(self._swept, self._column[0], out=self._outer[0])
        np.add.reduce(self._outer[0], axis=0, out=self._g)
        return -_inner(self._g, self.z)

    def relearn(self, was: float, y: float) -> None:
        """Replace the y of a round whose features are in ``z``; exact up to rounding."""
        f, change = self.z[1:], y - was
        sums, swept = self._pair
        sums[0, 1:] -= change * f
        sums[1:, 0] = sums[0, 1:]
        sums[0, 0] += y * y - was * was
        swept[0, 1:] += change * (self.inverse * f[:, None]).sum(axis=0)
        swept[1:, 0] = swept[0, 1:]
        swept[0, 0] = sums[0, 0] - 1.0 - _inner(swept[0, 1:], self.b)
        self.theta = swept[0].tolist()

    def _rebuild(self) -> None:
        """Sweep M on A, one coordinate after another."""
        swept = self._swept
        swept[:] = self._pair[0]
        self.log_det = 0.0
        for k in range(1, len(swept)):
            pivot = float(swept[k, k])
            column = swept[k] / math.sqrt(pivot)  # before the product, so that it is symmetric to the last bit
            row = swept[k] / pivot
            swept -= column[:, None] * column
            swept[k] = swept[:, k] = row
            swept[k, k] = -1.0 / pivot
            self.log_det += math.log(pivot)
        swept[0, 1:] *= -1.0
        swept[1:, 0] = swept[0, 1:]
        swept[0, 0] -= 1.0

    def encode(self) -> bytes:
        n = len(self._swept)
        triangles: Floats = self._pair[(slice(None), *np.tril_indices(n))]
        return _HEAD.pack(self.learnt, n - 1, self.log_det) + triangles.astype("<f8").tobytes()

    def decode(self, payload: bytes) -> None:
        n = len(self._swept)
        require_length(payload, _HEAD.size + 8 * n * (n + 1))
        self.learnt, _, self.log_det = _HEAD.unpack_from(payload)
        rows, columns = np.tril_indices(n)
        pair = np.empty((2, n, n))
        triangles = np.frombuffer(payload, "<f8", offset=_HEAD.size).reshape(2, -1)
        pair[:, rows, columns] = pair[:, columns, rows] = triangles
        self._hold(pair)


def _inner(one: Floats, other: Floats) -> float:
    return float(np.add.reduce(one * other))
