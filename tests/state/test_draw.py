"""The keyed draw."""

import pytest

from state.draw import Draw


def test_draws_are_uniform() -> None:
    draw = Draw("fraud", seed=1)
    n, cells = 20_000, 20
    counts = [0] * cells
    for t in range(n):
        counts[draw(b"event-%d" % t) * cells >> 53] += 1
    chi2 = sum((count - n / cells) ** 2 / (n / cells) for count in counts)
    assert 5 < chi2 < 45  # 19 degrees of freedom: outside with probability below .001 on either side


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be between"):
        Draw("a", seed)
