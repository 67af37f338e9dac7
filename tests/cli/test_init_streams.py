"""A first streams file comes of one table, and no file that is there is touched."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from state.scoring.ages import DAY_MS
from streams.config.settings import Settings
from tests.commands import Trueup

COLUMNS = "--score score --label fraud --time at --label-time known --stream-column stream"


def table(path: Path, rows: int) -> Path:
    """Write payments of two streams by turns: one in ten is a fraud, reported after 20 days; zeros have no date."""
    lines = ["stream,score,fraud,at,known"]
    for i in range(rows):
        at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=i)
        known = (at + timedelta(days=20)).isoformat() if i // 2 % 10 == 0 else ""
        lines.append(f"{'wires' if i % 2 else 'ca rds'},0.{i % 10},{int(bool(known))},{at.isoformat()},{known}")
    path.write_text("\n".join(lines))
    return path


def test_each_stream_of_a_table_gets_what_fits_it_with_reasons(tmp_path: Path, trueup: Trueup) -> None:
    made = tmp_path / "streams.toml"
    called = f"streams init {made} --table {table(tmp_path / 'q3.csv', 3000)} {COLUMNS}"
    shown = trueup(f"{called} --segments fraud --dry-run").out
    assert not made.exists()
    assert trueup(f"{called} --segments fraud").status == 0
    assert made.read_text() == shown
    assert "# 1,350 zeros of the table have no date, so nobody reported them: silence means 0." in shown
    policies = Settings.from_env({"TRUEUP_STREAMS": str(made)}).policies
    for stream in ("ca rds", "wires"):
        policy = policies.of(stream)
        assert policy is not None
        assert (policy.silence, policy.matures_ms, policy.segments) == (0.0, 20 * DAY_MS, ("fraud",))
    assert f"{made} is there already" in trueup(called).error
    assert made.read_text() == shown


def test_a_history_that_is_too_small_gives_no_file(tmp_path: Path, trueup: Trueup) -> None:
    made = tmp_path / "streams.toml"
    ended = trueup(f"streams init {made} --table {table(tmp_path / 'few.csv', 60)} {COLUMNS} --json")
    assert ended.status == 1
    assert "wires: " in ended.err
    assert "too few to propose" in ended.err
    assert not made.exists()
