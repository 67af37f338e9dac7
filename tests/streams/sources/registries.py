"""A stand-in for a schema registry: what is used of Confluent's REST interface, as its reference describes it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

from aiohttp import web

from streams.sources import proto_file


@dataclass
class StandIn:
    """Schemas, and how requests are answered."""

    #: Answers by path, such as ``schemas/ids/1``; ``?format=serialized`` is a part of the path.
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Statuses to answer with, by path.
    statuses: dict[str, int] = field(default_factory=dict)
    #: What to answer as it is, by path.
    bodies: dict[str, bytes] = field(default_factory=dict)
    #: Statuses to answer with first, one request each.
    broken: list[int] = field(default_factory=list)
    #: Ids of the versions of each subject, in order; a version that is registered must read what the latest wrote.
    subjects: dict[str, list[int]] = field(default_factory=dict)
    #: The header that requests must have; None for none.
    authorization: str | None = None
    #: Whether registering is forbidden.
    read_only: bool = False
    #: The status of what every registry answers.
    types: int = 200
    #: Paths in the order of the requests.
    asked: list[str] = field(default_factory=list)
    #: Where it is served, for tests to note.
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path_qs.removeprefix("/").removesuffix("?normalize=true")
        self.asked.append(path)
        kind = "application/vnd.schemaregistry.v1+json"
        if self.broken:
            return web.Response(status=self.broken.pop(0))
        if path in self.bodies:
            return web.Response(body=self.bodies[path])
        if path in self.statuses:
            return web.json_response({"error_code": self.statuses[path]}, status=self.statuses[path])
        if self.authorization is not None and request.headers.get("Authorization") != self.authorization:
            return web.json_response({"error_code": 401, "message": "Unauthorized"}, status=401)
        if request.method == "POST":
            status, found = self.posted(path, json.loads(await request.text()))
        elif path == "schemas/types":
            return web.json_response(["AVRO", "JSON", "PROTOBUF"], status=self.types, content_type=kind)
        elif path.endswith("/versions/latest") and path not in self.schemas:
            status, found = self._latest(path.split("/")[1])
        else:  # it may give Protobuf as text, whatever is asked for
            status, found = 200, self.schemas.get(path) or self.schemas.get(path.removesuffix("?format=serialized"), {})
        if not found:
            status, found = 404, {"error_code": 40403, "message": "Schema not found"}
        return web.json_response(found, status=status, content_type=kind)

    def posted(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Register a schema (``subjects/S/versions``) or look it up (``subjects/S``)."""
        _, subject, *register = path.split("/")
        text, kind, versions = body["schema"], body.get("schemaType", "AVRO"), self.subjects.get(subject, [])
        given = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        for at, number in enumerate(versions):
            if plain(self._held(number)) == plain(given):
                return 200, {"id": number} if register else self._version(subject, at)
        if not register:
            missing = {"error_code": 40403, "message": "Schema not found"}
            return 404, missing if versions else {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if self.read_only:
            return 403, {"error_code": 40301, "message": "User is denied operation Write on Subject"}
        if versions and (why := unreadable(given, self._held(versions[-1]))):
            said = "Schema being registered is incompatible with an earlier schema for subject"
            return 409, {"error_code": 409, "message": f'{said} "{subject}", details: {why}'}
        known = [int(name.rpartition("/")[2]) for name, held in self.schemas.items() if held == given]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[f"schemas/ids/{number}"] = given
        self.subjects.setdefault(subject, []).append(number)
        return 200, {"id": number}

    def _latest(self, subject: str) -> tuple[int, dict[str, Any]]:
        versions = self.subjects.get(subject)
        return (200, self._version(subject, len(versions) - 1)) if versions else (404, {})

    def _version(self, subject: str, at: int) -> dict[str, Any]:
        number = self.subjects[subject][at]
        return {"subject": subject, "version": at + 1, "id": number, **self._held(number)}

    def _held(self, number: int) -> dict[str, Any]:
        return self.schemas[f"schemas/ids/{number}"]

    @asynccontextmanager
    async def served(self, tls: SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
        """Serve on loopback, and give the address."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        app.router.add_post("/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
            await site.start()
            bound = runner.addresses[0][1]
            yield f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
        finally:
            await runner.cleanup()

    @contextmanager
    def apart(self, port: int = 0) -> Iterator[str]:
        """Serve from a thread of its own, for a test that has no loop, and give the address."""
        loop, told, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
        urls: list[str] = []

        async def serve() -> None:
            async with self.served(port=port) as url:
                urls.append(url)
                told.set()
                await ended.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        told.wait(10)
        try:
            yield urls[0]
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()


def plain(held: dict[str, Any]) -> Any:
    """Return a schema however it is formatted."""
    kind, text = held.get("schemaType"), held["schema"]
    return (kind, proto_file.descriptors([("a.proto", text)])[-1] if kind == "PROTOBUF" else json.loads(text))


def unreadable(reader: dict[str, Any], writer: dict[str, Any]) -> str:
    """Return why what one schema wrote cannot be read by another, or nothing; only of Avro fields are looked at."""
    kind = reader.get("schemaType", "AVRO")
    if kind != writer.get("schemaType", "AVRO"):
        return "Incompatible because of different schema type"
    (_, one), (_, other) = plain(reader), plain(writer)
    if kind == "PROTOBUF":
        return "" if one.message_type[0].name == other.message_type[0].name else "MESSAGE_REMOVED"
    if kind == "JSON":
        return "" if one.get("title") == other.get("title") else "TITLE_CHANGED"
    return unreadable_avro(one, other)


def unreadable_avro(reader: dict[str, Any], writer: dict[str, Any]) -> str:
    """Return why what one schema wrote cannot be read by another, by the rules of Avro 1.11 for records; or nothing."""
    if reader["name"] != writer["name"]:
        return f"NAME_MISMATCH: expected {reader['name']}"
    written = {each["name"]: each["type"] for each in writer["fields"]}
    for each in reader["fields"]:
        if each["name"] not in written:
            if "default" not in each:
                return f"READER_FIELD_MISSING_DEFAULT_VALUE: {each['name']}"
        elif written[each["name"]] != each["type"]:
            return f"TYPE_MISMATCH: {each['name']}"
    return ""
