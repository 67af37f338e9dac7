"""Equality by bytes."""


class Encoded:
    """A value that can be stored: two of one type are equal if their bytes are.

    It is compiled, so only compiled classes can have it as their base.
    """

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the bytes."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and type(other) is type(self) and self.encode() == other.encode()

    __hash__ = None  # type: ignore[assignment]  # values change
