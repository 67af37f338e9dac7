"""The claim: which worker last took over a partition, and the producer id and epoch under which it writes."""

from struct import Struct
from typing import NamedTuple, Self

from state.kind import Kind, Moves, form

_HEAD = Struct("<qH")


class Claim(NamedTuple):
    """The row that a worker appends to the changelog before it reads the changelog.

    It is for the brokers: they learn a producer's epoch from its appends. After this row they refuse every older epoch.
    The engine never reads it.
    """

    #: Kafka's number for all writers of the partition.
    producer_id: int
    #: Epoch of this writer, 0 to 32,767; a later writer has a higher one.
    epoch: int
    #: Name of the worker, for people.
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
