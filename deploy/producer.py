"""The demo's producer: eleven months of real flights, played as if they took off from now on.

A month passes in six minutes. So forecasts and outcomes come at about 150 a second for over an hour, with times that
fit both the brokers' retention and a dashboard's last hour. Order, gaps and delays are those of the data,
only shorter.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

from lab import flights
from lab.player import TimedRecord, play
from streams.config.settings import Settings, SettingsError

#: How many times as fast as in 2013: a month takes six minutes.
SPEED: Final = 7200.0
#: Messages that are sent together: those of a second or two.
SLICE: Final = 200


def moved(messages: Iterable[TimedRecord], start_ms: int, speed: float) -> Iterator[TimedRecord]:
    """Yield the messages: the first at ``start_ms``, and every later one ``speed`` times as soon as in the data."""
    first: int | None = None
    for message in messages:
        if first is None:
            first = message.time_ms
        yield message._replace(time_ms=start_ms + round((message.time_ms - first) / speed))


async def produce(settings: Settings, rows: int | None, speed: float) -> int:
    """Play the flights at this speed; return how many messages were acknowledged."""
    messages = flights.load(rows).messages(forecasts=settings.forecasts, outcomes=settings.outcomes)
    sent = 0

    async def send() -> None:
        nonlocal sent
        due = moved(messages, int(time.time() * 1000), speed)
        async for progress in play(due, settings.client_options(), slice_messages=SLICE):
            sent = progress.sent.total()
            await asyncio.sleep(max(progress.time_ms / 1000 - time.time(), 0.0))

    playing = asyncio.create_task(send())
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, playing.cancel)
    try:
        await playing
    except asyncio.CancelledError:
        print("told to stop")
    return sent


def main() -> int:
    """Produce until the last flight has landed or SIGTERM comes; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="only the first N flights (default: all 309,772)")
    parser.add_argument("--speed", type=float, default=SPEED, help="times as fast as in 2013 (default: %(default)g)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as exc:
        print(f"producer: {exc}", file=sys.stderr)
        return 78
    print(f"{asyncio.run(produce(settings, options.rows, options.speed)):,} messages sent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
