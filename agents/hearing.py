"""What stands in the output topics already of records that are folded again after a crash."""

import logging
from collections.abc import Iterable, Mapping

from agents.served import Served
from streams.faust.outputs import Heard, Outputs
from streams.records.merge import Batch

log = logging.getLogger("trueup")


class Hearing:
    """Asks what was said already, and counts what nothing brings about again."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        #: Records in the output topics that are not what is folded again brings about.
        self.unlike = 0

    async def hear(self, batches: Iterable[Batch], partitions: Mapping[int, Served]) -> None:
        """Read the outputs in the topics, for records that are folded again and may have been answered already."""
        asked = dict[int, Served]()
        for batch in batches:
            served = partitions.get(batch.partition)
            if served is not None and served.heard is None and batch.again is not None and served.unsaid(batch):
                asked[batch.partition] = served
        if asked:
            found = await self._outputs.heard({number: served.said for number, served in asked.items()})
            for number, served in asked.items():
                served.heard = found[number]
                served.hears(found[number].ends)

    def compare(self, number: int, heard: Heard) -> None:
        """Count what stands in the output topics and was not brought about again; all was folded again."""
        if unlike := heard.unlike:
            self.unlike += unlike
            log.error(
                "%d records stand in the output topics of partition %d that are not what its records bring about "
                "here: does another kind of machine run in this group? Audit it",
                unlike,
                number,
            )
