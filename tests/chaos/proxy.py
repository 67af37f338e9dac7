"""A TCP relay on loopback that can cut, silence and delay what passes between a worker and its broker."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK = 1 << 16
#: Chunks held back in one direction of a connection before its sender feels it.
HELD = 1024


class Proxy:
    """Listens on ``port`` and relays to ``upstream``; a context. Its loop runs on a thread of its own."""

    def __init__(self) -> None:
        #: Port on this machine to relay to; set it before the first client connects.
        self.upstream = 0
        #: Where clients connect.
        self.port = 0
        self._cut = False
        self._delay = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, HOST, 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        self.cut()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections, and new ones as soon as they are made, until `mend`."""

        async def apply() -> None:
            self._cut = True
            await self._hang_up()

        self._run(apply())

    def silence(self) -> None:
        """Let nothing pass in either direction until `mend`; connections stay."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def slow(self, seconds: float) -> None:
        """Deliver every chunk so much later, until `mend`."""
        self._delay = seconds

    def mend(self) -> None:
        """Relay as if nothing had been; what was held back is delivered."""
        self._cut, self._delay = False, 0.0
        self._loop.call_soon_threadsafe(self._open.set)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        await self._hang_up()

    async def _hang_up(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        ends = [writer]
        try:
            if not self._cut:
                up_reader, up_writer = await asyncio.open_connection(HOST, self.upstream)
                ends.append(up_writer)
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(self._relay(reader, up_writer))
                    directions.create_task(self._relay(up_reader, writer))
        except* (OSError, EOFError):
            pass  # either side is gone, and so is the other now
        except* asyncio.CancelledError:
            pass  # cut; a task that ends cancelled would be reported by the server
        finally:
            self._connections.discard(task)
            for end in ends:
                end.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one direction; raises EOFError at its end, which ends the other direction too."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD)

        async def deliver() -> None:
            while True:
                due, chunk = await held.get()
                wait = due - self._loop.time()
                if wait > 0:
                    await asyncio.sleep(wait)
                await self._open.wait()
                writer.write(chunk)
                await writer.drain()
                if not chunk:
                    raise EOFError

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(deliver())
            chunk = b"-"
            while chunk:
                chunk = await reader.read(CHUNK)
                await held.put((self._loop.time() + self._delay, chunk))
