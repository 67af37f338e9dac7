"""A first streams file comes of one table, and no file that is there is touched."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli import main
from state.scoring.ages import DAY_MS
from streams.config.settings import Settings

COLUMNS = ("--score", "score", "--label", "fraud", "--time", "at", "--label-time", "known", "--stream-column", "stream")


def table(path: Path, rows: int) -> Path:
    """Write payments of two streams by turns: one in ten is a fraud, reported after 20 days; zeros have no date."""
    lines = ["stream,score,fraud,at,known"]
    for i in range(rows):
        at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=i)
        known = (at + timedelta(days=20)).isoformat() if i // 2 % 10 == 0 else ""
        lines.append(f"{'wires' if i % 2 else 'ca rds'},0.{i % 10},{int(bool(known))},{at.isoformat()},{known}")
    path.write_text("\n".join(lines))
    return path


def test_each_stream_of_a_table_gets_what_fits_it_with_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "streams.toml"
    called = ["streams", "init", str(made), "--table", str(table(tmp_path / "q3.csv", 3000)), *COLUMNS]
    assert main.main([*called, "--segments", "fraud", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not made.exists()
    assert main.main([*called, "--segments", "fraud"]) == 0
    assert made.read_text() == shown
    assert "# 1,350 zeros of the table have no date, so nobody reported them: silence means 0." in shown
    policies = Settings.from_env({"TRUEUP_STREAMS": str(made)}).policies
    for stream in ("ca rds", "wires"):
        policy = policies.of(stream)
        assert policy is not None
        assert (policy.silence, policy.matures_ms, policy.segments) == (0.0, 20 * DAY_MS, ("fraud",))
    assert main.main(called) == 78
    assert f"{made} is there already" in capsys.readouterr().err
    assert made.read_text() == shown


def test_a_history_that_is_too_small_gives_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "streams.toml"
    path = table(tmp_path / "few.csv", 60)
    assert main.main(["streams", "init", str(made), "--table", str(path), *COLUMNS, "--json"]) == 1
    assert "wires: " in (said := capsys.readouterr().err)
    assert "too few to propose" in said
    assert not made.exists()
