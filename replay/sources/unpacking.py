"""Opens files, whatever their compression is. A small file that unpacks to too much is refused."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from replay.sources.record import TableError
from streams.config.settings import SettingsError
from streams.kafka.codecs import NUMBERS, ExpandsError, unpacked

PARQUET: Final = b"PAR1"
_ZIP, _ZSTD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_OPEN: Final[dict[bytes, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": lambda stored: gzip.GzipFile(fileobj=stored),
    b"BZh": bz2.BZ2File,
    b"\xfd7z": lzma.LZMAFile,
}
#: First bytes of files that are not text (Excel, Avro, ORC, Feather, SQLite, PDF, SAS, SPSS, Stata, HDF5, R, Python's
#: pickle), and of text that is not a table (HTML and XML).
_OTHERS: Final = (
    *(b"\xd0\xcf\x11\xe0", b"Obj\x01", b"ORC", b"ARRO", b"SQLi", b"%PDF", b"\0\0\0\0", b"$FL2", b"<sta", b"\x89HDF"),
    *(b"X\n\0\0", b"RDX2", b"RDX3", b"\x80\x04", b"\x80\x05", b"<htm", b"<!DO", b"<?xm"),
)
#: No text has this many zero bytes in a row, in whatever encoding.
_ZEROS: Final = b"\0" * 8
#: First bytes of files packed in other ways: 7z, RAR, Snappy, LZ4, Zstandard with a frame to skip, LZMA, compress.
_ELSE: Final = (
    *(b"7z\xbc\xaf", b"Rar!", b"\xff\x06\0\0", b"\x04\x22\x4d\x18", b"\x50\x2a\x4d\x18", b"\x5d\0\0", b"\x1f\x9d"),
)
#: A JSON object or array. SQL Server writes column names in brackets.
_JSON: Final = re.compile(rb"\s*(\{|\[\s*([{\[\"]|$))")
_PACKED: Final = (_ZIP, _ZSTD, PARQUET, *_OPEN)
#: Any file may unpack to this many bytes; to more only if the ratio is less than this.
_PLENTY, _TIMES_LARGER = 1 << 28, 100


def parts(path: Path) -> list[Path]:
    """Return the files of a table: the file itself, or the files of a folder by name, as Spark writes them.

    Raises TableError if a folder has no files. Files such as ``_SUCCESS`` do not count.
    """
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size)
    found = [each for each in files if not any(name[0] in "._" for name in each.relative_to(path).parts)]
    if not found:
        raise TableError(f"{path} is a folder, and no file in it holds anything")
    return found


def stored_bytes(path: Path) -> int:
    """Return the size of a file, or of all parts of a folder, as stored."""
    return sum(each.stat().st_size for each in parts(path))


def begins(path: Path) -> bytes:
    """Return the first four bytes of a file, or of the first part of a folder.

    Raises SettingsError if it cannot be read.
    Raises TableError if the kind of file is not supported.
    """
    part = parts(path)[0]
    try:
        with part.open("rb") as file:
            first = file.read(4)
    except OSError as exc:
        folder = "; of several files, name their folder" if "*" in part.name else ""
        raise SettingsError(f"cannot read {part}: {exc.strerror}{folder}") from exc
    if not first:
        raise TableError(f"{part} is empty")
    if not first.startswith(_PACKED):
        recognised(part, first)
    return first


def holds_json(path: Path) -> bool:
    """Return whether the content begins like a JSON object or array. Raises as `opened`."""
    with opened(path) as (file, _):
        begin = file.read(64).replace(b"\0", b"")  # the zero bytes of UTF-16
    return _JSON.match(begin.lstrip(codecs.BOM_UTF8 + codecs.BOM_UTF16)) is not None


def recognised(path: Path, first: bytes) -> None:
    """Raise TableError if the content does not begin like text."""
    if first.startswith((*_PACKED, *_ELSE)) or first[257:262] == b"ustar":
        raise TableError(f"{path} holds a packed file: unpack it first")
    if first.startswith(_OTHERS) or _ZEROS in first.rstrip(b"\0"):
        raise TableError(
            f"{path} is neither text nor Parquet, whatever its name says, or it is HTML or XML: save its table as CSV"
        )


def bounded(path: Path, size: int) -> None:
    """Raise TableError if ``size`` unpacked bytes are too many for the file's packed size."""
    if size > max(_PLENTY, _TIMES_LARGER * stored_bytes(path)):
        raise TableError(
            f"{path} has {stored_bytes(path):,} bytes and unpacks to over {size:,}: unpack it first if that is meant"
        )


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file, or the parts of a folder one after another. Yield the content, and the file as stored.

    Raises SettingsError if it cannot be read. Raises TableError if it is cut, broken, an archive of several files, or
    unpacks to too much; perhaps only while it is read.
    """
    if path.is_dir():
        with _Joined(parts(path)) as joined:
            yield cast("IO[bytes]", io.BufferedReader(joined)), cast("IO[bytes]", joined)
        return
    first = begins(path)
    try:
        with path.open("rb") as stored:
            if first == _ZIP:
                try:
                    inner = _member(path, stored)
                except ValueError as exc:  # bytes in names that are not text
                    raise zipfile.BadZipFile("its names are not text") from exc
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


class _Joined(io.RawIOBase):
    """The text of a folder's files, one after another, each from a new line on. `tell` counts bytes as stored."""

    def __init__(self, paths: list[Path]) -> None:
        self._left, self._stack = paths[::-1], ExitStack()
        self._inner: IO[bytes] | None = None
        self._stored, self._ended = 0, True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._stored

    def readinto(self, room: "memoryview") -> int:  # type: ignore[override]  # any buffer
        while self._left:
            if self._inner is None:
                if begins(self._left[-1]) == PARQUET:
                    raise TableError(f"{self._left[-1]} is Parquet, and the first file of its folder is not")
                self._inner, _ = self._stack.enter_context(opened(self._left[-1]))
                found = self._inner.read(len(room) - 1).removeprefix(codecs.BOM_UTF8)
                found = found if self._ended else b"\n" + found
            else:
                found = self._inner.read(len(room))
            if found:
                room[: len(found)] = found
                self._ended = found.endswith(b"\n")
                return len(found)
            self._stack.close()
            self._inner, self._stored = None, self._stored + self._left.pop().stat().st_size
        return 0

    def close(self) -> None:
        self._stack.close()
        super().close()


class _Bounded(io.RawIOBase):
    """The content of a file, up to the bound."""

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
