"""``trueup doctor``: what is wrong here, in words, with remedies. It changes nothing.

It runs the checks of a worker and of `trueup topics check`, and looks at the disk and the clocks.
"""

import argparse
import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from aiokafka.errors import KafkaError

from agents import __version__, compiled
from cli import topics
from cli.options import DONE, MISCONFIGURED, NO, Commands, command, print_json, settings
from streams.config import effective_config
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError, admin_client
from streams.kafka.whole_topics import batches
from streams.records.skips import PoisonError

OK, NOTE, WRONG = "ok", "note", "wrong"
#: Least free space for state, bytes. With less, RocksDB's compactions may fail.
LEAST_FREE: Final = 1 << 30
#: If a record is further ahead of this machine's clock, one of the clocks is wrong, s.
AHEAD_SECONDS: Final = 2.0
#: Offsets read at the end of a partition (several, because some are markers of transactions); and the longest wait for
#: them, s.
LAST, READ_SECONDS = 10, 5.0


@dataclass(frozen=True)
class CheckResult:
    """A finding about one subject. ``state`` is `OK`, `NOTE` or `WRONG`."""

    subject: str
    state: str
    said: str


Findings = Iterator[CheckResult]


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    command(
        commands,
        "doctor",
        "say what is wrong with settings, disk, cluster, rights, topics and clocks, and what to do",
        "cli.doctor:run",
        says="Looks at all that a worker needs before it starts, and changes nothing. Run it where a worker runs, as "
        "the worker's user and with its settings. Status 1: something is wrong.",
    )


def run(options: argparse.Namespace) -> int:
    """Print each finding as soon as it is known; return the status."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a finding says the same, with a remedy
    found: list[CheckResult] = []
    for finding in _examined():
        found.append(finding)
        if not options.json:
            print(f"{finding.state:<6}{finding.subject:<14}{finding.said}", flush=True)
    wrong = [each for each in found if each.state == WRONG]
    if options.json:
        print_json({"findings": found, "wrong": len(wrong)})
    if any(each.subject == "settings" for each in wrong):
        return MISCONFIGURED
    return NO if wrong else DONE


def _examined() -> Findings:
    """Yield the findings. A check is left out if something that it needs is wrong."""
    yield from _installation()
    try:
        of = settings()
        _ = of.security.context, of.access.context
    except (SettingsError, ValueError) as exc:
        yield CheckResult("settings", WRONG, str(exc))
        return
    yield from _settings(of)
    yield from _disk(of.state_dir)
    try:
        yield asyncio.run(_brokers(of))
        of_topics = asyncio.run(_topics(of))
        yield from of_topics
        if all(each.state != WRONG for each in of_topics):
            yield asyncio.run(_clocks(of))
    except TopicsError as exc:
        yield CheckResult("brokers", WRONG, str(exc))
    except (KafkaError, TimeoutError) as exc:
        yield CheckResult("brokers", WRONG, f"they do not answer: {str(exc) or type(exc).__name__}; try again")


def _installation() -> Findings:
    missing = compiled.missing(os.environ)
    engine = f"interpreted, which is slower: {missing}" if missing else "compiled"
    yield CheckResult("installation", OK, f"trueup {__version__}, engine {engine}")


def _settings(of: Settings) -> Findings:
    yield CheckResult(
        "settings", OK, f"configuration {effective_config.fingerprint(of)}; all workers of a group must show it"
    )
    for each in of.exposed:
        yield CheckResult("settings", NOTE, each)
    if not of.policies.coin:
        said = "TRUEUP_COIN_KEY is not set: draws can be predicted; scores p do not need it"
        yield CheckResult("settings", NOTE, said)


def _disk(directory: Path) -> Findings:
    try:
        there = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    except OSError as exc:
        said = f"cannot look at {directory}: {exc.strerror}; set TRUEUP_DATA_DIR to another directory"
        yield CheckResult("disk", WRONG, said)
        return
    try:  # /proc refuses even root, who otherwise may do anything
        TemporaryFile(dir=there).close()
    except OSError:
        said = f"this user cannot write in {there}: give it the right, or set TRUEUP_DATA_DIR to another directory"
        yield CheckResult("disk", WRONG, said)
        return
    free = shutil.disk_usage(there).free
    said = f"{free / (1 << 30):.1f} GiB free for {directory.absolute()}"
    if free < LEAST_FREE:
        yield CheckResult("disk", WRONG, f"{said}: free some, or set TRUEUP_DATA_DIR to a disk with more")
    else:
        yield CheckResult("disk", OK, said)


async def _brokers(of: Settings) -> CheckResult:
    began = time.monotonic()
    async with admin_client(of) as admin:
        cluster = await admin.describe_cluster()
    n, took = len(cluster["brokers"]), time.monotonic() - began
    who = f", signed in by {of.security.mechanism}" if of.security.sasl else ""
    return CheckResult("brokers", OK, f"{n} broker{'s' if n != 1 else ''} reached in {took:.1f} s{who}")


async def _topics(of: Settings) -> list[CheckResult]:
    problems, without, notes = await topics.found(of, as_worker=True)
    found = [CheckResult("topics", WRONG, each) for each in (*problems, *without)]
    found = found or [CheckResult("topics", OK, "all topics and rights are as they should be")]
    return found + [CheckResult("topics", NOTE, each) for each in notes]


async def _clocks(of: Settings) -> CheckResult:
    """Compare this machine's clock with the newest records of the inputs and of the answers."""
    newest = {topic: await _newest(of, topic) for topic in (of.forecasts, of.outcomes, of.calibrated)}
    ahead = {topic: seconds - time.time() for topic, seconds in newest.items() if seconds is not None}
    if not ahead:
        return CheckResult("clocks", NOTE, "no records yet, so this machine's clock was compared with nothing")
    topic = max(ahead, key=lambda each: ahead[each])
    if ahead[topic] <= AHEAD_SECONDS:
        return CheckResult("clocks", OK, "no record is ahead of this machine's clock")
    return CheckResult(
        "clocks",
        WRONG,
        f"the newest record of {topic} is {ahead[topic]:.0f} s ahead of this machine's clock: set the clock here by "
        "NTP, or the clock of whoever writes there",
    )


async def _newest(of: Settings, topic: str) -> float | None:
    """Return the newest timestamp of the last records of a topic, s since 1970; None if none could be read in time."""
    found: list[float] = []
    with suppress(TimeoutError, PoisonError):
        async with asyncio.timeout(READ_SECONDS):
            async for _, records in batches(of, [topic], last=LAST):
                found.append(max(record.timestamp for record in records) / 1000)
    return max(found, default=None)
