"""An example: reads what trueup writes, in JSON, or in Avro with the schemas of a registry. It needs fastavro.

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

    ``registry``: address of the schema registry. Each schema is requested once.
    """

    def __init__(self, registry: str) -> None:
        self._registry = registry.rstrip("/")
        self._schemas: dict[int, Any] = {}

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return what a value means. In Avro, a field that does not apply is None, and times are datetimes."""
        if value[:1] != b"\0":
            said: dict[str, Any] = json.loads(value)
            return said
        number = int.from_bytes(value[1:5], "big")
        if number not in self._schemas:
            self._schemas[number] = self._fetched(number)
        found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._schemas[number], None)
        return dict(found)

    def _fetched(self, number: int) -> Any:  # noqa: ANN401 - fastavro's
        """Return a schema."""
        with urlopen(f"{self._registry}/schemas/ids/{number}", timeout=10) as answer:  # noqa: S310 - as it is given
            return fastavro.parse_schema(json.loads(json.load(answer)["schema"]))


async def main(brokers: str, registry: str, topic: str) -> None:
    """Print the records of a topic, old and new."""
    read = Answers(registry)
    async with AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            said = read(record.value)
            print(said["event_id"], said["stream"], said.get("p"), said.get("y"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
