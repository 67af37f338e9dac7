"""Judges what intake and router have sent, and that each source record has come to its end.

Both may send a record again: intake what it had not committed when it took a partition up, the router what its journal
did not know to be acknowledged. Nothing else comes twice, and what comes first is in order.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.structs import TopicPartition

from streams.faust.routed_outputs import RoutedOutputs
from streams.records import skips
from streams.records.making import Maker
from tests.simulation.folds import NOTHING, Folded, WrongError, fold, left_out
from tests.simulation.group import Place
from tests.simulation.log import Record
from tests.simulation.plan import INTAKE, MANY, OF_STAGE, POISON, ROUTER, UNAWARE, WIDTHS
from tests.simulation.world import World


class Made(NamedTuple):
    """A record that must be there: of which one it was made, key, headers and timestamp; None: that of the broker.

    ``then`` if it must come after what else was made of the same, ``left`` if that was left out.
    """

    source: Place
    offset: int
    then: bool
    key: bytes | None
    headers: tuple[Any, ...]
    stamp: int | None
    left: bool

    def is_like(self, record: Record) -> bool:
        """Whether a record of the same value is it."""
        said = record.key, tuple(record.headers)
        return (self.key, self.headers) == said and self.stamp in (None, record.timestamp)


class TakenUp(NamedTuple):
    """That an intake took a source partition up: the number of its append, who, and from which offset on."""

    at: int
    by: str
    since: int


#: What must be there, by its place and its value.
Wanted = dict[Place, dict[bytes, Made]]
#: Of each source partition an offset.
Offsets = Mapping[Place, int]
#: The number of the append with which it came first.
First = dict[tuple[Place, bytes], int]
_MAPPED: Final = b"mapped/"


def judge(world: World, since: Offsets, begun: Sequence[Mapping[bytes, bytes]]) -> tuple[Offsets, list[Folded]]:
    """Judge what intake and router of a group have sent; return where its intake ended, and what its router folded.

    ``since`` and ``begun`` are where its intake began, and with which rows its router did.

    Raises `WrongError` if it is not as it must be.
    """
    until = {place: offset for place, (offset, _) in world.kafka.groups[world.base.intake_group].offsets.items()}
    wanted = _wanted(world, since, until)
    first = _intake(world, wanted, until)
    _committed_late(world, wanted, first)
    folded = [fold(world, ROUTER, n, begun[n] if begun else NOTHING) for n in range(world.width)]
    _router(world, folded)
    return until, folded


def sent_by(world: World, stage: str) -> Iterator[tuple[Place, Record]]:
    """Yield what the processes of a stage have appended to topics that are no state, in each partition in order."""
    own = {name for of in world.folding.values() for name in (of.changelog, of.journal)}
    own |= {world.base.configurations, world.base.owners}
    for (topic, n), log in world.kafka.logs.items():
        for record in log.records(whole=True) if topic in world.era.topics and topic not in own else ():
            if record.by.split(".")[0] in OF_STAGE[stage]:
                yield (topic, n), record


def _wanted(world: World, since: Offsets, until: Offsets) -> Wanted:
    """Return what intake must send of source records between two offsets, and what it may have sent of later ones.

    A move only knows by routes and labels that something was sent and not committed.
    """
    early = "forecasts", "dead-letters", "calibrated"
    maker = Maker(world.base)
    ids = {topic: world.kafka.topic_id(topic).hex for topic in WIDTHS}
    maker.know({label: world.widths[topic] for label, topic in maker.topics.items()}, ids)
    wanted: Wanted = defaultdict(dict)
    for source in world.reads(INTAKE):
        for record in world.kafka.logs[source].records(whole=True):
            if record.offset < since.get(source, 0):
                continue
            late = record.offset >= until.get(source, 0)
            for stands in _standing(world, source, record):
                making = maker.make([(TopicPartition(*source), stands)], record.timestamp)
                for then, made in enumerate((making.first, making.then)):
                    for (label, n), records in made.items():
                        for each in records if label in early or not late else ():
                            key, value, stamp, headers = each
                            said = key, tuple(headers), stamp
                            one = Made(source, record.offset, bool(then), *said, stands is not record)
                            wanted[maker.topics[label], n][value] = one
    return wanted


def _standing(world: World, source: Place, record: Record) -> list[Record]:
    """Return a source record, and what stands for it where an operator has left it out; without it if it ends intakes.

    An intake that runs does not know yet that it is left out, and may have sent what it becomes.
    """
    reasons = [
        skip.reason
        for n in range(world.width)
        for each in world.kafka.logs[world.base.configurations, n].records(whole=True)
        if (skip := skips.read_source(each.key, each.value)) and (skip.topic, skip.partition) == source
        if skip.offset == record.offset
    ]
    return [record] * (record.key != POISON) + [left_out(record, reason) for reason in reasons[:1]]


def _intake(world: World, wanted: Wanted, until: Offsets) -> First:
    """Judge each record that intakes sent, and that none is missing; return when each came first."""
    taken_up = _taken_up(world)
    first: First = {}
    left = {(made.source, made.offset) for values in wanted.values() for made in values.values() if made.left}
    reached: dict[tuple[Place, Place], int] = {}
    seen: set[tuple[Place, bytes, str, int]] = set()
    for place, record in sent_by(world, INTAKE):
        value, said = record.value or b"", f"{place[0]}/{place[1]}@{record.offset}"
        made = wanted[place].get(value)
        if made is None or not made.is_like(record):
            raise WrongError(f"{said} is nothing that a source record becomes")
        eras = [each for each in taken_up[made.source] if each.by == record.by and each.at < record.at]
        if not eras or eras[-1].since > made.offset:
            raise WrongError(f"{said} is of {made.source}@{made.offset}, which {record.by} had not taken up")
        once = place, value, record.by, len(eras)
        if once in seen:
            raise WrongError(f"{said} was sent twice by {record.by}")
        seen.add(once)
        if (place, value) in first:
            continue
        # An intake that does not know that a record is left out may send it late, and nobody else does.
        if reached.get((place, made.source), -1) >= made.offset and (made.source, made.offset) not in left:
            raise WrongError(f"{said} comes behind a later record of {made.source}")
        reached[place, made.source] = max(reached.get((place, made.source), -1), made.offset)
        first[place, value] = record.at
    came = {(made.source, made.offset, made.left) for place, value in first for made in [wanted[place][value]]}
    for place, values in wanted.items():
        for value, made in list(values.items()):
            if (place, value) in first:
                continue
            if made.offset >= until.get(made.source, 0):
                del values[value]
                continue
            if (made.source, made.offset, made.left) in came or (made.source, made.offset, not made.left) not in came:
                raise WrongError(f"{place[0]}/{place[1]} lacks what {made.source}@{made.offset} becomes")
            del values[value]  # it was left out, or was not left out in time
    return first


def _taken_up(world: World) -> dict[Place, list[TakenUp]]:
    """Return which source partitions intakes took up, in order.

    Where none stood still or waited between its question and its announcement, each must begin where its group was.
    """
    still = any(fault.kind.startswith(UNAWARE) for fault in world.plan.faults)
    commits = [] if still else world.kafka.groups[world.base.intake_group].commits
    found: dict[Place, list[TakenUp]] = defaultdict(list)
    for n in range(world.width):
        for each in world.kafka.logs[world.base.configurations, n].records(whole=True):
            if each.key and each.key.startswith(_MAPPED):
                said = orjson.loads(each.value or b"")
                source, since = (said["topic"], said["partition"]), said["since"]
                last = next((one.offset for one in reversed(commits) if one.place == source and one.at < each.at), 0)
                if since < last:
                    raise WrongError(f"{each.by} began with {source}@{since} although {last} was committed")
                found[source].append(TakenUp(each.at, each.by, since))
    return found


def _committed_late(world: World, wanted: Wanted, first: First) -> None:
    """Judge that a route came after its forecast, and an offset was committed after all that came of those before."""
    came: dict[tuple[Place, int, bool], int] = {}
    routes = []
    for place, values in wanted.items():
        for value, made in values.items():
            at = first[place, value]
            if made.then:
                routes.append((at, made))
            else:
                came[made.source, made.offset, made.left] = at
    for at, made in routes:
        if at < came[made.source, made.offset, made.left]:
            raise WrongError(f"the route of {made.source}@{made.offset} was sent before its forecast")
        came[made.source, made.offset, made.left] = at
    for commit in world.kafka.groups[world.base.intake_group].commits:
        late = [
            n
            for (source, n, left), at in came.items()
            if source == commit.place and n < commit.offset and at > commit.at
            if came.get((source, n, not left), at) > commit.at  # who knows that it is left out began before it again
        ]
        if late:
            raise WrongError(
                f"{commit.place} was committed up to {commit.offset} before what {late[0]} becomes was sent"
            )


class _Routed(NamedTuple):
    """What the router must send to a partition: of which of its own, and the number of the journal's entry."""

    router: int
    entry: int
    key: bytes | None
    value: bytes
    headers: tuple[Any, ...]
    stamp: int | None


def _router(world: World, folded: list[Folded]) -> None:
    """Judge each record that routers sent, and that none is missing."""
    wanted = _routed(world, folded)
    follows: dict[tuple[Place, int], int] = defaultdict(int)
    seen: set[tuple[Place, int, int, str, int]] = set()
    first: dict[tuple[int, int], int] = {}
    for place, record in sent_by(world, ROUTER):
        for router, made in wanted[place].items():
            n = _found(record, made, follows[place, router])
            if n is not None:
                break
        else:
            raise WrongError(f"{place[0]}/{place[1]}@{record.offset} is nothing that a label becomes, or out of order")
        one, era = made[n], folded[router].era(record.by, record.at)
        said = f"{place[0]}/{place[1]}@{record.offset} of partition {router} of the router"
        if era < 0 or folded[router].claims[era].told > one.entry:
            raise WrongError(f"{said} was sent by {record.by}, who need not")
        if (place, router, n, record.by, era) in seen:
            raise WrongError(f"{said} was sent twice by {record.by}")
        seen.add((place, router, n, record.by, era))
        if n == follows[place, router]:
            follows[place, router] += 1
            first[router, one.entry] = max(first.get((router, one.entry), 0), record.at)
    for place, routers in wanted.items():
        for router, made in routers.items():
            if follows[place, router] < len(made):
                lacking = len(made) - follows[place, router]
                raise WrongError(f"{place[0]}/{place[1]} lacks {lacking} of {len(made)} of router's partition {router}")
    _answered_early(world, folded, first)


def _routed(world: World, folded: list[Folded]) -> dict[Place, dict[int, list[_Routed]]]:
    """Return what the router must send, by its place and by the partition of the router, in order."""
    wanted: dict[Place, dict[int, list[_Routed]]] = defaultdict(lambda: defaultdict(list))
    sending: Any = lambda: None  # noqa: E731 - nothing is sent
    outputs = RoutedOutputs(world.folding[ROUTER], sending, lambda: world.width, lambda *_: None)
    for n, each in enumerate(folded):
        for entry, settings, made in each.made:
            batch = outputs.batch(n, settings)
            batch.add(made)
            for (label, partition), records in batch.made.items():
                for key, value, stamp, headers in records:
                    one = _Routed(n, entry.number, key, value, tuple(headers), stamp)
                    wanted[outputs.topics[label], partition][n].append(one)
    return wanted


def _found(record: Record, made: list[_Routed], follows: int) -> int | None:
    """Return which of the records it is: the one that follows, or one that was there before; None: neither."""
    for n in (follows, *range(follows - 1, -1, -1)):
        said = record.key, record.value, tuple(record.headers)
        if n < len(made) and (made[n].key, made[n].value, made[n].headers) == said:
            return n if made[n].stamp in (None, record.timestamp) else None
    return None


def _answered_early(world: World, folded: list[Folded], first: dict[tuple[int, int], int]) -> None:
    """Judge that the router committed no offset before what came of the records before it was sent."""
    of = world.folding[ROUTER]
    topics = of.inputs
    for commit in world.kafka.groups[of.app_id].commits:
        (name, n), topic = commit.place, topics.index(commit.place[0])
        for entry, *_ in folded[n].made:
            some = entry.begins[topic] < min(commit.offset, entry.ends[topic])
            if some and first.get((n, entry.number), 0) > commit.at:
                raise WrongError(f"{name}/{n} was committed up to {commit.offset} before entry {entry.number} was sent")


def _left_out(world: World) -> set[tuple[str, int]]:
    """Return the source records that operators left out: id and partition of the topic, and the offset."""
    told = [world.kafka.logs[era.base.configurations, n] for era in world.eras for n in range(era.width)]
    found = [skips.read_source(each.key, each.value) for log in told for each in log.records(whole=True)]
    return {(f"{each.topic_id}/{each.partition}", each.offset) for each in found if each}


def ends(world: World) -> None:
    """Judge that each forecast has its answer, and that the last label of an event has reached all its streams.

    That of what was loaded, too.

    Raises `WrongError` if one has not.
    """

    def every(label: str) -> list[Any]:
        places = [(getattr(era.base, label), n) for era in world.eras for n in range(era.width)]
        logs = [world.kafka.logs[place] for place in places]
        return [orjson.loads(each.value or b"") for log in logs for each in log.records(whole=True)]

    said = every("labels")
    erased = {each["event_id"] for each in said if each.get("erase")}
    past = [orjson.loads(each.value) for each in world.plan.past]
    known = {each["event_id"]: each["y"] for each in past if each.get("y") in (0, 1)}
    sent, left = every("forecasts"), _left_out(world)
    late = {each["event_id"] for each in sent if (each["origin"][0].rpartition("@")[2], each["origin"][1]) in left}
    read = [each for each in past if type(each["event_id"]) is str and each.get("p", 2) <= 1] + sent
    forecasts = {(each["stream"], each["event_id"]): each["p"] for each in read}
    answered = {(each["stream"], each["event_id"], each["raw"]) for each in every("calibrated")}
    labels: dict[str, dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
    for each in said:
        if not each.get("erase"):
            labels[each["event_id"]][each["ts"]].add(each["y"])
    resolved: dict[tuple[str, str], tuple[int, float]] = {}
    for each in every("resolved"):
        where = each["stream"], each["event_id"]
        resolved[where] = max(resolved.get(where, (-1, 0.0)), (each["revision"], each["y"]))
    for (stream, event_id), p in forecasts.items():
        if event_id in erased:
            continue
        if (stream, event_id, p) not in answered and not event_id.startswith(f"{world.plan.seed + MANY}-"):
            raise WrongError(f"the forecast of {event_id} in {stream} has no answer")
        if event_id in labels and event_id not in late:  # the route may come too late
            last = labels[event_id][max(labels[event_id])]
            if resolved.get((stream, event_id), (0, known.get(event_id)))[1] not in last:
                raise WrongError(f"the last label of {event_id} has not reached {stream}")
