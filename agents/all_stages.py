"""Runs all stages that the settings ask for, with one command. If there are several, each is a process."""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from agents import __version__, worker
from agents.readers import end_with_parent
from agents.status.beside import OtherStages
from agents.status.pages import Pages
from agents.status.readings import Readings
from streams.config.settings import Settings, SettingsError

log = logging.getLogger("trueup")

#: The port of a stage's metrics is `TRUEUP_METRICS_PORT` plus its index here.
STAGES: Final = ("worker", "router", "intake")
#: Environment variable that tells a worker that other stages run beside it.
OF_ALL: Final = "--of-all-stages"


def ports(settings: Settings) -> dict[str, int]:
    """Return the stages that the settings ask for, and the ports of their metrics.

    Router and intake are among them if a source is for intake. Raises SettingsError if the first port leaves too few
    ports above it.
    """
    first = settings.metrics_port
    stages = STAGES if settings.has_intake else STAGES[:1]
    if first + len(stages) - 1 > 65_535:
        raise SettingsError(f"TRUEUP_METRICS_PORT={first}: {', '.join(stages)} need a port each, from this one on")
    return {stage: first + n if first else 0 for n, stage in enumerate(stages)}


def run(environment: Mapping[str, str]) -> int:
    """Run the stages until SIGTERM or SIGINT, and return the exit status.

    The status is 0 after a clean stop of all stages. If a stage ends by itself, the others are stopped, and its status
    is returned, so that a supervisor starts the command again. The status of a killed stage is `agents.worker.FAILED`.
    Raises `SettingsError`.
    """
    settings = Settings.from_env(environment)
    of = ports(settings)
    return worker.run(settings) if len(of) == 1 else asyncio.run(_run(environment, of))


def worker_of_all(settings: Settings) -> int:
    """Run the worker for `run`. Its page shows the other stages; see `agents.worker.run`."""
    beside = OtherStages(
        settings, {stage: port for stage, port in ports(settings).items() if stage != "worker" and port}
    )
    pages = lambda given, mirror: Pages(Readings(given, mirror, __version__, beside))  # noqa: E731 - once
    return worker.run(settings, stage=worker.WORKER._replace(pages=pages))


async def _run(environment: Mapping[str, str], of: Mapping[str, int]) -> int:
    stop = worker.stop_asked()
    stages = {stage: await _started(stage, {**environment, "TRUEUP_METRICS_PORT": str(of[stage])}) for stage in of}
    ends = {asyncio.create_task(process.wait()): stage for stage, process in stages.items()}
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait([*ends, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    first = None if stop.is_set() else next(each for each in ends if each.done())
    if first is not None:
        log.error("%s ended with status %d: stopping the others", ends[first], first.result())
    for process in stages.values():
        with suppress(ProcessLookupError):
            process.terminate()
    await asyncio.wait(ends)
    wrong = [status for each in ends if (status := each.result()) not in (0, -signal.SIGTERM)]  # that: it had not begun
    status = next(iter(wrong), 0) if first is None else first.result() or worker.FAILED
    return status if status >= 0 else worker.FAILED


async def _started(stage: str, environment: Mapping[str, str]) -> Process:
    of_all = stage == "worker" and environment["TRUEUP_METRICS_PORT"] != "0"  # otherwise the others' ports are unknown
    command = [sys.executable, "-P", "-m", "cli.main", "run", stage, *([OF_ALL] if of_all else [])]
    return await asyncio.create_subprocess_exec(*command, env=environment, preexec_fn=_below)


def _below() -> None:
    """Let a stage end with its parent, which hears Ctrl-C for all, also while the stage still imports."""
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
