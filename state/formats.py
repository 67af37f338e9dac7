"""Whether a partition's rows are of this build's formats, asked when it is taken up and not with the first event."""

from collections.abc import Callable
from typing import Final

from state import entities, keys, ledger, rows
from state.frames import CorruptFrame, OtherFormat, unseal
from state.policy import Policies, Policy

#: Version of what is answered: raised when the same records get other bytes, which `tests/frozen` notices.
ARITHMETIC: Final = 2

#: What reads a row of each kind whose bytes another build may have written otherwise.
READERS: Final[dict[bytes, Callable[[bytes, bytes], object]]] = {
    keys.LEDGER: lambda _, row: ledger.decode(row),
    keys.SCORES: lambda _, row: unseal(keys.SCORES[0], rows.SCORES_VERSION, row),
    keys.WINDOWS: lambda _, row: unseal(keys.WINDOWS[0], rows.WINDOWS_VERSION, row),
    keys.VECTORS: lambda _, row: rows.decode_vectors(row),
    keys.COMPARISON: lambda _, row: rows.decode_comparison(row),
    keys.AGES: lambda _, row: rows.decode_ages(row),
    keys.COVERAGE: lambda _, row: rows.decode_coverage(row),
    keys.DISTRIBUTION: lambda _, row: rows.decode_distribution(row),
    keys.NAMES: lambda _, row: rows.decode_names(row),
    keys.SEGMENT: lambda _, row: rows.decode_segment(row),
    keys.ENTITIES: lambda _, row: entities.recoded(row),
}


def check(first: Callable[[bytes], tuple[bytes, bytes] | None], policies: Policies) -> None:
    """Read one row of each kind, and of each calibrator that is configured.

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
    found = [(first(kind), reads) for kind, reads in READERS.items()]
    configs = {each.config for policy in _configured(policies) for each in (policy, *policy.challengers)}
    found += [(first(keys.CALIBRATOR + bytes.fromhex(config)), _read_calibrator) for config in configs]
    for held, reads in found:
        if held is not None:
            try:
                reads(*held)
            except OtherFormat:
                raise
            except CorruptFrame:
                pass


def _read_calibrator(key: bytes, row: bytes) -> object:
    return rows.decode_calibrator(row, key[keys.OF_STREAM[keys.CALIBRATOR] :].decode())


def _configured(policies: Policies) -> list[Policy]:
    default = [] if policies.default is None else [policies.default]
    return [*(policy for _, policy in policies.patterns), *default]
