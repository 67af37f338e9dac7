"""The schemas of outputs in the registry: registered, or looked up, before the first record is written.

The ids are asked for once, when a process starts. After that nothing depends on the registry.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

import aiohttp

from streams.config.settings import OUTPUT_FORMATS, SUBJECTS, Settings, SettingsError
from streams.records.output_schemas import NAMES, NAMESPACE, text
from streams.sources.registry import RefusedError, RegistryError
from streams.sources.wait import Wait

log = logging.getLogger("trueup")

#: What `Settings.output_register` says where nothing is registered.
_NO: Final = "no"


def subject(settings: Settings, label: str) -> str:
    """Return the subject of the schema of an output, ``calibrated`` or ``resolved``."""
    topic = {"calibrated": settings.calibrated, "resolved": settings.resolved}[label]
    return SUBJECTS[settings.output_subjects].format(topic=topic, record=f"{NAMESPACE}.{NAMES[label]}")


async def awaited(settings: Settings, labels: Iterable[str], wait: Wait, stop: asyncio.Event) -> Settings | None:
    """Return what `known` does; None if ``stop`` came first."""
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
    """Return the settings with the ids of the schemas of some outputs; as they are where outputs are JSON.

    Waits, and says so, while the registry cannot be asked.

    Raises
    ------
    SettingsError
        If the registry refuses a schema, or has none where it is to have one.
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
        log.info("%s in avro: schema %d of the subject %s", label, number, subject(settings, label))
    return replace(settings, schema_ids=ids)


async def _asked(settings: Settings, session: aiohttp.ClientSession, label: str) -> int:
    registry, under, name = settings.registry, subject(settings, label), f"{NAMESPACE}.{NAMES[label]}"
    try:
        if settings.output_register == _NO:
            return await registry.registered(session, under, text(label))
        return await registry.register(session, under, text(label))
    except RefusedError as exc:
        held = await _held(settings, session, under)
        if settings.output_register == _NO:
            remedy = f"register it there ('trueup schema {label}' prints it), or set TRUEUP_OUTPUT_REGISTER=yes"
        else:
            remedy = (
                "name subjects in another way by TRUEUP_OUTPUT_SUBJECTS, or let somebody register it who may "
                f"('trueup schema {label}' prints it) and set TRUEUP_OUTPUT_REGISTER=no"
            )
        raise SettingsError(
            f"the registry does not give the schema {name} under the subject {under}, which {held}: {exc}; {remedy}"
        ) from exc


async def _held(settings: Settings, session: aiohttp.ClientSession, under: str) -> str:
    """Return in words what a subject has."""
    try:
        latest = await settings.registry.latest(session, under)
    except RegistryError:
        return "cannot be read"
    if latest is None:
        return "has no schema"
    try:
        found = json.loads(latest["schema"])
        name = ".".join(part for part in (found.get("namespace"), found["name"]) if part)
    except (KeyError, TypeError, ValueError, AttributeError):
        name = "another schema"
    return f"has {name} as version {latest.get('version')}, id {latest.get('id')}"
