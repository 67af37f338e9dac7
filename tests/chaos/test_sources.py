"""Sources of other keys under faults, shortly."""

from pathlib import Path

import pytest

from tests.chaos import campaign, sources
from tests.e2e.test_intake import WIDTHS, read

FAULTS = (
    sources.freeze_stage(of="intake", step=1, seconds=5.0),
    sources.grow_source(topic="decisions"),
    sources.kill_stages(),
    sources.kill_broker_sending(seconds=1.0),
)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_on_the_way_from_the_sources(tmp_path: Path) -> None:
    stages = ("intake", "intake", "router", "router", "worker")
    with sources.stage(tmp_path, seed=7, rate=300.0, stages=stages, partitions=2, session=4.0) as on:
        seen = campaign.run(on, FAULTS)
        assert campaign.drain(on, 2_000) == [0] * len(stages)
        verdict = on.judge()
        grown = read(on.world.bootstrap, f"{sources.NAME}-decisions", WIDTHS["decisions"] + 1)
    assert not any(each.broken for each in seen)
    assert [-9 in [ended.status for ended in each.exits] for each in seen] == [False, False, True, False]
    assert verdict.good, verdict.findings
    assert verdict.events >= 2_000
    assert verdict.source_records >= 4_000
    assert any(record.partition == WIDTHS["decisions"] for record in grown)
