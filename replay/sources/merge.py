"""Merges the two topics of a partition into one order, by the rule of `streams.records.merge`.

The record with the smaller timestamp goes first; in the same millisecond, a forecast before an outcome. A record whose
timestamp is far ahead of its neighbours goes when they do. A topic keeps its own order, even where its timestamps fall,
as in a worker. A few chunks of each topic are held, so memory does not grow with history.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

from replay.sources.record import Chunk, SourceRecord
from state.witnesses import SLACK
from streams.records.merge import BEHIND, believed


def merged(forecasts: Iterator[Chunk], outcomes: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the records of two topics of one partition as one."""
    left, right = _Side(forecasts), _Side(outcomes)
    while left.records and right.records:
        records = _interleaved(left, right)
        if left.at == len(left.records):
            done = left.done
            left.advance()
        else:
            done = right.done
            right.advance()
        yield Chunk(records, done)
    for side in (left, right):
        while side.records:
            yield Chunk(side.records[side.at :], side.done)
            side.advance()


class _Side:
    """The chunks of one topic: the one that is being merged, and the next ones."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = (chunk for chunk in chunks if chunk.records)
        self._following: deque[Chunk] = deque()
        self.advance()

    def advance(self) -> None:
        """Go on to the next chunk."""
        chunk = self._following.popleft() if self._following else next(self._chunks, None)
        #: Records of the chunk that is being merged; empty if there is none.
        self.records, self.done = chunk or Chunk([], 0)
        #: Index of the next record in that chunk.
        self.at = 0

    def believed(self, at: int) -> int:
        """Return the time, ms, by which a record is merged if its own time is far ahead of the other topic."""
        while len(self.records) - at + sum(len(chunk.records) for chunk in self._following) <= BEHIND:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._following.append(chunk)
        following = chain.from_iterable(chunk.records for chunk in self._following)
        behind = islice(chain(self.records[at + 1 : at + 1 + BEHIND], following), BEHIND)
        return believed(self.records[at][0], [record[0] for record in behind])


def _interleaved(left: _Side, right: _Side) -> list[SourceRecord]:
    """Merge two sides until one chunk is used up; return the records."""
    mine, i, others, j = left.records, left.at, right.records, right.at
    n, m = len(mine), len(others)
    records: list[SourceRecord] = []
    append = records.append
    first, second = mine[i], others[j]
    #: The time by which the next record is merged if it is far ahead of the other topic; None until needed.
    of_first: int | None = None
    of_second: int | None = None
    while True:
        lead = second[0] - first[0]
        forecast = lead >= 0
        if lead > SLACK:
            if of_second is None:
                of_second = right.believed(j)
            forecast = first[0] <= of_second
        elif -lead > SLACK:
            if of_first is None:
                of_first = left.believed(i)
            forecast = of_first <= second[0]
        if forecast:
            append(first)
            i += 1
            of_first = None
            if i == n:
                break
            first = mine[i]
        else:
            append(second)
            j += 1
            of_second = None
            if j == m:
                break
            second = others[j]
    left.at, right.at = i, j
    return records
