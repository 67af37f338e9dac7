"""Short campaigns: what ``make chaos`` does with every kind of fault and many more events."""

import math
from pathlib import Path

import pytest

from tests.chaos import campaign, faults
from tests.chaos.judge import judge

OF_ONE_BROKER = (
    faults.KillAtStep(worker=0, step=3),
    faults.EmptyDisk(worker=0),
    faults.Poison(records=2000),
    faults.Damage(worker=1, files="*.sst", how="flipped"),
    faults.KillBroker(seconds=1.0),
)
OF_THREE_BROKERS = (
    faults.KillLeader(partition=0, seconds=1.0),
    faults.FreezeController(seconds=5.0),
    faults.Reassign(),
)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_whatever_strikes(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, workers=2, partitions=4, seed=7, rate=300.0, session=3.0) as on:
        seen = campaign.run(on, OF_ONE_BROKER)
        assert campaign.drain(on, 7_000) == [0, 0]
        verdict = judge(on.world)
    assert verdict.good, verdict.findings
    assert verdict.events >= 5_000
    assert [-9 in [ended.status for ended in each.exits] for each in seen] == [True, True, False, True, False]
    assert not [ended.cause for each in seen for ended in each.exits if "damaged" in ended.cause]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_brokers_come_and_go(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, brokers=3, workers=2, partitions=3, seed=7, rate=200.0) as on:
        seen = campaign.run(on, OF_THREE_BROKERS)
        assert campaign.drain(on, 3_000) == [0, 0]
        campaign.measure(on, seen)
        verdict = judge(on.world)
    assert verdict.good, verdict.findings
    assert verdict.events >= 2_000
    assert not any(math.isnan(each.silence) for each in seen)
