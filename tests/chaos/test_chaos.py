"""A short campaign: what ``make chaos`` does with every kind of fault and many more events."""

from pathlib import Path

import pytest

from tests.chaos import campaign, faults
from tests.chaos.judge import judge_all

FAULTS = (
    faults.KillAtStep(worker=0, step=3),
    faults.Poison(records=2000),
    faults.Damage(worker=1, files="MANIFEST-*", how="shortened"),
    faults.KillBroker(seconds=1.0),
)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_whatever_strikes(tmp_path: Path) -> None:
    with campaign.stage(tmp_path, workers=2, partitions=4, seed=7, rate=300.0, session=3.0) as on:
        seen = campaign.run(on, FAULTS)
        assert campaign.drain(on, 5_000) == [0, 0]
        verdict = judge_all(on.world)
    assert verdict.good, verdict.findings
    assert verdict.events >= 5_000
    assert -9 in [ended.status for ended in seen[0].exits]
