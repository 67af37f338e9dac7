"""The schemas that records name by id. Each is fetched once, and kept.

Reading a record is pure, so its schema is fetched before that: `Schemas.load` waits until the registry has answered for
every id, with the schema or with its absence.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from streams.sources.refusal import Unfit
from streams.sources.registry import Fetched, Registry, SchemaId
from streams.sources.wait import Wait

#: How long it is remembered that a schema is missing, s; and for how many schemas.
UNKNOWN_SECONDS: Final = 60.0
_MOST_UNKNOWN: Final = 10_000
#: The most schemas requested at once: many ids that do not exist must not delay all records.
AT_ONCE: Final = 16

Made = TypeVar("Made")


class Schemas:
    """The answers of a registry.

    ``registry``: where to ask; None: nothing may be loaded.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        #: Questions that the registry has not answered yet.
        self.wait = Wait()

        self._known: dict[SchemaId, Fetched] = {}
        #: Ids without a schema, each with the time until which this is remembered.
        self._unknown: dict[SchemaId, float] = {}

    def get(self, schema: SchemaId) -> Fetched | None:
        """Return a schema that was loaded; None if the registry has none."""
        return self._known.get(schema)

    def lacks(self, schema: SchemaId) -> bool:
        """Whether the registry has to be asked before a record with this id can be read."""
        return schema not in self._known and self._unknown.get(schema, 0.0) <= monotonic()

    async def load(self, schemas: Iterable[SchemaId] | Mapping[SchemaId, str]) -> None:
        """Ask for schemas until the registry has answered. While it does not answer, log that.

        ``schemas``: ids, with the names of the sources whose records name them, if known.
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
        if len(self._unknown) >= _MOST_UNKNOWN:  # records choose the ids, so these must not fill the memory
            self._unknown.clear()
        self._unknown[schema] = monotonic() + UNKNOWN_SECONDS


class KnownSchemas(dict[SchemaId, Made]):
    """Objects made from schemas that records name. Each is made once; an error in a schema is also found only once.

    ``kind``: required kind of schema.
    ``make``: makes the object of a schema; raises ValueError or TypeError.
    """

    def __init__(self, schemas: Schemas, kind: str, make: Callable[[Fetched], Made]) -> None:
        super().__init__()
        self._schemas, self._kind, self._make = schemas, kind, make
        self._refused: dict[SchemaId, Unfit] = {}

    def lacking(self, schema: SchemaId | None) -> SchemaId | None:
        """Return the id if its schema has to be loaded before; otherwise None."""
        return schema if schema is not None and self._schemas.lacks(schema) else None

    def __missing__(self, schema: SchemaId) -> Made:
        """Make the object for a schema; raises Unfit if it cannot be made."""
        fetched = self._schemas.get(schema)
        if fetched is None:  # the registry may have it later
            raise Unfit("schema", f"the registry has no schema {schema}")
        if schema in self._refused:
            raise Unfit(*self._refused[schema].args)
        try:
            if fetched.kind != self._kind:
                raise ValueError(f"its kind is {fetched.kind}, not {self._kind}")
            made = self[schema] = self._make(fetched)
        except (ValueError, TypeError) as exc:
            self._refused[schema] = Unfit("schema", f"schema {schema}: {exc}")
            raise self._refused[schema] from None
        return made
