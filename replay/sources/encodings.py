"""The encoding of a file of text."""

import codecs
from pathlib import Path
from typing import Final

from replay.sources.record import TableError
from replay.sources.unpacking import opened, recognised

#: Bytes that are decoded at once, and the longest line.
_BLOCK, LINE = 1 << 18, 1 << 26
#: Encodings to propose if text is neither UTF-8 nor Western European.
OTHERS: Final = "another, such as cp1250 (Polish), cp1251 (Russian), cp932 (Japanese) or gb18030 (Chinese)"
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def encoding_of(path: Path, given: str | None) -> tuple[str, bool]:
    """Return the encoding that can read all of the file, and whether the file has NUL characters.

    Raises SettingsError if the file cannot be read.
    Raises TableError if it is empty, no text, or not in the encoding.

    ``given``: None: UTF-8, UTF-16 if it looks so, else cp1252.
    """
    with opened(path) as (file, _):
        head = file.read(4096)
    if not head:
        raise TableError(f"{path} is empty")
    recognised(path, head)
    encoding = given or next((name for bom, name in _BOMS if head.startswith(bom)), None) or _guess(head)
    line, nul, beyond = 1, False, False
    with opened(path) as (file, _):
        decoder, open_line = codecs.getincrementaldecoder(encoding)(), 0
        while True:
            block = file.read(_BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as exc:
                # A file that was UTF-8 so far, with letters beyond ASCII, is not cp1252.
                if encoding == "utf-8" and not given and not beyond and exc.object[: exc.start].isascii():
                    return encoding_of(path, "cp1252")
                line += exc.object[: exc.start].count(b"\n")
                raise TableError(
                    f"{path}: line {line} is not {encoding}; --encoding names "
                    f"{OTHERS if encoding == 'cp1252' else 'another, such as cp1252'}"
                ) from exc
            line += text.count("\n")
            nul = nul or "\0" in text
            beyond = beyond or not text.isascii()
            end = max(text.rfind("\n"), text.rfind("\r"))
            open_line = open_line + len(text) if end < 0 else len(text) - end
            if open_line > LINE:
                raise TableError(f"{path} is no table: a line of it has over {LINE:,} characters")
            if not block:
                return encoding, nul


def _guess(head: bytes) -> str:
    """Return UTF-16 for text that has a zero in every other byte, else UTF-8."""
    for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros.count(0) > 0.4 * max(len(zeros), 2):
            return name
    return "utf-8"
