"""What operators do, as the how-to pages say: move a group, leave a record out, roll out another build.

Each task is a coroutine that goes on from where the group stands. So an operator who was killed, or a second one,
begins it again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from cli import rescale, skip
from streams.config.settings import SettingsError
from streams.kafka.topics import TopicsError
from tests.simulation.builds import BUILDS
from tests.simulation.commands import command
from tests.simulation.loop import PROCESS, within
from tests.simulation.plan import FEED, HELPER, OPERATORS, POISON, RESCALE, SKIP, UPGRADE, WORKER

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

T = TypeVar("T")

#: Pause before a look at the group, or another attempt, s.
PAUSE: Final = 1.0
#: Longest wait for a worker to be ready before the next is rolled, s.
READY: Final = 20.0
#: The same of each operator whom another has shut out.
AGAIN: Final = (5.0, 25.0)
#: What a command says where the stages of the group have to run once more.
UNREADY: Final = ("Start its workers once more", "records are not applied yet")


def call(world: "World") -> None:
    """Let operators begin when it is time, if they have a task, and producers write for the group that follows."""
    if world.plan.task:
        world.loop.call_at(world.plan.begins[0], setattr, world, "sending", world.eras[-1])
        for at, name in zip(world.plan.begins, OPERATORS, strict=True):
            world.loop.call_at(at, world.start, world.actors[name])


async def _commanded(world: "World", code: Callable[[], str]) -> str | None:
    """Run a command, and return what it says; None if it has to be tried again."""
    process = PROCESS.get()
    world.commanding.append(process)
    try:
        said = await command(code)
    except TopicsError as exc:
        world.commanding.remove(process)
        world.log(f"{process.name}: {exc}")
        others = [each for each in world.commanding if each.alive]
        if any(each in str(exc) for each in UNREADY) and not others and world.era is world.eras[0]:
            world.release()
        # Who was shut out by another run leaves it to that for a while.
        await asyncio.sleep(AGAIN[OPERATORS.index(process.name)] if "meanwhile" in str(exc) else PAUSE)
        return None
    world.commanding.remove(process)
    world.log(f"{process.name}: {said}")
    return said


async def _moved(world: "World") -> None:
    """Stop all when they have read everything, and move the group to another number of partitions."""
    old, new = world.eras
    while world.era is old:
        await _stopped(world)
        if await _commanded(world, partial(rescale.run, old.base, new.base, new.width, None)) and world.era is old:
            world.move_on()


async def _stopped(world: "World") -> None:
    """Stop all stages by SIGTERM when they have read all, unless they were stopped."""
    actors = world.staged()
    while world.era is world.eras[0] and not all(each.held and each.process is None for each in actors):
        if not any(each.held for each in actors) and not world.done_reading:
            await asyncio.sleep(PAUSE)
            continue
        for each in actors:
            each.held = True
            _told_to_stop(each)
        await asyncio.sleep(PAUSE)


def _told_to_stop(actor: "Actor") -> None:
    if actor.process is not None and actor.stop is not None:
        with within(actor.process):
            actor.stop.set()


async def _left_out(world: "World") -> None:
    """Leave out the record that a worker has died of again and again; where there is none, the newest of some topic."""
    deadly = any(each.key == POISON for each in world.plan.records)
    while True:
        found = _named(world.lines) if deadly else _newest(world)
        if not found:
            await asyncio.sleep(PAUSE)
            continue
        try:
            if await _commanded(world, partial(skip.run, world.base, found, "a defect")):
                return
        except SettingsError as exc:
            world.log(f"{PROCESS.get().name}: {exc}")
            if deadly or world.loop.now > FEED:
                return
            await asyncio.sleep(PAUSE / 5)


def _named(lines: list[str]) -> str:
    """Return the record that a worker's log names with the command."""
    named = (re.search("trueup state skip ([^ ]+) --reason", line) for line in reversed(lines))
    return next((each[1] for each in named if each), "")


def _newest(world: "World") -> str:
    """Return the newest record of one of the inputs."""
    inputs = [place for place in world.reads(WORKER) if world.kafka.logs[place].end]
    if not inputs:
        return ""
    topic, n = inputs[int(world.loop.now * 1000) % len(inputs)]
    return f"{topic}/{n}@{world.kafka.logs[topic, n].end - 1}"


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
    return _rolled_out(actor) and actor.topology is not None and not actor.topology.unready


def _rolled_out(actor: "Actor") -> bool:
    return actor.process is not None and actor.process.build == actor.build


async def _until(done: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so, not for ever: whoever is awaited may be dead."""
    for _ in range(int(seconds / PAUSE)):
        if done():
            return
        await asyncio.sleep(PAUSE)


#: By what the plan calls them.
DOING: Final[dict[str, Callable[["World"], Awaitable[None]]]] = {RESCALE: _moved, SKIP: _left_out, UPGRADE: _rolled}
