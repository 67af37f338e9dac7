"""A stand-in for a schema registry: what is read of Confluent's REST interface, as its reference describes it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

from aiohttp import web


@dataclass
class StandIn:
    """Schemas, and how requests are answered.

    Attributes
    ----------
    schemas
        Answers by path, such as ``schemas/ids/1``; ``?format=serialized`` is a part of the path.
    broken
        Statuses to answer with first, one request each.
    authorization
        The header that requests must have; None for none.
    asked
        Paths in the order of the requests.
    """

    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)
    authorization: str | None = None
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path_qs.removeprefix("/")
        self.asked.append(path)
        kind = "application/vnd.schemaregistry.v1+json"
        if self.broken:
            return web.Response(status=self.broken.pop(0))
        if self.authorization is not None and request.headers.get("Authorization") != self.authorization:
            return web.json_response({"error_code": 401, "message": "Unauthorized"}, status=401)
        found = self.schemas.get(path)
        if found is None:
            said = {"error_code": 40403, "message": "Schema not found"}
            return web.json_response(said, status=404, content_type=kind)
        return web.json_response(found, content_type=kind)

    @asynccontextmanager
    async def served(self, tls: SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
        """Serve on loopback, and give the address."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
            await site.start()
            bound = runner.addresses[0][1]
            yield f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
        finally:
            await runner.cleanup()
