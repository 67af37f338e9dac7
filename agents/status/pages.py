"""The paths: ``/`` for people, ``/api/streams`` and ``/api/streams/NAME`` for programs. They only read."""

import logging
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import orjson

from agents.server import Response
from agents.status import page, tables, view
from agents.status.readings import Readings, summary

log = logging.getLogger("trueup")

#: Streams on a page for people; the most streams in one answer for programs, and the default number.
CARDS, MOST, USUAL = 24, 1000, 100
#: The list has pictures if it has at most this many streams.
PICTURED: Final = 6
API: Final = "/api/streams"

_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", page.POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


class _Refused(Exception):  # noqa: N818 - carries an answer, no defect
    def __init__(self, status: HTTPStatus, said: str) -> None:
        super().__init__(said)
        self.status = status


class Pages:
    """Answers requests from one worker's readings. Only one thread at a time may ask it."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def __call__(self, path: str, query: str) -> Response:
        """Return the answer for a path with a query."""
        worker = self._readings.worker
        try:
            self._readings.mirror.refresh()
            return self._found(path, {name: values[0] for name, values in parse_qs(query).items()})
        except _Refused as exc:
            status, said = exc.status, str(exc)
        except TimeoutError:
            status, said = HTTPStatus.SERVICE_UNAVAILABLE, "the worker does not answer"
            worker = self._readings.silent
        except Exception:  # a defect of a page must not look like a defect of the worker
            log.exception("cannot show %r", path)
            status, said = HTTPStatus.INTERNAL_SERVER_ERROR, "the page could not be made; the worker's log says why"
        if path.startswith("/api"):
            return _json({"error": said}, status)
        return _html(page.render("problem.html", worker(), status=f"{status.value} {status.phrase}", said=said), status)

    def _found(self, path: str, asked: dict[str, str]) -> Response:
        if path == "/":
            return _html(self._page(asked))
        if path in (API, API + "/"):
            return _json(self._list(asked))
        if path.startswith(API + "/"):
            name = path.removeprefix(API + "/")
            return _json(self._stream(name) | {"maps": self._readings.maps(name)})
        there = f"there are /, {API}, {API}/NAME, /metrics, /healthz and /readyz"
        raise _Refused(HTTPStatus.NOT_FOUND, there)

    def _page(self, asked: dict[str, str]) -> str:
        worker = self._readings.worker()
        if "stream" in asked:
            described, maps = self._stream(asked["stream"]), self._readings.maps(asked["stream"])
            top, pictures = view.stream(described, maps, large=True), view.pictures(described, maps)
            return page.render("stream.html", worker, s=top, pictures=pictures, tables=tables.of_stream(described))
        query, names = self._named(asked)
        total, many = len(names), len(names) > PICTURED
        last = max(-(-total // CARDS) - 1, 0)
        number = min(_number(asked, "page", 1, 10**9) - 1, last)
        first = number * CARDS
        streams = [
            view.stream(each, [] if many else self._readings.maps(each["stream"]), small=many)
            for each in self._described(names[first : first + CARDS])
        ]
        where = f"{first + 1:,} to {first + len(streams):,} of {total:,}" if total > len(streams) else f"{total:,}"
        search = f" with “{query}” in its name" if query else ""

        def link(to: int) -> str:
            return "/?" + urlencode({"q": query, "page": to + 1})

        return page.render(
            "list.html",
            worker,
            streams=streams,
            many=many,
            topics=worker["topics"],
            total=total,
            query=query,
            counted=f"{where} {'stream' if total == 1 else 'streams'}{search}" if streams else f"no stream{search} yet",
            page=number,
            last=last,
            back=link(number - 1),
            on=link(number + 1),
        )

    def _list(self, asked: dict[str, str]) -> dict[str, Any]:
        query, names = self._named(asked)
        size = _number(asked, "size", USUAL, MOST)
        number = _number(asked, "page", 1, 10**9)
        shown = self._described(names[(number - 1) * size : number * size])
        return {
            "worker": self._readings.worker(),
            "query": query,
            "total": len(names),
            "page": number,
            "size": size,
            "streams": [summary(each) for each in shown],
        }

    def _named(self, asked: dict[str, str]) -> tuple[str, list[str]]:
        query = asked.get("q", "").strip()
        return query, self._readings.ordered(self._readings.names(query))

    def _described(self, names: list[str]) -> list[dict[str, Any]]:
        described = []
        for name in names:
            each = self._readings.stream(name)
            if each is not None:  # a partition may leave after the names were read
                described.append(each)
        return described

    def _stream(self, name: str) -> dict[str, Any]:
        described = self._readings.stream(name)
        if described is None:
            raise _Refused(HTTPStatus.NOT_FOUND, self._readings.missing(name))
        return described


def _number(asked: dict[str, str], name: str, usual: int, most: int) -> int:
    text = asked.get(name, str(usual))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= most):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} must be a whole number from 1 to {most}")
    return int(text[:12])


def _json(said: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(status, [("Content-Type", "application/json"), *_HEADERS], orjson.dumps(said))


def _html(said: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(status, [("Content-Type", "text/html; charset=utf-8"), *_HEADERS], said.encode())
