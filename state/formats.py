"""Whether a partition's rows are of this build's formats, asked when it is taken up and not with the first event."""

from collections.abc import Callable
from typing import Final

from state import kinds  # noqa: F401 - declares them
from state.frames import CorruptFrame, OtherFormat
from state.kind import CONFIG, KINDS, Moves
from state.policy import Policies, Policy

#: Version of what is answered: raised when the same records get other bytes, which `tests/frozen` notices.
ARITHMETIC: Final = 3


def check(first: Callable[[bytes], tuple[bytes, bytes] | None], policies: Policies) -> None:
    """Read one row of each kind, and of each configuration where a kind has one.

    A build writes all rows of a kind alike, so one says what the others are.

    Parameters
    ----------
    first
        Returns the first key that begins with a prefix, with its row; None if there is none.
    policies
        How streams are configured.

    Raises
    ------
    OtherFormat
        If another build wrote a row. A row that is damaged is noticed when it is needed.
    """

    def get(key: bytes) -> bytes | None:
        found = first(key)
        return found[1] if found is not None and found[0] == key else None

    configs = {each.config for policy in _configured(policies) for each in (policy, *policy.challengers)}
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


def _configured(policies: Policies) -> list[Policy]:
    default = [] if policies.default is None else [policies.default]
    return [*(policy for _, policy in policies.patterns), *default]
