"""What a worker has to stand: readers of everything, connections that drip, and compressed records that expand."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from lab.scrape import get

#: What readers ask for in turn.
PAGES: Final = ("/metrics", "/api/streams")
#: How often a dripping connection sends a byte, s, and how often it is looked at.
DRIP: Final = 8.0
_LOOK: Final = 0.2
_HEAD: Final = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"y" * 10_000


async def send_at_once(
    brokers: str, topic: str, codec: str, values: Sequence[bytes], times: int = 1, every: float = 0.0
) -> None:
    """Produce records as one batch, packed by a codec, however far they would expand.

    ``times`` says how often, and ``every`` how many seconds lie between two.
    """
    size = sum(map(len, values)) + 10_000
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers, compression_type=codec, max_batch_size=size, max_request_size=size
    )
    async with producer:
        began = time.monotonic()
        for n in range(times):
            batch = producer.create_batch()
            for value in values:
                if batch.append(key=b"k", value=value, timestamp=1500) is None:
                    raise ValueError("the records do not fit one batch")
            await asyncio.sleep(began + n * every - time.monotonic())
            await (await producer.send_batch(batch, topic, partition=0))


async def send_misnamed(brokers: str, topic: str, values: Sequence[bytes], misnamed: int) -> None:
    """Produce records as one batch; one of them (-1: none) has a header whose name is in Latin-1."""
    producer = AIOKafkaProducer(bootstrap_servers=brokers, max_batch_size=sum(map(len, values)) + 10_000)
    async with producer:
        batch = producer.create_batch()
        for n, value in enumerate(values):
            headers = [("x-NAME12", b"said")] if n == misnamed else []
            batch.append(key=b"k", value=value, timestamp=1500 + n, headers=headers)
        batch.close()
        data = bytearray(batch._build().replace(b"NAME12", b"gr\xf6\xdfe "))  # it takes no such name
        data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
        batch._buffer = data
        await (await producer.send_batch(batch, topic, partition=0))


@contextmanager
def dripping(port: int, connections: int) -> Iterator[None]:
    """Keep connections to a worker open that send a byte every eight seconds; one that is closed is opened again."""
    ended = threading.Event()
    thread = threading.Thread(target=_drip, args=(port, connections, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _drip(port: int, connections: int, ended: threading.Event) -> None:
    #: How many bytes each has sent, and when the next is due.
    held: dict[socket.socket, tuple[int, float]] = {}
    while not ended.wait(_LOOK):
        with suppress(OSError):
            while len(held) < connections:
                held[socket.create_connection(("127.0.0.1", port), timeout=1)] = 0, time.monotonic()
        closed, _, _ = select.select(list(held), [], [], 0)  # nothing is asked for, so what comes is the end
        for each in closed:
            del held[each]
            each.close()
        for each, (sent, due) in held.items():
            if time.monotonic() >= due:
                with suppress(OSError):
                    each.send(_HEAD[sent : sent + 1])
                held[each] = sent + 1, due + DRIP
    for each in held:
        each.close()


@contextmanager
def reading(
    port: int, readers: int, every: float, pages: Sequence[str] = PAGES
) -> Iterator[list[tuple[str, int, float]]]:
    """Read pages from many threads, each once in ``every`` seconds.

    Yields a list that grows by path, status (0 without an answer) and how long it took, s.
    """
    ended, found = threading.Event(), list[tuple[str, int, float]]()

    def read(n: int) -> None:
        path = pages[n % len(pages)]
        ended.wait(n * every / readers)
        while not ended.is_set():
            found.append(asked(port, path))
            ended.wait(max(every - found[-1][2], 0))

    threads = [threading.Thread(target=read, args=(n,)) for n in range(readers)]
    for each in threads:
        each.start()
    try:
        yield found
    finally:
        ended.set()
        for each in threads:
            each.join()


def asked(port: int, path: str) -> tuple[str, int, float]:
    """Ask for a page; return its path, the status, 0 without an answer, and how long it took, s."""
    began, status = time.monotonic(), 0
    with suppress(OSError):
        status, _ = get("127.0.0.1", port, path)
    return path, status, time.monotonic() - began
