"""Who serves which partition, and who keeps a copy of its state: decided by the leader of the group, for all.

Faust's assignor knows copies too, but reads them with the consumer that reads the inputs, and gives up the balance of
what is served for them. Here a partition is served where it was served, then where a copy of it is, then by whoever has
least; and copies follow from that. Its messages stay those of Faust: a worker that knows nothing of copies can be in
the same group, and keeps none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import faust
from aiokafka.cluster import ClusterMetadata
from faust.assignor.client_assignment import ClientAssignment
from faust.assignor.partition_assignor import MemberAssignmentMapping, MemberMetadataMapping, PartitionAssignor
from faust.types import TP


@dataclass
class Share:
    """What a worker has: the partitions it serves, and those of whose state it has a copy."""

    served: set[int] = field(default_factory=set)
    copied: set[int] = field(default_factory=set)


def assign(partitions: int, before: Mapping[str, Share], copies: int) -> dict[str, Share]:
    """Share partitions out among workers, moving as little as possible.

    Parameters
    ----------
    partitions
        How many there are.
    before
        What each worker has, by its name; at least one. What two say they serve is left to one.
    copies
        How many copies of each partition there are to be, if there are as many other workers.

    Returns
    -------
    dict of str to Share
        Every partition is served by one worker, and no worker serves two more than another. A copy is never where its
        partition is served, and the copies of what a worker serves are spread over the others.
    """
    after = {name: Share() for name in sorted(before)}
    _serve(partitions, before, after)
    _copy(partitions, before, after, min(copies, len(after) - 1))
    return after


def _serve(partitions: int, before: Mapping[str, Share], after: Mapping[str, Share]) -> None:
    low, extra = divmod(partitions, len(after))
    homeless = set(range(partitions))

    def room(name: str) -> bool:
        """Whether it may serve one more: as many as all, or one more than all while somebody must."""
        full = sum(len(share.served) > low for share in after.values())
        return len(after[name].served) < low + (full < extra)

    def settle(partition: int, name: str) -> None:
        after[name].served.add(partition)
        homeless.discard(partition)

    def elsewhere(name: str, partition: int) -> bool:
        """Whether another worker, that serves less than all, could go on with its copy."""
        return any(
            partition in share.copied and len(share.served) < low for other, share in before.items() if other != name
        )

    for name in sorted(after, key=lambda name: (-len(before[name].served), name)):
        for partition in sorted(before[name].served & homeless, key=lambda n: (elsewhere(name, n), n)):
            if room(name):
                settle(partition, name)

    def holders(partition: int) -> list[str]:
        return [name for name in after if partition in before[name].copied | before[name].served]

    for partition in sorted(homeless, key=lambda n: (not holders(n), len(holders(n)), n)):
        ready = [name for name in holders(partition) if room(name)]
        settle(
            partition, min(ready or [name for name in after if room(name)], key=lambda name: len(after[name].served))
        )


def _copy(partitions: int, before: Mapping[str, Share], after: Mapping[str, Share], copies: int) -> None:
    most = -(-partitions * copies // len(after))
    pairs: dict[tuple[str, str], int] = {}
    owners = {partition: name for name, share in after.items() for partition in share.served}

    def keep(partition: int, name: str) -> None:
        after[name].copied.add(partition)
        pair = owners[partition], name
        pairs[pair] = pairs.get(pair, 0) + 1

    def wanted(partition: int) -> bool:
        return sum(partition in share.copied for share in after.values()) < copies

    for partition, owner in sorted(owners.items()):
        # Of what one worker serves no other copies more than its part: when it dies, they take it over together.
        each = -(-len(after[owner].served) * copies // max(len(after) - 1, 1))
        for name, share in before.items():
            has = partition in share.copied | share.served and name != owner
            room = len(after[name].copied) < most and pairs.get((owner, name), 0) < each
            if has and room and wanted(partition):
                keep(partition, name)
    for partition, owner in sorted(owners.items()):
        while wanted(partition):
            others = [name for name in after if name != owner and partition not in after[name].copied]
            keep(partition, min(others, key=lambda name: (pairs.get((owner, name), 0), len(after[name].copied))))


class Assignor(PartitionAssignor):
    """The assignor of a worker's group.

    Attributes
    ----------
    copied
        The partitions that this worker is to keep copies of.
    """

    def __init__(self, app: faust.App, replicas: int = 0) -> None:
        super().__init__(cast("Any", app), replicas=replicas)
        #: Copies are told as those of a topic that does not exist, so that nobody's consumer is assigned it.
        self._copies = f"{app.conf.id}-copies"

    def found(self, partitions: Iterable[int]) -> None:
        """Say which partitions this worker's disk has rows of, before it joins the group."""
        self._assignment = ClientAssignment(actives={}, standbys={self._copies: sorted(partitions)})

    @property
    def copied(self) -> frozenset[int]:
        """The partitions that this worker is to keep copies of."""
        return frozenset(self._assignment.standbys.get(self._copies, ()))

    def assigned_standbys(self) -> set[TP]:
        """Return none: Faust would read them itself."""
        return set()

    def _perform_assignment(
        self, cluster: ClusterMetadata, member_metadata: MemberMetadataMapping
    ) -> MemberAssignmentMapping:
        topics = sorted({topic for member in member_metadata.values() for topic in member.subscription})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        clients = {name: self._get_client_metadata(metadata) for name, metadata in member_metadata.items()}
        before = {name: self._share(client.assignment) for name, client in clients.items()}
        after = assign(max(counts.values(), default=0), before, self.replicas)
        assignments = {
            name: ClientAssignment(
                actives={topic: [n for n in sorted(share.served) if n < count] for topic, count in counts.items()},
                standbys={self._copies: sorted(share.copied)},
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
        return Share(served, set(assignment.standbys.get(self._copies, ())))
