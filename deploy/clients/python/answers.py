"""An example: read what trueup writes, JSON, or Avro, Protobuf or JSON with the schemas of a registry. Needs fastavro.

python answers.py kafka-1:9092 http://registry:8081 calibrated
"""

import asyncio
import io
import json
import sys
from typing import Any
from urllib.request import urlopen

import fastavro
from aiokafka import AIOKafkaConsumer


class Answers:
    """Turns the values of ``calibrated`` and ``resolved`` into dictionaries.

    Parameters
    ----------
    registry
        Address of the schema registry. Each schema is asked for once.
    message
        For Protobuf, the class that protoc makes of what ``trueup schema calibrated --format protobuf`` prints.
    """

    def __init__(self, registry: str, message: type | None = None) -> None:
        self._registry = registry.rstrip("/")
        self._message: Any = message
        self._schemas: dict[int, Any] = {}

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return what a value says.

        In Avro, a field that does not apply is None, and times are datetimes. In Protobuf it is left out, and so is a
        required one that is 0 or false.
        """
        if value[:1] != b"\0":
            said: dict[str, Any] = json.loads(value)
            return said
        number = int.from_bytes(value[1:5], "big")
        if number not in self._schemas:
            self._schemas[number] = self._fetched(number)
        schema = self._schemas[number]
        if schema == "JSON":
            return dict(json.loads(value[5:]))
        if schema == "PROTOBUF":  # the sixth byte is the place of the message in its file, the first
            return {field.name: said for field, said in self._message.FromString(value[6:]).ListFields()}
        found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        return dict(found)

    def _fetched(self, number: int) -> Any:  # noqa: ANN401 - fastavro's
        """Return a schema of Avro, and of all others their kind."""
        with urlopen(f"{self._registry}/schemas/ids/{number}", timeout=10) as answer:  # noqa: S310 - as it is given
            found = json.load(answer)
        kind = found.get("schemaType", "AVRO")
        return fastavro.parse_schema(json.loads(found["schema"])) if kind == "AVRO" else kind


async def main(brokers: str, registry: str, topic: str) -> None:
    """Print what a topic holds, and what comes."""
    read = Answers(registry)
    async with AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            said = read(record.value)
            print(said["event_id"], said["stream"], said.get("p"), said.get("y"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
