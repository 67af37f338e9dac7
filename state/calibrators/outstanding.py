"""How many forecasts were outstanding at once, counted from what tickets say."""

from collections.abc import Sequence

#: Outstanding forecasts are counted at so many moments, the blocks' ends, an even number.
BLOCKS = 32


class Outstanding:
    """Counts of outcomes by when their ticket was issued.

    Parameters
    ----------
    blocks
        As `blocks` was.

    Attributes
    ----------
    n
        Outcomes.
    blocks
        Of each block the outcomes whose tickets were issued in it, shape (`BLOCKS`,). A block is 2**b outcomes long, b
        the least with n < 2**b `BLOCKS`.

    Notes
    -----
    A ticket says r, the outcomes learnt when it was issued. Of the n outcomes learnt, A(w) have r < w. So A(w) - w were
    outstanding when w had been learnt, and have resolved since. `most` is the largest A(w) - w over the ends w of the
    blocks, n / 2 <= w <= n. A long wait is so forgotten when the outcomes have doubled. The order of outcomes changes
    neither A nor n.
    """

    def __init__(self, blocks: Sequence[int] = (0,) * BLOCKS) -> None:
        self.blocks = list(blocks)
        self.n = sum(blocks)
        self._bits = (self.n // BLOCKS).bit_length()

    def count(self, version: int) -> None:
        """Count an outcome whose ticket was issued when so many had been learnt."""
        if self.n + 1 == BLOCKS << self._bits:
            blocks = self.blocks
            self.blocks = [a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True)] + [0] * (BLOCKS // 2)
            self._bits += 1
        self.blocks[min(version, self.n) >> self._bits] += 1
        self.n += 1

    def most(self) -> int:
        """Return the most forecasts that were outstanding at once, of those resolved since; see the class's notes."""
        n, bits = self.n, self._bits
        first = -(-n >> bits + 1)  # the first end to look at; the end of block i is (i + 1) << bits
        issued = sum(self.blocks[:first])
        most = max(issued - (first << bits), 0)
        for end in range(first + 1, (n >> bits) + 1):
            issued += self.blocks[end - 1]
            most = max(most, issued - (end << bits))
        return most
