"""What each fault of the brokers does."""

import time
from collections.abc import Sequence

from tests.chaos import faults
from tests.chaos.stage import Stage, strike


def _kill(stage: Stage, nodes: Sequence[int], seconds: float) -> None:
    for node in nodes:
        stage.cluster.broker(node).kill()
    time.sleep(seconds)
    stage.cluster.start()


def _freeze(stage: Stage, node: int, seconds: float) -> None:
    broker = stage.cluster.broker(node)
    broker.pause()
    time.sleep(seconds)
    broker.resume()


def _leader(stage: Stage, partition: int) -> int:
    """Return who leads a partition of the changelog; the next one's leader where that is the controller."""
    places = stage.cluster.places(stage.world.settings.changelog)
    leaders = [places[(partition + i) % len(places)].leader for i in range(len(places))]
    controller = stage.cluster.controller()
    return next((leader for leader in leaders if leader != controller), leaders[0])


def _follower(stage: Stage, partition: int) -> int:
    """Return a replica of a partition of the changelog that does not lead it, nor the controllers if that can be."""
    place = stage.cluster.places(stage.world.settings.changelog)[partition]
    controller = stage.cluster.controller()
    followers = [node for node in place.in_sync if node != place.leader]
    return next((node for node in followers if node != controller), followers[0])


@strike.register
def _(fault: faults.KillBroker, stage: Stage) -> None:
    _kill(stage, [1], fault.seconds)


@strike.register
def _(fault: faults.FreezeBroker, stage: Stage) -> None:
    _freeze(stage, 1, fault.seconds)


@strike.register
def _(fault: faults.KillLeader, stage: Stage) -> None:
    _kill(stage, [_leader(stage, fault.partition)], fault.seconds)


@strike.register
def _(fault: faults.FreezeLeader, stage: Stage) -> None:
    _freeze(stage, _leader(stage, fault.partition), fault.seconds)


@strike.register
def _(fault: faults.KillFollower, stage: Stage) -> None:
    _kill(stage, [_follower(stage, fault.partition)], fault.seconds)


@strike.register
def _(fault: faults.FreezeFollower, stage: Stage) -> None:
    _freeze(stage, _follower(stage, fault.partition), fault.seconds)


@strike.register
def _(fault: faults.KillCoordinator, stage: Stage) -> None:
    _kill(stage, [stage.cluster.coordinator(stage.world.name)], fault.seconds)


@strike.register
def _(fault: faults.FreezeCoordinator, stage: Stage) -> None:
    _freeze(stage, stage.cluster.coordinator(stage.world.name), fault.seconds)


@strike.register
def _(fault: faults.KillController, stage: Stage) -> None:
    _kill(stage, [stage.cluster.controller()], fault.seconds)


@strike.register
def _(fault: faults.FreezeController, stage: Stage) -> None:
    _freeze(stage, stage.cluster.controller(), fault.seconds)


@strike.register
def _(fault: faults.KillBoth, stage: Stage) -> None:
    member = stage.fleet.members[fault.worker]
    leader = _leader(stage, fault.partition)
    member.worker.process.kill()  # its supervisor starts it while the leader is away
    _kill(stage, [leader], fault.seconds)


@strike.register
def _(fault: faults.SilentLeader, stage: Stage) -> None:
    proxy = stage.proxies[fault.worker][_leader(stage, fault.partition) - 1]
    proxy.silence()
    time.sleep(fault.seconds)
    proxy.mend()


@strike.register
def _(fault: faults.RollingRestart, stage: Stage) -> None:  # noqa: ARG001 - nothing is drawn
    for broker in stage.cluster.brokers:
        broker.stop()
        stage.cluster.heal()


@strike.register
def _(fault: faults.Reassign, stage: Stage) -> None:  # noqa: ARG001 - as above
    for topic in stage.world.topics():
        places = stage.cluster.places(topic)
        followers = {n: [node for node in place.replicas if node != place.leader] for n, place in places.items()}
        stage.cluster.reassign(topic, followers)
        stage.cluster.reassign(topic, {n: [*nodes, places[n].leader] for n, nodes in followers.items()})


@strike.register
def _(fault: faults.BelowMinIsr, stage: Stage) -> None:
    changelog = stage.world.settings.changelog
    stage.cluster.configure(changelog, min_insync_replicas=str(len(stage.cluster.brokers)))
    _kill(stage, [_follower(stage, 0)], fault.seconds)
    stage.cluster.configure(changelog, min_insync_replicas="2")


@strike.register
def _(fault: faults.KillTwo, stage: Stage) -> None:
    _kill(stage, [1, 2], fault.seconds)


@strike.register
def _(fault: faults.KillAll, stage: Stage) -> None:
    _kill(stage, range(1, len(stage.cluster.brokers) + 1), fault.seconds)
