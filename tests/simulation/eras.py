"""The group of a history, and the one that it becomes where its state moves to another number of partitions."""

from pathlib import Path
from typing import NamedTuple

from streams.config.settings import TOPICS, Settings
from tests.simulation.plan import ROUTER, SESSION, WORKER, Plan


class Era(NamedTuple):
    """A group: its environment, its settings, those of its stages that have state, and its number of partitions."""

    environment: dict[str, str]
    base: Settings
    folding: dict[str, Settings]
    width: int

    @property
    def topics(self) -> list[str]:
        """The names of its topics."""
        base = self.base
        names = {base.calibrated, base.resolved, base.dead_letters, base.configurations}
        for each in self.folding.values():
            names |= {*each.inputs, each.changelog, each.journal}
        return sorted(names)

    def reads(self, stage: str) -> list[tuple[str, int]]:
        """Return the partitions that a stage which has state reads."""
        of = self.folding[stage]
        return [(topic, n) for topic in of.inputs for n in range(self.width)]


def of(plan: Plan, directory: Path) -> list[Era]:
    """Return the group of a plan, and where that moves it the one behind it; the files of operators are written."""
    streams = directory / "streams.toml"
    streams.write_text(plan.streams)
    for topic in ("forecasts", "outcomes"):
        lines = [each.value for each in plan.past if each.topic == topic]
        (directory / topic).write_bytes(b"\n".join(lines))
    environment = {
        "TRUEUP_BROKERS": "kafka:9092",
        "TRUEUP_COMPRESSION": "none",
        "TRUEUP_SESSION_SECONDS": str(SESSION),
        "TRUEUP_REQUEST_SECONDS": "6",
        "TRUEUP_PATIENCE_SECONDS": "30",
        "TRUEUP_COMMIT_SECONDS": "0.5",
        "TRUEUP_STREAMS": str(streams),
        "TRUEUP_DATA_DIR": str(directory),
        "TRUEUP_LETTER_BYTES": "1000",
        "TRUEUP_RECORD_BYTES": "1000",
        **{f"TRUEUP_{name.upper()}": str(value) for name, value in plan.settings.items()},
    }
    found = [_era(environment, plan.width)]
    if plan.moved:
        base = found[0].base
        names = {f"TRUEUP_{name.upper()}": f"{getattr(base, name)}-2" for name in ("app_id", *TOPICS[:5])}
        found.append(_era(environment | names, plan.moved))
    return found


def _era(environment: dict[str, str], width: int) -> Era:
    base = Settings.from_env(environment)
    return Era(environment, base, {WORKER: base, ROUTER: base.router} if base.sources else {WORKER: base}, width)
