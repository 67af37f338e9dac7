"""Challengers in a worker, and as the commands show them."""

import asyncio
from pathlib import Path
from typing import Any

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
POLICY = stream_config.parse(PLAN, "platt").patterns[0][1]
SENT: list[Sent] = [each for i in range(20) for each in (forecast(f"e{i}", i / 20, i), outcome(f"e{i}", i % 2, 90 + i))]


def test_a_worker_shows_challengers_after_a_restart_as_before_and_those_alone_that_are_configured(
    tmp_path: Path,
) -> None:
    def settings(text: str) -> Settings:
        return Settings(data_dir=tmp_path, policies=stream_config.parse(text, "platt"))

    topology = wire(tmp_path, settings=settings(PLAN))

    async def run(text: str, *, fold: bool) -> list[str]:
        told: Any = Told()
        processor = BatchProcessor(settings(text), topology.table, told, topology.gauges)
        await processor.reopen(0)
        if fold:
            await processor.answer(await processor.fold([Batch(0, batch(SENT), {}, 0)]))
            await processor.checkpoint(due=False)
        shown = _told(topology)
        processor.close(0)
        assert not _told(topology)
        return shown

    before, after = asyncio.run(run(PLAN, fold=True)), asyncio.run(run(PLAN, fold=False))
    assert before == after
    read = ScrapedSamples("\n".join(after))
    for each in POLICY.challengers:
        labels = {"stream": "s", "calibrator": each.calibrator, "config": each.config}
        assert read.value("shadow_events", labels) == 20
        row = topology.table.store.read(0, kinds.COMPARISON.key("s", POLICY.config, each.config))
        assert row is not None
        mean = kinds.COMPARISON.decode(row).difference("brier").mean
        assert read.value("shadow_difference", labels | {"loss": "brier"}) == pytest.approx(mean)
    fewer = asyncio.run(run(PLAN.replace('"platt", ', ""), fold=False))
    assert any('calibrator="identity"' in line for line in fewer)
    assert not any('calibrator="platt"' in line for line in fewer)


def _told(topology: Topology) -> list[str]:
    """Return the series of challengers that a worker exports."""
    lines = exposed(topology.gauges).splitlines()
    return sorted(line for line in lines if line.startswith("trueup_shadow_"))


def compared(n: int, bias: float) -> Comparison:
    comparison = Comparison()
    for i in range(n):
        y = float(i % 4 == 0)
        comparison.observe(0.25 + bias, 0.25 + (0.01 if i % 2 else -0.01), y, 0.25)
    return comparison


def test_both_sides_and_their_difference_are_shown_and_who_serves_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = StateRows()
    for partition in (0, 1):
        for each in (POLICY, *POLICY.challengers):
            rows.of(kinds.CALIBRATOR, "s")[partition, each.config] = Served.fresh(each.recipe, "s")
        for i, each in enumerate(POLICY.challengers):
            pair = partition, POLICY.config, each.config
            rows.of(kinds.COMPARISON, "s")[pair] = compared(100 * (partition + i), bias=0.1 * i)
    described = describe(rows, "s")
    by_name = {each["challenger"]["calibrator"]: each for each in described["shadows"]}
    assert by_name.keys() == {"platt", "identity"}
    both = compared(100, 0.1) + compared(200, 0.1)
    identity = by_name["identity"]
    assert (identity["events"], identity["champion"]["calibrator"]) == (300, "minimax")
    assert identity["champion"]["brier"] == pytest.approx(both.scores.brier("raw"))
    assert identity["challenger"]["ece_noise"] == pytest.approx(both.scores.noise("calibrated"))
    assert identity["difference"]["brier"] == pytest.approx(both.difference("brier")._asdict())
    assert identity["difference"]["brier"]["mean"] < 0
    show_tables.show({"s": described}, {}, whole=True)
    shown = capsys.readouterr().out
    assert "Challengers" in shown
    assert shown.count("minimax") >= 2
    show_tables.show({"s": described}, {}, whole=False)
    listed = capsys.readouterr().out
    assert "minimax" in listed
    assert "identity" not in listed


def test_pair_without_events_is_shown_without_figures() -> None:
    described = challengers.describe(("00000001", "00000002"), Comparison(), {})
    assert set(described["champion"].values()) == {None, "00000001"}
    assert described["difference"]["log"] == {"mean": None, "error": None}
    assert tables.challengers([described]).words == ["No event has resolved under both yet."]
