"""The configurations that were in force in a partition, by the hashes in the journal."""

from collections.abc import Sequence

from replay.audit.output_matcher import Differs, OutputDifference, Unauditable
from state.fence import Fence
from streams.config import in_force
from streams.config.in_force import InForce, InForceError, OtherArithmeticError
from streams.config.settings import Settings


class Configurations:
    """The configurations that workers, or routers, recorded for a partition.

    ``settings``: give everything that is not recorded.
    ``recorded``: the configurations, the oldest first.
    """

    def __init__(self, settings: Settings, partition: int, recorded: Sequence[InForce]) -> None:
        self._settings, self._partition, self.recorded = settings, partition, recorded
        self._restored: dict[str, Settings] = {}
        #: Why the audit ended before the last entry of the journal, see `ends`; empty if it did not.
        self.unable = ""

    def ends(self, config: bytes) -> bool:
        """Whether the audit must end before this configuration, because only another build can derive its records."""
        self.unable = self.of_another_build(config)
        return bool(self.unable)

    def of_another_build(self, config: bytes) -> str:
        """Return why this build cannot derive the records of a configuration; empty if it can."""
        try:
            self.under(config)
        except Unauditable as exc:
            return str(exc) if isinstance(exc.__cause__, OtherArithmeticError) else ""
        return ""

    def under(self, config: bytes) -> Settings:
        """Return the settings that have this hash.

        Raises Unauditable if they are missing, or if this version cannot read them.
        """
        name = config.hex()
        if name not in self._restored:
            found = next((each.configuration for each in self.recorded if each.digest == name), None)
            place = f"{self._settings.configurations}/{self._partition}"
            if found is None:
                raise Unauditable(f"records were folded under configuration {name}, which {place} does not have")
            try:
                self._restored[name] = in_force.restored(found, self._settings)
            except OtherArithmeticError as exc:
                raise Unauditable(
                    f"{place}: {exc}. What is before was derived. Audit with --checkpoint by each of the two builds in "
                    "turn: each goes on where the other ended; see docs/how-to/upgrade.md"
                ) from exc
            except InForceError as exc:
                raise Unauditable(f"{place}: {exc}") from exc
        return self._restored[name]

    def taken_up(self, config: bytes, fence: Fence) -> InForce:
        """Return who runs a configuration from the fence on; raises `Differs` if it was taken up at another place."""
        named = [each for each in self.recorded if each.digest == config.hex()]
        for each in reversed(named):
            if (each.applied, list(each.next)) == (fence.applied, fence.next):
                return each
        what = f"configuration {config.hex()} was taken up after other records than the journal says"
        fields = {
            "applied": ([each.applied for each in named], fence.applied),
            "next": ([list(each.next) for each in named], fence.next),
        }
        raise Differs(OutputDifference(self._partition, "configurations", None, None, what, fields))

    def unpacked_bytes(self, topic: int, begin: int, end: int) -> list[tuple[int, int | None]]:
        """Return the bounds on unpacked batches between two offsets of an input: up to which offset, how many bytes."""
        until = [*(each.next[topic] for each in self.recorded), end]
        under = [None, *self.recorded]
        return [
            (min(offset, end), self._settings.unpacked_bytes if each is None else self._unpacked(each))
            for each, offset in zip(under, until, strict=True)
            if offset > begin
        ] or [(end, None)]

    def _unpacked(self, taken: InForce) -> int | None:
        config = bytes.fromhex(taken.digest)
        return None if self.of_another_build(config) else self.under(config).unpacked_bytes
