"""What the demo reads of the output topics, and how its account says that something is wrong."""

from dataclasses import replace

import orjson
import pytest

from lab.demo_report import DemoRun, problems
from lab.outputs import OutputRecords
from lab.scrape import ScrapedSamples

#: Five outcomes came before their forecast: three were joined, one expired, one still waits.
COUNTERS = {
    ("forecasts", "issued"): 10, ("forecasts", "duplicate"): 1, ("forecasts", "dead"): 2,
    ("outcomes", "resolved"): 4, ("outcomes", "early"): 5, ("outcomes", "duplicate"): 1,
    ("outcomes", "revised"): 1, ("outcomes", "stale"): 1, ("outcomes", "waiting"): 0, ("outcomes", "dead"): 1,
}  # fmt: skip


def reading() -> ScrapedSamples:
    lines = [f'trueup_records_total{{app="a",topic="{t}",fate="{f}"}} {n}' for (t, f), n in COUNTERS.items()]
    lines += [
        'trueup_expired_total{kind="outcome"} 1',
        'trueup_expired_total{kind="forecast"} 2',
        'trueup_pending_events{app="a"} 1',
        "trueup_early_outcomes 1",
    ]
    return ScrapedSamples("\n".join(lines) + "\n")


def test_fates_follow_early_outcomes_to_their_end() -> None:
    fates = reading().fates()
    resolved, expired = fates["outcomes"]["resolved"], fates["expired"]
    assert (resolved, fates["outcomes"]["early"], expired["outcome"]) == (7, 1, 1)
    assert [reading().total("records_total", topic=topic) for topic in ("forecasts", "outcomes")] == [13, 13]
    assert fates["forecasts"]["issued"] == resolved + fates["pending"] + expired["forecast"]


def test_a_run_that_lost_a_record_or_was_not_derived_again_is_no_success() -> None:
    well = DemoRun({"forecasts": 13, "outcomes": 13}, 1.0, reading(), 0, OutputRecords())
    assert problems(well) == []
    assert problems(replace(well, sent={"forecasts": 14, "outcomes": 13})) == ["forecasts sent: 14, but applied: 13"]
    assert "trueup audit ended with status 1" in problems(replace(well, audit=1))[0]
    assert "ended with status 70" in problems(replace(well, worker_exit=70))[0]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [0, 1, 2, 1, 2]])
def test_the_newest_label_of_an_event_counts_in_whatever_order_its_records_come(order: list[int]) -> None:
    records = [{"event_id": "a", "raw": 0.2, "p": 0.5, "y": y, "revision": n} for n, y in enumerate((0, 1, 0))]
    held = OutputRecords()
    for n in order:
        held.resolved_record(orjson.dumps(records[n]))
    assert held.resolved == {"a": (0.2, 0.5, 0.0)}
