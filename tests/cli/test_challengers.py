"""Challengers in a worker, and as the commands show them."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.processor import BatchProcessor
from agents.status import tables
from agents.topology import Topology
from cli import show_tables
from lab.scrape import ScrapedSamples
from state import kinds
from state.scoring.comparison import Comparison
from state.served import Served
from streams.config import stream_config
from streams.config.settings import Settings
from streams.faust.outputs import Outputs
from streams.metrics import challengers
from streams.metrics.description import describe
from streams.metrics.rows import StateRows
from streams.records.merge import Batch
from tests.agents.test_processor import Told, batch
from tests.events import Sent, forecast, outcome
from tests.exposed import exposed
from tests.streams.fakes import wire

pytestmark = pytest.mark.usefixtures("no_warm_up")

PLAN = '[streams.s]\ncalibrator = "minimax"\noptions = { grid = 9 }\nshadow = ["platt", "identity"]\n'
SENT: list[Sent] = [each for i in range(20) for each in (forecast(f"e{i}", i / 20, i), outcome(f"e{i}", i % 2, 90 + i))]


def settings(tmp_path: Path, text: str = PLAN) -> Settings:
    return Settings(data_dir=tmp_path, policies=stream_config.parse(text, "platt"))


def test_a_worker_shows_challengers_after_a_restart_as_before(tmp_path: Path) -> None:
    given = settings(tmp_path)
    topology = wire(tmp_path, settings=given)

    async def run() -> tuple[list[str], list[str]]:
        told: Any = Told()
        outputs: Outputs = told
        processor = BatchProcessor(given, topology.table, outputs, topology.gauges)
        await processor.reopen(0)
        await processor.answer(await processor.fold([Batch(0, batch(SENT), {}, 0)]))
        await processor.checkpoint(due=False)
        before = _told(topology)
        processor.close(0)
        assert not _told(topology)
        await processor.reopen(0)
        return before, _told(topology)

    before, after = asyncio.run(run())
    assert before == after
    policy = given.policies.of("s")
    assert policy is not None
    read = ScrapedSamples("\n".join(after))
    for each in policy.challengers:
        labels = {"stream": "s", "calibrator": each.calibrator, "config": each.config}
        assert read.value("shadow_events", labels) == 20
        row = topology.table.read(0, kinds.COMPARISON.key("s", policy.config, each.config))
        assert row is not None
        mean = kinds.COMPARISON.decode(row).difference("brier").mean
        assert read.value("shadow_difference", labels | {"loss": "brier"}) == pytest.approx(mean)


def _told(topology: Topology) -> list[str]:
    """Return the series of challengers that a worker exports."""
    lines = exposed(topology.gauges).splitlines()
    return sorted(line for line in lines if line.startswith("trueup_shadow_"))


def test_a_worker_does_not_show_challengers_that_are_configured_no_more(tmp_path: Path) -> None:
    given = settings(tmp_path)
    topology = wire(tmp_path, settings=given)

    async def run(now: Settings, *, fold: bool) -> None:
        told: Any = Told()
        processor = BatchProcessor(now, topology.table, told, topology.gauges)
        await processor.reopen(0)
        if fold:
            await processor.answer(await processor.fold([Batch(0, batch(SENT), {}, 0)]))
            await processor.checkpoint(due=False)

    asyncio.run(run(given, fold=True))
    asyncio.run(run(settings(tmp_path, PLAN.replace('"platt", ', "")), fold=False))
    shown = _told(topology)
    assert any('calibrator="identity"' in line for line in shown)
    assert not any('calibrator="platt"' in line for line in shown)


def compared(n: int, bias: float) -> Comparison:
    comparison = Comparison()
    for i in range(n):
        y = float(i % 4 == 0)
        comparison.observe(0.25 + bias, 0.25 + (0.01 if i % 2 else -0.01), y, 0.25)
    return comparison


def found() -> StateRows:
    policy = settings(Path()).policies.of("s")
    assert policy is not None
    rows = StateRows()
    for partition in (0, 1):
        for each in (policy, *policy.challengers):
            rows.of(kinds.CALIBRATOR, "s")[partition, each.config] = Served.fresh(each.recipe, "s")
        for i, each in enumerate(policy.challengers):
            pair = partition, policy.config, each.config
            rows.of(kinds.COMPARISON, "s")[pair] = compared(100 * (partition + i), bias=0.1 * i)
    return rows


def test_inspect_shows_both_sides_and_their_difference(capsys: pytest.CaptureFixture[str]) -> None:
    described = describe(found(), "s")
    orjson.dumps(described)
    by_name = {each["challenger"]["calibrator"]: each for each in described["shadows"]}
    assert by_name.keys() == {"platt", "identity"}
    both = compared(100, 0.1) + compared(200, 0.1)
    identity = by_name["identity"]
    assert identity["events"] == 300
    assert identity["champion"]["calibrator"] == "minimax"
    assert identity["champion"]["brier"] == pytest.approx(both.scores.brier("raw"))
    assert identity["challenger"]["ece_noise"] == pytest.approx(both.scores.noise("calibrated"))
    assert identity["difference"]["brier"] == pytest.approx(both.difference("brier")._asdict())
    assert identity["difference"]["brier"]["mean"] < 0
    show_tables.show({"s": described}, {}, whole=True)
    shown = capsys.readouterr().out
    assert "Challengers" in shown
    assert shown.count("minimax") >= 2


def test_listed_streams_name_what_serves_and_not_who_challenges(capsys: pytest.CaptureFixture[str]) -> None:
    show_tables.show({"s": describe(found(), "s")}, {}, whole=False)
    shown = capsys.readouterr().out
    assert "minimax" in shown
    assert "identity" not in shown


def test_pair_without_events_or_rows_is_shown_without_figures() -> None:
    described = challengers.describe(("00000001", "00000002"), Comparison(), {})
    assert described["champion"] == {
        "calibrator": None,
        "config": "00000001",
        "ece": None,
        "ece_noise": None,
        "brier": None,
        "log_loss": None,
        "auc": None,
    }
    assert described["difference"]["log"] == {"mean": None, "error": None}
    assert tables.challengers([described]).words == ["No event has resolved under both yet."]
