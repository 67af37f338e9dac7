"""The schemas of outputs in the registry: registered, or looked up, before the first record is written.

The ids are asked for once, when a process starts. After that nothing depends on the registry.
"""

import asyncio
import json
import logging
import signal
from collections.abc import Iterable
from dataclasses import replace
from time import monotonic
from typing import Final

import aiohttp

from streams.config.settings import OUTPUT_FORMATS, SUBJECTS, Settings, SettingsError
from streams.records.output_schemas import NAMES, NAMESPACE, text
from streams.sources.registry import RefusedError, RegistryError
from streams.sources.schemas import FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger("trueup")

#: What `Settings.output_register` says where nothing is registered.
_NO: Final = "no"


def subject(settings: Settings, label: str) -> str:
    """Return the subject of the schema of an output, ``calibrated`` or ``resolved``."""
    topic = {"calibrated": settings.calibrated, "resolved": settings.resolved}[label]
    return SUBJECTS[settings.output_subjects].format(topic=topic, record=f"{NAMESPACE}.{NAMES[label]}")


def waited(settings: Settings, labels: Iterable[str]) -> Settings | None:
    """Return what `known` does; None if SIGTERM or SIGINT came first. Raises as `known`."""

    async def ask() -> Settings:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, lambda: task and task.cancel())
        return await known(settings, labels)

    try:
        return asyncio.run(ask())
    except asyncio.CancelledError:
        log.info("stopped")
        return None


async def known(settings: Settings, labels: Iterable[str] = tuple(NAMES)) -> Settings:
    """Return the settings with the ids of the schemas of some outputs; as they are where outputs are JSON.

    Waits, and says so, while the registry cannot be asked.

    Raises
    ------
    SettingsError
        If the registry refuses a schema, or has none where it is to have one.
    """
    if settings.output_format == OUTPUT_FORMATS[0]:
        return settings
    try:
        session = settings.registry.session()
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc
    async with session:
        ids = {label: await _waited(settings, session, label) for label in labels}
    for label, number in ids.items():
        log.info("%s in avro: schema %d of the subject %s", label, number, subject(settings, label))
    return replace(settings, schema_ids=ids)


async def _waited(settings: Settings, session: aiohttp.ClientSession, label: str) -> int:
    pause, began = FIRST_PAUSE, monotonic()
    while True:
        try:
            return await _asked(settings, session, label)
        except RegistryError as exc:
            waited = monotonic() - began
            log.warning("waiting for the registry, for %.0f s so far, to know the schema of %s: %s", waited, label, exc)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


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
