"""Lets faults happen: when each is due, whom it strikes, and what becomes of them."""

import asyncio
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from cli import forget
from state import kinds
from state.fence import Fence
from streams.faust.claims import UNFINISHED
from streams.kafka.topics import TopicsError
from tests.simulation.group import Commit, Place
from tests.simulation.loop import Process, within
from tests.simulation.plan import AMID, ANNOUNCEMENT, ANSWER, INTAKE, LOST_TAIL, OPERATOR, STAGES, WORKER, Fault

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

#: The kinds of faults that are over at once; who is killed is down for a while.
AT_ONCE: Final = ("jump", "stop", "damaged disk", "compact", "erase", "offsets", "retention")
#: Requests other than appends, by the places of `PLACES`, by their numbers.
_REQUESTS: Final = {"a commit": (8,), "a claim": (22,), "a rebalance": (11, 13, 14), "a look": (2, 3, 9, 23)}


class Faults:
    """The faults of a history."""

    def __init__(self, world: "World") -> None:
        self._world = world
        #: How many struck, by kind.
        self.counts: Counter[str] = Counter()
        #: How many events are being erased.
        self.erasing = 0
        #: From when to when each lasted, s.
        self.spans: list[tuple[float, float]] = []

    def due(self, fault: Fault) -> None:
        """Let a fault strike as soon as whom it is for is where it is to be struck."""
        if not fault.worker:
            self.strike(fault)
            return
        actor = self._world.actors[fault.worker]
        (actor.amid if AMID in fault.kind else actor.due).append(fault)
        self.arm(actor)

    def end(self) -> None:
        """Let no fault strike any more, but those of operators, who may have begun late."""
        self._world.log("calm")
        for actor in self._world.actors.values():
            if actor.stage == OPERATOR:
                continue
            actor.due.clear()
            actor.amid.clear()
            if actor.process is not None:
                actor.process.left = None
                actor.process.ahead = 0.0

    def arm(self, actor: "Actor") -> None:
        """Let the next fault that is due strike the process that runs."""
        if actor.process is None or actor.process.left is not None or not actor.due:
            return
        fault = actor.due[0]

        def struck() -> None:
            actor.due.remove(fault)
            with within(None):
                self.strike(fault)
            self.arm(actor)

        actor.process.left, actor.process.struck = fault.after, struck

    def met(self, name: str, request: Any, *, applied: bool) -> None:
        """Let what is due amid a request strike: before it is sent, when it is applied, or soon after that."""
        actor = self._world.actors.get(name)
        if actor is None:
            return
        for fault in actor.amid:
            when, count, soon = fault.after % 3, fault.after // 3 % 4, fault.after // 12
            if applied == (when == 0) or not self._is(fault.kind.partition(AMID)[2], request):
                continue
            actor.met += 1
            if actor.met > count:
                actor.amid.remove(fault)
                actor.met = 0
                if when == 2:
                    actor.due.insert(0, fault._replace(after=soon))
                    self.arm(actor)
                    return
                with within(None):
                    self.strike(fault)
            return

    def _is(self, place: str, request: Any) -> bool:
        """Whether a request is one of those of a name."""
        if request.API_KEY:
            return request.API_KEY in _REQUESTS.get(place, ())
        topics, base = {topic for topic, _ in request.topics}, self._world.base
        if place == ANSWER:
            return bool(topics & {*base.outputs})
        if place == ANNOUNCEMENT:
            return base.configurations in topics
        # A checkpoint begins with its entry in the topic of the journal.
        return place == "an append" or (place == "a checkpoint" and any("journal" in topic for topic in topics))

    def strike(self, fault: Fault) -> None:
        """Let a fault happen."""
        world = self._world
        kind = fault.kind.partition(AMID)[0]
        self.counts[kind] += 1
        world.log(f"FAULT {fault.kind} {fault.worker}")
        lasts = 0.0 if kind in AT_ONCE else fault.long + (kind in ("trouble", "leaders"))
        world.calm = max(world.calm, world.loop.now + fault.long + 4.0)  # whom it is for may have begun late
        self.spans.append((world.loop.now, world.loop.now + lasts))
        if not fault.worker:
            self._for_all(fault)
            return
        actor = world.actors[fault.worker]
        process = actor.process
        if process is None:
            return
        if kind == "pause":
            process.stands = True
            world.loop.call_later(fault.long, self._wake, process)
        elif kind == "cut":
            world.network.cut.setdefault(actor.name, [])
            world.loop.call_later(fault.long, world.network.heal, actor.name)
        elif kind == "jump":
            process.ahead += (fault.long - 1) * 30
        elif kind == "stop":
            assert actor.stop is not None
            with within(process):
                actor.stop.set()
        elif kind == "full disk":
            world.disks.full.add(actor.name)
            world.loop.call_later(fault.long, world.disks.full.discard, actor.name)
        elif kind == "damaged disk":
            for each in world.disks.of(actor.directory):
                each.damaged = True
        else:
            world.end(actor, process, fault.long, said=False)
            self._afterwards(kind, actor, random.Random(f"{world.plan.seed} {fault}"))

    def _for_all(self, fault: Fault) -> None:
        world = self._world
        rng = random.Random(f"{world.plan.seed} {fault}")
        if fault.kind == "trouble":
            world.network.troubled = 0.02 + 0.1 * (fault.long % 2)
            world.loop.call_later(1 + fault.long, self._untroubled)
        elif fault.kind == "compact":
            for era in world.eras:
                for topic in {era.base.configurations, *(of.changelog for of in era.folding.values())}:
                    for n in range(era.width):
                        world.kafka.logs[topic, n].compact()
        elif fault.kind == "leaders":
            moved = {place for place in world.kafka.logs if rng.random() < 0.3}
            world.kafka.moving |= moved
            world.loop.call_later(0.3 + fault.long, world.kafka.moving.difference_update, moved)
        elif fault.kind == "offsets":
            self._set_offsets(rng.choice([stage for stage in STAGES if stage in world.plan.names.values()]), rng)
        elif fault.kind == "retention":
            self._delete(rng)
        elif fault.kind == LOST_TAIL:
            self._lose(rng.choice(world.reads(WORKER)), fault)
        else:
            event_id = f"{world.plan.seed}-{rng.randrange(60)}"
            with within(world.operator):
                world.loop.create_task(self._erase(event_id))

    def _delete(self, rng: random.Random) -> None:
        """Delete some of what no stage is to read again: in a checkpoint, or committed by intake.

        What stands where a tail was lost stays: without it nobody can know that what was applied is lost.
        """
        world, behind = self._world, dict[Place, int]()
        for era in world.eras:
            for of in era.folding.values():
                for n in range(era.width):
                    rows = {each.key: each.value for each in world.kafka.logs[of.changelog, n].records()}
                    fence = rows.get(kinds.FENCE.key())
                    if fence and fence != UNFINISHED:
                        behind |= zip(((of.forecasts, n), (of.outcomes, n)), Fence.decode(fence).next, strict=True)
        if world.plan.sourced:
            committed = world.kafka.groups[world.base.intake_group].offsets
            behind |= {place: offset for place, (offset, _) in committed.items()}
        for place, offset in behind.items():
            if not world.kafka.logs[place].lost:
                world.kafka.logs[place].trim(offset - rng.choice((0, 0, 1, rng.randrange(offset + 1))))

    def _lose(self, place: Place, fault: Fault) -> None:
        """Lose the end of an input while its leader moves: what comes meanwhile gets the offsets of that."""
        world, log = self._world, self._world.kafka.logs[place]
        if log.batches:
            log.cut(min(1 + fault.after, len(log.batches)))
            world.log(f"{place} ends at {log.end}, and has ended at {log.lost[-1].end}")
            world.kafka.moving.add(place)
            world.loop.call_later(fault.long, world.kafka.moving.discard, place)

    async def _erase(self, event_id: str) -> None:
        """Erase an event as `trueup forget` does, again until it is done."""
        self.erasing += 1
        settings = self._world.sending.base
        value = forget.erasure(settings, event_id)
        while True:
            try:
                await forget.send(settings, [(event_id, value)])
            except (TopicsError, KafkaError, TimeoutError) as exc:
                self._world.log(f"operator: {exc!r}")
                await asyncio.sleep(1)
            else:
                break
        self.erasing -= 1

    def _set_offsets(self, stage: str, rng: random.Random) -> None:
        """Stop a stage, and set offsets of its group as `kafka-consumer-groups.sh --reset-offsets` does.

        Those of intake go back; those of others also ahead, as nobody may go by them.
        """
        world = self._world
        for actor in world.actors.values():
            if actor.stage == stage and actor.process is not None:
                world.end(actor, actor.process, said=False)
        group = world.kafka.groups[world.group(stage)]
        group.empty()
        for place, (offset, _) in list(group.offsets.items()):
            end = offset if stage == INTAKE else world.kafka.logs[place].end
            set_to = max(rng.randrange(end + 1), world.kafka.logs[place].begin)
            group.offsets[place] = set_to, ""
            if stage == INTAKE:  # what is ahead nobody has answered
                group.commits.append(Commit(world.kafka.appends, place, set_to))

    def _afterwards(self, kind: str, actor: "Actor", rng: random.Random) -> None:
        """Do to one that was killed what goes with a kind of fault."""
        world = self._world
        found = world.disks.of(actor.directory)
        if kind == "configure":
            actor.policies ^= 1
        elif kind == "lost disk":
            shutil.rmtree(actor.directory, ignore_errors=True)
        elif kind == "swapped disks":
            self._swap(actor, rng.choice([each for each in world.actors.values() if each.stage == actor.stage]))
        for each in found:
            if kind == "old disk":
                each.again(each.writes[: rng.randrange(len(each.writes) + 1)])
            elif kind == "torn disk" and each.writes:
                hole = max(0, len(each.writes) - 1 - rng.randrange(4))
                each.again(each.writes[:hole] + each.writes[hole + 1 :])
            elif kind == "foreign disk":
                each.again(
                    [
                        [
                            (key, value and value.replace(b'"cluster"', b'"another"'))
                            for key, value in write
                            if key[:2] == b"__" or rng.random() < 0.7
                        ]
                        for write in each.writes
                    ]
                )

    def _swap(self, actor: "Actor", other: "Actor") -> None:
        """Give each of two the disk of the other."""
        if other.process is not None:
            self._world.end(other, other.process, said=False)
        if other is actor or not (actor.directory.exists() and other.directory.exists()):
            return
        aside = self._world.directory / "aside"
        for source, target in ((actor.directory, aside), (other.directory, actor.directory), (aside, other.directory)):
            source.rename(target)

    def _untroubled(self) -> None:
        self._world.network.troubled = 0.0

    def _wake(self, process: Process) -> None:
        if process.alive:
            self._world.log(f"{process.name} wakes")
        process.stands = False
