"""How many forecasts were outstanding at once, counted from tickets."""

from collections.abc import Sequence

#: Number of blocks, even. Outstanding forecasts are counted at the blocks' ends.
BLOCKS = 32


class Outstanding:
    """Counts of outcomes by when their ticket was issued.

    ``blocks``: stored counts, see the attribute.

    Notes
    -----
    A ticket holds r, the number of outcomes learnt when it was issued. Of the n outcomes learnt, A(w) have r < w. So
    A(w) - w forecasts were outstanding when w outcomes had been learnt, and have resolved since. `most` is the largest
    A(w) - w over the ends w of the blocks, n / 2 <= w <= n. So a long wait is forgotten once the number of outcomes has
    doubled. The order of outcomes does not matter.
    """

    def __init__(self, blocks: Sequence[int] = (0,) * BLOCKS) -> None:
        #: Outcomes whose tickets were issued in each block, shape (`BLOCKS`,). A block is 2**b outcomes long, b the
        #: least with n < 2**b `BLOCKS`.
        self.blocks = list(blocks)
        #: Outcomes.
        self.n = sum(blocks)

        self._bits = (self.n // BLOCKS).bit_length()

    def count(self, version: int) -> None:
        """Count an outcome whose ticket was issued after ``version`` outcomes."""
        if self.n + 1 == BLOCKS << self._bits:
            blocks = self.blocks
            self.blocks = [a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True)] + [0] * (BLOCKS // 2)
            self._bits += 1
        self.blocks[min(version, self.n) >> self._bits] += 1
        self.n += 1

    def most(self) -> int:
        """Return the most forecasts outstanding at once, among those resolved since; see the class's notes."""
        n, bits = self.n, self._bits
        first = -(-n >> bits + 1)  # the first end to look at; block i ends at (i + 1) << bits
        issued = sum(self.blocks[:first])
        most = max(issued - (first << bits), 0)
        for end in range(first + 1, (n >> bits) + 1):
            issued += self.blocks[end - 1]
            most = max(most, issued - (end << bits))
        return most
