"""Judges a history: what the brokers hold against an undisturbed fold of the same records.

The journal says in which order records were folded. The judge folds them again in that order, with the pure engine and
nothing that can fail between, and compares every byte: rows, answers, labels, dead letters. First it judges the journal
itself: one entry after another, each going on where the one before it ended, every record in one of them.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from aiokafka import errors

from state import kinds
from state.fence import FORECASTS
from state.journal import Entry
from state.witnesses import SLACK
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.changelog import FencedError
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.refused import named
from tests.e2e.world import BESIDE, along_the_journal
from tests.simulation.kafka import Record
from tests.simulation.world import POLICIES, SESSION, World

#: What may end a worker while there are faults: others have taken over, or no broker answers in time.
EXPECTED = (FencedError, TimeoutError, errors.KafkaError)
#: After so long without faults nothing may end a worker any more, s.
CALM = 4 * SESSION + 8.0


class WrongError(AssertionError):
    """A history did not end as it must."""


class _Made(NamedTuple):
    """What an output must be: key, value, headers, and its timestamp unless the broker's clock gives it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Any, ...]
    timestamp: int | None


def judge(world: World) -> None:
    """Raise `WrongError` if a history is not as it must be, with what is wrong in words."""
    for at, death in world.deaths:
        if not isinstance(death, EXPECTED) or at > world.calm + CALM:
            raise WrongError(f"at {at:.2f} s a worker ended by itself: {death!r}")
    if not world.answered:
        raise WrongError(f"after {world.loop.now - world.calm:.0f} s without faults not all is answered")
    if world.overdue:
        raise WrongError(world.overdue)
    if world.heaviest > world.base.enough_bytes * 2:
        raise WrongError(f"{world.heaviest} bytes of rows waited for a checkpoint")
    settings = {
        bytes.fromhex(in_force.digest(in_force.described(each))): each
        for each in (Settings(**{**vars(world.base), "policies": policies}) for policies in POLICIES)
    }
    for n in range(world.plan.width):
        _partition(world, n, settings)


def _partition(world: World, n: int, settings: dict[bytes, Settings]) -> None:
    base, logs = world.base, world.kafka.logs
    inputs = [list(logs[topic, n].records()) for topic in (base.forecasts, base.outcomes)]
    changelog = list(logs[base.changelog, n].records(whole=True))
    entries = [Entry.decode(each.value) for each in changelog if _of_journal(each) and each.value]
    _journal(n, entries, inputs, [Entry.decode(each.value or b"") for each in logs[base.journal, n].records()])
    _merged(n, entries, inputs)
    rows, made = _folded(n, entries, inputs, settings)
    found: dict[bytes, bytes] = {}
    for each in changelog:
        if each.key and each.key[:1] not in BESIDE:
            found.pop(each.key, None)
            if each.value is not None:
                found[each.key] = each.value
    wrong = sorted(key for key in rows.keys() | found.keys() if rows.get(key) != found.get(key))
    if wrong:
        raise WrongError(f"{len(wrong)} rows of partition {n} differ, as {wrong[0]!r}")
    stored = world.tables.get(n, found)
    if stored != found:
        differ = sorted(key for key in stored.keys() | found.keys() if stored.get(key) != found.get(key))
        raise WrongError(f"{len(differ)} rows of partition {n} on the disk of its worker differ, as {differ[0]!r}")
    claims = [(each.at, each.by) for each in changelog if each.key == kinds.CLAIM.key()]
    for label, topic in zip(("calibrated", "resolved", "dead-letters"), base.outputs, strict=True):
        _said(f"{topic}/{n}", made.get(label, []), list(logs[topic, n].records()), claims)


def _of_journal(record: Record) -> bool:
    letter = kinds.JOURNAL.letter
    return record.key is not None and record.key[:1] == letter and record.key != letter


def _journal(n: int, entries: Sequence[Entry], inputs: Sequence[list[Record]], noted: Sequence[Entry]) -> None:
    """Judge the journal in the changelog, and what its own topic says of it."""
    numbers = [each.number for each in entries]
    if numbers != list(range(len(numbers))):
        raise WrongError(f"the journal of partition {n} has the entries {numbers}")
    at: tuple[int, int] = (0, 0)
    for entry in entries:
        if entry.begins != at or entry.ends != (at[0] + entry.topics.count(0), at[1] + entry.topics.count(1)):
            raise WrongError(
                f"entry {entry.number} of partition {n} goes from {entry.begins} to {entry.ends}, not on from {at}"
            )
        at = entry.ends
    ends = tuple(len(each) for each in inputs)
    if at != ends:
        raise WrongError(f"the journal of partition {n} ends at {at}, its inputs at {ends}")
    order = b"".join(each.topics for each in entries)
    for each in noted:
        whole = order[sum(each.begins) : sum(each.ends)]
        if each.topics != whole:
            raise WrongError(
                f"the topic of the journal of partition {n} does not say what entry {each.number} ends with"
            )
    if entries and max([each.number for each in noted], default=0) != len(entries):
        raise WrongError(f"partition {n} was stopped without a last checkpoint")


def _along(entry: Entry, inputs: Sequence[list[Record]]) -> Iterator[tuple[int, Record]]:
    at = list(entry.begins)
    for topic in entry.topics:
        yield topic, inputs[topic][at[topic]]
        at[topic] += 1


def _merged(n: int, entries: Sequence[Entry], inputs: Sequence[list[Record]]) -> None:
    """Judge that records which were merged together went by time, a forecast before an outcome of its millisecond."""
    for entry in entries:
        for (first, one), (second, other) in pairwise(_along(entry, inputs)):
            early = other.timestamp - one.timestamp + (second - first if second != first else 0) * 0.5
            if first != second and -SLACK < early < 0:
                raise WrongError(f"entry {entry.number} of partition {n} has offset {one.offset} before {other.offset}")


def _folded(
    n: int, entries: Sequence[Entry], inputs: Sequence[list[Record]], known: dict[bytes, Settings]
) -> tuple[dict[bytes, bytes], dict[str, list[_Made]]]:
    """Fold the records along the journal, and return rows and outputs."""
    rows: dict[bytes, bytes] = {}
    made: dict[str, list[_Made]] = {}

    def events(entry: Entry, decoder: Decoder) -> list[Any]:
        found: list[Any] = []
        for topic, record in _along(entry, inputs):
            decode = decoder.forecast if topic == FORECASTS else decoder.outcome
            found += named([decode(record.offset, record.key, record.value, record.timestamp)])
        return found

    for settings, outputs in along_the_journal(known.__getitem__, entries, events, rows):
        for label, records in encoded(outputs, settings, n).items():
            made.setdefault(label, []).extend(
                _Made(key, value, tuple(headers), timestamp) for key, value, timestamp, headers in records
            )
    return rows, made


def _said(place: str, made: Sequence[_Made], found: Sequence[Record], claims: Sequence[tuple[int, str]]) -> None:
    """Judge an output topic: every output once and in order; copies only where one of them is a zombie's.

    Outputs are appended without an epoch. So a worker that does not know yet that another has claimed its partition may
    append what it had folded before: the same bytes, see `docs/explanation/guarantees.md`.
    """
    first: dict[_Made, list[bool]] = {}
    at = 0
    for record in found:
        zombie = next((by for since, by in reversed(claims) if since < record.at), "") != record.by
        if at < len(made) and _same(made[at], record):
            first.setdefault(made[at], []).append(zombie)
            at += 1
            continue
        again = next((each for each in first if _same(each, record)), None)
        if again is None:
            raise WrongError(f"{place}@{record.offset} differs from what its records bring about, or is out of order")
        if not (zombie or any(first[again])):
            raise WrongError(f"{place}@{record.offset} is said twice by workers that both held the partition")
    if at < len(made):
        raise WrongError(f"{place} lacks {len(made) - at} of {len(made)} outputs")


def _same(made: _Made, record: Record) -> bool:
    known = made.timestamp is None or made.timestamp == record.timestamp
    return known and (made.key, made.value, made.headers) == (record.key, record.value, tuple(record.headers))
