"""Scenarios for ``promtool test rules``: series over time, and which alerts fire at which moment."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Final

import pytest
import yaml

PROMETHEUS: Final = Path(__file__).resolve().parents[2] / "deploy/prometheus"
RULES: Final = (PROMETHEUS / "recording.yml", PROMETHEUS / "alerts.yml")

needs_promtool = pytest.mark.skipif(which("promtool") is None, reason="promtool is missing: apt-get install prometheus")

#: By series, its values in promtool's notation: ``0+2x10`` is 0 and ten steps of 2.
Series = Mapping[str, str]


@dataclass(frozen=True)
class Scenario:
    """Input series, and all alerts that fire ``at`` minutes after the first sample."""

    series: Series
    at: int
    fires: frozenset[str] = frozenset()
    step: int = 1
    values: Mapping[str, float] = field(default_factory=dict)
    #: Whether the alert that is tried is one of them.
    due: bool = False

    @property
    def every(self) -> int:
        """How often rules are evaluated, minutes: as seldom as every five, and at the last moment."""
        return max(n for n in range(1, 6) if self.at % n == 0) if self.step == 1 else self.step

    def group(self, name: str) -> dict[str, Any]:
        """Return a test group of promtool."""
        firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
        samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(self.fires)]
        asked = [
            {
                # promtool compares floats to the last bit
                "expr": f"abs({query} - {value!r}) < bool 1e-9",
                "eval_time": f"{self.at}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for query, value in self.values.items()
        ]
        return {
            "name": name,
            "interval": f"{self.step}m",
            "input_series": [{"series": series, "values": values} for series, values in self.series.items()],
            "promql_expr_test": [
                {"expr": f"{firing} / {firing}", "eval_time": f"{self.at}m", "exp_samples": samples},
                *asked,
            ],
        }


def judge(directory: Path, scenarios: Sequence[Scenario]) -> None:
    """Run scenarios against the rules of `deploy/prometheus` by promtool; fail with its output."""
    for every in sorted({scenario.every for scenario in scenarios}):
        document = {
            "rule_files": [str(rules) for rules in RULES],
            "evaluation_interval": f"{every}m",
            # Groups in the order of the files. In any other order alerts would see what was recorded a step before.
            "group_eval_order": [
                group["name"] for rules in RULES for group in yaml.safe_load(rules.read_text())["groups"]
            ],
            "tests": [each.group(f"scenario {i}") for i, each in enumerate(scenarios) if each.every == every],
        }
        path = directory / f"{every}.yml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        judged = promtool("test", "rules", str(path))
        assert judged.returncode == 0, judged.stdout + judged.stderr


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(
        [which("promtool") or "promtool", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=600,  # weeks of samples on a busy machine
        check=False,
        env={**os.environ, "GOGC": "800"},  # a fifth less work, for some memory
    )
