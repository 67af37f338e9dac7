"""The records of a key, and records of events, in all topics: for ``trueup forget``."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cli import reading
from cli.dead_letters import read_letter
from cli.try_source import Trial, TriedRecord
from state import kinds
from state.kind import KINDS
from streams.config.settings import Settings
from streams.kafka.topics import partitions
from streams.records.limits import SCOPED
from streams.records.mentions import mentions


class NamedEvent(NamedTuple):
    """An event as its records name it. ``scope`` is None without a scope."""

    event_id: str
    scope: str | None = None


async def records(settings: Settings, key: bytes) -> list[TriedRecord]:
    """Return the records with a Kafka key in every topic that users write: sources, and inputs without intake.

    Raises TopicsError if a topic cannot be read.
    """
    topics = [mode.topic for mode in settings.modes]
    topics += () if settings.has_intake else settings.inputs
    return [
        TriedRecord.of(each) async for each in reading.records(settings, list(dict.fromkeys(topics))) if each.key == key
    ]


def named(settings: Settings, found: Iterable[TriedRecord]) -> list[NamedEvent]:
    """Return the events of records, each once."""
    trial = Trial(settings)
    tried = [trial.of_topic(each) for each in found]
    made = [each.made for each in tried if each is not None and each.made is not None]
    return list(dict.fromkeys(NamedEvent(str(each["event_id"]), _text(each.get("scope"))) for each in made))


async def kept(settings: Settings, key: bytes) -> list[NamedEvent]:
    """Return the events whose rows hold a key. Their records may no longer be in the topics.

    Only rows of events that mature hold a key. With intake that key is the stream's, so there is nothing to look for.

    Raises TopicsError if the changelog cannot be read.
    """
    if settings.has_intake or await partitions(settings, settings.changelog) is None:
        return []
    return await _rows(settings, lambda row: kinds.LEDGER.decode(row).key == key)


async def unknown(settings: Settings, events: Iterable[NamedEvent]) -> list[str]:
    """Return the ids of events without a row; none if there is no state. With intake, an event's scope is its stream.

    Raises TopicsError if the changelog cannot be read.
    """
    if not (wanted := list(events)) or await partitions(settings, settings.changelog) is None:
        return []
    known = set(await _rows(settings))
    if settings.has_intake:
        known = {NamedEvent(each.event_id) for each in known}
    return [each.event_id for each in wanted if each not in known]


async def _rows(settings: Settings, takes: Callable[[bytes], bool] = lambda _: True) -> list[NamedEvent]:
    """Return the events of those present rows that ``takes`` accepts."""
    names = dict[bytes, None]()
    async for record in reading.records(settings, [settings.changelog]):
        if KINDS.get((record.key or b"")[:1]) is kinds.LEDGER:
            if record.value is not None and takes(record.value):
                names[record.key] = None
            else:
                names.pop(record.key, None)
    split = [kinds.LEDGER.of(name)[0].partition(SCOPED) for name in names]
    return [NamedEvent(event_id, scope if separator else None) for event_id, separator, scope in split]


async def letters(settings: Settings, texts: Iterable[str], places: Iterable[str] = ()) -> list[str]:
    """Return the places of dead letters whose key or value holds one of the texts, or whose record was at ``places``.

    Raises TopicsError if they cannot be read.
    """
    if await partitions(settings, settings.dead_letters) is None:
        return []
    wanted = list(texts)
    keys, holds, known, found = {each.encode() for each in wanted}, mentions(wanted), set(places), []
    async for record in reading.records(settings, [settings.dead_letters]):
        letter = read_letter(record)
        if letter and (letter.place in known or letter.key in keys or holds(letter.value or b"")):
            found.append(f"{settings.dead_letters}/{record.partition}@{record.offset}")
    return found


def _text(value: object) -> str | None:
    return None if value is None else str(value)
