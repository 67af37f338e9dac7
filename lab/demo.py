"""Runs the demo: a broker, a worker, a stream such as eleven months of real flights, and an account of every record.

``trueup audit`` then derives every output again from the inputs. The demo fails if one differs, or if a record that was
sent was not applied.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import orjson
from aiokafka.errors import KafkaError
from rich.markup import escape

from lab import demo_report, outputs, payments
from lab.broker import Broker, BrokerError
from lab.demo_report import DemoRun, PlayedStream, Scenario
from lab.launch import STOP_SECONDS, Worker, WorkerError
from lab.live_progress import LiveProgress
from lab.player import play
from replay.audit import auditor
from replay.console import Console
from streams.atomic_file import written
from streams.config.settings import Settings
from streams.kafka import topics

#: The run fails when the worker has applied nothing for this long, s.
STALL_SECONDS: Final = 60.0
#: Seconds between two scrapes while events are played, and while the demo waits for the last ones.
SCRAPE_SECONDS, LAST_SECONDS = 1.0, 0.1


#: Demos by name.
SCENARIOS: Final = {"flights": demo_report.SCENARIO, "fraud": payments.SCENARIO}


class StallError(RuntimeError):
    """The worker runs but applies nothing."""


def run(
    rows: int | None,
    json_output: bool,  # noqa: FBT001 - the command line's options
    brokers: str | None,
    out: Path,
    partitions: int | None = None,
    scenario: str = "flights",
) -> int:
    """Run the demo and return its exit status: 0 when every record is accounted for.

    ``rows``: forecasts to play; None plays all.
    ``json_output``: print one JSON object as the last line of the output, and progress to standard error.
    ``brokers``: brokers to use; None starts one. On given brokers, the demo makes its own topics and leaves them there.
    ``partitions``: partitions of every topic; None takes the scenario's number. Each has calibrators of its own.
    ``scenario``: one of `SCENARIOS`.
    """
    console = Console(stderr=True, force_terminal=False) if json_output else Console()
    kept = out.with_name(f"{out.stem}-worker.log")
    # On SIGTERM, also end the broker and the worker, as on Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix="trueup-demo-") as directory:
            log = Path(directory) / "worker.log"
            try:
                account = _run(console, SCENARIOS[scenario], rows, brokers, out, partitions, log)
            except (BrokerError, WorkerError, StallError, KafkaError, FileNotFoundError) as exc:
                account = {"problems": [str(exc) or repr(exc)]}
            if account["problems"] and log.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                with log.open("rb") as printed, written(kept) as copy:
                    shutil.copyfileobj(printed, copy)
                account["worker_log"] = str(kept)
    finally:
        signal.signal(signal.SIGTERM, before)
    for problem in account["problems"]:
        console.print(f"[red]wrong[/]  {escape(problem)}", highlight=False, soft_wrap=True)
    if "worker_log" in account:
        console.print(f"the worker's log: {kept}", highlight=False, soft_wrap=True)
    if json_output:
        print(orjson.dumps(account).decode())
    return 1 if account["problems"] else 0


def export(rows: int | None, directory: Path, scenario: str = "flights") -> int:
    """Write a scenario's stream as JSON lines, print how to replay them, and return 0.

    ``rows``: forecasts to write; None writes all.
    ``directory``: is made if it does not exist. It gets ``forecasts.jsonl``, ``outcomes.jsonl`` and a plan's
      ``streams.toml``.
    ``scenario``: one of `SCENARIOS`.
    """
    chosen = SCENARIOS[scenario]
    directory.mkdir(parents=True, exist_ok=True)
    paths = {topic: directory / f"{topic}.jsonl" for topic in ("forecasts", "outcomes")}
    with written(paths["forecasts"]) as forecasts, written(paths["outcomes"]) as outcomes:
        files = {"forecasts": forecasts, "outcomes": outcomes}
        for message in chosen.load(rows).messages(forecasts="forecasts", outcomes="outcomes"):
            files[message.topic].write(orjson.dumps({**orjson.loads(message.value), "ts": message.time_ms}) + b"\n")
    given = " ".join(f"--{topic} {path}" for topic, path in paths.items())
    planned = ""
    if chosen.plan:
        (directory / "streams.toml").write_text(chosen.plan)
        planned = f"TRUEUP_STREAMS={directory / 'streams.toml'} "
    print(f"{planned}trueup replay {given} --calibrator platt --calibrator platt+regret_matching")
    return 0


def _run(
    console: Console,
    scenario: Scenario,
    rows: int | None,
    brokers: str | None,
    out: Path,
    partitions: int | None,
    log: Path,
) -> dict[str, Any]:
    with ExitStack() as stack:
        loading = stack.enter_context(ThreadPoolExecutor(1)).submit(scenario.load, rows)
        starting = ", starting Apache Kafka" if brokers is None else ""
        console.print(f"{scenario.doing}{starting}", style="dim")
        environment = {"TRUEUP_DATA_DIR": str(log.parent / "state")}
        if scenario.plan:
            streams = log.with_name("streams.toml")
            streams.write_text(scenario.plan)
            environment["TRUEUP_STREAMS"] = str(streams)
        if brokers is None:
            environment["TRUEUP_BROKERS"] = stack.enter_context(Broker()).bootstrap
        else:
            environment |= {"TRUEUP_BROKERS": brokers, **_names(secrets.token_hex(3))}
        settings = Settings.from_env({**os.environ, **environment})
        asyncio.run(topics.create(settings, partitions=partitions or scenario.partitions, retention_ms=-1))
        with Worker(environment, log) as worker:
            played = loading.result()
            done = asyncio.run(_perform(console, settings, worker, scenario, played))
        console.print("deriving every output again", style="dim")
        with redirect_stdout(sys.stderr if console.stderr else sys.stdout):
            done = replace(done, audit=auditor.run(settings, json_output=False))
    account = scenario.account(settings, played, done)
    scenario.draw(played, done, out)
    account["diagram"] = str(out)
    scenario.summary(console, account)
    demo_report.next_steps(console, settings, out, scenario.stream, left=brokers is not None)
    return account


def _names(run_id: str) -> dict[str, str]:
    """Return the environment that gives a run its own topic names, because the brokers may have other topics."""
    app_id = f"trueup-demo-{run_id}"
    names = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")
    return {
        "TRUEUP_APP_ID": app_id,
        **{f"TRUEUP_{name.replace('-', '_').upper()}": f"{app_id}-{name}" for name in names},
    }


async def _perform(
    console: Console, settings: Settings, worker: Worker, scenario: Scenario, played: PlayedStream
) -> DemoRun:
    """Play the stream, wait until all events are processed, stop the worker, and read what it wrote."""
    await asyncio.to_thread(worker.ready)
    total = played.records
    client = settings.client_options()
    sent: Counter[str] = Counter()

    async def send() -> None:
        nonlocal sent
        messages = played.messages(forecasts=settings.forecasts, outcomes=settings.outcomes)
        async for progress in play(messages, client, slice_messages=scenario.slice_messages):
            sent = progress.sent

    began = moved = monotonic()
    player = asyncio.create_task(send())
    applied = 0
    try:
        with LiveProgress(console, scenario.stream, total, scenario.figures) as board:
            while True:
                await asyncio.wait({player}, timeout=SCRAPE_SECONDS)
                if player.done():
                    player.result()
                    await asyncio.sleep(LAST_SECONDS)
                reading = await worker.scrape()
                now, so_far = monotonic(), int(reading.total("records_total"))
                board.show(sent.total(), reading)
                if so_far > applied:
                    applied, moved = so_far, now
                elif now - moved > STALL_SECONDS:
                    raise StallError(
                        f"the worker applied nothing for {STALL_SECONDS:.0f} s, {applied:,} of {total:,} events are "
                        f"done; its log ends:\n{worker.tail()}"
                    )
                if player.done() and so_far >= total and reading.written:
                    break
    finally:
        player.cancel()
        await asyncio.wait({player})  # the client must close its connections before the loop ends
    await asyncio.to_thread(worker.stop, STOP_SECONDS)
    console.print("reading the topics back", style="dim")
    counts = {"forecasts": sent[settings.forecasts], "outcomes": sent[settings.outcomes]}
    return DemoRun(counts, moved - began, reading, worker.status, await outputs.read(settings))
