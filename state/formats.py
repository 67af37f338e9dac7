"""The check that a partition's rows have the formats of this build. It is made when the partition is taken up."""

from collections.abc import Callable
from typing import Final

from state import kinds, rescale  # noqa: F401 - declare them
from state.frames import CorruptFrame, OtherFormat
from state.kind import CONFIG, KINDS, Moves
from state.policies import Policies

#: Version of the answers. It is raised when the same records give other bytes; `tests/frozen` notices that.
ARITHMETIC: Final = 14


#: Prefix of the store's own keys.
_STORE: Final = b"_"


def check(first: Callable[[bytes], tuple[bytes, bytes] | None], policies: Policies) -> None:
    """Read one row of each kind, or of each kind and configuration.

    A build writes all rows of a kind in one format, so one row is enough.

    Raises OtherFormat if another build wrote a row, or if a row is of a kind that this build does not know: folding
    would leave it unchanged. Damaged rows are noticed later, when they are needed.

    ``first``: returns the first key that begins with a prefix, with its row; None if there is none.
    """

    def get(key: bytes) -> bytes | None:
        found = first(key)
        return found[1] if found is not None and found[0] == key else None

    for letter in (bytes([n]) for n in range(256)):
        if letter not in KINDS and letter != _STORE and (held := first(letter)) is not None:
            raise OtherFormat(f"this build has no rows of the kind {letter.decode('latin-1')!r}, and found {held[0]!r}")
    configs = {each.config for policy in policies.all for each in (policy, *policy.challengers)}
    for kind in KINDS.values():
        if kind.moves == Moves.OUTSIDE:
            continue
        of_config = CONFIG in kind.parts
        for prefix in [kind.letter + bytes.fromhex(each) for each in configs] if of_config else [kind.letter]:
            held = first(prefix)
            if held is not None:
                try:
                    kind.read(*held, get)
                except OtherFormat:
                    raise
                except CorruptFrame:
                    pass
