"""The schemas that records name by id: asked for once, and kept.

Reading a record is pure. So what it needs is fetched before: `Schemas.load` waits until the registry has said of every
id what its schema is, or that there is none.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Final

from streams.sources.registry import Fetched, Registry, SchemaId
from streams.sources.wait import Wait

#: How long it counts that there is no such schema, s, and most ids of which it is remembered.
UNKNOWN_SECONDS: Final = 60.0
_MOST_UNKNOWN: Final = 10_000
#: Most schemas that are asked for at one time: whoever names ten thousand that do not exist holds up everybody.
AT_ONCE: Final = 16


class Schemas:
    """What a registry has said.

    Parameters
    ----------
    registry
        Where it is asked; None: nothing may be loaded.

    Attributes
    ----------
    wait
        What it has not answered yet.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        self.wait = Wait()
        self._known: dict[SchemaId, Fetched] = {}
        #: Ids without a schema, and until when that counts.
        self._unknown: dict[SchemaId, float] = {}

    def get(self, schema: SchemaId) -> Fetched | None:
        """Return a schema that was loaded; None if the registry has none."""
        return self._known.get(schema)

    def lacks(self, schema: SchemaId) -> bool:
        """Whether the registry has to be asked before a record with this id can be read."""
        return schema not in self._known and self._unknown.get(schema, 0.0) <= monotonic()

    async def load(self, schemas: Iterable[SchemaId] | Mapping[SchemaId, str]) -> None:
        """Ask for schemas until the registry has answered, and say so where it does not.

        Parameters
        ----------
        schemas
            Their ids, with the names of the sources whose records name them, where these are known.
        """
        registry = self._registry
        if registry is None:
            return
        async with registry.session() as session:

            async def ask_in_turn() -> None:
                for schema in left:
                    ask = partial(registry.fetch, session, schema)
                    whose = f"source {schemas[schema]}" if isinstance(schemas, Mapping) else ""
                    self._keep(schema, await self.wait.answer(ask, f"schema {schema}", whose))

            left = iter(schemas)
            try:
                async with asyncio.TaskGroup() as asking:
                    for _ in range(AT_ONCE):
                        asking.create_task(ask_in_turn())
            except ExceptionGroup as several:
                raise several.exceptions[0] from None

    def _keep(self, schema: SchemaId, found: Fetched | None) -> None:
        if found is not None:
            self._known[schema] = found
            return
        if len(self._unknown) >= _MOST_UNKNOWN:  # ids are named by the records: do not let them fill memory
            self._unknown.clear()
        self._unknown[schema] = monotonic() + UNKNOWN_SECONDS
