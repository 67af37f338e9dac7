"""Decides, in the group's leader, which worker serves each partition and which workers keep copies of its state.

Faust's assignor reads copies with the consumer of the inputs, and so assigns partitions unevenly. Here a partition
stays with its worker or moves to a worker that has a copy. A worker that serves too few partitions first makes copies,
and takes the partitions over when the copies are whole. So nobody waits for a restore. Without copies, partitions move
at once.

Workers of two builds may be in one group. A build with another arithmetic cannot derive the answers since the last
checkpoint again. So a worker says which version a partition needs, and only workers of that version get it. If there is
none, nobody serves the partition, and all workers say so.

The messages are those of Faust, so a worker that knows nothing of copies can be in the same group. It keeps none.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import faust
from aiokafka.cluster import ClusterMetadata
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from faust.assignor.partition_assignor import MemberAssignmentMapping, MemberMetadataMapping, PartitionAssignor
from faust.types import TP
from yarl import URL

from state.formats import ARITHMETIC


@dataclass
class Share:
    """The partitions of one worker."""

    #: Partitions that it serves.
    served: set[int] = field(default_factory=set)
    #: Partitions of which it has a whole copy; in an assignment, partitions to copy.
    copied: set[int] = field(default_factory=set)
    #: Partitions of which it has a partial copy. In an assignment: partitions that it will ask for when its copies of
    #: them are whole.
    behind: set[int] = field(default_factory=set)
    #: Version of its answers, see `state.formats`.
    arithmetic: int = ARITHMETIC
    #: Partitions that it could not take up, each with the version of the arithmetic that is needed.
    needs: dict[int, int] = field(default_factory=dict)


def assign(partitions: int, before: Mapping[str, Share], copies: int) -> dict[str, Share]:
    """Assign partitions to workers, moving as few as possible.

    ``before``: partitions of each worker, by name; at least one. If two say that they serve a partition, one keeps it.
    ``copies``: wanted copies of each partition, if there are enough other workers.

    Each partition is served by one worker, or by none if no worker has the arithmetic that it needs. No worker serves
    two more than another, unless the other has no whole copy of the partitions that could move, or may not serve them.
    A copy is never on the worker that serves its partition. The copies of a worker's partitions are spread over all
    other workers.
    """
    after = {name: Share(arithmetic=before[name].arithmetic) for name in sorted(before)}
    _serve(partitions, before, after)
    _balance(before, after, cold=not copies)
    _copy(before, after, min(copies, len(after) - 1))
    for name, share in after.items():
        late = share.copied - before[name].copied
        share.behind = {n for other in _fuller(after, name) for n in after[other].served & late}
    return after


def _may(before: Mapping[str, Share]) -> Callable[[int, str], bool]:
    """Return a function that says whether a worker may be given a partition."""
    needs = {n: version for share in before.values() for n, version in share.needs.items()}
    return lambda n, name: needs.get(n, before[name].arithmetic) == before[name].arithmetic


def _serve(partitions: int, before: Mapping[str, Share], after: Mapping[str, Share]) -> None:
    """Leave served partitions where they are. Give the others to workers with a copy, or else to those with fewest."""
    may, homeless = _may(before), set(range(partitions))
    for name in after:
        after[name].served |= before[name].served & homeless
        homeless -= after[name].served

    def holders(partition: int) -> list[str]:
        return [name for name in after if partition in before[name].copied]

    for partition in sorted(homeless, key=lambda n: (not holders(n), len(holders(n)), n)):
        able = [name for name in after if may(partition, name)]
        warm = [name for name in holders(partition) if name in able]
        if able:
            after[min(warm or able, key=lambda name: len(after[name].served))].served.add(partition)


def _fuller(after: Mapping[str, Share], name: str) -> list[str]:
    """Return the workers that serve at least two partitions more than this one, the fullest first."""
    found = [other for other in after if len(after[other].served) >= len(after[name].served) + 2]
    return sorted(found, key=lambda other: -len(after[other].served))


def _balance(before: Mapping[str, Share], after: Mapping[str, Share], *, cold: bool) -> None:
    """Move partitions to workers that serve fewer and have a copy; with ``cold``, to any that serve fewer."""
    may = _may(before)
    while True:
        fuller = [(o, name) for name in after for o in _fuller(after, name)]
        pairs = [(n, o, name) for o, name in fuller for n in sorted(after[o].served) if may(n, name)]
        pairs.sort(key=lambda pair: (len(after[pair[2]].served), -len(after[pair[1]].served)))
        warm = [pair for pair in pairs if pair[0] in before[pair[2]].copied]
        if not (warm or (cold and pairs)):
            return
        partition, owner, name = (warm or pairs)[0]
        after[owner].served.remove(partition)
        after[name].served.add(partition)


def _copy(before: Mapping[str, Share], after: Mapping[str, Share], copies: int) -> None:
    """Place copies: where partitions will move, then where copies are already, then on the workers with few copies."""
    if _stands(before, after, copies):
        for name, share in before.items():
            after[name].copied |= (share.copied | share.behind) - share.served
        return
    placing = _Placing(before, after, copies)
    placing.move()
    placing.keep(lambda share: share.copied | share.served)
    placing.keep(lambda share: share.behind)
    placing.fill()


class _Placing:
    """Places copies."""

    def __init__(self, before: Mapping[str, Share], after: Mapping[str, Share], copies: int) -> None:
        self._before, self._after, self._copies = before, after, copies
        self._owners = {partition: name for name, share in after.items() for partition in sorted(share.served)}
        self._most = -(-len(self._owners) * copies // len(after))

    def move(self) -> None:
        """Give workers that serve too few partitions copies of those that they will get from the fullest worker."""
        for name in sorted(self._after, key=lambda name: len(self._after[name].served)):
            fuller, taken, share = _fuller(self._after, name), self._after[name].copied, self._before[name]
            low = len(self._owners) // len(self._after)
            for _ in range(max(low - len(self._after[name].served), bool(fuller))):
                moving = [
                    (self._pair(other, name) - len(served), n not in share.copied, n not in share.behind, n)
                    for other in fuller
                    for served in (self._after[other].served,)
                    for n in served - taken
                    if self._wanted(n)
                ]
                if moving:
                    taken.add(min(moving)[-1])

    def keep(self, kept: Callable[[Share], set[int]]) -> None:
        """Leave copies where they are."""
        for partition, owner in sorted(self._owners.items()):
            for name, share in self._before.items():
                has = name != owner and partition in kept(share) - self._after[name].copied
                if has and self._room(owner, name) and self._wanted(partition):
                    self._after[name].copied.add(partition)

    def fill(self) -> None:
        """Place the missing copies on workers with few."""
        for partition, owner in sorted(self._owners.items()):
            while self._wanted(partition):
                others = [n for n, share in self._after.items() if n != owner and partition not in share.copied]
                name = min(others, key=lambda name: (self._pair(owner, name), len(self._after[name].copied)))
                self._after[name].copied.add(partition)

    def _pair(self, owner: str, name: str) -> int:
        """Number of partitions of one worker that another worker copies."""
        return len(self._after[owner].served & self._after[name].copied)

    def _wanted(self, partition: int) -> bool:
        return sum(partition in share.copied for share in self._after.values()) < self._copies

    def _room(self, owner: str, name: str) -> bool:
        """Whether a worker may copy one more partition of an owner: if the owner dies, all others take equal parts."""
        each, extra = divmod(len(self._after[owner].served) * self._copies, max(len(self._after) - 1, 1))
        full = sum(self._pair(owner, other) > each for other in self._after)
        return len(self._after[name].copied) < self._most and self._pair(owner, name) < each + (full < extra)


def _stands(before: Mapping[str, Share], after: Mapping[str, Share], copies: int) -> bool:
    """Whether no partition moves now or later, and no copy is missing."""
    if any(share.served != before[name].served or _fuller(after, name) for name, share in after.items()):
        return False
    kept = {name: (share.copied | share.behind) - share.served for name, share in before.items()}
    partitions = {partition for share in after.values() for partition in share.served}
    return all(sum(partition in each for each in kept.values()) == copies for partition in partitions)


class Assignor(PartitionAssignor):
    """The assignor of a worker's group."""

    def __init__(self, app: faust.App, replicas: int = 0) -> None:
        super().__init__(cast("Any", app), replicas=replicas)
        #: Copies are reported as partitions of topics that do not exist, so that no consumer is assigned them.
        self._copies, self._behind = f"{app.conf.id}-copies", f"{app.conf.id}-copies-behind"
        #: In the same way: the version of a worker's answers, partitions that it could not take up, and those that
        #: nobody serves.
        self._arithmetic, self._needs = f"{app.conf.id}-arithmetic", f"{app.conf.id}-needs"
        self._unserved = f"{app.conf.id}-unserved"
        #: Returns the partitions of which this worker has a whole copy.
        self.whole: Callable[[], Iterable[int]] = lambda: ()
        #: Partitions of this worker whose rows were set aside. Each goes to a worker with a copy, if there is one.
        self.lost: set[int] = set()
        #: Version of this worker's answers.
        self.arithmetic = ARITHMETIC
        #: Partitions that this worker could not take up, and the version of the arithmetic that can.
        self.needs: dict[int, int] = {}

    @property
    def copied(self) -> frozenset[int]:
        """The partitions of which this worker is to keep copies."""
        return frozenset(self._assignment.standbys.get(self._copies, ()))

    @property
    def awaited(self) -> frozenset[int]:
        """The partitions that this worker will ask for when its copies of them are whole."""
        return frozenset(self._assignment.standbys.get(self._behind, ()))

    @property
    def unserved(self) -> frozenset[int]:
        """The partitions that no worker of the group may serve."""
        return frozenset(self._assignment.standbys.get(self._unserved, ()))

    def assigned_standbys(self) -> set[TP]:
        """Return none, because Faust would read them itself."""
        return set()

    @property
    def _url(self) -> URL:
        """The name under which this worker gets its assignment.

        With a `TRUEUP_INSTANCE_ID`, a restarted worker gets the assignment that it had before, even in another
        container. Faust would use host and port, and would end if they had changed.
        """
        name = self.app.conf.consumer_group_instance_id
        return URL.build(scheme="http", host="worker", path=f"/{name}") if name else super()._url

    @property
    def _metadata(self) -> ClientMetadata:
        """The message that this worker sends to the leader when it joins."""
        told = super()._metadata
        whole, actives = set(self.whole()), self._assignment.actives
        gone = self.lost | self.needs.keys()
        told.assignment = ClientAssignment(
            actives={topic: [n for n in served if n not in gone] for topic, served in actives.items()},
            standbys={
                self._copies: sorted(whole),
                self._behind: sorted(self.copied - whole),
                self._arithmetic: [self.arithmetic],
                self._needs: [number for pair in sorted(self.needs.items()) for number in pair],
            },
        )
        return told

    def _perform_assignment(
        self, cluster: ClusterMetadata, member_metadata: MemberMetadataMapping
    ) -> MemberAssignmentMapping:
        topics = sorted({topic for member in member_metadata.values() for topic in member.subscription})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        clients = {name: self._get_client_metadata(metadata) for name, metadata in member_metadata.items()}
        before = {name: self._share(client.assignment) for name, client in clients.items()}
        after = assign(max(counts.values(), default=0), before, self.replicas)
        unserved = sorted(set(range(max(counts.values(), default=0))).difference(*(s.served for s in after.values())))
        assignments = {
            name: ClientAssignment(
                actives={topic: [n for n in sorted(share.served) if n < count] for topic, count in counts.items()},
                standbys={
                    self._copies: sorted(share.copied),
                    self._behind: sorted(share.behind),
                    self._unserved: unserved,
                },
            )
            for name, share in after.items()
        }
        self._update_member_urls(clients)
        return self._protocol_assignments(
            assignments,
            self._get_changelog_distribution(assignments),
            self._get_external_topic_distribution(assignments),
            dict.fromkeys(topics, 0),
        )

    def _share(self, assignment: ClientAssignment) -> Share:
        served = {n for partitions in assignment.actives.values() for n in partitions}
        copied, behind = (set(assignment.standbys.get(topic, ())) for topic in (self._copies, self._behind))
        (arithmetic,) = assignment.standbys.get(self._arithmetic, (0,))
        needs = assignment.standbys.get(self._needs, ())
        return Share(served, copied, behind, arithmetic, dict(zip(needs[::2], needs[1::2], strict=True)))
