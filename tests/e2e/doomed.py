"""Run a worker that meets with an accident.

``--kill STEP BATCHES`` kills it when so many batches have passed the step of the order of effects, ``--freeze STEP
BATCHES`` stops it there until SIGCONT; ``--slow-batches S`` delays every batch; ``--poison KEY`` fails at every record
of this key; ``--stage`` runs another stage than a worker; ``--unsynced`` has the group's coordinator answer SyncGroup
by an unknown error; ``--arithmetic VERSION`` makes it a build of that arithmetic.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import UnknownError
from aiokafka.protocol.group import SyncGroupRequest

from agents import intake, logs, router, worker
from agents.applying import Probe
from state.events import Event
from state.formats import ARITHMETIC
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust import assignor, membership
from streams.records.decoding import Decoder
from streams.records.making import Maker, Making
from streams.records.refused import Refused


def main() -> int:
    """Run until the end that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", type=int, nargs=2, default=(0, 0))
    parser.add_argument("--freeze", type=int, nargs=2, default=(0, 0))
    parser.add_argument("--slow-batches", type=float, default=0.0)
    parser.add_argument("--poison", type=str.encode)
    parser.add_argument("--unsynced", action="store_true")
    parser.add_argument("--arithmetic", type=int, default=ARITHMETIC)
    parser.add_argument("--stage", choices=("worker", "intake", "router"), default="worker")
    options = parser.parse_args()
    logs.configure()
    accidents = {signal.SIGKILL: list(options.kill), signal.SIGSTOP: list(options.freeze)}

    def probe(passed: int) -> None:
        if passed == 1:
            time.sleep(options.slow_batches)
        for signum, accident in accidents.items():
            if passed == accident[0]:
                accident[1] -= 1
                if accident[1] == 0:
                    os.kill(os.getpid(), signum)

    if options.unsynced:
        refuse_to_sync()
    of_arithmetic(options.arithmetic)
    if options.poison:
        poison(options.poison)
    return run(options.stage, Settings.from_env(os.environ), probe)


def run(stage: str, settings: Settings, probe: Probe) -> int:
    """Run a stage and return its exit status."""
    if stage == "intake":
        return intake.run(settings, probe=probe)
    if stage == "router":
        return worker.run(settings.router, probe=probe, stage=router.ROUTER)
    return worker.run(settings, probe=probe)


def of_arithmetic(version: int) -> None:
    """Let this be a build whose answers have a version."""
    for module in (assignor, in_force, membership):
        vars(module)["ARITHMETIC"] = version


def refuse_to_sync() -> None:
    """Let the coordinator answer SyncGroup as it does when two members start under one name."""
    send = GroupCoordinator._send_req

    async def answered(self: GroupCoordinator, request: object) -> Any:
        response = await send(self, request)
        if isinstance(request, SyncGroupRequest):
            response.error_code = UnknownError.errno
        return response

    GroupCoordinator._send_req = answered


def poison(key: bytes) -> None:
    """Let decoding and mapping fail at every record of a key, unless it was left out."""
    events, make = Decoder.events, Maker.make

    def unmapped(self: Maker, batch: Sequence[tuple[Any, Any]], now: int) -> Making:
        if any(record.key == key and not isinstance(record.value, Refused) for _, record in batch):
            raise TypeError("a defect that this record shows")
        return make(self, batch, now)

    def failing(self: Decoder, records: Iterable[tuple[int, Any]]) -> list[Event]:
        taken = list(records)
        if any(record.key == key and not isinstance(record.value, Refused) for _, record in taken):
            raise TypeError("a defect that this record shows")
        return events(self, taken)

    Decoder.events = failing  # type: ignore[method-assign]
    Maker.make = unmapped  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
