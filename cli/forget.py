"""``trueup forget EVENT|--key KEY``: erase events, by records in the inputs."""

import argparse
import asyncio
from collections.abc import Coroutine, Sequence
from time import time
from typing import Any

import orjson

from cli import events_of_key, reading
from cli.events_of_key import NamedEvent
from cli.options import DONE, Commands, command, listed, settings, tell
from state.events import Rejected
from state.fence import OUTCOMES
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.kafka.writer import send_all
from streams.records.decoding import Decoder


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    forget = command(
        commands,
        "forget",
        "erase what the state holds of events",
        "cli.forget:run",
        says="Writes a record for each event that erases it: its forecast and its label leave the state. Only its id "
        "is kept, for as long as its row would have been. A label that comes later is ignored, and a forecast is a "
        "dead letter. What was learnt stays in sums that name no event. Your own topics and trueup's "
        "outputs keep their records until their retention takes them: see docs/how-to/erase.md.",
        dry_run=True,
    )
    forget.add_argument("events", nargs="*", metavar="EVENT", help="event_id of a forecast")
    forget.add_argument(
        "--key",
        metavar="KEY",
        help="all events of records with this Kafka key, as far as your topics or rows still have it",
    )
    forget.add_argument(
        "--scope", metavar="SCOPE", help="the scope of the records, if they have one; behind intake leave it out"
    )


def run(options: argparse.Namespace) -> int:
    """Erase events, print what is known of them and where else they are; return the status."""
    of = settings()
    if not options.events and options.key is None:
        raise SettingsError("name events, or --key KEY")
    if options.key == "":  # the rows of most events hold no key
        raise SettingsError("--key is empty: name events")
    found, named = [], list(dict.fromkeys(NamedEvent(each, options.scope) for each in options.events))
    events = list(named)
    if options.key is not None:
        found = asyncio.run(events_of_key.records(of, options.key.encode()))
        events += events_of_key.named(of, found) + asyncio.run(events_of_key.kept(of, options.key.encode()))
    events = list(dict.fromkeys(events))
    names = [each.event_id for each in events]
    erasures = [(each.event_id, erasure(of, *each)) for each in events]
    unknown, of_rows = _looked_up(events_of_key.unknown(of, named), "not known here", "whether the state knows them")
    topic, written = asyncio.run(send(of, erasures, dry_run=options.dry_run))
    letters, of_letters = _looked_up(
        events_of_key.letters(of, names + [options.key] * (options.key is not None), [each.place for each in found]),
        "dead letters hold some of it until retention takes them",
        "whether dead letters hold any of it",
    )
    if unknown:
        of_rows += ". No forecast has come, or it has left; what is on its way will be erased"
    verb = "would erase" if options.dry_run else "erases" if written == 1 else "erase"
    whose = "an event" if len(events) == 1 else f"{len(events):,} events"
    if events:
        of_topic = f"{written:,} record{'s' * (written != 1)} in {topic} {verb} {whose}, once read"
    else:
        of_topic = f"nothing that is kept has the key {options.key}"
    tell(
        options,
        "\n".join(filter(None, (of_topic, of_rows, of_letters))),
        topic=topic,
        events=names,
        records=written,
        letters=letters,
        unknown=unknown,
        dry_run=options.dry_run,
    )
    return DONE


def _looked_up(look: Coroutine[Any, Any, list[str]], said: str, asked: str) -> tuple[list[str] | None, str]:
    """Return what was found, and a sentence about it; None if it cannot be read. Events are erased in any case.

    ``said, asked``: the sentence about what was found; and what remains unknown if nothing can be read.
    """
    try:
        found = asyncio.run(look)
    except TopicsError as exc:
        return None, f"{asked} is not known: {exc}"
    return found, f"{said}: {listed(found)}" if found else ""


def erasure(of: Settings, event_id: str, scope: str | None = None) -> bytes:
    """Return the value of the record that erases an event.

    Raises SettingsError if a worker or router of these settings would not take it.
    """
    if of.has_intake:
        if scope is not None:
            raise SettingsError("--scope is of no use behind intake: an event is erased in all its streams")
        stamp = int(time() * 1000)
        label = {"event_id": event_id, "stream": "", "target": "", "erase": True, "ts": stamp, "number": 0}
        value = orjson.dumps(label)
        read: object = Decoder(of.policies, of.limits).outcome(0, None, value, stamp)
    else:
        if of.direct is not None and of.direct.sources[OUTCOMES]:
            raise SettingsError(
                f"{of.outcomes} is read as a source, and its records cannot say that an event is erased: let intake "
                "read your outcomes from a topic of another name"
            )
        value = orjson.dumps({"event_id": event_id, "erase": True} | ({} if scope is None else {"scope": scope}))
        read = Decoder(of.policies, of.limits).outcome(0, None, value, 0)
    if isinstance(read, Rejected):
        raise SettingsError(f"{event_id!r} is not allowed as the id of an event ({read.reason})")
    return value


async def send(of: Settings, records: Sequence[tuple[str, bytes]], *, dry_run: bool = False) -> tuple[str, int]:
    """Send each record to the partition of its event; return the topic and the number of records.

    A router has an event in the partition of its id. A worker has it in the partition of the forecast's key, which is
    unknown here. So each partition gets the record. A partition without the event erases nothing.
    """
    topic = of.labels if of.has_intake else of.outcomes
    count = await reading.width(of, topic)
    made = [
        {"topic": topic, "value": value, "key": event_id.encode(), "partition": place}
        for event_id, value in records
        for place in ([None] if of.has_intake else range(count))
    ]
    if not dry_run:
        with reading.asked(f"cannot write to {topic}", "; send it again, an event is erased once"):
            await send_all(of, made)
    return topic, len(made)
