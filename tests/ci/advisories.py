"""``python -m tests.ci.advisories``: whether an advisory is known of a locked package.

pip-audit asks the package index for advisories. An index that has none to give is no reason to fail, and none to look
as if all were well: what could not be asked is said. The status is 1 only when an advisory is known.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

ROOT: Final = Path(__file__).resolve().parents[2]
#: The lock that holds every package, those of the program among them.
LOCK: Final = "requirements/dev.txt"
#: Longest wait, s.
PATIENCE: Final = 300.0


class Verdict(NamedTuple):
    """Exit status, and what to say."""

    status: int
    lines: list[str]


def judge(report: Mapping[str, Any] | None, problem: str = "") -> Verdict:
    """Return what pip-audit's report means; None is no report at all."""
    if report is None:
        return Verdict(0, [f"NOT AUDITED: advisories cannot be asked for here ({problem or 'no answer'})"])
    packages = report["dependencies"]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    found = [
        f"{each['name']} {each['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no version'}"
        for each in packages
        for known in each.get("vulns", ())
    ]
    asked = len(packages) - len(skipped)
    if not asked:
        return Verdict(0, [f"NOT AUDITED: the index knows no advisories of any of {len(packages)} packages"])
    lines = [f"{asked} of {len(packages)} packages audited, {len(found)} advisories"]
    if skipped:
        lines.append("not audited: " + ", ".join(skipped))
    return Verdict(1 if found else 0, [*lines, *found])


def audit() -> Verdict:
    """Ask, and judge the answer."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
    command += ["--format", "json", "--requirement", LOCK]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return judge(orjson.loads(ended.stdout))
    except subprocess.TimeoutExpired:
        return judge(None, f"no answer in {PATIENCE:g} s")
    except orjson.JSONDecodeError:
        last = ended.stderr.strip().splitlines()[-1:]
        return judge(None, last[0][:200] if last else f"pip-audit ended with {ended.returncode}")


if __name__ == "__main__":
    verdict = audit()
    sys.stdout.write("\n".join(verdict.lines) + "\n")
    sys.exit(verdict.status)
