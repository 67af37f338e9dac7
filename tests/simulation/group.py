"""The group coordinator of the model."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka import errors

from tests.simulation.loop import Loop

#: Error codes.
OK: Final = 0
GENERATION, UNKNOWN_MEMBER, REBALANCING = (
    errors.IllegalGenerationError.errno,
    errors.UnknownMemberIdError.errno,
    errors.RebalanceInProgressError.errno,
)

#: Takes the fields of an answer.
Reply = Callable[..., None]
Place = tuple[str, int]


@dataclass
class Member:
    """A member of the group; ``joining`` and ``syncing`` answer its request when it is time."""

    session: float
    rebalance: float
    protocols: list[tuple[str, bytes]]
    joining: Reply | None = None
    syncing: Reply | None = None
    assignment: bytes = b""
    timer: asyncio.TimerHandle | None = None


class Commit(NamedTuple):
    """An offset that was committed, when so many appends had been made."""

    at: int
    place: Place
    offset: int


class Group:
    """A consumer group, as its coordinator keeps it: joins, generations, sessions, committed offsets.

    ``appends``: returns how many appends the cluster has made.
    """

    def __init__(self, loop: Loop, log: Callable[[str], None], appends: Callable[[], int]) -> None:
        self._loop, self._log, self._appends = loop, log, appends
        self.members: dict[str, Member] = {}
        self.state, self.generation, self.leader, self._ids = "empty", 0, "", 0
        #: What is committed: offset and metadata.
        self.offsets: dict[Place, tuple[int, str]] = {}
        #: All commits, in order.
        self.commits: list[Commit] = []
        self._timer: asyncio.TimerHandle | None = None

    def join(self, request: Any, reply: Reply) -> None:
        """Take a member in; it is answered when all have come."""
        name, again = request.member_id, request.member_id in self.members
        if name and not again:
            reply(0, UNKNOWN_MEMBER, -1, "", "", name, [])
            return
        if not name:
            self._ids += 1
            name = f"member-{self._ids}"
        protocols = [(each[0], each[1]) for each in request.group_protocols]
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(
                request.session_timeout / 1000, request.rebalance_timeout / 1000, protocols
            )
        same, member.protocols = member.protocols == protocols, protocols
        if again and same and (self.state == "completing" or (self.state == "stable" and name != self.leader)):
            self._joined(name, reply)
            self._alive(name)
            return
        member.joining = reply
        if member.timer is not None:
            member.timer.cancel()
        if self.state != "preparing":
            self._prepare()
        self._complete()

    def sync(self, request: Any, reply: Reply) -> None:
        """Take the leader's assignments, and hand each member its own."""
        member, code = self._known(request)
        if code or member is None:
            reply(code, b"")
        elif self.state == "preparing":
            reply(REBALANCING, b"")
        elif self.state == "stable":
            self._alive(request.member_id)
            reply(OK, member.assignment)
        else:
            member.syncing = reply
            if request.member_id == self.leader:
                shares = dict(request.group_assignment)
                self.state = "stable"
                self._log(f"group: generation {self.generation} is stable")
                for name, each in self.members.items():
                    each.assignment = shares.get(name, b"")
                    self._alive(name)
                    syncing, each.syncing = each.syncing, None
                    if syncing:
                        syncing(OK, each.assignment)

    def heartbeat(self, request: Any, reply: Reply) -> None:
        """Note that a member is alive, and say whether it is to join again."""
        _, code = self._known(request)
        if not code:
            self._alive(request.member_id)
            code = REBALANCING if self.state == "preparing" else OK
        reply(code)

    def leave(self, request: Any, reply: Reply) -> None:
        """Let a member go."""
        known = request.member_id in self.members
        reply(OK if known else UNKNOWN_MEMBER)
        if known:
            self._gone(request.member_id, "left")

    def commit(self, request: Any, reply: Reply) -> None:
        """Note committed offsets: of a member of the present generation, or of nobody while there is no member."""
        names = {
            "generation_id": request.consumer_group_generation_id,
            "member_id": request.consumer_id,
        }
        alone = request.consumer_group_generation_id < 0
        _, code = (None, OK) if alone and not self.members else self._known(type("Asked", (), names))
        if not code and self.state == "completing":
            code = REBALANCING
        if not code:
            if not alone:
                self._alive(request.consumer_id)
            for topic, partitions in request.topics:
                self.offsets |= {(topic, n): (offset, noted) for n, offset, noted in partitions}
                self.commits += [Commit(self._appends(), (topic, n), offset) for n, offset, _ in partitions]
        reply([(topic, [(n, code) for n, *_ in partitions]) for topic, partitions in request.topics])

    def described(self) -> tuple[str, list[tuple[str, str, str, bytes, bytes]]]:
        """Return the state that `DescribeGroups` tells, and the members."""
        names = {"empty": "Empty", "preparing": "PreparingRebalance", "completing": "CompletingRebalance"}
        members = [(name, "", "", b"", each.assignment) for name, each in self.members.items()]
        return names.get(self.state, "Stable"), members

    def empty(self) -> None:
        """Let all members go, as when their sessions are over."""
        for name in list(self.members):
            self._gone(name, "is gone")

    def _known(self, request: Any) -> tuple[Member | None, int]:
        member = self.members.get(request.member_id)
        if member is None:
            return None, UNKNOWN_MEMBER
        return member, OK if request.generation_id == self.generation else GENERATION

    def _alive(self, name: str) -> None:
        member = self.members[name]
        if member.timer is not None:
            member.timer.cancel()
        member.timer = self._loop.call_later(member.session, self._gone, name, "was not heard of")

    def _gone(self, name: str, why: str) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        if member.timer is not None:
            member.timer.cancel()
        self._log(f"group: {name} {why}")
        if self.state in ("stable", "completing"):
            self._prepare()
        self._complete()

    def _prepare(self) -> None:
        """Begin a rebalance: all members are to join again."""
        self.state = "preparing"
        for member in self.members.values():
            syncing, member.syncing = member.syncing, None
            if syncing:
                syncing(REBALANCING, b"")
        if self._timer is not None:
            self._timer.cancel()
        longest = max([each.rebalance for each in self.members.values()], default=0.0)
        self._timer = self._loop.call_later(longest, partial(self._complete, late=True))

    def _complete(self, *, late: bool = False) -> None:
        """Begin the next generation if all members have joined, or time is over for those who have not."""
        if self.state != "preparing":
            return
        missing = [name for name, each in self.members.items() if each.joining is None]
        if missing and not late:
            return
        for name in missing:
            member = self.members.pop(name)
            if member.timer is not None:
                member.timer.cancel()
            self._log(f"group: {name} did not join in time")
        if self._timer is not None:
            self._timer.cancel()
        self.generation += 1
        if not self.members:
            self.state = "empty"
            return
        self.state = "completing"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self._log(f"group: generation {self.generation} has {', '.join(self.members)}")
        for name, each in self.members.items():
            joining, each.joining = each.joining, None
            self._alive(name)
            if joining is not None:
                self._joined(name, joining)

    def _joined(self, name: str, reply: Reply) -> None:
        protocol = self.members[name].protocols[0][0]
        everybody = [(each, member.protocols[0][1]) for each, member in self.members.items()]
        reply(0, OK, self.generation, protocol, self.leader, name, everybody if name == self.leader else [])
