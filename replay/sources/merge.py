"""The merge of a partition's two topics into one order, by the rule of `streams.records.merge`.

Of the two next records the one with the smaller timestamp goes first, a forecast before an outcome of the same
millisecond. A topic keeps its own order, also where its timestamps fall: so did the live worker. One chunk of each
topic is held, so memory does not grow with history.
"""

from collections.abc import Iterator

from replay.sources.record import Chunk, SourceRecord


def merged(forecasts: Iterator[Chunk], outcomes: Iterator[Chunk], added_ms: int = 0) -> Iterator[Chunk]:
    """Yield the records of two topics as one.

    Parameters
    ----------
    forecasts, outcomes
        Of one partition.
    added_ms
        By how much outcomes come later than they did, ms; their timestamps are changed. May be negative.
    """
    left, right = _held(forecasts, 0), _held(outcomes, added_ms)
    ours, theirs = next(left, None), next(right, None)
    i = j = 0
    while ours is not None and theirs is not None:
        records, i, j = _interleaved(ours.records, i, theirs.records, j)
        if i == len(ours.records):
            yield Chunk(records, ours.done)
            ours, i = next(left, None), 0
        else:
            yield Chunk(records, theirs.done)
            theirs, j = next(right, None), 0
    for rest, at, chunks in ((ours, i, left), (theirs, j, right)):
        if rest is not None:
            yield Chunk(rest.records[at:], rest.done)
            yield from chunks


def _interleaved(
    mine: list[SourceRecord], i: int, others: list[SourceRecord], j: int
) -> tuple[list[SourceRecord], int, int]:
    """Merge from two places on until one side is used up; return the records and both places."""
    n, m = len(mine), len(others)
    records: list[SourceRecord] = []
    append = records.append
    first, second = mine[i], others[j]
    while True:
        if first[0] <= second[0]:
            append(first)
            i += 1
            if i == n:
                return records, i, j
            first = mine[i]
        else:
            append(second)
            j += 1
            if j == m:
                return records, i, j
            second = others[j]


def _held(chunks: Iterator[Chunk], added_ms: int) -> Iterator[Chunk]:
    """Pass over chunks without records; move the others in time."""
    for chunk in chunks:
        if not chunk.records:
            continue
        if added_ms:
            moved = [record._replace(timestamp=record.timestamp + added_ms) for record in chunk.records]
            yield Chunk(moved, chunk.done)
        else:
            yield chunk
