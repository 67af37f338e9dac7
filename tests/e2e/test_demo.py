"""The README's first command, on few rows: every output is derived again, and the picture is drawn."""

import os
import subprocess
import sys
from pathlib import Path

import orjson


def test_the_demo_accounts_for_every_record_and_draws_its_picture(kafka: str, tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    command = [sys.executable, "-m", "cli.main", "dev", "demo", "--rows", "4000", "--json", "--out", str(picture)]
    environment = {**os.environ, "TRUEUP_BROKERS": kafka, "PYTHONPATH": str(Path.cwd())}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert orjson.loads(run.stdout.splitlines()[-1])["problems"] == []
    assert picture.stat().st_size > 10_000
