"""``python -m tests.ci.advisories [--strict]``: whether an advisory is known of a locked package.

pip-audit asks the package index for advisories. The status is 1 when one is known. Some indexes have no advisories:
then the output says what was not audited, and the status is 0, or 1 with ``--strict``. Jars are not audited.
"""

import argparse
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


def judge(report: Mapping[str, Any] | None, problem: str = "", *, strict: bool = False) -> Verdict:
    """Return what pip-audit's report means.

    ``report``: what it printed as JSON; None if it printed no report.
    ``problem``: why there is no report.
    ``strict``: whether a package that was not audited fails.
    """
    if report is None:
        return Verdict(int(strict), [f"NOT AUDITED: advisories cannot be asked for here ({problem or 'no answer'})"])
    packages = report["dependencies"]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    found = [
        f"{each['name']} {each['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no version'}"
        for each in packages
        for known in each.get("vulns", ())
    ]
    asked = len(packages) - len(skipped)
    if not asked:
        return Verdict(int(strict), [f"NOT AUDITED: the index knows no advisories of any of {len(packages)} packages"])
    lines = [f"{asked} of {len(packages)} packages audited, {len(found)} advisories"]
    if skipped:
        lines.append("not audited: " + ", ".join(skipped))
    return Verdict(int(bool(found or (strict and skipped))), [*lines, *found])


def audit(*, strict: bool = False) -> Verdict:
    """Ask, and judge the answer as `judge` does."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
    command += ["--format", "json", "--requirement", LOCK]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return judge(orjson.loads(ended.stdout), strict=strict)
    except subprocess.TimeoutExpired:
        return judge(None, f"no answer in {PATIENCE:g} s", strict=strict)
    except orjson.JSONDecodeError:
        last = ended.stderr.strip().splitlines()[-1:]
        return judge(None, last[0][:200] if last else f"pip-audit ended with {ended.returncode}", strict=strict)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask for known advisories of the locked packages.")
    parser.add_argument("--strict", action="store_true", help="fail if a package could not be audited")
    verdict = audit(strict=parser.parse_args().strict)
    sys.stdout.write("\n".join(verdict.lines) + "\n")
    sys.exit(verdict.status)
