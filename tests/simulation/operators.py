"""What operators do, as the how-to pages say: load, promote, move a group, leave a record out, roll out a build, audit.

Each task is a coroutine that goes on from where the group stands. So an operator who was killed, or a second one,
begins it again.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

import orjson

from streams.config.settings import SettingsError
from streams.kafka.topics import TopicsError
from tests.simulation.builds import BUILDS
from tests.simulation.commands import command, trueup
from tests.simulation.loop import PROCESS, within
from tests.simulation.plan import (
    AUDITOR,
    HELPER,
    INTAKE,
    LOAD,
    OPERATORS,
    POISON,
    PROMOTE,
    RESCALE,
    SKIP,
    UPGRADE,
    WORKER,
)

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

#: Pause before a look at the group, or another attempt, s.
PAUSE: Final = 1.0
#: Longest wait for a worker to be ready before the next is rolled, s.
READY: Final = 20.0
#: The same of each operator whom another has shut out.
AGAIN: Final = (5.0, 25.0)
#: Before the first audit, about, s.
AUDITS: Final = 4.0
#: What a command says where the stages of the group have to run once more.
UNREADY: Final = ("Start its workers once more", "records are not applied yet", "start all stages")
#: The same where there is a state, or a load that was interrupted has left rows: which topics are to be made anew.
ANEW: Final = re.compile("[Dd]elete the topics .*, make them by")


def call(world: "World") -> None:
    """Let operators begin when it is time, if they have a task, and producers write for the group that follows."""
    if AUDITOR in world.actors:
        world.start(world.actors[AUDITOR])
    if world.plan.task:
        world.loop.call_at(world.plan.begins[0], setattr, world, "sending", world.eras[-1])
        for at, name in zip(world.plan.begins, OPERATORS, strict=True):
            world.loop.call_at(at, world.start, world.actors[name])


async def _commanded(world: "World", *arguments: str) -> str | None:
    """Run a command, and return what it says; None if it has to be tried again."""
    process = PROCESS.get()
    world.commanding.append(process)
    try:
        said = await command(partial(trueup, world.era.environment, *arguments))
    except TopicsError as exc:
        refused = str(exc)
    else:
        world.log(f"{process.name}: {said.strip()}")
        return said
    finally:
        world.commanding.remove(process)
    world.log(f"{process.name}: {refused}")
    if not any(each.alive for each in world.commanding):
        _helped(world, refused)
    # Who was shut out by another run leaves it to that for a while.
    await asyncio.sleep(AGAIN[OPERATORS.index(process.name)] if "meanwhile" in refused else PAUSE)
    return None


def _helped(world: "World", refused: str) -> None:
    """Do what a command says that could not be carried out."""
    if any(each in refused for each in UNREADY) and world.era is world.eras[0]:
        world.release()
        world.again = True
    if (named := ANEW.search(refused)) and not world.loaded:
        for topic in (world.base.changelog, world.base.journal, world.base.configurations):
            if topic in named[0]:
                world.kafka.renew(topic)


async def _moved(world: "World") -> None:
    """Stop all when they have read everything, and move the group to another number of partitions."""
    old, new = world.eras
    changed = dict(new.environment.items() - old.environment.items())
    to = ("--partitions", str(new.width), "--to", changed.pop("TRUEUP_APP_ID"))
    names = [f"{name}={value}" for name, value in sorted(changed.items())]
    while world.era is old:
        await _stopped(world)
        if world.era is old and await _commanded(world, "state", "rescale", *to, *names) and world.era is old:
            world.move_on()


async def _stopped(world: "World") -> None:
    """Stop intake by SIGTERM, and the other stages when they have read all, unless they were stopped.

    After they had to run once more, intake has to have read all, too.
    """
    actors = world.staged()
    while world.era is world.eras[0] and not all(each.held and each.process is None for each in actors):
        first = [each for each in actors if each.stage == INTAKE]
        others = [each for each in actors if each.stage != INTAKE]
        if all(each.held and each.process is None for each in first):
            first = others if any(each.held for each in others) or world.folded else []
        elif world.again and not any(each.held for each in first) and not world.done_reading:
            first = []
        for each in first:
            each.held = True
            _told_to_stop(each)
        await asyncio.sleep(PAUSE)


def _told_to_stop(actor: "Actor") -> None:
    if actor.process is not None and actor.stop is not None:
        with within(actor.process):
            actor.stop.set()


async def _left_out(world: "World") -> None:
    """Leave out each record that processes die of again and again; where there is none, the newest of some topic."""
    deadly = any(POISON in (each.key, each.value[13:19]) for each in world.plan.records)
    while not (deadly and world.loop.now > world.calm and world.done_reading):
        found = _named(world.lines) if deadly else _newest(world)
        if not found or found in world.left:
            await asyncio.sleep(PAUSE)
            continue
        try:
            if await _commanded(world, "state", "skip", found, "--reason", "a defect"):
                world.left.add(found)
        except SettingsError as exc:
            world.log(f"{PROCESS.get().name}: {exc}")
            if deadly:
                world.left.add(found)
            await asyncio.sleep(PAUSE / 5)
        if not deadly and (world.left or world.loop.now > world.plan.feed):
            return


def _named(lines: list[str]) -> str:
    """Return the record that a worker's log names with the command."""
    named = (re.search("trueup state skip ([^ ]+) --reason", line) for line in reversed(lines))
    return next((each[1] for each in named if each), "")


def _newest(world: "World") -> str:
    """Return the newest record of one of the inputs, of sources where there are some."""
    places = world.reads(INTAKE if world.plan.sourced else WORKER)
    inputs = [place for place in places if world.kafka.logs[place].end]
    if not inputs:
        return ""
    topic, n = inputs[int(world.loop.now * 1000) % len(inputs)]
    return f"{topic}/{n}@{world.kafka.logs[topic, n].end - 1}"


async def _loaded(world: "World") -> None:
    """Load the past, and start the stages: which have waited, or are stopped first."""
    if world.plan.before:
        await asyncio.sleep(AUDITS * 1.5)
        while not world.loaded and not all(each.held and each.process is None for each in world.staged()):
            for each in world.staged():
                each.held = True
                _told_to_stop(each)
            await asyncio.sleep(PAUSE)
    files = [each for topic in ("forecasts", "outcomes") for each in (f"--{topic}", str(world.directory / topic))]
    while not world.loaded:
        if await _commanded(world, "load", *files) and not world.loaded:
            world.loaded = True
            world.release()


async def _promoted(world: "World") -> None:
    """Let a challenger serve: by the streams file, which the stages read when they are started again."""
    while world.goals:
        goal = world.goals[0]
        try:
            if not await _commanded(world, "streams", "promote", "stream-0", goal, "--reason", "it is better"):
                continue
        except SettingsError as exc:  # it serves
            world.log(f"{PROCESS.get().name}: {exc}")
        for actor in world.staged():
            if actor.streams != world.streams.read_text():
                _told_to_stop(actor)
                await _until(partial(_ready, actor), READY)
        if world.goals[:1] == [goal]:
            world.goals.pop(0)


async def _rolled(world: "World") -> None:
    """Stop one worker after another and start it with another build; then see that no partition waits for a build."""
    while world.goals:
        goal = world.goals[0]
        for actor in world.staged():
            if actor.build != goal:
                actor.build = goal
                _told_to_stop(actor)
                await _until(partial(_ready, actor), READY)
        if world.goals[:1] == [goal]:
            world.goals.pop(0)
    helper = world.actors[HELPER]
    while not (world.done_reading and helper.held and helper.process is None and all(map(_rolled_out, world.staged()))):
        topologies = [each.topology for each in world.staged() if each.topology is not None]
        waiting = [each for each in topologies if each.app.unserved]
        if waiting and helper.held:
            helper.build = next(build for build in BUILDS if build != world.staged()[0].build)
            helper.held = False
            world.start(helper)
        elif not waiting and not helper.held and _ready(helper):
            helper.held = True
            _told_to_stop(helper)
        await asyncio.sleep(PAUSE)


def _ready(actor: "Actor") -> bool:
    """Whether a worker of the build that it is to be of answers all."""
    if actor.topology is None:
        return actor.process is not None and actor.stage == INTAKE
    return _rolled_out(actor) and not actor.topology.unready


def _rolled_out(actor: "Actor") -> bool:
    return actor.process is not None and actor.process.build == actor.build


async def _until(done: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so, not for ever: whoever is awaited may be dead."""
    for _ in range(int(seconds / PAUSE)):
        if done():
            return
        await asyncio.sleep(PAUSE)


async def audited(world: "World") -> None:
    """Audit now and then, and less and less often."""
    pauses = random.Random(f"audits {world.plan.seed}")
    for n in count():
        await asyncio.sleep(AUDITS * (0.3 + pauses.random()) * (1 + n / 2))
        await audit(world)


async def audited_last(world: "World", auditor: "Actor") -> None:
    """Let a last audit run, of all that stands now; `WrongError` if it ends by itself."""
    from tests.simulation.folds import WrongError  # noqa: PLC0415 - which imports the world, that has operators

    if auditor.process is not None:
        world.end(auditor, auditor.process)
    with within(world.loop.process(AUDITOR, auditor.starts + 1)):
        try:
            await world.loop.create_task(audit(world))
        except Exception as exc:
            raise WrongError(f"an audit ends by itself: {exc!r}") from exc


async def audit(world: "World") -> None:
    """Audit once, and note what is said."""
    arguments = list(world.plan.audits or ())
    if "--checkpoint" in arguments:
        arguments.append(str(world.directory / "audits"))
    said = await command(partial(trueup, world.era.environment, "audit", "--json", *arguments))
    account = orjson.loads(said.splitlines()[-1])
    world.audits.append(account)
    checked = account["checked"]
    world.log(f"{PROCESS.get().name}: {checked}; {account['differences']} {account['unable']}")


#: By what the plan calls them.
DOING: Final[dict[str, Callable[["World"], Awaitable[None]]]] = {
    RESCALE: _moved,
    SKIP: _left_out,
    UPGRADE: _rolled,
    LOAD: _loaded,
    PROMOTE: _promoted,
}
