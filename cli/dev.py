"""``trueup dev``: a demo and a local broker. A worker's image contains neither."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from cli import reading
from cli.options import DONE, Commands, command, group, positive, settings
from streams.config.settings import SettingsError


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "dev", "a demo, and a local broker")
    flights = "real flights through a real broker, with a live table and a report"
    demo = command(actions, "demo", flights, "cli.dev:demo")
    demo.add_argument(
        "--scenario",
        choices=("flights", "fraud"),
        default="flights",
        help="flights: 309,772 real ones, outcomes within hours (default); fraud: 120,000 made payments, .4 %% of them "
        "frauds, reported within 45 days, and nothing of the rest",
    )
    demo.add_argument("--rows", type=positive, help="play only so many flights or payments (default: all)")
    demo.add_argument("--partitions", type=positive, help="partitions of every topic (default: 2, of fraud 1)")
    demo.add_argument(
        "--out", type=Path, help="where the picture goes (default: trueup-demo.svg, of fraud trueup-fraud.svg)"
    )
    demo.add_argument("--export", type=Path, metavar="DIR", help="only write the stream there, for 'trueup replay'")
    _add_broker(actions)


def _add_broker(actions: Commands) -> None:
    broker = command(
        actions,
        "broker",
        "run a local Apache Kafka for development, without Docker; send and watch records of any",
        "cli.dev:broker",
        json_output=False,
        says="Without a further word it runs a broker until Ctrl-C. 'send' and 'watch' use the cluster of "
        "TRUEUP_BROKERS.",
    )
    broker.add_argument("--port", type=positive, help="port to listen on (default: a free one)")
    broker.add_argument("--data-dir", type=Path, help="keep the data here (default: a temporary directory)")
    by_hand = broker.add_subparsers(dest="by_hand", metavar="send|watch")
    send = by_hand.add_parser("send", help="send each line of standard input to a topic")
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument(
        "--key", metavar="FIELD", default="event_id", help="JSON field that is the record's key (default: %(default)s)"
    )
    send.add_argument("--partitions", type=positive, metavar="N", help="make the topic with N, if there is none")
    watch = by_hand.add_parser("watch", help="print the records of a topic as they come, until Ctrl-C")
    watch.add_argument("topic", metavar="TOPIC")
    watch.add_argument("--first", action="store_true", help="begin with the first record that is kept")


def demo(options: argparse.Namespace) -> int:
    """Run the demo, or export its stream; return the status."""
    try:
        from lab import demo  # noqa: PLC0415 - needs the demo's packages
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"the demo needs {exc.name}: 'make setup', or install trueup with its extra 'demo'"
        ) from exc

    if options.export is not None:
        return demo.export(options.rows, options.export, options.scenario)
    return demo.run(
        rows=options.rows,
        json_output=options.json,
        brokers=os.environ.get("TRUEUP_BROKERS"),
        out=options.out or Path(f"trueup-{'demo' if options.scenario == 'flights' else options.scenario}.svg"),
        partitions=options.partitions,
        scenario=options.scenario,
    )


def broker(options: argparse.Namespace) -> int:
    """Run a broker, or send or watch records; return the status."""
    try:
        from lab import broker, records  # noqa: PLC0415 - not part of a worker
    except ModuleNotFoundError as exc:  # a worker's image does not contain the lab
        raise SettingsError(f"the broker for development needs {exc.name}: run it from a checkout") from exc

    if options.by_hand is None:
        return broker.serve(options.port, options.data_dir)
    of = settings()
    topic = of.named(options.topic)
    with reading.asked(f"{topic} at {', '.join(of.brokers)}"):
        if options.by_hand == "watch":
            asyncio.run(records.watch(of, topic, first=options.first))
        else:
            sent = asyncio.run(records.send(of, topic, sys.stdin.buffer, options.key, options.partitions))
            print(f"sent {sent} records to {topic}", file=sys.stderr)
    return DONE
