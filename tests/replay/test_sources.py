"""Files as topics: formats, keys, partitions, times; and the merge beside the worker's own."""

import random
import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.sources.files import FileSource
from replay.sources.merge import merged
from replay.sources.record import Chunk, ReplaySource, SourceRecord, TableError
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import SettingsError
from streams.kafka.partitioner import partition
from streams.records.merge import BEHIND, PartitionBuffer
from streams.records.routing import target
from tests.replay.history import written
from tests.streams.fakes import record


def all_of(source: ReplaySource, topic: int, number: int = 0) -> list[SourceRecord]:
    return [each for chunk in source.read(topic, number) for each in chunk.records]


def write(path: Path, *lines: object) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines))
    return path


def test_line_keeps_its_bytes_its_number_and_its_time(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f", b'{"event_id": "a",  "ts": 5}', b"", b"junk", {"event_id": "b", "ts": 9, "timestamp": 7}
    )
    assert all_of(FileSource(path, path), FORECASTS) == [
        SourceRecord(5, FORECASTS, 0, b"a", b'{"event_id": "a",  "ts": 5}'),
        SourceRecord(5, FORECASTS, 1, None, b"junk"),
        SourceRecord(7, FORECASTS, 2, b"b", b'{"event_id":"b","ts":9,"timestamp":7}'),
    ]


def test_files_behind_intake_have_its_keys_and_scopes_also_where_outcomes_name_no_stream(tmp_path: Path) -> None:
    plan = Policies([("cards", Policy("platt", shards=2))], Policy("platt"))
    forecasts = [{"event_id": f"e{n}", "stream": ("cards", "loans")[n % 2], "p": 0.5, "ts": n} for n in range(20)]
    outcomes: list[dict[str, object]] = [{"event_id": f"e{n}", "y": 0, "ts": 50} for n in range(20)]
    files = (
        write(tmp_path / "f", *forecasts),
        write(tmp_path / "o", *outcomes, {"event_id": "unknown", "y": 0, "ts": 60}),
    )
    source = FileSource(*files, routed=plan)
    for topic in (FORECASTS, OUTCOMES):
        read = all_of(source, topic)
        assert [orjson.loads(each.value or b"").get("scope") for each in read[:20]] == ["cards", "loans"] * 10
        assert [(each.key or b"").decode() for each in read[:20]] == [
            target(stream, f"e{n}", 2 if stream == "cards" else 1) for n, stream in enumerate(["cards", "loans"] * 10)
        ]
    write(files[0], *forecasts, {"event_id": "e0", "stream": "loans", "p": 0.5, "ts": 30})
    with pytest.raises(
        TableError, match="'e0' is a forecast of stream cards and of loans; give the stream of each record"
    ):
        all_of(FileSource(*files, routed=plan), OUTCOMES)


def test_record_without_a_time_is_rejected_for_it(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"event_id": "a", "ts": 5}, {"event_id": "b"})
    assert [each.reason for each in all_of(FileSource(path, path), OUTCOMES)] == [None, "timestamp"]


def test_parquet_gives_the_records_of_its_json_lines(tmp_path: Path) -> None:
    rows = [{"event_id": f"e{i}", "stream": "s", "p": i / 7, "x": [0.5, -0.5], "timestamp": 1000 + i} for i in range(7)]
    text = write(tmp_path / "f.jsonl", *rows)
    times = pa.array([datetime.fromtimestamp(row["timestamp"] / 1000, UTC) for row in rows], pa.timestamp("us"))  # type: ignore[operator]
    table = pa.Table.from_pylist(rows).drop(["timestamp"]).append_column("timestamp", times)
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=3)
    plain, columns = (all_of(FileSource(path, path), FORECASTS) for path in (text, tmp_path / "f.parquet"))
    assert [each[:4] for each in columns] == [each[:4] for each in plain]
    assert [orjson.loads(each.value or b"") for each in columns] == rows


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"event_id": ["a"]}), tmp_path / "f.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SettingsError, match=r"pip install '\.\[parquet\]'"):
        FileSource(tmp_path / "f.parquet", tmp_path / "f.parquet")


def test_keys_are_shared_out_as_kafka_does(tmp_path: Path) -> None:
    forecasts, outcomes = written(tmp_path, 400)
    source = FileSource(forecasts, outcomes, 3)
    spooled = source.ready(tmp_path)
    whole = all_of(FileSource(forecasts, outcomes), FORECASTS)
    assert spooled.manifest() == source.manifest()
    for number in range(3):
        mine = [each for each in whole if partition(each.key or b"", 3) == number]
        assert all_of(spooled, FORECASTS, number) == mine
        assert len(mine) > 50


def test_partition_given_in_a_record_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "f", *({"event_id": str(i), "ts": i, "partition": i % 2} for i in range(6)))
    spooled = FileSource(path, path, 2).ready(tmp_path)
    assert [each.key for each in all_of(spooled, OUTCOMES, 1)] == [b"1", b"3", b"5"]
    with pytest.raises(SettingsError, match=r"record 2 of .* is of partition 7"):
        FileSource(
            path, write(tmp_path / "o", *({"event_id": "a", "ts": 1, "partition": n} for n in (0, 1, 7))), 2
        ).ready(tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*nowhere"):
        FileSource(tmp_path / "nowhere", tmp_path / "nowhere")


#: Close together, or minutes apart in any order.
TIMES = st.lists(st.integers(0, 20), max_size=40) | st.lists(
    st.integers(0, 60).map(lambda minutes: minutes * 60_000), max_size=40
)


@given(TIMES, TIMES, st.integers(1, 9))
def test_merge_is_the_one_a_worker_does_on_full_topics(ours: list[int], theirs: list[int], length: int) -> None:
    buffer = PartitionBuffer(0, ())
    for topic, times in enumerate((ours, theirs)):
        buffer.add(topic, [record("t", 0, offset, time) for offset, time in enumerate(times)])
    buffer.sources = ("f", "o")  # names enough for a batch
    everything = SimpleNamespace(caught_up=lambda _: True)
    live: list[tuple[int, int]] = []
    while batch := buffer.take(1000, 1 << 30, everything, 0.0):
        live += [(topic, each.offset) for topic, each in batch.records]
        buffer.busy = False
        buffer.acknowledged(batch)

    def chunks(topic: int, times: list[int]) -> Iterator[Chunk]:
        records = [SourceRecord(time, topic, offset, None, None) for offset, time in enumerate(times)]
        for at in range(0, len(records), length):
            yield Chunk(records[at : at + length], 1)
            yield Chunk([], 0)

    replayed = list(merged(chunks(FORECASTS, ours), chunks(OUTCOMES, theirs)))
    assert [(each.topic, each.offset) for chunk in replayed for each in chunk.records] == live
    assert sum(chunk.done for chunk in replayed) == -(-len(ours) // length) - (-len(theirs) // length)


def test_merge_holds_no_more_of_each_topic_than_it_looks_at() -> None:
    rng = random.Random(3)
    held: deque[int] = deque()

    def chunks(topic: int) -> Iterator[Chunk]:
        for n in range(100):
            held.append(topic)
            yield Chunk([SourceRecord(n * 10 + rng.randrange(5), topic, n, None, None)], 1)

    records = 0
    for chunk in merged(chunks(FORECASTS), chunks(OUTCOMES)):
        records += len(chunk.records)
        assert len(held) <= records + 2 * (BEHIND + 1)
    assert records == 200
