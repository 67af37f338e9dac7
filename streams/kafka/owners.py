"""Which application writes which topics: every group writes it down at its first start, in one topic of the cluster.

Without that, a copy of an application under another ``TRUEUP_APP_ID`` answers in the topics of the first one, and two
applications of one id, on different topics, are one group of which no member gets all of its partitions. The topic of
`Settings.owners` is compacted and has one partition. Its records are keyed by consumer group, as each stage has one. A
group that finds its own record starts without writing.
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
    """The records of who writes what cannot be read, or may not be changed now; the message says what to do."""


@dataclass(frozen=True)
class Claim:
    """What a consumer group reads and writes.

    Attributes
    ----------
    group
        The consumer group of a stage.
    application
        ``TRUEUP_APP_ID`` of all stages.
    reads
        Its input topics; of intake none, as sources belong to others.
    writes
        The topics that it writes.
    """

    group: str
    application: str
    reads: frozenset[str]
    writes: frozenset[str]

    def encode(self) -> bytes:
        """Return the value of the record."""
        topics = {"reads": sorted(self.reads), "writes": sorted(self.writes)}
        return orjson.dumps({"version": VERSION, "application": self.application, **topics})


class Kept(NamedTuple):
    """A record: its offset, its group, and its claim, None where the group has none any more."""

    offset: int
    group: str
    claim: Claim | None


def of(settings: Settings) -> list[Claim]:
    """Return what each stage of these settings reads and writes; of a router's settings, that one alone."""
    found = [_claim(settings, stage.app_id, permissions.needed(stage)) for stage in settings.stages]
    if intake := permissions.of_intake(settings):
        found.append(_claim(settings, settings.intake_group, [each for each in intake if "Write" in each.operations]))
    return found


def _claim(settings: Settings, group: str, grants: Iterable[permissions.Grant]) -> Claim:
    of_topics = [each for each in grants if each.kind == "topic" and each.name != settings.owners]
    writes = frozenset(each.name for each in of_topics if "Write" in each.operations)
    reads = frozenset(each.name for each in of_topics if "Read" in each.operations) - writes
    return Claim(group, settings.application, reads, writes)


def conflicts(settings: Settings, kept: Iterable[Kept]) -> list[str]:
    """Return why these settings may not be served, a sentence for each application that is in the way.

    ``kept`` are the records, in order.
    """
    known, me, found = _standing(kept), settings.application, list[str]()
    others = [each for each in known.values() if each.application != me]
    moved, belongs = list[tuple[Claim, Claim]](), dict[str, set[str]]()
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
            f"{_listed(theirs)} {'belongs' if len(theirs) == 1 else 'belong'} to application {application}, and "
            f"TRUEUP_APP_ID={me} would write there, too: "
            f"set TRUEUP_TOPIC_PREFIX{or_these} to give {me} topics of its own; if it is to take the place of "
            f"{application}, stop that and run 'trueup topics take' with the settings of {me}"
        )
    return found


def _another(had: Claim, mine: Claim) -> bool:
    """Whether a group of this name works on other topics. That it writes some more, or some less, is a change of it."""
    return had.reads != mine.reads or bool(had.writes - mine.writes and mine.writes - had.writes)


def _said(moved: Sequence[tuple[Claim, Claim]], which: int) -> str:
    """Return what the earlier (0) or the later (1) of some pairs of claims read and write, where they differ."""
    parts = []
    for verb in ("reads", "writes"):
        pairs = [[getattr(each, verb) for each in pair] for pair in moved]
        names = sorted({topic for pair in pairs for topic in pair[which] - pair[1 - which]})
        parts += [f"{verb} {', '.join(names)}"] * bool(names)
    return " and ".join(parts)


def _listed(topics: Iterable[str]) -> str:
    names = sorted(topics)
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names)}"


def _standing(kept: Iterable[Kept]) -> dict[str, Claim]:
    """Return the newest claim of each group."""
    newest = {each.group: each.claim for each in kept}
    return {group: claim for group, claim in newest.items() if claim is not None}


async def read(settings: Settings) -> list[Kept]:
    """Return all records, in order.

    Raises
    ------
    OwnersError
        If one is none that `Claim.encode` makes.
    KafkaError
        If the topic cannot be read.
    """
    found = []
    async for _, records in batches(settings, [settings.owners]):
        for record in records:
            group = (record.key or b"").decode(errors="replace")
            found.append(Kept(record.offset, group, _read(settings.owners, record.offset, group, record.value)))
    return found


def _read(topic: str, offset: int, group: str, value: bytes | None) -> Claim | None:
    if value is None:
        return None
    try:
        said = orjson.loads(value)
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']}")
        return Claim(group, said["application"], frozenset(said["reads"]), frozenset(said["writes"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise OwnersError(f"record {offset} of {topic} is none of this version of trueup: {exc!r}") from exc


async def problems(settings: Settings, allowed: permissions.Allowed) -> list[str]:
    """Return `conflicts` as of now; nothing if this user may not read the topic, or it is not there.

    ``allowed`` is what this user may do with the topic. A router has no sentence of its own: its application has it.
    """
    if settings.routed or (allowed is not None and "Read" not in allowed):
        return []
    try:
        return conflicts(settings, await read(settings))
    except OwnersError as exc:
        return [str(exc)]


async def claim(settings: Settings) -> list[str]:
    """Write down what these settings write, unless it is there, and return why they may not; see `conflicts`.

    Of two that do so at the same moment, the one whose record comes first stays. Raises KafkaError as `read`.
    """
    try:
        kept = await read(settings)
    except OwnersError as exc:
        return [str(exc)]
    known = _standing(kept)
    found = conflicts(settings, kept)
    new = {
        mine.group: mine if had is None else Claim(mine.group, mine.application, mine.reads, mine.writes | had.writes)
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
    """Give all topics that the stages of these settings write to them, and return what changed, a sentence each.

    With ``dry_run`` nothing is written.

    Raises
    ------
    OwnersError
        If a group that loses topics, or that works on others from now on, has members; and as `read`.
    """
    known = _standing(await read(settings))
    mine = {each.group: each for each in of(settings)}
    written = frozenset(topic for each in mine.values() for topic in each.writes)
    me, found = settings.application, list[str]()
    changed: dict[str, Claim | None] = {}
    for group, had in known.items():
        if had.application != me and (lost := had.writes & written):
            changed[group] = Claim(group, had.application, had.reads, had.writes - lost)
            found.append(f"{_listed(lost)}: written by {me} now, and no more by group {group} of {had.application}")
        elif group in mine and _another(had, mine[group]):
            changed[group] = mine[group]
            found.append(f"group {group}: {_listed(mine[group].reads | mine[group].writes)}")
    for group in changed:
        await _require_stopped(admin, group)
    changed |= {group: each for group, each in mine.items() if known.get(group) != each}
    if not dry_run:
        await _write(settings, changed)
    return found


async def _require_stopped(admin: AIOKafkaAdminClient, group: str) -> None:
    if there := await groups.members(admin, group):
        raise OwnersError(f"group {group} has {there} members: stop them first")


async def _write(settings: Settings, claims: Mapping[str, Claim | None]) -> None:
    async with writer(settings, request_timeout_ms=int(settings.request_seconds * 1000)) as producer:
        for group, each in claims.items():
            await producer.send_and_wait(settings.owners, each and each.encode(), group.encode(), partition=0)
