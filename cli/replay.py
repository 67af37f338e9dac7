"""``trueup replay`` on the command line."""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cli import history
from cli.options import DONE, UNUSABLE, Commands, command, positive
from replay.configuration import configurations
from replay.processes import cores
from replay.silence import understood
from streams.config.settings import Settings, SettingsError

if TYPE_CHECKING:
    from replay.run import Request

DESCRIPTION = """\
Runs the engine over history: topics of the cluster (TRUEUP_BROKERS, TRUEUP_FORECASTS, TRUEUP_OUTCOMES), or files. It
joins no group, commits nothing, and writes to no topic that a worker uses.
"""

EPILOG = """\
examples:
  trueup dev demo --export flights && \\
  trueup replay --forecasts flights/forecasts.jsonl --outcomes flights/outcomes.jsonl \\
      --calibrator platt --calibrator platt+regret_matching       which is better, on real flights, without a broker
  trueup replay --table scores.csv --score p --label fraud --time scored_at --label-time reported_at \\
      --report review.html                                        one table of last quarter
  trueup replay --last 7d                                         would it have helped last week?
  trueup replay --last 90d --report review.html                   a page to put before a review
  trueup replay --from 2026-11-01T00:00Z --manifest run.json      the same again: trueup replay --offsets run.json
  trueup replay --write-state trueup-2                            a worker with TRUEUP_APP_ID=trueup-2 goes on from here
"""


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    replay = command(
        commands,
        "replay",
        "run history again: compare calibrators, rebuild state",
        "cli.replay:run",
        says=DESCRIPTION,
        more=EPILOG,
        streams=False,
    )
    what, files = history.add_source(replay)
    what.add_argument("--manifest", type=Path, metavar="FILE", help="write down what is read, for --offsets")
    files.add_argument(
        "--partitions", type=positive, metavar="N", help="share keys out as N partitions of Kafka would (default: 1)"
    )
    runs = replay.add_argument_group("what runs, side by side; the present plan (TRUEUP_STREAMS) unless said otherwise")
    runs.add_argument(
        "--calibrator",
        action="append",
        default=[],
        metavar="NAME[:OPTION=VALUE,...]",
        help="the plan with this calibrator; may be repeated",
    )
    runs.add_argument(
        "--challengers",
        action="store_true",
        help="the plan, and each challenger in its champion's place",
    )
    runs.add_argument(
        "--streams", action="append", default=[], type=Path, metavar="FILE", help="this TOML file; may be repeated"
    )
    runs.add_argument("--processes", type=positive, metavar="N", help="at most so many (default: one a core)")
    gives = replay.add_argument_group("what it gives")
    gives.add_argument(
        "--volume",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="recall among this share, the highest (default: .02)",
    )
    gives.add_argument("--block", type=positive, metavar="N", help="length of the bootstrap's blocks, forecasts")
    gives.add_argument("--report", type=Path, metavar="FILE", help="write a page of HTML: figures, and which to choose")
    gives.add_argument("--pdf", type=Path, metavar="FILE", help="the same page as PDF; needs Chromium")
    gives.add_argument(
        "--model", default="", metavar="NAME", help="name and version of the model, for the page's title"
    )
    gives.add_argument("--output", type=Path, metavar="FILE", help="write calibrated records as JSON lines")
    gives.add_argument("--to-topic", metavar="TOPIC", help="write calibrated records to a topic of their own")
    gives.add_argument("--dead-letters", type=Path, metavar="FILE", help="write dead letters as JSON lines")
    gives.add_argument("--write-state", metavar="APP_ID", help="write the state for a worker with this TRUEUP_APP_ID")


def request(options: argparse.Namespace, settings: Settings) -> "Request":
    """Turn options into a request. Raises SettingsError, TopicsError or TableError if one is wrong."""
    from replay.report.pdf import browser  # noqa: PLC0415 - rich takes a while to import
    from replay.run import Request  # noqa: PLC0415

    if not 0 < options.volume <= 1:
        raise SettingsError(f"--volume {options.volume}: must be above 0 and at most 1")
    if options.pdf:
        browser()
    read = history.source(options, settings)
    plans = configurations(settings, options.calibrator, options.streams, challengers=options.challengers)
    taken: list[str] = []
    if options.table:
        history.require_used(read.columns, plans)
        plans, taken = understood(read, plans)
        taken = [*read.notes, *taken]
    return Request(
        source=read,
        configurations=plans,
        taken=taken,
        processes=options.processes or cores(),
        volume=options.volume,
        block=options.block,
        manifest=options.manifest,
        report=options.report,
        pdf=options.pdf,
        command=shlex.join(["trueup", *sys.argv[1:]]),
        model=options.model,
        output=options.output,
        letters=options.dead_letters,
        to_topic=options.to_topic,
        write_state=options.write_state,
    )


def run(options: argparse.Namespace) -> int:
    """Replay, print the result, and return the exit status.

    The status is `UNUSABLE` if more than half of a topic's records are dead letters: figures of the rest would mislead.

    Raises TableError if a table's content is not what the options say.
    """
    from cli.replay_table import show  # noqa: PLC0415 - not for --help
    from replay.console import Bar, Console  # noqa: PLC0415
    from replay.export_state import next_commands  # noqa: PLC0415
    from replay.run import replay  # noqa: PLC0415

    settings = Settings.from_env(os.environ)
    wanted = request(options, settings)
    # SIGTERM cleans up as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Bar(Console(stderr=True, quiet=options.quiet)) as bar:
            result, pace = replay(wanted, os.environ, bar.show)
    finally:
        signal.signal(signal.SIGTERM, before)
    show(Console(stderr=options.json, markup=False, emoji=False), result, pace)
    if options.json:
        sys.stdout.write(result.encode().decode() + "\n")
    if options.write_state:
        following = next_commands(Settings.from_env({**os.environ, "TRUEUP_APP_ID": options.write_state}))
        taking = ", with the former workers stopped" * (len(following) > 1)
        said = f"The state of {options.write_state} is written. Next{taking}:"
        (sys.stderr if options.json else sys.stdout).writelines(f"{line}\n" for line in (said, *following))
    status = DONE
    for topic, reasons in result.dead.items():
        if 2 * sum(reasons.values()) > result.read[topic]:
            listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
            sys.stderr.write(
                f"trueup: more than half of {result.read[topic]:,} {topic} cannot be used: {listed}; "
                "--dead-letters FILE shows them\n"
            )
            status = UNUSABLE
    return status
