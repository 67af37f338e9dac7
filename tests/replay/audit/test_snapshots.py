"""Snapshots without a cluster: an audit that begins in the middle, rows that compaction removes, files to refuse."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition

from replay import signature, snapshot
from replay.audit.output_matcher import Settled
from replay.audit.partition_verifier import OUTPUTS, Derivation
from replay.audit.reader import PartitionReader
from replay.audit.rows import Memory
from replay.signature import SignatureError
from replay.snapshot import Manifest, SnapshotError, SnapshotPart
from replay.topic_reader import Extent
from state.journal import Last
from streams.config.settings import Settings
from tests.replay.audit.partitions import RAW, Kept, audited, carrying, served

NEXT, LAST = (7, 9), (Last(1_000_000, 17), Last(1_000_001, 18))


def test_an_audit_begins_at_rows_whatever_the_journal_says_of_what_was_before() -> None:
    rows, second = Memory(), [each._replace(ts=each.ts + 60_000) for each in carrying(2, 100)]
    topics = served(carrying(1, 100), RAW, crashes=0.3, rows=rows)
    since = Derivation(Memory(rows), tuple(Settled(len(topics.records[label])) for label in OUTPUTS))
    before = {label: len(topics.records[label]) for label in ("forecasts", "outcomes")}
    served(second, RAW, seed=5, crashes=0.3, topics=topics, rows=rows)
    for label, count in before.items():
        del topics.records[label][:count]  # by retention
    checked = audited(topics, since=since).checked
    assert checked.forecasts + checked.outcomes == len(second)
    assert checked.waiting == checked.unsettled == 0


class Growing(PartitionReader):
    """Reads a changelog that grows and is compacted between two reads; ``left`` says what each of these finds."""

    def __init__(self, *left: Sequence[Kept]) -> None:
        super().__init__(Settings.from_env({}))
        self._left, self._ends = list(left), [each[-1].offset + 1 if each else 0 for each in left]

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Extent]:
        return {place: Extent(0, self._ends.pop(0)) for place in places}

    def stretches(
        self, places: Mapping[TopicPartition, tuple[int, int]], unpacked_bytes: int | None = None
    ) -> list[Iterator[Any]]:
        del unpacked_bytes
        ((first, end),) = places.values()
        return [iter([each for each in self._left.pop(0) if first <= each.offset < end])]


def row(offset: int, key: bytes, value: bytes | None) -> Kept:
    return Kept(offset, key, value, 0)


def test_a_row_that_is_compacted_away_while_it_is_read_is_read_where_it_was_written_again() -> None:
    first = [row(1, b"b", b"1"), row(2, b"c", b"1"), row(3, b"d", b"1")]  # offset 0 was an `a`, and has gone
    second = [*first, row(5, b"c", None), row(6, b"d", b"2")]  # so has offset 4, of `a` again
    third = [*second, row(7, b"a", b"3")]
    assert Growing(first, second, third).rows(0) == {b"a": b"3", b"b": b"1", b"d": b"2"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a snapshot of one partition."""
    rows = tmp_path / "partition-0"
    rows.write_bytes(b"rows" * 2000)
    digest = blake2b(rows.read_bytes(), digest_size=32).hexdigest()
    place = SnapshotPart(digest, 3, 16, NEXT, LAST, 4, 2, (5, 6, 7), "ab" * 16, 1_000_001)
    made = tmp_path / "state.snapshot"
    snapshot.pack(made, Manifest("cards", {"forecasts": ["f", "c", "t", 1]}, (place,), "2026-01-01"), [rows])
    return made


def test_a_snapshot_is_read_as_it_was_written_and_refused_where_a_bit_is_not(file: Path, tmp_path: Path) -> None:
    whole, again = file.read_bytes(), tmp_path / "again"
    again.mkdir()
    made = snapshot.read(file)
    snapshot.unpack(file, made, again)
    assert (made.application, made.partitions[0].next, made.partitions[0].last) == ("cards", NEXT, LAST)
    assert (again / "partition-0").read_bytes() == b"rows" * 2000

    def refuses(content: bytes, match: str) -> None:
        file.write_bytes(content)
        (again / "partition-0").unlink(missing_ok=True)
        with pytest.raises(SnapshotError, match=match):
            snapshot.unpack(file, snapshot.read(file), again)
        assert not (again / "partition-0").exists()

    manifest, rows = whole.index(b'"cards"') + 2, whole.index(b"rowsrows")
    refuses(whole[:manifest] + b"X" + whole[manifest + 1 :], "it is damaged")
    refuses(whole[:rows] + b"X" + whole[rows + 1 :], "its rows of partition 0 are damaged")
    refuses(whole[: rows + 100], "cannot be used")
    refuses(whole[:100], "cannot be used")
    refuses(b"", "cannot be used")
    refuses(b"a table, not a snapshot\n" * 100, "cannot be used")
    file.unlink()
    with pytest.raises(SnapshotError, match=r"cannot read the snapshot .*No such file"):
        snapshot.read(file)


def test_a_snapshot_of_another_version_is_refused_with_both(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = snapshot.read(file)
    monkeypatch.setattr(snapshot, "VERSION", 2)
    with pytest.raises(SnapshotError, match="its format has version 1, this program reads 2"):
        snapshot.read(file)
    assert orjson.loads(made.encode())["version"] == 2


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)  # noqa: S607


@pytest.fixture
def signed(file: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Sign a snapshot, and return a maker of files of who may sign, which lists a key that signed or that did not."""
    for name in ("own", "other"):
        keygen(tmp_path / name)
        (tmp_path / f"{name}.signers").write_text(f"{name} {(tmp_path / f'{name}.pub').read_text()}")
    signature.sign(file, tmp_path / "own", snapshot.NAMESPACE)
    return lambda name: tmp_path / f"{name}.signers"


def test_a_signature_is_of_the_file_the_key_and_the_purpose(
    file: Path, tmp_path: Path, signed: Callable[[str], Path]
) -> None:
    assert snapshot.read(file, signed("own")).application == "cards"
    with pytest.raises(SnapshotError, match=r"is not used: .*(none of the signers|find-principals)"):
        snapshot.read(file, signed("other"))
    whole = file.read_bytes()
    file.write_bytes(whole + b"x")
    with pytest.raises(SnapshotError, match="is not used: ssh-keygen -Y verify"):
        snapshot.read(file, signed("own"))
    file.write_bytes(whole)
    signature.sign(file, tmp_path / "own", "trueup-release")
    with pytest.raises(SnapshotError, match="is not used: ssh-keygen -Y verify"):
        snapshot.read(file, signed("own"))
    (tmp_path / "state.snapshot.sig").unlink()
    with pytest.raises(SnapshotError, match=r"has no signature state\.snapshot\.sig"):
        snapshot.read(file, signed("own"))
    with pytest.raises(SignatureError, match="ssh-keygen -Y sign"):
        signature.sign(file, tmp_path / "no-such-key", snapshot.NAMESPACE)
