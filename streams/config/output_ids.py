"""The schemas of outputs in the registry: registered, or looked up, before the first record is written.

A process asks for the ids once, when it starts. After that nothing depends on the registry.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streams.config.declared import OUTPUT_FORMATS
from streams.config.settings import Settings, SettingsError
from streams.records.output_schemas import NAMES, NAMESPACE, text
from streams.sources.registry import AVRO, RefusedError, RegistryForbiddenError
from streams.sources.wait import Wait

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("trueup")

#: The value of `Settings.output_register` that registers nothing.
_NO: Final = "no"


def subject(settings: Settings, label: str) -> str:
    """Return the subject of the schema of an output, ``calibrated`` or ``resolved``."""
    topic = {"calibrated": settings.calibrated, "resolved": settings.resolved}[label]
    return f"{topic}-value"


async def awaited(settings: Settings, labels: Iterable[str], wait: Wait, stop: asyncio.Event) -> Settings | None:
    """Return the result of `known`; None if ``stop`` was set first."""
    asking = asyncio.create_task(known(settings, labels, wait))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        for task in (asking, stopping):
            task.cancel()
        await asyncio.wait({asking, stopping})


async def known(settings: Settings, labels: Iterable[str] = tuple(NAMES), wait: Wait | None = None) -> Settings:
    """Return the settings with the ids of the schemas of some outputs; unchanged if outputs are plain JSON.

    While the registry cannot be reached, it waits and logs that.

    Raises SettingsError if the registry refuses a schema, or lacks a schema that must be there.
    """
    if settings.output_format == OUTPUT_FORMATS[0]:
        return settings
    waiting = Wait() if wait is None else wait
    try:
        session = settings.registry.session()
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc
    async with session:
        ids = {
            label: await waiting.answer(partial(_asked, settings, session, label), f"the schema of {label}")
            for label in labels
        }
    for label, number in ids.items():
        log.info("%s in Avro: schema %d of the subject %s", label, number, subject(settings, label))
    return replace(settings, schema_ids=ids)


async def _asked(settings: Settings, session: "aiohttp.ClientSession", label: str) -> int:
    registry, under = settings.registry, subject(settings, label)
    try:
        held, has = await registry.latest(session, under), ""
    except RegistryForbiddenError:
        held, has = None, "cannot be read"
    # Otherwise some registries accept a schema of another kind for the subject, and nobody can read the records.
    other = held is not None and (held.get("schemaType") or AVRO) != AVRO
    ask = registry.registered if other or settings.output_register == _NO else registry.register
    try:
        return await ask(session, under, text(label))
    except RefusedError as exc:
        printed = f"'trueup schema {label}' prints it"
        if other:
            remedy = (
                "schemas of another kind are for another subject: write to another topic, or register it there "
                f"yourself ({printed})"
            )
        elif settings.output_register == _NO:
            remedy = f"register it there ({printed}), or set TRUEUP_OUTPUT_REGISTER=yes"
        else:
            remedy = (
                f"write to another topic, or let somebody register it who may ({printed}) and set "
                "TRUEUP_OUTPUT_REGISTER=no"
            )
        raise SettingsError(
            f"TRUEUP_OUTPUT_FORMAT=avro: the registry does not give the schema {NAMESPACE}.{NAMES[label]} under the "
            f"subject {under}, which {has or _told(held)}: {exc}; {remedy}"
        ) from exc


def _told(held: dict[str, Any] | None) -> str:
    """Describe a subject's schema; include its kind if that is not Avro."""
    if held is None:
        return "has no schema"
    kind, name = held.get("schemaType") or AVRO, "another schema"
    if kind == AVRO:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            found = json.loads(held["schema"])
            name = ".".join(part for part in (found.get("namespace"), found["name"]) if part)
    told = f"has {name} as version {held.get('version')}, id {held.get('id')}"
    return told if kind == AVRO else f"{told}, of {kind}"
