"""How old outcomes are when they come (placeholder)."""

from typing import Self


class Ages:
    """Placeholder."""

    def __init__(self) -> None:
        self.n = [0, 0, 0]

    def observe(self, age_ms: int, label: int) -> None:
        """Add."""
        self.n[min(label, 1)] += 1

    def expire(self) -> None:
        """Add."""
        self.n[2] += 1

    def encode(self) -> bytes:
        """Bytes."""
        return b"".join(n.to_bytes(8, "little") for n in self.n)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read."""
        made = cls()
        made.n = [int.from_bytes(payload[i * 8 : i * 8 + 8], "little") for i in range(3)]
        return made
