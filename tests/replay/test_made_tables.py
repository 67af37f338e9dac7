"""Tables of every way of writing, and with faults: the first of the sweep that tests/bench/tables.py makes."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from replay.sources.files import FileSource
from replay.sources.record import TableError
from replay.sources.table import Columns, read
from state.fence import FORECASTS
from tests.bench.tables import sweep


def test_a_table_is_read_as_it_was_written_or_its_fault_is_named() -> None:
    found, wrong = sweep(range(1, 51))
    assert not wrong
    assert found["no fault: read"] > 20
    assert len(found) > 12


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("line", [b"", b"a,.5,1,2024-01-01\n"])
def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object, line: bytes
) -> None:
    monkeypatch.setattr("replay.sources.unpacking._PLENTY", 1 << 14)
    path = tmp_path / "in.csv"
    path.write_bytes(pack(b"id,p,y,at\n" + (line or b" ") * 200_000))  # type: ignore[operator]
    with pytest.raises(TableError, match="unpack it first if that is meant"):
        read(path, Columns("p", "y", "at"))
    path.write_bytes(pack(b"{}\n" + (line or b" ") * 200_000))  # type: ignore[operator]
    with pytest.raises(TableError, match="unpack it first if that is meant"):
        list(FileSource(path, path).read(FORECASTS, 0))
