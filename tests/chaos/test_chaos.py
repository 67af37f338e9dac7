"""Short campaigns: what ``make chaos`` does with every kind of fault and many more events."""

import math
from pathlib import Path

import pytest

from tests.chaos import campaign, outages, strikes

BY_DAY = (
    strikes.kill_folding(worker=0, times=2),
    strikes.stall(worker=1, seconds=4.5),
    outages.kill_broker(seconds=1.0),
)
OF_ONE_BROKER = (
    strikes.kill_folding(worker=1, times=1),
    strikes.kill_at_step(worker=0, step=3),
    strikes.empty_disk(worker=0),
    strikes.poison(records=2000),
    strikes.damage_disk(worker=1, files="*.sst", how="flipped"),
    outages.kill_broker(seconds=1.0),
)
OF_THREE_BROKERS = (
    outages.kill_leader(partition=0, seconds=1.0),
    outages.freeze_controller(seconds=5.0),
    outages.reassign(),
)


@pytest.mark.slow
def test_a_few_faults_lose_and_double_nothing(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, workers=2, partitions=2, seed=7, rate=200.0, session=3.0) as on:
        seen = campaign.run(on, BY_DAY)
        assert campaign.drain(on, 1_000) == [0, 0]
        verdict = on.judge()
    assert verdict.good, verdict.findings
    assert [[ended.status for ended in each.exits].count(-9) for each in seen] == [4, 0, 0]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_whatever_strikes(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, workers=2, partitions=4, seed=7, rate=300.0, session=3.0) as on:
        seen = campaign.run(on, OF_ONE_BROKER)
        assert campaign.drain(on, 7_000) == [0, 0]
        verdict = on.judge()
    assert verdict.good, verdict.findings
    assert verdict.events >= 5_000
    assert [-9 in [ended.status for ended in each.exits] for each in seen] == [True, True, True, False, True, False]
    assert not [ended.cause for each in seen for ended in each.exits if "damaged" in ended.cause]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_brokers_come_and_go(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, brokers=3, workers=2, partitions=3, seed=7, rate=200.0) as on:
        seen = campaign.run(on, OF_THREE_BROKERS)
        assert campaign.drain(on, 3_000) == [0, 0]
        campaign.measure(on, seen)
        verdict = on.judge()
    assert verdict.good, verdict.findings
    assert verdict.events >= 2_000
    assert not any(math.isnan(each.silence) for each in seen)
