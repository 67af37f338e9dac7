"""State of another build is found when a partition is taken up."""

import pytest

from state import formats, kinds
from state.events import Event, Forecast, Outcome
from state.frames import CorruptFrame, OtherFormat, seal, unseal
from state.policies import Policies
from state.policy import Challenger, Policy
from tests.state.histories import Worker, judged_at_once

POLICIES = Policies(default=Policy("twospeed", shadow=(Challenger("platt", {}),), segments=("country",)))


@pytest.fixture(scope="module")
def stored() -> dict[bytes, bytes]:
    events: list[Event] = []
    for i in range(40):
        events += [
            Forecast(i, None, f"e{i}", "s", i % 10 / 10, (), 1000 + i, segments=("nl",)),
            Outcome(i, None, f"e{i}", float(i % 3 == 0), 2000 + i),
        ]
    with judged_at_once():  # a comparison has a row
        effects = Worker(POLICIES).fold(*events)
    return {key: row for key, row in effects.rows.items() if row is not None}


def check(rows: dict[bytes, bytes]) -> None:
    formats.check(lambda prefix: next(((k, rows[k]) for k in sorted(rows) if k.startswith(prefix)), None), POLICIES)


def test_rows_of_this_build_are_read(stored: dict[bytes, bytes]) -> None:
    check(stored)
    check({})
    assert {key[:1] for key in stored} >= {b"L", b"s", b"C", b"H", b"G", b"N"}


def test_a_row_of_another_version_is_named_with_both(stored: dict[bytes, bytes]) -> None:
    for key, row in {key[:1]: (key, row) for key, row in stored.items()}.values():
        other = seal(key[0], 77, unseal(key[0], row[1], row))
        with pytest.raises(OtherFormat, match=r"row has format version 77, this build reads version \d+"):
            check({key: other})


def test_a_row_of_a_kind_that_only_another_build_has_is_named(stored: dict[bytes, bytes]) -> None:
    with pytest.raises(OtherFormat, match="no rows of the kind '0', and found b'0s'"):
        check(stored | {b"0s": seal(ord("0"), 1, b"")})
    check(stored | {b"__trueup\0writes__": b"the store's own"})


def test_a_damaged_row_is_left_to_whoever_needs_it(stored: dict[bytes, bytes]) -> None:
    damaged = {key: row[:-1] + bytes((row[-1] ^ 1,)) for key, row in stored.items()}
    check(damaged)
    with pytest.raises(CorruptFrame):
        kinds.apart(damaged)
