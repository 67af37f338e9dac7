"""The demo's report of segments: counted from the records, and only of segments that have enough of them."""

import numpy as np
import orjson
import pytest

from lab import demo_report, flights
from lab.flights import Flights
from lab.outputs import Outputs


def test_segments_with_enough_outcomes_are_compared_before_and_after() -> None:
    n = 5000
    held = Outputs()
    carried = [{"carrier": "UA" if i % 2 else "AA", "origin": "JFK", "block": f"{i // 4000}"} for i in range(n)]
    for i in range(n):  # of AA three of four are late, of UA one of four
        late = i % 8 < 6 if i % 2 == 0 else i % 8 < 2
        record = {"event_id": str(i), "raw": 0.5, "p": 0.75 if i % 2 == 0 else 0.25}
        held.resolved_record(orjson.dumps(record | {"y": late, "revision": 0}))
    times = np.arange(n)
    played = Flights([str(i) for i in range(n)], np.full(n, 0.5), np.zeros(n), times, times, carried)
    found = demo_report._segments(played, held)
    assert found["large"] == 4, "the second block has too few"
    assert found["raw"]["worst_ece"] == pytest.approx(0.25, abs=0.01)
    assert found["raw"]["mean_ece"] == pytest.approx(0.125, abs=0.01)
    assert found["calibrated"]["worst_ece"] == pytest.approx(0.0, abs=0.01)
    nothing = demo_report._segments(played, Outputs())
    assert nothing["raw"] is None
    assert set(flights.SEGMENTS) == set(carried[0])
