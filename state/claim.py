"""The claim: which worker took a partition over last, and as which producer the brokers know it."""

from struct import Struct
from typing import NamedTuple, Self

from state.kind import Kind, Moves, form

_HEAD = Struct("<qH")


class Claim(NamedTuple):
    """What a worker appends to the changelog before it reads what is there.

    The engine never reads it. It stands in the changelog because the brokers take a producer's epoch from what it
    appends: from this row on they refuse every older one.

    Attributes
    ----------
    producer_id
        Kafka's number for all writers of the partition.
    epoch
        Of this writer, 0 to 32,767; a later writer has a higher one.
    owner
        Name of the worker, for people.
    """

    producer_id: int
    epoch: int
    owner: str

    def encode(self) -> bytes:
        """Return the payload."""
        return _HEAD.pack(self.producer_id, self.epoch) + self.owner.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a payload."""
        producer_id, epoch = _HEAD.unpack_from(payload)
        return cls(producer_id, epoch, payload[_HEAD.size :].decode())


CLAIM = Kind[Claim]("O", "the claim", (), {1: form(Claim)}, Moves.OUTSIDE, "one a partition: who writes it")
