"""The sources that a worker maps itself, because their topic is one of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.sources.formats import asks_registry
from streams.sources.mapping import Mapping
from streams.sources.modes import Source
from streams.sources.references import Headers
from streams.sources.refusal import Refusal
from streams.sources.registry import Registry, SchemaId
from streams.sources.schemas import Schemas


class TopicMapping:
    """Reads a topic by its sources. For each record it uses the first source whose ``when`` holds.

    ``sources``: at least one, in the order of the file.
    ``schemas``: the schemas that records name.
    """

    def __init__(self, sources: Sequence[Source], topic: str, schemas: Schemas) -> None:
        self.topic = topic
        #: Names of the sources, for people.
        self.names = ", ".join(each.name for each in sources)

        self._mappings = [Mapping(each, schemas) for each in sources]
        #: Carriers of the sources, for answers.
        self.carriers = [mapping.carrier for mapping in self._mappings]
        #: Returns the fields of a record, or why it is refused; see `Mapping.read`.
        self.read = self._first if len(sources) > 1 else self._mappings[0].read

    def lacking(self, value: bytes | None, key: bytes | None, headers: Headers) -> list[SchemaId]:
        """Return the ids of schemas that have to be loaded before a record is read."""
        return [schema for mapping in self._mappings for schema in mapping.lacking(value, key, headers)]

    def _first(
        self, value: bytes | None, key: bytes | None, headers: Headers, topic: str, timestamp: int
    ) -> dict[str, Any] | Refusal:
        for mapping in self._mappings:
            found = mapping.read(value, key, headers, topic, timestamp)
            if not (isinstance(found, Refusal) and found.passed):
                break
        return found


@dataclass(frozen=True)
class Direct:
    """The sources that a worker maps itself."""

    #: Its topics of forecasts and of outcomes.
    topics: tuple[str, str]
    #: The sources of each topic, in the order of the file. A topic without any has records in trueup's own form.
    sources: tuple[tuple[Source, ...], tuple[Source, ...]]
    #: The registry that has the schemas.
    registry: Registry

    @property
    def asks_registry(self) -> bool:
        """Whether records name schemas in a registry."""
        return any(asks_registry(each.table) for sources in self.sources for each in sources)

    def mappings(self, schemas: Schemas) -> tuple[TopicMapping | None, TopicMapping | None]:
        """Return the mappings of forecasts and of outcomes; None for a topic without a source."""
        forecasts, outcomes = (
            TopicMapping(sources, topic, schemas) if sources else None
            for sources, topic in zip(self.sources, self.topics, strict=True)
        )
        return forecasts, outcomes
