"""A file as the bytes that it holds, however it is packed. A small file that unpacks without end is refused."""

import bz2
import gzip
import io
import lzma
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from replay.sources.record import TableError
from streams.config.settings import SettingsError
from streams.kafka.codecs import NUMBERS
from streams.kafka.expansion import ExpandsError, unpacked

PARQUET: Final = b"PAR1"
_ZIP, _ZSTD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_OPEN: Final[dict[bytes, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": lambda stored: gzip.GzipFile(fileobj=stored),
    b"BZh": bz2.BZ2File,
    b"\xfd7z": lzma.LZMAFile,
}
#: What is no text, by its first bytes, and what to do with it.
_OTHERS: Final = {
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save its sheet as CSV",
    b"Obj\x01": "is an Avro file: write it as Parquet or CSV",
    b"ORC": "is an ORC file: write it as Parquet or CSV",
    b"ARRO": "is a Feather file: write it as Parquet or CSV",
    b"SQLi": "is an SQLite database: export the table as CSV",
    b"%PDF": "is a PDF: export the table as CSV",
}
_PACKED: Final = (_ZIP, _ZSTD, PARQUET, *_OPEN)
#: A file may unpack to so many bytes, and to more only if it is not so many times smaller.
_PLENTY, _TIMES_LARGER = 1 << 28, 100


def begins(path: Path) -> bytes:
    """Return the first four bytes of a file.

    Raises SettingsError if it cannot be read.
    Raises TableError if it is a folder or nothing that is read here.
    """
    if path.is_dir():
        raise TableError(f"{path} is a folder: {_parts(path)}")
    try:
        with path.open("rb") as file:
            first = file.read(4)
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror}") from exc
    if not first:
        raise TableError(f"{path} is empty")
    if not any(first.startswith(magic) for magic in _PACKED):
        recognised(path, first)
    return first


def _parts(folder: Path) -> str:
    """Return what to do with a folder, as Spark writes it."""
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name[0] not in "._")
    if len(files) == 1:
        return f"name its file, {files[0]}"
    if files and files[0].suffix == ".csv":
        return f"put its parts into one file first: awk 'NR==1 || FNR>1' {shlex.quote(str(folder))}/*.csv > table.csv"
    if next(folder.rglob("*.parquet"), None):
        code = f"import pyarrow.parquet as p; p.write_table(p.read_table({str(folder)!r}), 'table.parquet')"
        return f"put its parts into one file first: python -c {shlex.quote(code)}"
    return "name one file, or put its parts into one first"


def recognised(path: Path, first: bytes) -> None:
    """Raise TableError if what a file holds begins as something that is no text."""
    for magic, what in _OTHERS.items():
        if first.startswith(magic):
            raise TableError(f"{path} {what}")
    if any(first.startswith(magic) for magic in _PACKED):
        raise TableError(f"{path} holds a packed file: unpack it first")


def bounded(path: Path, size: int) -> None:
    """Raise TableError if a file unpacks to ``size`` bytes or more, and this is too much for one of its size."""
    if size > max(_PLENTY, _TIMES_LARGER * path.stat().st_size):
        raise TableError(
            f"{path} has {path.stat().st_size:,} bytes and unpacks to over {size:,}: unpack it first if that is meant"
        )


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file, and give what it holds, and the file as stored.

    Raises SettingsError if it cannot be read.
    Raises TableError if it is a folder, cut, broken, of several files, or unpacks to too much; also while it is read.
    """
    first = begins(path)
    try:
        with path.open("rb") as stored:
            if first == _ZIP:
                try:
                    inner = _member(path, stored)
                except ValueError as exc:  # names that are no text
                    raise zipfile.BadZipFile("its names are no text") from exc
            elif first == _ZSTD:
                limit = max(_PLENTY, _TIMES_LARGER * path.stat().st_size)
                inner = io.BytesIO(unpacked(NUMBERS["zstd"], stored.read(), limit))
            else:
                inner = next((unpack(stored) for magic, unpack in _OPEN.items() if first.startswith(magic)), stored)
            yield (stored if inner is stored else cast("IO[bytes]", io.BufferedReader(_Bounded(path, inner)))), stored
    except ExpandsError as exc:
        raise TableError(f"{path} cannot be unpacked: {exc}") from exc
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError) as exc:
        raise TableError(f"{path} is cut or broken and cannot be unpacked to its end: {exc}") from exc


def _member(path: Path, stored: IO[bytes]) -> IO[bytes]:
    archive = zipfile.ZipFile(stored)
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if any(name.startswith("xl/") for name in names):
        raise TableError(f"{path} is an Excel workbook: save its sheet as CSV")
    if len(names) != 1:
        raise TableError(f"{path} holds {len(names)} files: unpack it and name one of them")
    return archive.open(names[0])


class _Bounded(io.RawIOBase):
    """What a file holds, until it is too much."""

    def __init__(self, path: Path, inner: IO[bytes]) -> None:
        self._path, self._inner, self._size = path, inner, 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: "memoryview") -> int:  # type: ignore[override]  # any buffer
        found = self._inner.read(len(room))
        room[: len(found)] = found
        self._size += len(found)
        bounded(self._path, self._size)
        return len(found)
