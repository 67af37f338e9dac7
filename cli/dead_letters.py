"""``trueup letters``: what stands in the dead-letter topic and why; ``trueup letters send`` sends records again.

What is sent again goes to its topic and partition with its key, value, headers and Kafka timestamp, and with a header
that names the record's first place. By this header a record that was sent is found, and not sent twice.
"""

import asyncio
import base64
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from cli.try_source import Found, Trial, Tried
from streams.config.settings import Settings
from streams.kafka.topics import TopicsError, partitions
from streams.kafka.whole_topics import batches
from streams.kafka.writer import send_all
from streams.records.skips import PoisonError
from streams.sources import far_off
from streams.sources.references import Headers

#: Header of a record that was sent again: where it stood first, ``TOPIC/PARTITION@OFFSET``.
HEADER: Final = "trueup-letter"
#: Reasons of letters whose value is not their record's.
_OTHERS: Final = ("batch", "skipped", "parked_label")
#: Reasons that hold again for what is sent again, and what to do.
_STAYS: Final = {
    "erased": "its event was erased, and would be answered once its name has left",
    "conflict": "another forecast with its event_id was answered, and sent again it conflicts again; give it an "
    "event_id of its own, or a `scope`. Where its source does that by now, 'trueup letters send --reason conflict' "
    "sends it",
}
#: Most characters of a record that are shown on a line.
_WIDTH: Final = 300
#: Longest wait for a schema registry, s.
_PATIENCE: Final = 10.0


class Letter(NamedTuple):
    """A dead letter."""

    #: Its Kafka timestamp, ms.
    at: int
    #: Why the record is dead, and where it stands.
    reason: str
    topic: str
    partition: int
    offset: int
    #: Of the record, as far as the letter has them.
    key: bytes | None
    value: bytes | None
    #: Bytes of the record's whole value.
    size: int
    #: Whether key and value were left out.
    withheld: bool

    @property
    def place(self) -> str:
        """The place of the record."""
        return f"{self.topic}/{self.partition}@{self.offset}"

    @property
    def whole(self) -> bool:
        """Whether it holds all of the record's value."""
        return not self.withheld and len(self.value or b"") == self.size

    def is_of(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a record is the one that the letter is of, as far as that can be seen."""
        if len(value or b"") != self.size:
            return False
        same_key = (key or b"").startswith(self.key or b"")
        return self.withheld or (same_key and (value or b"").startswith(self.value or b""))


@dataclass(frozen=True)
class Wanted:
    """Which letters are meant: of a reason, of a topic, and not older than so many ms; None: of any."""

    reason: str | None = None
    topic: str | None = None
    last_ms: int | None = None

    def takes(self, letter: Letter, now: int) -> bool:
        """Whether a letter is wanted; ``now``: ms since 1970."""
        return (
            self.reason in (None, letter.reason)
            and self.topic in (None, letter.topic)
            and (self.last_ms is None or letter.at >= now - self.last_ms)
        )


def show(settings: Settings, wanted: Wanted, limit: int, *, json_output: bool = False) -> int:
    """Print how many letters there are by reason and topic, and the newest of them; return 0.

    Raises TopicsError if the topic cannot be read.
    """
    counts, newest = asyncio.run(_letters(settings, wanted, limit))
    trial = Trial(settings, patience=_PATIENCE)
    shown = [(each, _said(trial, each), _now(trial, each)) for each in newest]
    if json_output:
        print(
            json.dumps(
                {
                    "counts": [{"reason": r, "topic": t, "letters": n} for (r, t), n in counts.most_common()],
                    "letters": [
                        {
                            "place": each.place,
                            "reason": each.reason,
                            "at": each.at,
                            "key": None if each.key is None else each.key.decode(errors="replace"),
                            "record": said,
                            "now": now,
                        }
                        for each, said, now in shown
                    ],
                }
            )
        )
        return 0
    print(f"{counts.total():,} dead letters in {settings.dead_letters}{_of(wanted)}")
    for (reason, topic), n in counts.most_common():
        print(f"{n:>9,}  {reason}  of {topic}")
    for each, said, now in shown:
        key = "" if each.key is None else f"  key {each.key.decode(errors='replace')!r}"
        print(f"\n{far_off.date(each.at)}  {each.reason}  {each.place}{key}")
        print(f"  {_short(said)}")
        print(f"  now: {now}")
    if counts.total() > len(shown):
        print(f"\nThe newest {len(shown)} are shown; --limit shows more.")
    return 0


def send(
    settings: Settings,
    wanted: Wanted,
    limit: int | None = None,
    *,
    dry_run: bool = False,
    again: bool = False,
    json_output: bool = False,
) -> int:
    """Send the records of letters again, say which, and return 0 if none of them is left out, else 1.

    Each record is sent once, whatever letters it has. It is left out if it was sent before, if the present settings
    would refuse it, or if it is in its topic no longer and the letter does not hold all of it.

    Raises TopicsError if topics cannot be read or written.

    ``limit``: most letters, the newest; None: all.
    ``again``: also send what was sent before.
    """
    _, found = asyncio.run(_letters(settings, wanted, limit))
    letters = {each.place: each for each in found}
    kept, sent_before = asyncio.run(_originals(settings, list(letters.values())))
    trial = Trial(settings, patience=_PATIENCE)
    going: list[Found] = []
    without: list[str] = []  # headers
    before: list[str] = []
    left: dict[str, str] = {}
    for place, letter in letters.items():
        if place in sent_before and not again:
            before.append(place)
            continue
        record = kept.get(place)
        if letter.reason in _OTHERS:
            left[place] = f"{letter.reason}: the letter stands for what was not read, or for another record"
            continue
        if letter.reason in _STAYS and (letter.reason == "erased" or wanted.reason != letter.reason):
            left[place] = f"{letter.reason}: {_STAYS[letter.reason]}"
            continue
        if record is None:
            if not letter.whole:
                left[place] = f"it is in {letter.topic} no longer, and the letter does not hold all of it"
                continue
            record = Found(place, letter.topic, letter.key, letter.value, (), letter.at)
            without.append(place)
        tried = trial.of_topic(record)
        if tried is not None and tried.made is None:
            left[place] = tried.said or ""
            continue
        going.append(record)
    if not dry_run:
        asyncio.run(_send(settings, going))
    if json_output:
        told = {"sent": [each.place for each in going], "dry_run": dry_run, "sent_before": before, "left": left}
        print(json.dumps(told | {"without_headers": without}))
        return 1 if left else 0
    _tell(going, before, left, without, dry_run=dry_run)
    return 1 if left else 0


def _tell(
    going: Sequence[Found], before: Sequence[str], left: Mapping[str, str], without: Sequence[str], *, dry_run: bool
) -> None:
    verb = "would be sent" if dry_run else "sent"
    for topic, n in Counter(each.topic for each in going).items():
        print(f"{verb} again to {topic}: {n:,}, each to its partition, with its key, value, headers and time")
    if without:
        print(
            f"  {len(without):,} of them are in their topic no longer: from the letter, without headers, with its time"
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
    """Return places by why they are left, which may name their values: by what stands before the first colon."""
    found: dict[str, list[str]] = defaultdict(list)
    for place, why in left.items():
        found[next((known for known in found if known.split(":")[0] == why.split(":")[0]), why)].append(place)
    return found


async def _letters(
    settings: Settings, wanted: Wanted, limit: int | None
) -> tuple[Counter[tuple[str, str]], list[Letter]]:
    """Return how many letters are meant, by reason and topic, and the newest of them, the oldest of these first."""
    if await partitions(settings, settings.dead_letters) is None:
        raise TopicsError(f"there is no topic {settings.dead_letters}")
    counts = Counter[tuple[str, str]]()
    found: list[Letter] = []
    now = int(time() * 1000)
    try:
        async for _, records in batches(settings, [settings.dead_letters]):
            for record in records:
                letter = read_letter(record)
                if letter is not None and wanted.takes(letter, now):
                    counts[letter.reason, letter.topic] += 1
                    found.append(letter)
            if limit is not None:
                found = _newest(found, limit)
    except KafkaError as exc:
        raise TopicsError(f"cannot read {settings.dead_letters}: {exc}") from exc
    return counts, _newest(found, len(found) if limit is None else limit)


def _newest(letters: list[Letter], limit: int) -> list[Letter]:
    return sorted(letters, key=lambda each: each.at)[-limit:] if letters else []


def read_letter(record: Any) -> Letter | None:  # noqa: ANN401 - aiokafka's
    """Return a letter; None if the record is none."""
    try:
        said = orjson.loads(record.value or b"")
        key, value = (None if said[name] is None else base64.b64decode(said[name]) for name in ("key", "value"))
        place = str(said["reason"]), str(said["topic"]), int(said["partition"]), int(said["offset"])
        return Letter(record.timestamp, *place, key, value, int(said["value_bytes"]), bool(said.get("withheld")))
    except (ValueError, TypeError, KeyError):
        return None


async def _originals(settings: Settings, letters: Sequence[Letter]) -> tuple[dict[str, Found], set[str]]:
    """Return the records that letters are of, and the first places of all records that were sent again since."""
    wanted: dict[TopicPartition, dict[int, Letter]] = defaultdict(dict)
    for each in letters:
        wanted[TopicPartition(each.topic, each.partition)][each.offset] = each
    starts = {}
    for tp, of in wanted.items():
        count = await partitions(settings, tp.topic)
        if count is None or tp.partition >= count:
            raise TopicsError(f"there is no partition {tp.partition} of topic {tp.topic}: it was made anew or deleted")
        starts[tp] = min(of)
    kept: dict[str, Found] = {}
    sent: set[str] = set()
    if not starts:
        return kept, sent
    try:
        async for topic, records in batches(settings, sorted({tp.topic for tp in starts}), starts=starts):
            for record in records:
                sent.update((value or b"").decode() for name, value in record.headers if name == HEADER)
                letter = wanted[TopicPartition(topic, record.partition)].get(record.offset)
                if letter is not None and letter.is_of(record.key, record.value):
                    said = record.key, record.value, record.headers, record.timestamp
                    kept[letter.place] = Found(letter.place, topic, *said)
    except (KafkaError, PoisonError) as exc:
        raise TopicsError(f"cannot read the records that the letters are of: {exc}") from exc
    return kept, sent


async def _send(settings: Settings, records: Sequence[Found]) -> None:
    try:
        await send_all(
            settings,
            (
                {
                    "topic": each.topic,
                    "value": each.value,
                    "key": each.key,
                    "partition": int(each.place.rpartition("@")[0].rpartition("/")[2]),
                    "timestamp_ms": each.timestamp,
                    "headers": _marked(each.headers, each.place),
                }
                for each in records
            ),
        )
    except KafkaError as exc:
        raise TopicsError(
            f"not all were sent: {exc or type(exc).__name__}. The same command sends those that are left"
        ) from exc


def _marked(headers: Headers, place: str) -> list[tuple[str, bytes | None]]:
    return [*(each for each in headers if each[0] != HEADER), (HEADER, place.encode())]


def _said(trial: Trial, letter: Letter) -> Any:  # noqa: ANN401 - whatever it says
    """Return the content of a letter's record, decoded in its format if possible, else as text."""
    if letter.withheld:
        return f"{letter.size:,} bytes, which the letter leaves out"
    said = trial.said(letter.topic, letter.value) if letter.whole else None
    if said is not None:
        return said
    value = letter.value or b""
    text = value.decode(errors="backslashreplace")
    return text if letter.whole else f"{text}… ({letter.size:,} bytes)"


def _now(trial: Trial, letter: Letter) -> str:
    """Return what the present settings make of the record of a letter."""
    if not letter.whole or letter.reason in _OTHERS:
        return "not known: the letter does not hold the record"
    tried: Tried | None = trial.of_topic(Found(letter.place, letter.topic, letter.key, letter.value, (), letter.at))
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
