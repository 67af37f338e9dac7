"""A schema registry with Confluent's REST interface: its address, and requests for schemas.

The interface is that of https://docs.confluent.io/platform/current/schema-registry/develop/api.html; other registries
(Redpanda, Karapace, Apicurio under ``/apis/ccompat/v7``) have the same. Apicurio is tested. It always gives Protobuf as
text, has no GUIDs, and compares schemas letter by letter unless normalization is requested. Older registries, such as
Hortonworks Registry 0.9.1, refuse unknown fields, so the default type, Avro, is not sent.
"""

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import orjson

from streams.config.following_tls import FollowingContext
from streams.config.variables import now, variable

if TYPE_CHECKING:
    import aiohttp  # it takes a fifth of the time in which a command starts, and few need a registry

log = logging.getLogger("trueup")

#: A schema's number, or its GUID as text.
SchemaId = int | str
AVRO, PROTOBUF = "AVRO", "PROTOBUF"
#: Longest wait for an answer, s.
SECONDS: Final = 10.0
#: Longest answer, bytes.
LONGEST: Final = 16 << 20
#: The most schemas to which one schema refers, directly or not; and the longest chain of references.
_MOST, _DEEPEST = 1000, 100
#: Statuses for missing permission; and statuses for a refused schema, which do not change by themselves.
_FORBIDDEN: Final = (401, 403)
_REFUSED: Final = (*_FORBIDDEN, 404, 409, 422)
#: Statuses for what does not exist. Confluent's registry and others refuse an id that cannot exist.
_ABSENT: Final = (400, 404, 422)
#: A path that every registry answers, for any user.
_TYPES: Final = "schemas/types"
_ACCEPT: Final = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}


class RegistryError(RuntimeError):
    """The registry cannot be reached, or its answer is invalid; the message says why. Asking again may help."""


class RegistryForbiddenError(RegistryError):
    """The registry does not allow this user to read."""


class RefusedError(ValueError):
    """The registry refuses a schema, or does not allow this user to register it; the message says why."""


class _IncompleteError(Exception):
    """The registry lacks a schema that another refers to; the message says which."""


class Fetched(NamedTuple):
    """A schema from the registry."""

    #: `AVRO`, `PROTOBUF`, or another kind that is not read.
    kind: str
    #: The schema. For Protobuf, a FileDescriptorProto in base64 if the registry gives one, otherwise the file's text.
    text: str
    #: The schemas to which it refers, by name. Each comes after those to which it refers itself.
    references: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Registry:
    """The registry's address, and how to reach it."""

    url: str | None = variable(
        "REGISTRY_URL", "Schema registry with Confluent's interface, of sources and outputs; https://host:port"
    )
    username: str | None = variable("REGISTRY_USERNAME", "User name for the registry")
    password: str | None = variable("REGISTRY_PASSWORD", "Its password", in_file="its password")
    token: str | None = variable(
        "REGISTRY_TOKEN", "Bearer token for it, in the place of a user name", in_file="this token"
    )
    cafile: str | None = variable("REGISTRY_CAFILE", "Authorities to trust for it, PEM; the system's if not set")
    certfile: str | None = variable("REGISTRY_CERTFILE", "The client's certificate for it, PEM")
    keyfile: str | None = variable("REGISTRY_KEYFILE", "Its key, PEM")

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None and name != "url"]
        if self.url is None:
            if given:
                raise ValueError(f"TRUEUP_REGISTRY_{given[0].upper()} is set, but TRUEUP_REGISTRY_URL is not")
            return
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError("TRUEUP_REGISTRY_URL must be http:// or https:// and a host, without a password")
        if bool(self.username) != bool(self.password):
            raise ValueError("TRUEUP_REGISTRY_USERNAME and TRUEUP_REGISTRY_PASSWORD (or _FILE) belong together")
        if self.username and self.token:
            raise ValueError("TRUEUP_REGISTRY_TOKEN and TRUEUP_REGISTRY_USERNAME: set one of them")
        if (self.password or self.token) and parts.scheme == "http" and not _loopback(parts.hostname):
            raise ValueError("a password or token would go in the clear: TRUEUP_REGISTRY_URL must begin with https://")
        if self.keyfile and not self.certfile:
            raise ValueError("TRUEUP_REGISTRY_KEYFILE is set, but TRUEUP_REGISTRY_CERTFILE is not")

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The TLS context, which verifies names and certificates.

        Raises ValueError if a file cannot be read or has the wrong content.
        """
        return FollowingContext(self._context, (self.cafile, self.certfile, self.keyfile))

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.cafile)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile, lambda: "")
        except OSError as exc:
            files = ", ".join(name for name in (self.cafile, self.certfile, self.keyfile) if name)
            raise ValueError(f"cannot load {files} of TRUEUP_REGISTRY_*: {exc.strerror or exc}") from exc
        return context

    def session(self) -> "aiohttp.ClientSession":
        """Return a session for `fetch`; the caller closes it."""
        import aiohttp  # noqa: PLC0415 - see above

        headers = dict(_ACCEPT)
        if self.username:
            headers["Authorization"] = aiohttp.encode_basic_auth(self.username, now(self.password) or "")
        elif self.token:
            headers["Authorization"] = f"Bearer {now(self.token)}"
        return aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=SECONDS),
            connector=aiohttp.TCPConnector(ssl=self.context),
        )

    async def fetch(self, session: "aiohttp.ClientSession", schema: SchemaId) -> Fetched | None:
        """Return a schema with all schemas to which it refers; None if the registry lacks one of them.

        Raises RegistryError if the registry cannot be reached, or its answer is invalid.
        """
        path = f"schemas/ids/{schema}" if isinstance(schema, int) else f"schemas/guids/{quote(schema)}"
        found = await self._get(session, path)
        if found is None:
            await self._recognise(session)
            return None
        kind = str(found.get("schemaType") or AVRO)
        form = "?format=serialized" if kind == PROTOBUF else ""
        if form:
            found = await self._get(session, path + form) or found
        references: dict[str, str] = {}
        seen: set[str] = set()

        async def collect(found: Mapping[str, Any], depth: int) -> None:
            """Add the references of a schema, each after its own references."""
            for name, place in _references(found):
                if name in seen:
                    continue
                seen.add(name)
                if len(seen) > _MOST or depth > _DEEPEST:
                    raise _IncompleteError(f"it refers to more than {_MOST} others, or {_DEEPEST} in a row")
                referred = await self._get(session, place + form)
                if referred is None:
                    raise _IncompleteError(f"it refers to {place}, which does not exist")
                await collect(referred, depth + 1)
                references[name] = _text(referred)

        try:
            await collect(found, 1)
        except _IncompleteError as exc:
            await self._recognise(session)
            log.warning("schema %s cannot be fetched, and records that name it are dead letters: %s", schema, exc)
            return None
        return Fetched(kind, _text(found), tuple(references.items()))

    async def _recognise(self, session: "aiohttp.ClientSession") -> None:
        """Raise `RegistryError` if the server is not a registry: any other server also answers 404 for a schema."""
        try:
            known = (await self._ask(session, _TYPES))[0] not in _ABSENT
        except RegistryError:
            known = True  # it may be a registry
        if not known:
            raise RegistryError(
                f"{self._url(_TYPES)} is not there: TRUEUP_REGISTRY_URL is not the address of Confluent's interface"
            )

    async def register(self, session: "aiohttp.ClientSession", subject: str, text: str) -> int:
        """Register an Avro schema under a subject and return its id. If it is registered already, return that id.

        Raises RefusedError if the schema is not compatible with those of the subject, or if registering is not allowed.
        Raises RegistryError as `fetch`.
        """
        return _id(await self._post(session, f"subjects/{quote(subject, safe='')}/versions", text))

    async def registered(self, session: "aiohttp.ClientSession", subject: str, text: str) -> int:
        """Return the id of an Avro schema under a subject, however it is formatted. Nothing is registered.

        Raises RefusedError if it is not registered there, or the subject may not be read.
        Raises RegistryError as `fetch`.
        """
        return _id(await self._post(session, f"subjects/{quote(subject, safe='')}?normalize=true", text))

    async def latest(self, session: "aiohttp.ClientSession", subject: str) -> dict[str, Any] | None:
        """Return the latest schema of a subject; None if there is none.

        Raises RegistryForbiddenError if the subject may not be read.
        Raises RegistryError as `fetch`.
        """
        return await self._get(session, f"subjects/{quote(subject, safe='')}/versions/latest")

    async def _post(self, session: "aiohttp.ClientSession", path: str, text: str) -> dict[str, Any]:
        status, told, said = await self._ask(session, path, text)
        if status == 200 and isinstance(said, dict):
            return said
        message = said.get("message") if isinstance(said, dict) else None
        raise (RefusedError if status in _REFUSED else RegistryError)(f"{told}: {message}" if message else told)

    async def _get(self, session: "aiohttp.ClientSession", path: str) -> dict[str, Any] | None:
        """Return the object at a path; None if the status says that there is none."""
        status, told, said = await self._ask(session, path)
        if status in _ABSENT:
            return None
        if status != 200:
            raise (RegistryForbiddenError if status in _FORBIDDEN else RegistryError)(told)
        if not isinstance(said, dict):
            raise RegistryError(f"{self._url(path)} answered something else than a JSON object")
        return said

    async def _ask(
        self, session: "aiohttp.ClientSession", path: str, schema: str | None = None
    ) -> tuple[int, str, Any]:
        """Return an answer's status, the status in words, and its JSON; None if a refusal has no JSON.

        ``schema``: is posted, unless it is None.
        """
        import aiohttp  # noqa: PLC0415 - see above

        url = self._url(path)
        method, given = ("GET", None) if schema is None else ("POST", {"schema": schema})
        try:
            async with session.request(method, url, json=given) as answer:
                body = await _body(answer)
                said = orjson.loads(body) if answer.status == 200 else _refusal(body)
                return answer.status, f"{url} answered {answer.status} {answer.reason}", said
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            words = str(exc).replace(" ssl:default", "")  # aiohttp also writes this for connections without TLS
            raise RegistryError(f"{url} cannot be asked: {words or type(exc).__name__}") from exc

    def _url(self, path: str) -> str:
        return f"{str(self.url).rstrip('/')}/{path}"


def _refusal(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return what a refusal says; None if it is not JSON."""
    try:
        return orjson.loads(body)
    except ValueError:
        return None


async def _body(answer: "aiohttp.ClientResponse") -> bytes:
    """Return the body of an answer; raises ValueError if it is longer than `LONGEST`."""
    body = bytearray()
    async for part in answer.content.iter_chunked(1 << 16):
        body += part
        if len(body) > LONGEST:
            raise ValueError(f"its answer is longer than {LONGEST >> 20} MiB")
    return bytes(body)


def _references(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and path of each schema to which one refers directly."""
    references = found.get("references") or []
    try:
        return [
            (str(each["name"]), f"subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}")
            for each in references
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise RegistryError(f"references that cannot be read: {str(references)[:200]}") from exc


def _id(found: Mapping[str, Any]) -> int:
    number = found.get("id")
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise RegistryError(f"the registry gave a schema no id: {str(found)[:200]}")
    return number


def _text(found: Mapping[str, Any]) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise RegistryError("the registry gave a schema without its text")
    return text


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
