"""``trueup run``: worker, router and intake as one command, which ends as one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.all_stages import STAGES
from tests.e2e.test_intake import Hour, expected, made, resolved
from tests.e2e.world import PATIENCE, ROOT, MakeWorld, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextmanager
def running(environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run every stage."""
    with log.open("ab") as printed:
        command = [sys.executable, "-P", "-m", "cli.main", "run"]
        whole = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, env=whole, stdout=printed, stderr=printed, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stages(of: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Return the process ids of its stages that have begun."""
    found = {}
    for pid in Path(f"/proc/{of.pid}/task/{of.pid}/children").read_text().split():
        *_, command, _ = (b"\0" + Path(f"/proc/{pid}/cmdline").read_bytes()).decode().split("\0")
        found[command] = int(pid)
    return {stage: found[stage] for stage in STAGES if stage in found}


def gone(pids: list[int]) -> bool:
    """Whether none of some processes runs."""
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_one_command_serves_sources_of_any_key_and_ends_as_one(world: MakeWorld, tmp_path: Path) -> None:
    hour, log, sent = Hour(world, tmp_path, "run"), tmp_path / "run.log", made(300)
    w = hour.world
    hour.send(sent[:400])
    with running(w.environment, log) as process:
        hour.wait()
        each = stages(process)
        assert each.keys() == set(STAGES)
        os.kill(each["router"], signal.SIGKILL)
        assert process.wait(PATIENCE) == 70
        assert "router ended with status -9: stopping the others" in log.read_text()
        assert gone(list(each.values()))
    hour.send(sent[400:])
    with running(w.environment, log) as process:
        hour.wait()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-2000:]
    with running(w.environment, log) as process:
        wait_for("every stage to run", lambda: len(stages(process)) == len(STAGES))
        each = stages(process)
        process.kill()
        wait_for("the stages to end with it", lambda: gone(list(each.values())))
    with running(w.environment, log) as process:
        wait_for("every stage to begin", lambda: len(stages(process)) == len(STAGES))
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C, while stages still import
        assert process.wait(PATIENCE) == 0, log.read_text()[-2000:]
        assert "Traceback" not in log.read_text()
    w.agree("--sources")
    w.judge()
    assert resolved(w) == expected(sent)
    # What one stage cannot start with ends all.
    with running(w.environment | {"TRUEUP_CALIBRATED": "elsewhere"}, log) as process:
        assert process.wait(PATIENCE) == 78
    assert "elsewhere" in log.read_text()
