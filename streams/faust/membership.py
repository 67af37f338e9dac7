"""The worker as a member of its group: it claims assigned partitions, and ends when it is no longer a member."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from aiokafka.errors import InvalidSessionTimeoutError
from faust.exceptions import NotReady
from faust.tables.recovery import RebalanceAgain
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service

from state.formats import ARITHMETIC
from streams.faust.assignor import Assignor
from streams.faust.fetching import LoopConsumer
from streams.faust.inputs import RESTORE, DataLossError, Inputs
from streams.faust.stores import DamagedStoreError

if TYPE_CHECKING:
    from streams.faust.transport import BatchTransport

#: Time between looks for claims that have to be confirmed, s; see `streams.faust.changelog.RENEW_SECONDS`.
RENEW_INTERVAL = 60.0
#: Time between looks whether the worker is still a member of its group, s.
MEMBERSHIP_INTERVAL = 1.0


class MembershipError(RuntimeError):
    """The worker is no longer a member of its group, and the client does not join again."""


class Member(driver.Consumer):
    """A consumer that claims the changelogs of assigned partitions; see the module."""

    _thread: LoopConsumer

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        transport = cast("BatchTransport", self.transport)
        self.inputs: Inputs = transport.inputs
        self.table = transport.table
        #: Whether the last assignment is still valid, and the claims in progress.
        self._ours = False
        self._claims: set[asyncio.Task[None]] = set()
        #: Partitions that were asked for since the last assignment.
        self._asked_for: frozenset[int] = frozenset()
        #: Whether the group was asked for a new assignment since the last one.
        self._repairing = False

    def hold(self) -> None:
        """Hand nothing out until the flow is resumed."""
        raise NotImplementedError

    async def watched(self) -> None:
        """Runs once a second while the worker is a member."""

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the ends of partitions.

        Changelogs are claimed first, so that nobody else can append behind their ends.

        Faust asks for the ends when it begins to recover assigned partitions, after it has asked the disk how far its
        rows reach. So this is the place to correct that if rows are set aside.
        """
        changelogs = sorted(tp.partition for tp in partitions if self._is_changelog_tp(tp))
        if changelogs:
            await self._while_ours(self._claim(changelogs))
        return await super().highwaters(*partitions)

    async def _claim(self, partitions: list[int]) -> None:
        await asyncio.gather(*map(self.table.claim, partitions))
        await self.table.vet(partitions)
        offsets = self.app.tables.recovery.active_offsets  # type: ignore[attr-defined]
        begins = await self.earliest_offsets(*(TP(self.inputs.settings.changelog, n) for n in partitions))
        for tp, begin in begins.items():
            restored = self.table.following(tp.partition)
            if not restored:
                offsets[tp] = None  # Faust remembers the offset of rows that have been set aside meanwhile
            if restored < begin:
                raise DataLossError(
                    f"{tp.topic}/{tp.partition} has lost what was before offset {begin}, and this disk does not have "
                    f"it: its cleanup.policy must be compact. {RESTORE}"
                )

    @Service.task
    async def _renew(self) -> None:
        """Confirm claims now and then, because brokers forget unused ones."""
        while not self.should_stop:
            await self.sleep(RENEW_INTERVAL)
            if self._ours and not self.should_stop:
                with suppress(RebalanceAgain):
                    await self._while_ours(self.inputs.renew())

    async def _while_ours(self, claims: Coroutine[Any, Any, None]) -> None:
        """Let claims finish before partitions move. A late claim would shut out the new owner."""
        if not self._ours:
            claims.close()
            raise RebalanceAgain
        task = asyncio.create_task(self._or_end(claims))
        self._claims.add(task)
        task.add_done_callback(self._claims.discard)
        await asyncio.shield(task)

    async def _or_end(self, claims: Coroutine[Any, Any, None]) -> None:
        try:
            await claims
        except DamagedStoreError as exc:
            self.repair(exc)
            raise RebalanceAgain from exc
        except Exception as exc:
            if self.app.should_stop and isinstance(exc, NotReady):  # the producer stops first, and other workers claim
                raise RebalanceAgain from exc
            self.inputs.failed(exc)
            raise

    def repair(self, exc: DamagedStoreError) -> None:
        """Have the group assign its partitions anew, because the rows of one were damaged and were set aside.

        The partition goes to a worker with a copy, or is restored here. Nothing is handed out until then. Batches that
        were handed out do not count: their records are read again from the last checkpoint. Records that are in the
        journal are folded in its order.
        """
        self._assignor.lost.add(exc.partition)
        self._assigned_anew(str(exc))

    def leave(self, needs: Mapping[int, int]) -> None:
        """Have the group give partitions to workers of other builds.

        ``needs``: the version of the arithmetic that each partition needs.
        """
        self._assignor.needs.update(needs)
        which, versions = (", ".join(map(str, sorted(each))) for each in (needs, set(needs.values())))
        self._assigned_anew(
            f"partition {which} is not taken up: what was answered after the last checkpoint has version {versions} of "
            f"the arithmetic, this build has {ARITHMETIC}. A worker of that build takes it up: if none runs, start one "
            "in this group, and stop it by SIGTERM once it is ready. See docs/how-to/upgrade.md"
        )

    def _assigned_anew(self, why: str) -> None:
        """Hand nothing out, and have the group assign its partitions anew."""
        self.hold()
        if self._ours and not self._repairing:
            self._repairing = True
            self.log.error("%s", why)
            self._thread.rejoin()

    # -- membership ------------------------------------------------------------------------------------------------

    @property
    def expelled(self) -> bool:
        """Whether the worker is no longer a member of its group and does not join again; any thread may ask."""
        return self._thread.expelled() is not None

    @Service.task
    async def _watch(self) -> None:
        """End the process when it has left the group for good. Otherwise it would wait for partitions for ever."""
        while not self.should_stop:
            await self.sleep(MEMBERSHIP_INTERVAL)
            self._check_membership()
            self._thread.ask_for_topics()
            await self._ask_for_awaited()
            await self.watched()

    async def _ask_for_awaited(self) -> None:
        """Ask the group for awaited partitions when their copies here are whole."""
        standbys, awaited = cast("BatchTransport", self.transport).standbys, self._assignor.awaited
        if standbys and self._ours and awaited and awaited != self._asked_for and awaited <= set(standbys.whole()):
            self._asked_for = awaited
            self.log.info("the copies of partitions %s are whole: asking for them", sorted(awaited))
            self._thread.rejoin()

    @property
    def _assignor(self) -> Assignor:
        return cast("Assignor", self.app.assignor)

    def _check_membership(self) -> None:
        error = self._thread.expelled()
        if error is not None and not self.should_stop:
            reason = error.__cause__ or error
            said = (
                "the brokers do not allow TRUEUP_SESSION_SECONDS: see their group.min.session.timeout.ms"
                if isinstance(reason, InvalidSessionTimeoutError)
                else f"the group has no place for this worker: {reason!r}. Does another one run under the same "
                "TRUEUP_INSTANCE_ID?"
            )
            self.inputs.failed(MembershipError(said))
