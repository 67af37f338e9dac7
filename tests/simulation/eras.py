"""The group of a history, and the one that it becomes where its state moves to another number of partitions."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from streams.config.settings import TOPICS, Settings
from tests.simulation.plan import POLICIES, ROUTER, SESSION, SOURCES, WORKER, Plan


class Era(NamedTuple):
    """A group: its settings, those of its stages that have state, and its number of partitions."""

    base: Settings
    folding: dict[str, Settings]
    width: int

    @property
    def topics(self) -> list[str]:
        """The names of its topics."""
        base = self.base
        names = {base.calibrated, base.resolved, base.dead_letters, base.configurations}
        for each in self.folding.values():
            names |= {each.forecasts, each.outcomes, each.changelog, each.journal}
        return sorted(names)


def of(plan: Plan, directory: Path) -> list[Era]:
    """Return the group of a plan, and where that moves it the one behind it."""
    base = Settings(
        brokers=("kafka:9092",),
        compression="none",
        session_seconds=SESSION,
        request_seconds=6.0,
        patience_seconds=30.0,
        commit_seconds=0.5,
        policies=POLICIES[plan.policies],
        sources=SOURCES if plan.sourced else (),
        data_dir=directory,
        letter_bytes=1000,
        record_bytes=1000,
        **plan.settings,
    )
    found = [_era(base, plan.width)]
    if plan.moved:
        topics: dict[str, Any] = {name: f"{getattr(base, name)}-2" for name in TOPICS[:5]}
        found.append(_era(replace(base, app_id=f"{base.app_id}-2", **topics), plan.moved))
    return found


def _era(base: Settings, width: int) -> Era:
    return Era(base, {WORKER: base, ROUTER: base.router} if base.sources else {WORKER: base}, width)
