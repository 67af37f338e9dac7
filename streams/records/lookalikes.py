"""Stream names that look like others: letters of several scripts in one name, such as a Cyrillic а in ``frаud``."""

import unicodedata
from collections.abc import Iterable

from state import keys

#: Names that are remembered, and most that are told of: streams are named by records.
KNOWN, TOLD = 10_000, 100


def scripts(name: str) -> list[str]:
    """Return the scripts of a name's letters, sorted, by the first word of each letter's Unicode name.

    >>> scripts("fraud-7"), scripts("frаud")
    (['LATIN'], ['CYRILLIC', 'LATIN'])
    """
    return sorted({unicodedata.name(letter, "UNNAMED").split()[0] for letter in name if letter.isalpha()})


class Lookalikes:
    """Tells of each stream whose name mixes scripts, once."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._told = 0

    def among(self, rows: Iterable[bytes]) -> list[str]:
        """Return what is to be said of streams whose rows, by key, changed."""
        said = []
        for key in rows:
            if key[:1] != keys.SCORES or key.isascii() or key in self._known:
                continue
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known.add(key)
            name = key[1:].decode()
            found = scripts(name)
            if len(found) > 1 and self._told < TOLD:
                self._told += 1
                plain = name.encode("ascii", "backslashreplace").decode()
                said.append(f"stream {plain} has letters of {' and '.join(found)}: it may look like another's name")
        return said
