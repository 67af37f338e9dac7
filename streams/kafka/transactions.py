"""Transactions of other producers that stay open, and hold back what lies behind them.

A consumer that reads what was committed stops at the last stable offset: the first record of the first transaction that
is open. Where its producer neither ends it nor is found dead by its coordinator, nothing behind it is read, for ever.
Lag is counted to the same offset, so it stays 0.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from aiokafka.structs import TopicPartition

log = logging.getLogger("trueup")

#: After so long a transaction that nobody ends is named, s: Kafka's own bound on it is a minute by default.
HANGING: Final = 75.0


@dataclass
class _Open:
    """A transaction that holds something back: where it begins, how much, since when, and what was said of it."""

    offset: int
    records: int
    since: float
    said: str = ""


class HeldBack:
    """Watches what partitions hold behind open transactions.

    Parameters
    ----------
    brokers
        Where the cluster is, for the command that ends a transaction.
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = ",".join(brokers)
        self._open: dict[TopicPartition, _Open] = {}

    def look(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Note the last stable offset and the end of each partition, and log once which transaction hangs."""
        now, before = monotonic(), self._open
        self._open = {}
        for place, (stable, end) in ends.items():
            if end > stable >= 0:
                known = before.get(place)
                each = known if known is not None and known.offset == stable else _Open(stable, 0, now)
                each.records = end - stable
                self._open[place] = each
                if not each.said and now - each.since >= HANGING:
                    each.said = self._sentence(place, each.offset)
                    log.warning("%s", each.said)

    def _sentence(self, place: TopicPartition, offset: int) -> str:
        partition = f"--topic {place.topic} --partition {place.partition}"
        return (
            f"{place.topic}/{place.partition} cannot be read beyond offset {offset}: the transaction that begins there "
            f"has been open for {HANGING:g} s. kafka-transactions.sh --bootstrap-server {self._brokers} "
            f"describe-producers {partition} names its producer; if that does not end it, end it by abort {partition} "
            f"--start-offset {offset}"
        )

    def samples(self, labels: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Yield the gauges, by what topics are called there; any thread may ask."""
        for place, each in list(self._open.items()):
            of = labels.get(place.topic, place.topic), str(place.partition)
            yield "held_back_records", of, float(each.records)
            yield "held_back_seconds", of, monotonic() - each.since

    @property
    def said(self) -> tuple[str, ...]:
        """What is to be said of transactions that hang; any thread may ask."""
        return tuple(each.said for each in list(self._open.values()) if each.said)
