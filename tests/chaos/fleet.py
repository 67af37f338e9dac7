"""The workers: processes with disks of their own, and the supervisor that starts them again whatever their status."""

import json
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from tests.chaos.disk import Disk
from tests.e2e.world import Worker, World, wait_for

VICTIM = Path(__file__).with_name("victim.py")
#: What a supervisor waits before it starts a worker again, s.
BACKOFF = 0.5


class Exit(NamedTuple):
    """How a worker ended: when (s, monotonic), which, its status (negative: the signal), what its log says of it."""

    at: float
    number: int
    status: int
    cause: str


class Member:
    """A place in the fleet: the worker that fills it now, its disk and its orders; or an intake, or a router."""

    def __init__(
        self, number: int, world: World, brokers: str, *, small_disk: bool, stage: str = "worker", **settings: str
    ) -> None:
        self.number, self.stage = number, stage
        self.disk = Disk(world.directory / f"disk-{number}", small=small_disk)
        self.orders = world.directory / f"orders-{number}.json"
        self._world = world
        self._environment = {"TRUEUP_BROKERS": brokers, "TRUEUP_DATA_DIR": str(self.disk.data), **settings}
        self._lives = 0
        self._next: dict[str, float] = {}
        self.worker = self._born()
        #: Held: it is not started again.
        self.held = False

    def _born(self) -> Worker:
        self._lives += 1
        log = self._world.directory / f"worker-{self.number}-{self._lives}.log"
        return Worker({**self._world.environment, **self._environment}, log, [str(self.orders), self.stage], VICTIM)

    @property
    def running(self) -> bool:
        """Whether its process exists."""
        return self.worker.process.poll() is None

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.worker.process.pid

    def ready(self) -> bool:
        """Whether it serves partitions."""
        return self.running and self.worker.get("/readyz")[0] == 200

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal; nothing if it has ended."""
        self.worker.process.send_signal(number)

    def order(self, *, now: bool = True, **orders: float) -> None:
        """Order what befalls it: now, or when it is started next."""
        if now:
            self.orders.write_text(json.dumps(orders))
            self.signal(signal.SIGUSR1)
        else:
            self._next = orders

    def restart(self) -> None:
        """Start it again; orders that it has met with are void."""
        self.orders.write_text(json.dumps(self._next))
        self._next = {}
        self.worker = self._born()

    def exit(self) -> Exit:
        """Say how its process ended."""
        status = self.worker.process.wait()
        return Exit(time.monotonic(), self.number, status, cause(self.worker.printed) if status > 0 else "")


class Fleet:
    """All members and their supervisor; a context.

    ``world``: topics and settings.
    ``brokers``: for each worker the addresses it finds the brokers at.
    ``stages``: what each is, if not all are workers.
    """

    def __init__(self, world: World, brokers: Sequence[str], stages: Sequence[str] = ()) -> None:
        self._world = world
        self._guests = 0
        self.exits: list[Exit] = []
        stages = stages or ["worker"] * len(brokers)
        self.members = [
            Member(n, world, address, small_disk=n == 0, stage=stage)
            for n, (address, stage) in enumerate(zip(brokers, stages, strict=True))
        ]
        self._closing = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor")

    def __enter__(self) -> Self:
        """Supervise."""
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs."""
        self._closing.set()
        self._supervisor.join()
        for member in self.members:
            member.signal(signal.SIGCONT)
            member.worker.kill()
            member.disk.close()

    def guest(self, **settings: str) -> Member:
        """Start a worker that nobody starts again, straight at the brokers; who asks for it ends it."""
        self._guests += 1
        return Member(100 + self._guests, self._world, self._world.bootstrap, small_disk=False, **settings)

    def settle(self, patience: float) -> None:
        """Return when every worker that is not held serves."""
        wait_for("all workers to serve", lambda: all(m.held or m.ready() for m in self.members), patience)

    def await_exit(self, member: Member, since: int, patience: float) -> None:
        """Return when a member has ended after the first ``since`` exits."""
        ended = f"worker {member.number} to end"
        wait_for(ended, lambda: any(e.number == member.number for e in self.exits[since:]), patience)

    def stop(self) -> list[int]:
        """Stop all, no more to be started again; return their exit statuses."""
        self._closing.set()
        self._supervisor.join()
        return [member.worker.stop() for member in self.members if member.running]

    def _supervise(self) -> None:
        seen: set[int] = set()
        due: dict[int, float] = {}
        while not self._closing.wait(0.05):
            for member in self.members:
                if member.running:
                    continue
                if member.pid not in seen:
                    seen.add(member.pid)
                    self.exits.append(member.exit())
                    due[member.number] = time.monotonic() + BACKOFF
                if not member.held and time.monotonic() >= due[member.number]:
                    member.restart()


def cause(printed: str) -> str:
    """Return what a log says last of what went wrong."""
    said = ""
    for line in printed.splitlines():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if record.get("level") in {"critical", "error"}:
            text = str(record["message"]).splitlines()[0]
            if record["level"] == "critical" or not said.startswith("cannot go on"):
                said = text
    return said
