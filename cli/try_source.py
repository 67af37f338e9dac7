"""``trueup streams try``: shows what a few records of a source become, or why they are not used."""

import argparse
import asyncio
import json
import re
import sys
from ast import literal_eval
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson

from cli import reading
from cli.options import DONE, NO, listed, print_json, settings
from replay.sources.times import formats
from state.events import Passed, Rejected
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.records.decoding import REASONS, Decoder
from streams.records.limits import LATEST
from streams.sources import far_off
from streams.sources.carrying import shown
from streams.sources.fields import FORECAST
from streams.sources.mapping import Mapping
from streams.sources.modes import Source
from streams.sources.references import Headers
from streams.sources.refusal import Refusal, Unfit, short
from streams.sources.schemas import Schemas

#: Longest wait for the records of a topic, s.
SECONDS = 30.0
#: The word for a record that the mapping skips.
PASSED = "passed over"
#: A text that is not a time, as `streams.sources.transforms.times` reports it.
_TEXT: Final = re.compile(r"""\S+ is ('[^'\\]*'), which is not a time """)


class TriedRecord(NamedTuple):
    """A record to try, and its place."""

    place: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @classmethod
    def of(cls, record: Any) -> Self:  # noqa: ANN401 - aiokafka's
        """Return a record of a topic."""
        place = f"{record.topic}/{record.partition}@{record.offset}"
        return cls(place, record.topic, record.key, record.value, record.headers, max(0, record.timestamp))


def run(options: argparse.Namespace) -> int:
    """Print what each record becomes. Return 0 if any becomes a record, otherwise 1.

    Raises SettingsError if there is no such source, or if the file cannot be read. Raises TopicsError if the topics
    cannot be read.
    """
    of, file, records = settings(), options.file, options.records
    source = next((each for each in of.sources if each.name == options.source), None)
    if source is None:
        known = listed([each.name for each in of.sources])
        raise SettingsError(f"there is no source {options.source!r}; there are: {known}")
    found = _of_file(source, file, records) if file is not None else asyncio.run(_of_topics(of, source, records))
    if not found:
        raise TopicsError(f"there are no records in {', '.join(source.topics) if file is None else file}")
    trial = Trial(of)
    tried = [(each.place, *trial.of_source(source, each)) for each in found]
    for place, made, said, strange in tried:
        at = far_off.date(ts) if made is not None and isinstance(ts := made.get("ts"), int) else None
        if options.json:
            print_json({"place": place, "record": made, "ts": at, "refused": said, "warning": strange or None})
            continue
        print(f"{place}  {json.dumps(made) if made is not None else said}{f'  ts: {at}' if at else ''}")
        if strange:
            print(f"{place}  warning: {strange}")
    if all(said is not None and said.startswith(PASSED) for _, _, said, _ in tried):
        whose = "newest" if file is None else "first"
        sys.stderr.write(
            f"all of the {whose} records are passed over ({len(tried)}), so nothing is said of others; "
            f"--records {10 * records} tries more\n"
        )
    return DONE if any(made is not None for _, made, _, _ in tried) else NO


class Tried(NamedTuple):
    """What a record becomes, or why it is not used. ``strange``: what is odd about its time."""

    made: dict[str, object] | None
    said: str | None = None
    strange: str = ""


class Trial:
    """Tries out what records become.

    ``patience``: longest wait for the schema registry, s; None: as long as it takes.
    """

    def __init__(self, settings: Settings, patience: float | None = None) -> None:
        self._settings, self._patience = settings, patience
        self._schemas = Schemas(settings.registry)
        self._decoder = Decoder(settings.policies, settings.limits)
        self._mappings: dict[str, Mapping] = {}

    def _mapping(self, source: Source) -> Mapping:
        if source.name not in self._mappings:
            self._mappings[source.name] = Mapping(source, self._schemas)
        return self._mappings[source.name]

    def _load(self, mapping: Mapping, value: bytes | None, key: bytes | None, headers: Headers) -> bool:
        """Load the schemas that a record names; return whether the registry has answered."""
        if lacking := mapping.lacking(value, key, headers):
            try:
                asyncio.run(asyncio.wait_for(self._schemas.load(lacking), self._patience))
            except TimeoutError:
                return False
        return True

    def of_source(self, source: Source, record: TriedRecord) -> Tried:
        """Return what a record of a source becomes."""
        mapping = self._mapping(source)
        _, topic, key, value, headers, timestamp = record
        if not self._load(mapping, value, key, headers):
            return Tried(None, "not known: the schema registry does not answer")
        made = mapping.read(value, key, headers, topic, timestamp)
        if isinstance(made, Refusal):
            verdict = PASSED if made.passed else f"dead letter, {made.reason}"
            return Tried(None, f"{verdict}: {made.why}{_format(made)}")
        carried = made.pop("carried", None)
        decode = self._decoder.forecast if source.role == FORECAST else self._decoder.outcome
        event = decode(0, key, orjson.dumps(made), timestamp)
        if isinstance(event, Rejected):
            meaning = f"{self._meaning(event.reason, made, timestamp)}; it was mapped to {json.dumps(made)}"
            return Tried(None, f"dead letter, {event.reason}: {meaning}")
        strange = far_off.said(made.get("ts", timestamp), timestamp, source)
        return Tried({**made, **(shown(carried) if carried else {})}, None, strange)

    def of_topic(self, record: TriedRecord) -> Tried | None:
        """Return what a record of a source topic or an input becomes; None for any other topic."""
        sources = self._sources(record.topic)
        if sources:
            tried = [self.of_source(each, record) for each in sources]
            return next((each for each in tried if not (each.said or "").startswith(PASSED)), tried[0])
        settings, (_, topic, key, value, headers, timestamp) = self._settings, record
        if topic not in settings.inputs:
            return None
        decode = self._decoder.forecast if topic == settings.forecasts else self._decoder.outcome
        event = decode(0, key, value, timestamp, headers)
        if isinstance(event, Rejected):
            meaning = self._meaning(event.reason, self.said(topic, value), timestamp)
            return Tried(None, f"dead letter, {event.reason}: {meaning}")
        if isinstance(event, Passed):
            return Tried(None, f"{PASSED}: it has no value")
        return Tried(orjson.loads(value or b""))

    def _meaning(self, reason: str, record: object, timestamp: int) -> str:
        """Return what a reason means. If it is about a time, also say what is wrong with this time."""
        ts = record.get("ts") if reason == "timestamp" and isinstance(record, dict) else None
        if ts is None:
            return REASONS[reason]
        if type(ts) is not int:
            return (
                f"ts is {short(ts)}, not a whole number of ms: a source has `unit` for other numbers, `format` for text"
            )
        if ts < 0:
            return f"ts is {ts}, before 1970"
        if ts > LATEST:
            return f"ts is {ts}, after 9999: a source has `unit` for other numbers than ms"
        ahead = self._settings.limits.ahead_ms // 1000
        return (
            f"ts says {far_off.date(ts)}, more than {ahead} s (TRUEUP_AHEAD_SECONDS) ahead of the Kafka timestamp, "
            f"{far_off.date(timestamp)}: correct the clock, or the zone, of what writes it"
        )

    def said(self, topic: str, value: bytes | None) -> object:
        """Return the content of a topic's value before it is mapped; None if it cannot be read."""
        for source in self._sources(topic):
            mapping = self._mapping(source)
            if self._load(mapping, value, None, ()):
                with suppress(Unfit):
                    return mapping.decoded(value, ())
        try:
            return orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            return None

    def _sources(self, topic: str) -> list[Source]:
        return [mode.source for mode in self._settings.modes if mode.topic == topic]


def _format(refusal: Refusal) -> str:
    """Return the remedy for a time that is a text in a known format; otherwise an empty text."""
    text = _TEXT.match(refusal.why) if refusal.reason == "timestamp" else None
    fits = [f'format = "{each}"' for each in formats(literal_eval(text[1]))] if text else []
    return f"; set {' or '.join(fits)} for ts" if fits else ""


def _of_file(source: Source, file: Path, records: int) -> list[TriedRecord]:
    try:
        held = file.read_bytes()
    except OSError as exc:
        raise SettingsError(f"cannot read {file}: {exc.strerror}") from exc
    values = held.splitlines() if source.table.get("format", "json") == "json" else [held]
    now = int(file.stat().st_mtime * 1000)
    return [
        TriedRecord(f"{file.name}:{number}", source.topics[0], None, value, (), now)
        for number, value in enumerate(values[:records], 1)
    ]


async def _of_topics(settings: Settings, source: Source, records: int) -> list[TriedRecord]:
    found: list[TriedRecord] = []
    with reading.asked(f"cannot read {', '.join(source.topics)}"):
        async with asyncio.timeout(SECONDS):
            for topic in source.topics:
                await reading.width(settings, topic)
                read = reading.records(settings, [topic], committed=True, last=records)
                found += sorted([TriedRecord.of(each) async for each in read], key=lambda each: each.timestamp)[
                    -records:
                ]
    return found
