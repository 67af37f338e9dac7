"""Folds the inputs of a stage again along its journal, and judges the journal, its order and the rows.

The journal says in which order records were folded. The judge folds them again in that order, with the pure engine and
nothing that can fail between. First it judges the journal itself: one entry after another, each going on where the one
before it ended, every record in one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from state import journal, kinds
from state.fence import Fence
from state.journal import Entry, last
from state.kind import Get
from state.router import Router
from state.witnesses import SLACK
from streams.config import in_force
from streams.config.settings import Settings
from streams.records import skips
from streams.records.refused import Skipped, named
from streams.records.routing import RouteDecoder
from tests.e2e.world import BESIDE, Opened, along, along_the_journal, worker_of
from tests.simulation import builds
from tests.simulation.builds import BUILDS
from tests.simulation.log import Log, Record
from tests.simulation.plan import POLICIES, WORKER
from tests.simulation.world import World

#: The rows of a group that is new.
NOTHING: Final[Mapping[bytes, bytes]] = MappingProxyType({})


class WrongError(AssertionError):
    """A history did not end as it must."""


@dataclass
class Claim:
    """That a process took up a partition."""

    #: The number of its append, and who.
    at: int
    by: str
    #: The first entry whose outputs it had to send: those of all before were known to be acknowledged.
    told: int


@dataclass
class Folded:
    """A partition of a stage, folded again."""

    claims: list[Claim]
    #: Entries of the journal, each with its settings and its outputs.
    made: list[tuple[Entry, Settings, list[Any]]]
    #: What its records have made of the rows.
    rows: dict[bytes, bytes]
    #: The records of forecasts and of outcomes, and whether some of them were lost when they had been applied.
    inputs: list[list[Record]]
    torn: bool

    def era(self, by: str, at: int) -> int:
        """Return which claim a process appended under: its last one before; -1 if it had none."""
        return max((n for n, claim in enumerate(self.claims) if claim.by == by and claim.at < at), default=-1)


def fold(world: World, stage: str, n: int, begun: Mapping[bytes, bytes] = NOTHING) -> Folded:
    """Judge a partition of a stage up to its rows, and return what it must have put out.

    ``begun`` are the rows that it began with. Where processes end at every start, as an input has lost its tail, it is
    judged as far as it has come.

    Raises WrongError if the journal, the order of records or a row is not as it must be.
    """
    of, logs = world.folding[stage], world.kafka.logs
    place = f"partition {n}" if stage == WORKER else f"{stage}'s partition {n}"
    changelog = list(logs[of.changelog, n].records(whole=True))
    entries = [Entry.decode(each.value) for each in changelog if _of_journal(each) and each.value]
    read = [_read(logs[topic, n], i, entries) for i, topic in enumerate(of.inputs)]
    inputs = [each for each, _ in read]
    _leave_out(inputs, changelog)
    noted = [Entry.decode(each.value or b"") for each in logs[of.journal, n].records()]
    at = _journal(place, _begins(begun), entries, inputs, noted)
    if world.answered:
        _ended(place, at, entries, inputs, noted)
    _merged(place, entries, inputs)
    rows = dict(begun)
    folding = along_the_journal(_known(world, stage), entries, _engine(stage, inputs), rows)
    made = [(entry, *each) for entry, each in zip(entries, folding, strict=True)]
    builds.run(BUILDS[0])
    found: dict[bytes, bytes] = {}
    for each in changelog:
        if each.key and each.key[:1] not in BESIDE:
            found.pop(each.key, None)
            if each.value is not None:
                found[each.key] = each.value
    if world.answered:
        differ(f"rows of {place}", rows, found)
    differ(f"rows of {place} on the disk of its {stage}", found, world.tables.get((of.app_id, n), found))
    return Folded(_claims(changelog), made, rows, inputs, any(torn for _, torn in read))


def _read(log: Log, topic: int, entries: Sequence[Entry]) -> tuple[list[Record], bool]:
    """Return the records of an input, and whether those are the ones of a tail that it lost when they were applied."""
    records = list(log.records(whole=True))
    if not log.lost:
        return records, False
    before = [*records[: log.lost[0].first], *log.tail]
    first = next((each for each in entries if each.ends[topic] > log.lost[0].first), None)
    if first is None or first.ends[topic] > len(before):
        return records, False
    applied = before[first.ends[topic] - 1]
    torn = first.last[topic] == last(applied.timestamp, applied.value)
    return (before if torn else records), torn


def differ(what: str, wanted: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> None:
    """Raise `WrongError` if rows differ."""
    wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    if wrong:
        raise WrongError(f"{len(wrong)} {what} differ, as {wrong[0]!r}")


def _of_journal(record: Record) -> bool:
    letter = kinds.JOURNAL.letter
    return record.key is not None and record.key[:1] == letter and record.key != letter


def _claims(changelog: Sequence[Record]) -> list[Claim]:
    claims, told = [], 0
    for each in changelog:
        if each.key == kinds.CLAIM.key():
            claims.append(Claim(each.at, each.by, told))
        elif _of_journal(each) and each.value:
            told = max(told, Entry.decode(each.value).answered)
        elif each.key == kinds.JOURNAL.key() and each.value:
            told = max(told, journal.read({each.key: each.value}.get).number)
    return claims


def _leave_out(inputs: Sequence[list[Record]], changelog: Sequence[Record]) -> None:
    """Put what stands for records in their place that an operator has left out."""
    rows = {each.key: each.value or b"" for each in changelog if each.key and each.key[:1] == skips.SKIP.letter}
    for skip in skips.read(rows.items()):
        inputs[skip.topic][skip.offset] = left_out(inputs[skip.topic][skip.offset], skip.reason)


def left_out(record: Record, reason: str) -> Record:
    """Return what stands for a record that an operator has left out."""
    stands = Skipped.of(record.offset, record.offset, len(record.value or b""), skips.why(record.offset, reason))
    return record._replace(key=None, value=stands, headers=())


def _known(world: World, stage: str) -> Callable[[bytes], Settings]:
    """Return what gives the settings that the journal has the hash of, and lets what follows be of their build."""
    of, known = world.folding[stage], dict[bytes, tuple[int, Settings]]()
    for build in BUILDS:
        builds.run(build)
        for policies in (*POLICIES, *world.known.values()):
            each = Settings(**{**vars(of), "policies": policies})
            known[bytes.fromhex(in_force.digest(in_force.described(each)))] = build, each
    builds.run(BUILDS[0])

    def settings(config: bytes) -> Settings:
        build, found = known[config]
        builds.run(build)
        return found

    return settings


def _engine(stage: str, inputs: Sequence[list[Record]]) -> Callable[[Settings, Get], Opened]:
    """Return what opens the engine of a stage."""

    def router(settings: Settings, get: Get) -> Opened:
        reads: Any = RouteDecoder()
        return Router(settings.policies, get), lambda entry: list(named(reads.events(along(entry, inputs))))

    return worker_of(inputs) if stage == WORKER else router


def _begins(begun: Mapping[bytes, bytes]) -> tuple[int, int]:
    """Return the next offsets of the inputs."""
    forecasts, outcomes = Fence.decode(begun[kinds.FENCE.key()]).next if begun else (0, 0)
    return forecasts, outcomes


def _journal(
    place: str, at: tuple[int, int], entries: Sequence[Entry], inputs: Sequence[list[Record]], noted: Sequence[Entry]
) -> tuple[int, int]:
    """Judge the journal in the changelog, and what its own topic says of it; return where it ends."""
    numbers = [each.number for each in entries]
    if numbers != list(range(len(numbers))):
        raise WrongError(f"the journal of {place} has the entries {numbers}")
    for entry in entries:
        if entry.begins != at or entry.ends != (at[0] + entry.topics.count(0), at[1] + entry.topics.count(1)):
            raise WrongError(
                f"entry {entry.number} of {place} goes from {entry.begins} to {entry.ends}, not on from {at}"
            )
        at = entry.ends
        if any(end > len(each) for end, each in zip(at, inputs, strict=True)):
            raise WrongError(f"entry {entry.number} of {place} goes on to {at}, behind the tail that an input has lost")
    order = b"".join(each.topics for each in entries)
    first = sum(entries[0].begins) if entries else 0
    for each in noted:
        whole = order[sum(each.begins) - first : sum(each.ends) - first]
        if each.topics != whole:
            raise WrongError(f"the topic of the journal of {place} does not say what entry {each.number} ends with")
    return at


def _ended(
    place: str, at: tuple[int, int], entries: Sequence[Entry], inputs: Sequence[list[Record]], noted: Sequence[Entry]
) -> None:
    """Judge that all was applied, and that the last checkpoint was written."""
    ends = tuple(len(each) for each in inputs)
    if at != ends:
        raise WrongError(f"the journal of {place} ends at {at}, its inputs at {ends}")
    if entries and max([each.number for each in noted], default=0) != len(entries):
        raise WrongError(f"{place} was stopped without a last checkpoint")


def _merged(place: str, entries: Sequence[Entry], inputs: Sequence[list[Record]]) -> None:
    """Judge that records which were merged together went by time, a forecast before an outcome of its millisecond."""
    for entry in entries:
        for (first, one), (second, other) in pairwise(along(entry, inputs)):
            early = other.timestamp - one.timestamp + (second - first if second != first else 0) * 0.5
            if first != second and -SLACK < early < 0:
                raise WrongError(f"entry {entry.number} of {place} has offset {one.offset} before {other.offset}")
