"""A topic of the cluster that records which application writes which topics.

It prevents two mistakes. A copy of an application under another ``TRUEUP_APP_ID`` would answer in the topics of the
first one. Two applications with the same id and different topics would form one group, and each would get only some of
its partitions.

The topic `Settings.owners` is compacted and has one partition. Its key is the consumer group; each stage has one. Every
group writes its record at its first start. A group that finds its own record starts without writing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson
from aiokafka.admin import AIOKafkaAdminClient

from streams.config.settings import TOPICS, Settings
from streams.kafka import groups, permissions
from streams.kafka.whole_topics import batches
from streams.kafka.writer import writer

VERSION: Final = 1


class OwnersError(RuntimeError):
    """The owners cannot be read, or may not be changed now; the message says what to do."""


@dataclass(frozen=True)
class GroupTopics:
    """The topics that a consumer group reads and writes."""

    #: The consumer group of a stage.
    group: str
    #: ``TRUEUP_APP_ID`` of all stages.
    application: str
    #: Its input topics; empty for intake, because sources belong to others.
    reads: frozenset[str]
    #: The topics that it writes.
    writes: frozenset[str]

    def encode(self) -> bytes:
        """Return the value of the record."""
        topics = {"reads": sorted(self.reads), "writes": sorted(self.writes)}
        return orjson.dumps({"version": VERSION, "application": self.application, **topics})


class Kept(NamedTuple):
    """A record: its offset, its group and its claim; None if the group no longer has a claim."""

    offset: int
    group: str
    claim: GroupTopics | None


def of(settings: Settings) -> list[GroupTopics]:
    """Return the claim of each stage of these settings. For a router's settings, return only the router's."""
    found = [_claim(settings, stage.app_id, permissions.needed(stage)) for stage in settings.stages]
    if intake := permissions.of_intake(settings):
        found.append(_claim(settings, settings.intake_group, [each for each in intake if "Write" in each.operations]))
    return found


def _claim(settings: Settings, group: str, grants: Iterable[permissions.Grant]) -> GroupTopics:
    of_topics = [each for each in grants if each.kind == "topic" and each.name != settings.owners]
    writes = frozenset(each.name for each in of_topics if "Write" in each.operations)
    reads = frozenset(each.name for each in of_topics if "Read" in each.operations) - writes
    return GroupTopics(group, settings.application, reads, writes)


def conflicts(settings: Settings, kept: Iterable[Kept]) -> list[str]:
    """Return why these settings must not be served, one sentence for each conflicting application.

    ``kept`` are the records, in order.
    """
    known, me, found = _standing(kept), settings.application, list[str]()
    others = [each for each in known.values() if each.application != me]
    moved, belongs = list[tuple[GroupTopics, GroupTopics]](), dict[str, set[str]]()
    for mine in of(settings):
        had = known.get(mine.group)
        if had is not None and _another(had, mine):
            moved.append((had, mine))
            continue
        new = mine.writes - (had.writes if had else frozenset())
        for other in others:
            if clash := new & (other.writes | other.reads):
                belongs.setdefault(other.application, set()).update(clash)
    if moved:
        found.append(
            f"application {me} works on other topics: it {_said(moved, 0)}, and with TRUEUP_APP_ID={me} and these "
            f"settings it {_said(moved, 1)}; set another TRUEUP_APP_ID, or, if the topics of {me} have changed, stop "
            "all of it and run 'trueup topics take' with the new settings"
        )
    variables: dict[str, str] = {getattr(settings, name): f"TRUEUP_{name.upper()}" for name in TOPICS}
    if settings.routed:
        variables |= {settings.forecasts: "", settings.outcomes: "", settings.routed: "TRUEUP_OUTCOMES"}
    for application, theirs in belongs.items():
        named = [variable for topic in sorted(theirs) if (variable := variables.get(topic))]
        or_these = f" or {', '.join(named)}" if named else ""
        found.append(
            f"{listed(theirs)} {'belongs' if len(theirs) == 1 else 'belong'} to application {application}, and "
            f"TRUEUP_APP_ID={me} would write there, too: "
            f"set TRUEUP_TOPIC_PREFIX{or_these} to give {me} topics of its own; if it is to take the place of "
            f"{application}, stop that and run 'trueup topics take' with the settings of {me}"
        )
    return found


def _another(had: GroupTopics, mine: GroupTopics) -> bool:
    """Whether the group works on other topics than before. A few topics more or fewer to write are only a change."""
    return had.reads != mine.reads or bool(had.writes - mine.writes and mine.writes - had.writes)


def _said(moved: Sequence[tuple[GroupTopics, GroupTopics]], which: int) -> str:
    """Return the topics of the earlier (0) or the later (1) claim of each pair, where the two differ."""
    parts = []
    for verb in ("reads", "writes"):
        pairs = [[getattr(each, verb) for each in pair] for pair in moved]
        names = sorted({topic for pair in pairs for topic in pair[which] - pair[1 - which]})
        parts += [f"{verb} {', '.join(names)}"] * bool(names)
    return " and ".join(parts)


def listed(topics: Iterable[str]) -> str:
    """Return topics as part of a sentence, sorted by name."""
    names = sorted(topics)
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names)}"


def _standing(kept: Iterable[Kept]) -> dict[str, GroupTopics]:
    newest = {each.group: each.claim for each in kept}
    return {group: claim for group, claim in newest.items() if claim is not None}


async def read(settings: Settings) -> list[Kept]:
    """Return all records, in order.

    Raises OwnersError if a record is not one of `GroupTopics.encode`.
    Raises KafkaError if the topic cannot be read.
    """
    found = []
    async for _, records in batches(settings, [settings.owners]):
        for record in records:
            group = (record.key or b"").decode(errors="replace")
            found.append(Kept(record.offset, group, _read(settings.owners, record.offset, group, record.value)))
    return found


def _read(topic: str, offset: int, group: str, value: bytes | None) -> GroupTopics | None:
    if value is None:
        return None
    try:
        said = orjson.loads(value)
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']}")
        return GroupTopics(group, said["application"], frozenset(said["reads"]), frozenset(said["writes"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise OwnersError(f"record {offset} of {topic} cannot be read by this version of trueup: {exc!r}") from exc


async def problems(settings: Settings, allowed: permissions.Allowed) -> list[str]:
    """Return the present `conflicts`; none if the topic is missing or if this user may not read it.

    ``allowed`` is what this user may do with the topic. A router's conflicts are reported by its application.
    """
    if settings.routed or (allowed is not None and "Read" not in allowed):
        return []
    try:
        return conflicts(settings, await read(settings))
    except OwnersError as exc:
        return [str(exc)]


async def claim(settings: Settings) -> list[str]:
    """Write the claims of these settings, unless they are already recorded; return the `conflicts`.

    If two applications do so at the same moment, the first record wins. Raises KafkaError as `read`.
    """
    try:
        kept = await read(settings)
    except OwnersError as exc:
        return [str(exc)]
    known = _standing(kept)
    found = conflicts(settings, kept)
    new = {
        mine.group: mine
        if had is None
        else GroupTopics(mine.group, mine.application, mine.reads, mine.writes | had.writes)
        for mine in of(settings)
        if (had := known.get(mine.group)) is None or not mine.writes <= had.writes
    }
    if found or not new:
        return found
    await _write(settings, new)
    again = await read(settings)
    seen = kept[-1].offset if kept else -1
    own = min(each.offset for each in again if each.offset > seen and new.get(each.group) == each.claim)
    before = [each for each in again if each.offset < own]
    found = conflicts(settings, before)
    if found:
        earlier = _standing(before)
        await _write(settings, {group: earlier.get(group) for group in new})
    return found


async def take(admin: AIOKafkaAdminClient, settings: Settings, *, dry_run: bool = False) -> list[str]:
    """Give these settings all topics that their stages write; return the changes, one sentence each.

    With ``dry_run`` nothing is written.

    Raises OwnersError if a group that loses topics, or changes to others, has members; and as `read`.
    """
    known = _standing(await read(settings))
    mine = {each.group: each for each in of(settings)}
    written = frozenset(topic for each in mine.values() for topic in each.writes)
    me, found = settings.application, list[str]()
    changed: dict[str, GroupTopics | None] = {}
    for group, had in known.items():
        if had.application != me and (lost := had.writes & written):
            changed[group] = GroupTopics(group, had.application, had.reads, had.writes - lost)
            found.append(f"{listed(lost)}: written by {me} now, and no more by group {group} of {had.application}")
        elif group in mine and _another(had, mine[group]):
            changed[group] = mine[group]
            found.append(f"group {group}: {listed(mine[group].reads | mine[group].writes)}")
    for group in changed:
        await _require_stopped(admin, group)
    changed |= {group: each for group, each in mine.items() if known.get(group) != each}
    if not dry_run:
        await _write(settings, changed)
    return found


async def _require_stopped(admin: AIOKafkaAdminClient, group: str) -> None:
    if there := await groups.members(admin, group):
        raise OwnersError(f"group {group} has {there} members: stop them first")


async def _write(settings: Settings, claims: Mapping[str, GroupTopics | None]) -> None:
    async with writer(settings, request_timeout_ms=int(settings.request_seconds * 1000)) as producer:
        for group, each in claims.items():
            await producer.send_and_wait(settings.owners, each and each.encode(), group.encode(), partition=0)
