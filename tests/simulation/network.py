"""Connections of the model, which lose requests and answers."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from types import SimpleNamespace
from typing import Any

from aiokafka import errors
from aiokafka.conn import CloseReason

from tests.simulation.kafka import VERSIONS, Kafka
from tests.simulation.loop import PROCESS, Loop, Process


class Network:
    """Carries requests and answers, each in its time; what it loses is drawn from the seed."""

    def __init__(self, loop: Loop, kafka: Kafka, seed: str, log: Callable[[str], None]) -> None:
        self.loop, self.kafka, self.log = loop, kafka, log
        self.rng = random.Random(seed)
        #: How often a request meets trouble, from 0 to 1, until `calm`; and how many did.
        self.troubled, self.troubles = 0.0, 0
        #: By the name of a process of which nothing gets through: what is sent again when it does, as TCP would.
        self.cut: dict[str, list[tuple[Context, Callable[[], None]]]] = {}
        #: Called with the name of a process and a request that it is about to send, and again when that was applied.
        self.met: Callable[..., None] = lambda *_, **__: None

    async def connect(self, host: str, port: int, **options: Any) -> "Connection":  # noqa: ARG002 - as `create_conn`
        """Open a connection."""
        await asyncio.sleep(self.delay())
        return Connection(self, PROCESS.get(), options["request_timeout_ms"] / 1000, options.get("on_close"))

    def delay(self) -> float:
        """Return how long something is on its way, s."""
        return 0.0005 + 0.004 * self.rng.random() ** 3

    def through(self, process: Process | None, call: Callable[[], None]) -> None:
        """Call when something of a process gets through, in the order in which it was sent."""
        if process is not None and (held := self.cut.get(process.name)) is not None:
            held.append((copy_context(), call))
        else:
            call()

    def heal(self, name: str) -> None:
        """End a cut."""
        for context, call in self.cut.pop(name, ()):
            self.loop.call_soon(call, context=context)

    def trouble(self) -> str:
        """Return what happens to a request: mostly nothing."""
        if not self.troubled or self.rng.random() >= self.troubled:
            return ""
        self.troubles += 1
        return self.rng.choice(("lost", "applied", "late", "late"))


class Connection:
    """A connection of a process: its requests are applied one after another, and answered in their order."""

    def __init__(
        self, network: Network, process: Process | None, timeout: float, on_close: Callable[..., None] | None
    ) -> None:
        self._network, self._process, self._on_close = network, process, on_close
        self._request_timeout, self._reader = timeout, SimpleNamespace()
        self._open = True
        #: Who waits for an answer, each with what ends that.
        self._pending: dict[asyncio.Future[Any], Any] = {}
        self._queue: deque[tuple[Any, asyncio.Future[Any], str]] = deque()
        self._busy = False

    def connected(self) -> bool:
        """Whether it is open."""
        return self._open

    def close(self, reason: object = None, exc: object = None) -> asyncio.Future[None]:  # noqa: ARG002 - as aiokafka's
        """Close it; nobody is answered any more. Returns what is done when it is closed."""
        closed = self._network.loop.create_future()
        closed.set_result(None)
        if not self._open:
            return closed
        self._open = False
        for waiting, timer in self._pending.items():
            timer.cancel()
            if not waiting.done():
                waiting.set_exception(errors.KafkaConnectionError("the connection was closed"))
        self._pending.clear()
        if self._on_close is not None:
            self._on_close(self, reason)
        return closed

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - as aiokafka's
        """Send a request; what is returned is to be awaited."""
        if not self._open:
            raise errors.KafkaConnectionError("the connection is closed")
        network, prepared = self._network, request.prepare(VERSIONS)
        answered = network.loop.create_future()
        trouble = network.trouble()
        if trouble:
            network.log(f"{self._process.name if self._process else ''}: {type(request).__name__} is {trouble}")
        network.met(self._process.name if self._process else "", prepared, applied=False)
        # It goes out in the name of the process: one that stands still from now on sends it when it goes on.
        network.loop.call_soon(self._depart, prepared, answered, trouble)
        self._pending[answered] = network.loop.call_later(self._request_timeout, _late, answered)
        return answered

    def _depart(self, request: Any, answered: asyncio.Future[Any], trouble: str) -> None:
        network = self._network

        def depart() -> None:
            network.loop.call_later(network.delay(), self._arrived, request, answered, trouble, context=Context())

        network.through(self._process, depart)

    def _arrived(self, request: Any, answered: asyncio.Future[Any], trouble: str) -> None:
        if trouble == "lost":
            self._break()
            return
        self._queue.append((request, answered, trouble))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        if not self._queue:
            return
        request, answered, trouble = self._queue.popleft()
        self._busy = True
        name, identity = (self._process.name, self._process.identity) if self._process else ("", "")
        self._network.kafka.handle(request, partial(self._said, request, answered, trouble), identity)
        self._network.met(name, request, applied=True)

    def _said(self, request: Any, answered: asyncio.Future[Any], trouble: str, *fields: Any) -> None:
        network = self._network
        delay = network.delay()
        if trouble == "late":
            delay += network.rng.random() * 4
        response = request.RESPONSE_TYPE(*fields)
        if trouble == "applied":
            network.loop.call_later(delay, self._break, context=Context())
        else:
            network.loop.call_later(delay, self._answer, answered, response, context=Context())
        self._busy = False
        if self._queue:
            network.loop.call_soon(self._next, context=Context())

    def _answer(self, answered: asyncio.Future[Any], response: Any) -> None:
        self._network.through(self._process, partial(self._take, answered, response))

    def _take(self, answered: asyncio.Future[Any], response: Any) -> None:
        if self._open and (timer := self._pending.pop(answered, None)) is not None:
            timer.cancel()
            if not answered.done():
                answered.set_result(response)

    def _break(self) -> None:
        """Close it in its process's name, as when a reset arrives."""
        context = Context()
        context.run(PROCESS.set, self._process)
        self._network.loop.call_soon(self.close, CloseReason.CONNECTION_BROKEN, context=context)


def _late(answered: asyncio.Future[Any]) -> None:
    if not answered.done():
        answered.set_exception(TimeoutError())
