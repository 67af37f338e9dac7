"""Whole replays of files: the same bytes with any number of processes, what is refused, what is left behind."""

import gc
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cli.replay_table import warnings
from replay.configuration import Configuration, configurations
from replay.player import parts, play
from replay.report.page import page
from replay.result import Result
from replay.run import Request, replay
from replay.sources.files import FileSource
from state.calibrators import make
from state.fence import FATES, INPUT_FATES
from state.ledger import LedgerRow
from streams.config.settings import Settings, SettingsError
from streams.kafka.partitioner import partition
from tests.e2e.world import ROOT
from tests.replay.history import replayed, written

N = 1500
ENVIRONMENT = {"TRUEUP_DEFAULT_CALIBRATOR": "platt+regret_matching"}
SETTINGS = Settings.from_env(ENVIRONMENT)


def asked(directory: Path, *calibrators: str, partitions: int = 1, **options: object) -> Request:
    files = written(directory, N)
    made = configurations(SETTINGS, calibrators, [])
    return Request(FileSource(*files, partitions), made, resamples=100, **options)  # type: ignore[arg-type]


def found(request: Request) -> Result:
    return replay(request, ENVIRONMENT)[0]


def test_result_and_files_are_the_same_with_one_process_or_three(tmp_path: Path) -> None:
    seen = []
    for processes in (1, 3):
        paths = [tmp_path / f"{name}-{processes}" for name in ("out", "dead", "manifest")]
        request = asked(
            tmp_path,
            partitions=3,
            processes=processes,
            output=paths[0],
            letters=paths[1],
            manifest=paths[2],
        )
        seen.append([found(request).encode(), *(path.read_bytes() for path in paths)])
        assert all(seen[-1])
    assert seen[0] == seen[1]


def test_output_is_in_the_order_of_time_across_partitions(tmp_path: Path) -> None:
    request = asked(tmp_path, partitions=3, output=tmp_path / "out")
    found(request)
    forecasts, _ = written(tmp_path, N)
    places = []
    for number, line in enumerate(map(orjson.loads, forecasts.read_bytes().splitlines())):
        if 0 <= line.get("p", -1) <= 1:
            place = line["timestamp"], partition(line["key"].encode(), 3), number
            places.append((*place, line["event_id"], (line["stream"], line["p"])))
    answered = [orjson.loads(line)["event_id"] for line in (tmp_path / "out").read_bytes().splitlines()]
    first: dict[str, tuple[str, float]] = {}
    # One that says something else of an event than its first forecast did is dead.
    assert answered == [event_id for *_, event_id, said in sorted(places) if first.setdefault(event_id, said) == said]


@pytest.mark.usefixtures("no_warm_up")
def test_fates_add_up_and_windows_count_every_resolved_forecast_once(tmp_path: Path) -> None:
    result = found(asked(tmp_path, "platt", "regret_matching", partitions=2))
    contender = result.contender("regret_matching")
    fates = contender.fates
    assert set(fates) == set(FATES)
    assert sum(list(fates.values())[:INPUT_FATES]) == result.records
    assert contender.pending == fates["forecasts_issued"] - fates["outcomes_resolved"] - fates["early_joined"]
    overall = contender.overall
    assert overall is not None
    assert overall.issued == fates["forecasts_issued"]
    n = overall.raw.n
    assert n == fates["outcomes_resolved"] + fates["early_joined"]
    for counts in (
        [window.n for window in overall.windows],
        overall.delays.counts,
        [band.resolved for band in overall.coverage],
        [each.raw.n for each in contender.streams.values()],
    ):
        assert sum(counts) == n
    assert overall.windows[-1].regret_brier == pytest.approx(overall.regret_brier)
    assert (overall.windows[-1].error, overall.windows[-1].bound) == (overall.l1, overall.bound)
    times = [window.end_ms for window in overall.windows]
    assert times == sorted(times)
    assert {(each.name, each.against) for each in result.differences} == {
        ("platt", "raw"),
        ("regret_matching", "raw"),
        ("platt", "regret_matching"),
    }


def test_configurations_that_read_otherwise_run_beside_one_another(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('[streams."stream-0"]\ncalibrator = "platt"\nttl = "1s"\n')
    files = written(tmp_path, 5 * N)
    made = configurations(SETTINGS, ["platt", "identity"], []) + configurations(SETTINGS, [], [tmp_path / "short.toml"])
    result = found(Request(FileSource(*files), made, resamples=50))
    assert [each.name for each in result.contenders] == ["platt", "identity", "short"]
    assert result.contender("short").fates["expired_forecasts"] > result.contender("platt").fates["expired_forecasts"]
    assert result.contender("short").calibrators["stream-1"] == "platt+regret_matching"
    alone = found(Request(FileSource(*files), [made[2]], resamples=50))
    # As JSON: a figure that there is not is NaN, which equals nothing.
    assert orjson.loads(alone.encode())["contenders"][0] == orjson.loads(result.encode())["contenders"][2]
    assert ("platt", "short") not in {(each.name, each.against) for each in result.differences}


def test_biases_that_a_calibrator_bounds_are_those_of_the_workers(tmp_path: Path) -> None:
    plan = '[streams.s]\ncalibrator = "calibrated_regression"\nfeatures = ["age"]\n'
    n = 200
    forecasts = [
        {"event_id": str(i), "stream": "s", "p": 0.3, "x": {"age": i % 3 / 2}, "ts": 10 * i, "key": str(i % 7)}
        for i in range(n)
    ]
    outcomes = [{"event_id": str(i), "y": int(i % 3 == 2), "ts": 10 * i + 5, "key": str(i % 7)} for i in range(n)]
    result = replayed(tmp_path, forecasts, outcomes, {"s": plan})
    biases = {each.function: each for each in result.contenders[0].streams["s"].functions}
    alone = make("calibrated_regression", features=1)
    for i in range(n):
        alone.update(alone.predict(0.3, (i % 3 / 2,)).ticket, float(i % 3 == 2))
    for name, _, bias, bound in alone.biases(["age"]):
        assert (biases[name].bias, biases[name].bound) == pytest.approx((bias / n, bound / n))
    assert result.contenders[0].overall is not None
    assert not result.contenders[0].overall.functions
    assert "No sequence of prompt outcomes makes a bias larger" in page(result).decode()


def test_worst_window_is_told_with_its_stream_and_its_time(tmp_path: Path) -> None:
    # The third of four windows of stream b, and nothing else, turns out otherwise than forecast.
    made = [(f"{stream}{i}", stream, i, int(i % 4 == 0 or (stream == "b" and 10_000 <= i < 15_000)))
            for i in range(20_000) for stream in "ab"]  # fmt: skip
    records = (
        [{"event_id": name, "stream": stream, "p": 0.25, "ts": 1000 * i} for name, stream, i, _ in made],
        [{"event_id": name, "y": y, "ts": 1000 * i} for name, _, i, y in made],
    )
    (contender,) = replayed(tmp_path, *records, calibrators=["identity"]).contenders
    assert contender.overall is not None
    worst = contender.overall.worst["raw"]
    assert worst is not None
    assert (worst.stream, worst.n, worst.start_ms, worst.end_ms) == ("b", 5000, 10_001_000, 15_000_000)
    assert (worst.ece, worst.mean_forecast, worst.base_rate) == (0.75, 0.25, 1.0)
    assert contender.overall.raw.worst_window_ece == worst.ece
    other = contender.streams["a"].worst["calibrated"]
    assert other is not None
    assert other.ece == 0.0
    assert list(contender.recipes) == [contender.configs["a"]]
    assert orjson.loads(contender.recipes[contender.configs["a"]])["calibrator"] == "identity"


def test_dead_letters_are_counted_and_written_with_their_reason(tmp_path: Path) -> None:
    request = asked(tmp_path, letters=tmp_path / "dead")
    dead = found(request).dead
    letters = [orjson.loads(line) for line in (tmp_path / "dead").read_bytes().splitlines()]
    assert Counter(each["reason"] for each in letters) == Counter(dead["forecasts"]) + Counter(dead["outcomes"])
    assert {each["topic"] for each in letters} == {"forecasts.jsonl", "outcomes.jsonl"}
    assert len(letters) > 10


def test_calibrator_options_are_checked_and_named() -> None:
    made = configurations(SETTINGS, ["regret_matching:grid=20,buckets=4", "platt"], [])
    assert [each.name for each in made] == ["regret_matching:grid=20,buckets=4", "platt"]
    policy = made[0].policies.default
    assert policy is not None
    assert dict(policy.options) == {"grid": 20, "buckets": 4}
    for spec, said in (("nothing", "unknown calibrator"), ("platt:grid", "not option=value"), ("platt:grid=9", "grid")):
        with pytest.raises(SettingsError, match=said):
            configurations(SETTINGS, [spec], [])
    with pytest.raises(SettingsError, match="two configurations"):
        configurations(SETTINGS, ["platt", "platt"], [])
    assert configurations(SETTINGS, [], []) == [Configuration("present", SETTINGS.policies)]


def test_killed_by_a_signal_it_leaves_nothing_behind(tmp_path: Path) -> None:
    files = written(tmp_path, 30_000)
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    command = [sys.executable, "-m", "cli.main", "replay", "--partitions", "2", "--processes", "2"]
    command += ["--forecasts", str(files[0]), "--outcomes", str(files[1]), "--output", str(out / "out.jsonl")]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        process = subprocess.Popen(command, env={"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)})
    finally:
        signal.signal(signal.SIGINT, before)
    while not list(temporary.glob("trueup-replay-*/*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not list(temporary.iterdir())
    assert not list(out.iterdir())


def test_unsorted_file_is_told(tmp_path: Path) -> None:
    files = written(tmp_path, N)
    assert found(Request(FileSource(*files), configurations(SETTINGS, [], []))).out_of_order["outcomes"] == 0
    files[1].write_bytes(b"".join(line + b"\n" for line in reversed(files[1].read_bytes().splitlines())))
    result = found(Request(FileSource(*files), configurations(SETTINGS, [], [])))
    assert result.out_of_order["outcomes"] > 1000
    assert any("If the file was not sorted by time, sort it" in line for line in warnings(result))
    # A topic cannot be sorted.
    (line,) = [line for line in warnings(replace(result, manifest={"outcomes": {}})) if "out of time order" in line]
    assert "file" not in line
    assert "earlier record of their partition" in line


def test_rows_of_a_part_are_gone_once_it_was_played_without_a_garbage_collection(tmp_path: Path) -> None:
    request = asked(tmp_path)
    gc.collect()
    gc.disable()
    try:
        play(parts(request.source, [request.configurations], SETTINGS, tmp_path), 1, lambda _: None)
        assert not [each for each in gc.get_objects() if isinstance(each, LedgerRow)]
    finally:
        gc.enable()
