"""Requests to brokers that aiokafka lacks, each declared by the schemas of its fields and of its answer."""

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactString, Schema, TaggedFields

#: Parts of the schemas of flexible versions (KIP-482).
TEXT, TAGS = CompactString("utf-8"), ("tags", TaggedFields)


def struct(key: int, version: int, asked: Schema, answered: Schema, *, flexible: bool = True) -> type[Any]:
    """Return one version of a request as aiokafka takes it; flexible versions have tags."""
    answer = type("Answer", (Response,), {"API_KEY": key, "API_VERSION": version, "SCHEMA": answered})
    of = {"API_KEY": key, "API_VERSION": version, "SCHEMA": asked}
    return type("Asked", (RequestStruct,), {**of, "RESPONSE_TYPE": answer, "FLEXIBLE_VERSION": flexible})


def request(version: type[Any]) -> type[Any]:
    """Return the class of a request that is sent in one version; its arguments are the fields, in their order."""

    class Made(Request[version]):  # type: ignore[misc]  # aiokafka ships no type hints
        API_KEY = version.API_KEY

        def __init__(self, *fields: Any) -> None:  # noqa: ANN401 - as the schema has them
            self._fields = fields

        def build(self, kind: type[Any]) -> Any:  # noqa: ANN401 - aiokafka's
            return kind(*self._fields)

    return Made
