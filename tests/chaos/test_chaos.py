"""A short campaign: what ``make chaos`` does with every kind of fault and many more events."""

from pathlib import Path

import pytest

from tests.chaos import campaign, outages, strikes

BY_DAY = (
    strikes.kill_folding(worker=0, times=2),
    strikes.stall(worker=1, seconds=4.5),
    outages.kill_broker(seconds=1.0),
)


@pytest.mark.slow
def test_a_few_faults_lose_and_double_nothing(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, workers=2, partitions=2, seed=7, rate=200.0, session=3.0) as on:
        seen = campaign.run(on, BY_DAY)
        assert campaign.drain(on, 1_000) == [0, 0]
        verdict = on.judge()
    assert verdict.good, verdict.findings
    assert [[ended.status for ended in each.exits].count(-9) for each in seen] == [4, 0, 0]
