"""The frame of every stored row: kind, version, payload, checksum.

Layout (little-endian): ``kind`` u8 · ``version`` u8 · ``payload`` · ``crc32`` u32 of all before it. RocksDB and Kafka
check their own blocks. This checksum also covers the way between them, so a row that was cut or changed is refused.
"""

from struct import error
from typing import Final

from state.quick import BYTES, checksum

#: Bytes a frame adds to its payload.
OVERHEAD: Final = 6


class CorruptFrame(ValueError):  # noqa: N818 - names what it found, as the operations page does
    """A stored row is cut, changed, of another kind, or of a version this build cannot read."""


class OtherFormat(CorruptFrame):
    """A stored row is intact, but of a format that this build does not read."""


#: The remedy.
REMEDY: Final = (
    "another build of trueup wrote it. Run that build, or derive the state anew from the input topics: "
    "trueup replay --write-state NEW_APP_ID; see docs/how-to/upgrade.md"
)
#: Errors that reading a payload may raise if it is damaged although its frame is intact.
DAMAGE: Final = (error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def damaged(kind: int, cause: Exception) -> CorruptFrame:
    """Return the error to raise when one of `DAMAGE` came while the payload of a row of this kind was read."""
    return OtherFormat(f"the payload of a {chr(kind)!r} row is not what one holds: {cause!r}")


def seal(kind: int, version: int, payload: bytes) -> bytes:
    """Wrap a payload as a frame.

    Returns ``len(payload) + 6`` bytes.

    ``kind, version``: both 0 to 255. ``kind`` is the letter of the row's key.
    ``payload``: any bytes.
    """
    body = b"%b%b%b" % (BYTES[kind], BYTES[version], payload)
    return body + checksum(body).to_bytes(4, "little")


def unseal(kind: int, version: int, frame: bytes) -> bytes:
    """Return the payload of a frame, after all checks.

    Raises CorruptFrame if the frame is too short, its checksum differs, or it is not of this kind and version.
    """
    if len(frame) < OVERHEAD:
        raise CorruptFrame(f"a frame of {len(frame)} bytes is shorter than its own header")
    if checksum(frame[:-4]).to_bytes(4, "little") != frame[-4:]:
        raise CorruptFrame(f"checksum of a {chr(frame[0])!r} row differs from its content")
    if frame[0] != kind:
        raise CorruptFrame(f"found a {chr(frame[0])!r} row where a {chr(kind)!r} row belongs")
    if frame[1] != version:
        raise OtherFormat(f"a {chr(kind)!r} row has format version {frame[1]}, this build reads version {version}")
    return frame[2:-4]
