"""The keyed draw."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.draw import Draw


def test_draws_are_uniform() -> None:
    draw = Draw("fraud", seed=1)
    n, cells = 20_000, 20
    counts = [0] * cells
    for t in range(n):
        counts[draw(b"event-%d" % t) * cells >> 53] += 1
    chi2 = sum((count - n / cells) ** 2 / (n / cells) for count in counts)
    assert 5 < chi2 < 45  # 19 degrees of freedom: outside with probability below .001 on either side


@given(st.binary(max_size=40), st.text(max_size=20), st.integers(0, 2**64 - 1))
def test_same_event_draws_the_same(key: bytes, name: str, seed: int) -> None:
    drawn = Draw(name, seed)(key)
    assert Draw(name, seed)(key) == drawn
    assert 0 <= drawn < 2**53


def test_seed_name_and_event_each_change_the_draw() -> None:
    assert len({Draw("a", 0)(b"x"), Draw("b", 0)(b"x"), Draw("a", 1)(b"x"), Draw("a", 0)(b"y")}) == 4


def test_name_and_event_do_not_run_together() -> None:
    assert Draw("ab")(b"c") != Draw("a")(b"bc")


def test_draw_is_the_documented_hash() -> None:
    head = (7).to_bytes(8, "little") + (5).to_bytes(4, "little") + b"fraud"
    digest = blake2b(head + b"event", digest_size=8).digest()
    assert Draw("fraud", 7)(b"event") == int.from_bytes(digest, "little") >> 11


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be between"):
        Draw("a", seed)
