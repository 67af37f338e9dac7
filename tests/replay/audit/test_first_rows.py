"""A partition that began with rows: what was written down of them is read again, and any other row is named."""

from dataclasses import replace

import pytest

from replay.audit.auditor import begun
from replay.audit.output_matcher import Unauditable
from replay.audit.rows import Memory
from replay.first_rows import GROUP, Loaded, Upstream
from state import kinds, ledger
from state.events import Forecast
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from tests.state.histories import Worker, altered

SETTINGS = Settings(app_id="new")
LOADED = Loaded(
    {GROUP: {"name": "old", "changelog": "c0", "ends": [7, 8]}},
    "2026-11-01T12:00:00+00:00",
    12,
    ("calibrated", "resolved", "elsewhere"),
    (5, 6, 7),
)


@pytest.fixture
def rows() -> dict[bytes, bytes]:
    """Return the rows of five forecasts."""
    worker = Worker(Policies([("*", Policy("platt"))], early_ttl_ms=86_400_000))
    for i in range(5):
        worker.fold(Forecast(i, f"e{i}".encode(), f"e{i}", "s", 0.3, ts=1000 + i, x=()))
    return dict(sorted(worker.table.items()))


def test_what_was_written_down_is_read_as_it_was() -> None:
    upstream = Upstream((3, 4), (("scores", 0, 12, "s0"), ("scores", 1, 7, "s0")), 9)
    for said in (LOADED, replace(LOADED, upstream=upstream)):
        assert Loaded.decode(said.encode()) == said
    assert str(LOADED) == "12 rows that 'trueup state rescale' made of old (2026-11-01T12:00:00+00:00)"
    for value in (b"{}", b"nothing", LOADED.encode().replace(b'"version":3', b'"version":1')):
        with pytest.raises((ValueError, KeyError, TypeError)):
            Loaded.decode(value)


def test_a_partition_begins_behind_the_outputs_of_the_group_before(rows: dict[bytes, bytes]) -> None:
    log = [(at, key, row) for at, (key, row) in enumerate(rows.items())]
    assert [each.next for each in begun(SETTINGS, 1, LOADED, Memory(rows), log).outputs] == [5, 6, 0]


def test_a_row_that_is_not_what_was_written_down_is_named(rows: dict[bytes, bytes]) -> None:
    key = kinds.LEDGER.key("e3")
    row = kinds.LEDGER.decode(rows[key])
    assert row.status == ledger.ISSUED
    wrong = {
        "p": kinds.LEDGER.encode(altered(row, p=0.31)),
        "a byte": rows[key][:-1] + bytes([rows[key][-1] ^ 1]),
        "no row": None,
    }
    for other in wrong.values():
        with pytest.raises(
            Unauditable, match=r"partition 1 of new began with .*the row of event 'e3' is another one \(off"
        ):
            begun(SETTINGS, 1, LOADED, Memory(rows), [(2, key, rows[key]), (3, key, other)])
    with pytest.raises(Unauditable, match=r"the row of event 'more' is of nothing that was written down \(offset 9"):
        begun(SETTINGS, 1, LOADED, Memory(rows), [(9, kinds.LEDGER.key("more"), rows[key])])
    # What was overwritten is no longer there, and the rest is no row of an engine.
    log = [(0, key, b"early"), (1, key, rows[key]), (2, kinds.CLAIM.key(), b"any")]
    begun(SETTINGS, 1, LOADED, Memory(rows), log)
