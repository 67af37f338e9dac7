"""``trueup letters``: what is in the dead-letter topic, and why; ``trueup letters send`` sends records again.

A record is sent again to its own topic and partition, with its key, value, headers and Kafka timestamp. An additional
header names its first place. By this header, a record that was sent again is recognised, and not sent twice.
"""

import argparse
import asyncio
import base64
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from time import time
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.structs import TopicPartition

from cli import reading
from cli.options import DONE, NO, Commands, command, duration, positive, print_json, settings
from cli.try_source import Trial, TriedRecord
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.kafka.writer import send_all
from streams.records import routing
from streams.records.decoding import REASONS
from streams.sources import far_off

#: Header of a record that was sent again: its first place, ``TOPIC/PARTITION@OFFSET``.
HEADER: Final = "trueup-letter"
#: Reasons of letters whose value is not the record's value.
_OTHERS: Final = ("batch", "skipped", "parked_label")
#: Reasons for which a record would be refused again, with what to do.
_STAYS: Final = {
    "erased": "its event was erased, and would be answered once its name has left",
    "conflict": "another forecast with its event_id was answered, and sent again it conflicts again; give it an "
    "event_id of its own, or a `scope`. Where its source does that by now, 'trueup letters send --reason conflict' "
    "sends it",
}
#: The most characters of a record that are shown on a line.
_WIDTH: Final = 300
#: Longest wait for a schema registry, s.
_PATIENCE: Final = 10.0


class Letter(NamedTuple):
    """A dead letter."""

    #: Its Kafka timestamp, ms.
    at: int
    #: Why the record is dead, and its place.
    reason: str
    topic: str
    partition: int
    offset: int
    #: Key, value and headers of the record, as far as the letter has them.
    key: bytes | None
    value: bytes | None
    #: Bytes of the record's whole value.
    size: int
    #: Whether key and value are left out.
    withheld: bool

    @property
    def place(self) -> str:
        """The place of the record."""
        return f"{self.topic}/{self.partition}@{self.offset}"

    @property
    def record(self) -> TriedRecord:
        """The record as far as the letter has it, without headers."""
        return TriedRecord(self.place, self.topic, self.key, self.value, (), self.at)

    @property
    def whole(self) -> bool:
        """Whether the letter holds all of the record's value."""
        return not self.withheld and len(self.value or b"") == self.size

    def is_of(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether this may be the letter's record: nothing that the letter holds differs."""
        if len(value or b"") != self.size:
            return False
        same_key = (key or b"").startswith(self.key or b"")
        return self.withheld or (same_key and (value or b"").startswith(self.value or b""))


@dataclass(frozen=True)
class Wanted:
    """Which letters are wanted: by reason, by topic, and by their greatest age in ms; None: any."""

    reason: str | None = None
    topic: str | None = None
    last_ms: int | None = None

    def takes(self, letter: Letter, now: int) -> bool:
        """Whether a letter is wanted. ``now`` is in ms since 1970."""
        return (
            self.reason in (None, letter.reason)
            and self.topic in (None, letter.topic)
            and (self.last_ms is None or letter.at >= now - self.last_ms)
        )


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    letters = command(
        commands,
        "letters",
        "show dead letters by reason and topic, and the newest of them; send their records again",
        "cli.dead_letters:run",
        says="Reads the dead-letter topic and changes nothing. 'letters send' sends the records of the letters "
        "again, each to its topic and partition, as it was. It leaves out what was sent before, and what the present "
        "settings would refuse: mend the source first. Status 1: 'send' left out a record that was not sent before.",
        dry_run=True,
    )
    letters.add_argument("action", nargs="?", choices=("send",), help="send the records again")
    letters.add_argument(
        "--reason", choices=sorted(REASONS | routing.REASONS), metavar="REASON", help="only of this reason"
    )
    letters.add_argument("--topic", help="only of records of this topic")
    letters.add_argument("--last", metavar="1d", help="only those of the last so many s, m, h or d")
    letters.add_argument("--limit", type=positive, metavar="N", help="the newest N (default: 20; send: all)")
    letters.add_argument("--again", action="store_true", help="with send: also what was sent again before")


def run(options: argparse.Namespace) -> int:
    """Show letters, or send their records again, and return the status.

    Raises TopicsError if topics cannot be read or written.
    """
    of = settings()
    wanted = Wanted(options.reason, options.topic, duration(options, "last"))
    if options.action is None:
        if options.dry_run or options.again:
            raise SettingsError("--dry-run and --again are for 'trueup letters send'")
        return _show(of, wanted, options)
    return _send(of, wanted, options)


def _show(settings: Settings, wanted: Wanted, options: argparse.Namespace) -> int:
    """Print how many letters there are by reason and topic, and the newest letters; return 0."""
    counts, newest = asyncio.run(_letters(settings, wanted, options.limit or 20))
    trial = Trial(settings, patience=_PATIENCE)
    shown = [
        {
            "place": each.place,
            "reason": each.reason,
            "at": each.at,
            "key": None if each.key is None else each.key.decode(errors="replace"),
            "record": _said(trial, each),
            "now": _now(trial, each),
        }
        for each in newest
    ]
    if options.json:
        found = [{"reason": reason, "topic": topic, "letters": n} for (reason, topic), n in counts.most_common()]
        print_json({"counts": found, "letters": shown})
        return DONE
    print(f"{counts.total():,} dead letters in {settings.dead_letters}{_of(wanted)}")
    for (reason, topic), n in counts.most_common():
        print(f"{n:>9,}  {reason}  of {topic}")
    for one in shown:
        key = "" if one["key"] is None else f"  key {one['key']!r}"
        print(f"\n{far_off.date(one['at'])}  {one['reason']}  {one['place']}{key}")
        print(f"  {_short(one['record'])}")
        print(f"  now: {one['now']}")
    if counts.total() > len(shown):
        print(f"\nThe newest {len(shown)} are shown; --limit shows more.")
    return DONE


def _send(settings: Settings, wanted: Wanted, options: argparse.Namespace) -> int:
    """Send the records of letters again, and print which. Return 0 if none was left out, otherwise 1.

    A record with several letters is sent once. It is left out if it was sent again before, if the present settings
    would refuse it, or if its topic no longer has it and the letter does not hold all of it.
    """
    _, found = asyncio.run(_letters(settings, wanted, options.limit))
    letters = {each.place: each for each in found}
    kept, sent_before = asyncio.run(_originals(settings, list(letters.values())))
    before = [] if options.again else [place for place in letters if place in sent_before]
    for place in before:
        del letters[place]
    trial = Trial(settings, patience=_PATIENCE)
    whys = {place: _left_out(trial, each, kept.get(place), wanted) for place, each in letters.items()}
    left = {place: why for place, why in whys.items() if why}
    going = [kept.get(place, each.record) for place, each in letters.items() if place not in left]
    without = [each.place for each in going if each.place not in kept]  # headers
    if not options.dry_run:
        with reading.asked("not all were sent", ". The same command sends those that are left"):
            asyncio.run(send_all(settings, map(_again, going)))
    if options.json:
        told = {"sent": [each.place for each in going], "dry_run": options.dry_run, "sent_before": before, "left": left}
        print_json(told | {"without_headers": without})
    else:
        _tell(going, before, left, without, dry_run=options.dry_run)
    return NO if left else DONE


def _left_out(trial: Trial, letter: Letter, kept: TriedRecord | None, wanted: Wanted) -> str:
    """Return why a record is not sent again; empty if it is sent. ``kept``: what its topic still has of it."""
    if letter.reason in _OTHERS:
        return f"{letter.reason}: the letter stands for what was not read, or for another record"
    if letter.reason in _STAYS and (letter.reason == "erased" or wanted.reason != letter.reason):
        return f"{letter.reason}: {_STAYS[letter.reason]}"
    if kept is None and not letter.whole:
        return f"it is in {letter.topic} no longer, and the letter has only a part of it"
    tried = trial.of_topic(kept or letter.record)
    return "" if tried is None or tried.made is not None else tried.said or ""


def _tell(
    going: Sequence[TriedRecord],
    before: Sequence[str],
    left: Mapping[str, str],
    without: Sequence[str],
    *,
    dry_run: bool,
) -> None:
    verb = "would be sent" if dry_run else "sent"
    for topic, n in Counter(each.topic for each in going).items():
        print(f"{verb} again to {topic}: {n:,}, each to its partition, with its key, value, headers and time")
    if without:
        print(
            f"  {len(without):,} of them are no longer in their topic: from the letter, without headers, with its time"
        )
    if before:
        print(f"not sent, as they were sent again before: {len(before):,}; --again sends them once more")
    for why, places in _grouped(left).items():
        print(f"not sent: {len(places):,}, such as {places[0]}: {why}")
    if not going and not before and not left:
        print("there is no such dead letter")
    elif going:
        print("An event that is known is answered as before, and a label that was learnt is not learnt twice.")


def _grouped(left: Mapping[str, str]) -> dict[str, list[str]]:
    """Return places by the reason for which they are left out.

    Only the text of a reason before its first colon counts, because values follow the colon.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for place, why in left.items():
        found[next((known for known in found if known.split(":")[0] == why.split(":")[0]), why)].append(place)
    return found


async def _letters(
    settings: Settings, wanted: Wanted, limit: int | None
) -> tuple[Counter[tuple[str, str]], list[Letter]]:
    """Count the wanted letters by reason and topic; return the newest of them in order of time."""
    await reading.width(settings, settings.dead_letters)
    counts = Counter[tuple[str, str]]()
    found: list[tuple[int, int, Letter]] = []
    now = int(time() * 1000)
    async for record in reading.records(settings, [settings.dead_letters]):
        letter = read_letter(record)
        if letter is not None and wanted.takes(letter, now):
            counts[letter.reason, letter.topic] += 1
            keep = heappush if limit is None or len(found) < limit else heappushpop
            keep(found, (letter.at, counts.total(), letter))
    return counts, [letter for *_, letter in sorted(found)]


def read_letter(record: Any) -> Letter | None:  # noqa: ANN401 - aiokafka's
    """Return the letter in a record; None if the record is not one."""
    try:
        said = orjson.loads(record.value or b"")
        key, value = (None if said[name] is None else base64.b64decode(said[name]) for name in ("key", "value"))
        place = str(said["reason"]), str(said["topic"]), int(said["partition"]), int(said["offset"])
        return Letter(record.timestamp, *place, key, value, int(said["value_bytes"]), bool(said.get("withheld")))
    except (ValueError, TypeError, KeyError):
        return None


async def _originals(settings: Settings, letters: Sequence[Letter]) -> tuple[dict[str, TriedRecord], set[str]]:
    """Return the letters' records, and the first places of all records that have been sent again."""
    wanted = {each.place: each for each in letters}
    starts: dict[TopicPartition, int] = {}
    for each in letters:
        place = TopicPartition(each.topic, each.partition)
        starts[place] = min(each.offset, starts.get(place, each.offset))
    for place in starts:
        if place.partition >= await reading.width(settings, place.topic, ": it was deleted"):
            raise TopicsError(f"there is no partition {place.partition} of topic {place.topic}: it was recreated")
    kept: dict[str, TriedRecord] = {}
    sent: set[str] = set()
    if starts:
        async for record in reading.records(settings, sorted({place.topic for place in starts}), starts=starts):
            sent.update((value or b"").decode() for name, value in record.headers if name == HEADER)
            found = TriedRecord.of(record)
            if (letter := wanted.get(found.place)) and letter.is_of(found.key, found.value):
                kept[found.place] = found
    return kept, sent


def _again(record: TriedRecord) -> dict[str, Any]:
    """Return the arguments of `AIOKafkaProducer.send` for a record."""
    headers: list[tuple[str, bytes | None]] = [each for each in record.headers if each[0] != HEADER]
    return {
        "topic": record.topic,
        "value": record.value,
        "key": record.key,
        "partition": int(record.place.rpartition("@")[0].rpartition("/")[2]),
        "timestamp_ms": record.timestamp,
        "headers": [*headers, (HEADER, record.place.encode())],
    }


def _said(trial: Trial, letter: Letter) -> Any:  # noqa: ANN401 - whatever it says
    """Return the content of a letter's record, decoded in its format if possible, otherwise as text."""
    if letter.withheld:
        return f"{letter.size:,} bytes, which the letter leaves out"
    said = trial.said(letter.topic, letter.value) if letter.whole else None
    if said is not None:
        return said
    value = letter.value or b""
    text = value.decode(errors="backslashreplace")
    return text if letter.whole else f"{text}… ({letter.size:,} bytes)"


def _now(trial: Trial, letter: Letter) -> str:
    """Decode the record of a letter under the present settings."""
    if not letter.whole or letter.reason in _OTHERS:
        return "not known: the letter does not hold the record"
    tried = trial.of_topic(letter.record)
    if tried is None:
        return "not known: no source reads its topic"
    if tried.made is None:
        return tried.said or ""
    if letter.reason in _STAYS:
        return _STAYS[letter.reason]
    return f"can be used ({letter.reason} may still hold); 'trueup letters send' sends it again"


def _short(said: Any) -> str:  # noqa: ANN401 - whatever it says
    text = said if isinstance(said, str) else json.dumps(said, default=str, ensure_ascii=False)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _of(wanted: Wanted) -> str:
    parts = [f"reason {wanted.reason}"] if wanted.reason else []
    parts += [f"topic {wanted.topic}"] if wanted.topic else []
    parts += [f"since {far_off.date(int(time() * 1000) - wanted.last_ms)}"] if wanted.last_ms is not None else []
    return f" ({', '.join(parts)})" if parts else ""
