"""What each fault of the brokers does."""

import time
from collections.abc import Sequence

from tests.chaos.faults import few_and_long, kind
from tests.chaos.stage import Stage


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


@kind("broker killed", brokers=(1,), outage=None, each=few_and_long)
def kill_broker(stage: Stage, seconds: float) -> None:
    """The broker is killed and comes back on the same data and port."""
    _kill(stage, [1], seconds)


@kind("broker frozen", brokers=(1,), outage=None)
def freeze_broker(stage: Stage, seconds: float) -> None:
    """The broker is stopped and woken: connections stay, nothing answers."""
    _freeze(stage, 1, seconds)


@kind("leader killed", brokers=(3,), spares=True)
def kill_leader(stage: Stage, partition: int, seconds: float) -> None:
    """The broker that leads a partition of the changelog is killed, and comes back."""
    _kill(stage, [_leader(stage, partition)], seconds)


@kind("leader frozen", brokers=(3,), spares=True)
def freeze_leader(stage: Stage, partition: int, seconds: float) -> None:
    """The same is stopped and woken: connections stay, nothing answers."""
    _freeze(stage, _leader(stage, partition), seconds)


@kind("follower killed", brokers=(3,), spares=True)
def kill_follower(stage: Stage, partition: int, seconds: float) -> None:
    """A broker that follows in a partition of the changelog is killed, and comes back."""
    _kill(stage, [_follower(stage, partition)], seconds)


@kind("follower frozen", brokers=(3,), spares=True)
def freeze_follower(stage: Stage, partition: int, seconds: float) -> None:
    """The same is stopped and woken."""
    _freeze(stage, _follower(stage, partition), seconds)


@kind("coordinator killed", brokers=(3,), spares=True)
def kill_coordinator(stage: Stage, seconds: float) -> None:
    """The broker that coordinates the group is killed, and comes back."""
    _kill(stage, [stage.cluster.coordinator(stage.world.name)], seconds)


@kind("coordinator frozen", brokers=(3,), spares=True)
def freeze_coordinator(stage: Stage, seconds: float) -> None:
    """The same is stopped and woken."""
    _freeze(stage, stage.cluster.coordinator(stage.world.name), seconds)


@kind("controller killed", brokers=(3,), spares=True)
def kill_controller(stage: Stage, seconds: float) -> None:
    """The broker whose controller is active is killed, and comes back."""
    _kill(stage, [stage.cluster.controller()], seconds)


@kind("controller frozen", brokers=(3,), spares=True)
def freeze_controller(stage: Stage, seconds: float) -> None:
    """The same is stopped and woken."""
    _freeze(stage, stage.cluster.controller(), seconds)


@kind("worker and leader killed", brokers=(3,))
def kill_both(stage: Stage, worker: int, partition: int, seconds: float) -> None:
    """A worker and the broker that leads a partition of the changelog are killed at once."""
    leader = _leader(stage, partition)
    stage.fleet.members[worker].worker.process.kill()  # its supervisor starts it while the leader is away
    _kill(stage, [leader], seconds)


@kind("network to the leader silent", brokers=(3,), outage=None)
def silence_leader(stage: Stage, worker: int, partition: int, seconds: float) -> None:
    """Nothing passes between a worker and the broker that leads a partition of the changelog; others reach it."""
    proxy = stage.proxies[worker][_leader(stage, partition) - 1]
    proxy.silence()
    time.sleep(seconds)
    proxy.mend()


@kind("rolling restart of brokers", brokers=(3,), spares=True)
def restart_brokers(stage: Stage) -> None:
    """The brokers are restarted in good order, one after another."""
    for broker in stage.cluster.brokers:
        broker.stop()
        stage.cluster.heal()


@kind("partitions reassigned", brokers=(3,), spares=True)
def reassign(stage: Stage) -> None:
    """All partitions of all topics lose their leader to other replicas, and get a third one again."""
    for topic in stage.world.topics():
        places = stage.cluster.places(topic)
        followers = {n: [node for node in place.replicas if node != place.leader] for n, place in places.items()}
        stage.cluster.reassign(topic, followers)
        stage.cluster.reassign(topic, {n: [*nodes, places[n].leader] for n, nodes in followers.items()})


@kind("below min.insync.replicas", brokers=(3,), outage=None)
def below_min_isr(stage: Stage, seconds: float) -> None:
    """A broker is killed, and the changelog is to have more replicas in sync than are left."""
    changelog = stage.world.settings.changelog
    stage.cluster.configure(changelog, min_insync_replicas=str(len(stage.cluster.brokers)))
    _kill(stage, [_follower(stage, 0)], seconds)
    stage.cluster.configure(changelog, min_insync_replicas="2")


@kind("two brokers killed", brokers=(3,), outage=None)
def kill_two(stage: Stage, seconds: float) -> None:
    """Two of three brokers are killed, and come back."""
    _kill(stage, [1, 2], seconds)


@kind("all brokers killed", brokers=(3,), outage=None, each=few_and_long)
def kill_all(stage: Stage, seconds: float) -> None:
    """All brokers are killed, and come back."""
    _kill(stage, range(1, len(stage.cluster.brokers) + 1), seconds)
