"""An example: decides by trueup's answer if it comes in time, otherwise by a map, otherwise by the raw score.

python decide.py kafka-1:9092 fraud-cards 0.31           # to `forecasts`, where outcomes go to `outcomes`
python decide.py kafka-1:9092 fraud-cards 0.31 scores    # to a source's topic, where outcomes come through sources

It needs ``pip install 'aiokafka[all]'``: answers are compressed with zstd, which aiokafka alone cannot read.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from trueup_maps import Maps, follow


class Decision(NamedTuple):
    """A probability to decide by, and where it comes from: ``calibrated``, ``map``, or why it is the raw score."""

    p: float
    source: str


class Decisions:
    """Asks trueup for calibrated probabilities, and waits no longer than its budget.

    ``brokers``: as ``host:port``.
    ``budget``: longest wait for an answer, s.
    ``maps``: answers after that; None: use the raw score.
    ``forecasts``: topic of the forecasts. If outcomes come through sources of intake, this is the topic of a source,
    too.
    ``calibrated``: topic of the answers.
    ``read``: reads the value of an answer; for answers in Avro, an `answers.Answers`.
    """

    def __init__(
        self,
        brokers: str,
        budget: float,
        maps: Maps | None = None,
        *,
        forecasts: str = "forecasts",
        calibrated: str = "calibrated",
        read: Callable[[bytes], Mapping[str, Any]] = json.loads,
    ) -> None:
        self._read_value = read
        self._budget, self._maps, self._forecasts = budget, maps, forecasts
        self._producer = AIOKafkaProducer(bootstrap_servers=brokers)
        # Without a group, every instance reads all answers, from now on, and takes those that it waits for.
        self._consumer = AIOKafkaConsumer(calibrated, bootstrap_servers=brokers, auto_offset_reset="latest")
        self._waiting: dict[tuple[str, str], asyncio.Future[Decision]] = {}
        self._failure: RuntimeError | None = None

    async def __aenter__(self) -> Self:
        """Begin to read answers."""
        await self._producer.start()
        await self._consumer.start()
        # Reading has a fixed beginning before the first forecast is sent.
        await asyncio.gather(*[self._consumer.position(each) for each in self._consumer.assignment()])
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect from the brokers."""
        self._reading.cancel()
        await self._consumer.stop()
        await self._producer.stop()

    async def _read(self) -> None:
        """Read answers. If that ends, every decision says why: to wait for the budget each time would hide it."""
        try:
            await self._take()
        except Exception as exc:  # noqa: BLE001 - whatever it is, no answer comes any more
            self._failure = RuntimeError(f"answers cannot be read: {exc} (pip install 'aiokafka[all]' has every codec)")
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._failure)

    async def _take(self) -> None:
        async for record in self._consumer:
            said = self._read_value(record.value)
            answer = self._waiting.pop((said["event_id"], said["stream"]), None)
            if answer is not None and not answer.done():
                # A forecast that cannot be used is also answered if the streams file says on_error = "raw".
                used = said.get("calibrated", True)
                answer.set_result(Decision(said["p"], "calibrated" if used else f"raw: {said['reason']}"))

    async def decide(self, event_id: str, stream: str, p: float, segments: Mapping[str, str] | None = None) -> Decision:
        """Return what to decide an event by. Raises RuntimeError if answers cannot be read."""
        if self._failure is not None:
            raise self._failure
        forecast = {"event_id": event_id, "stream": stream, "p": p, "segments": segments or {}}
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting[event_id, stream] = answer
        try:
            async with asyncio.timeout(self._budget):
                # If it is not acknowledged in time, it may still come. Then its outcome is learnt, which does no harm.
                await self._producer.send(self._forecasts, json.dumps(forecast).encode(), key=stream.encode())
                return await answer
        except TimeoutError:
            found = None if self._maps is None else self._maps.answer(stream, p, segments)
            if found is None or found.reason:
                return Decision(p, f"raw: {'late' if found is None else found.reason}")
            return Decision(found.p, "map")
        finally:
            self._waiting.pop((event_id, stream), None)


async def main(brokers: str, stream: str, p: float, forecasts: str = "forecasts") -> None:
    """Decide one event."""
    maps = Maps(max_age=300.0)
    stop = follow(maps, "maps", bootstrap_servers=brokers)
    async with Decisions(brokers, budget=0.1, maps=maps, forecasts=forecasts) as decisions:
        print(await decisions.decide(str(uuid.uuid4()), stream, p))
    stop.set()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
    except (RuntimeError, KafkaError) as exc:
        sys.exit(str(exc))
