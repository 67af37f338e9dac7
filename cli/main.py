"""The command line."""

import argparse
import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from agents import __version__, logs, terminal
from cli import load, replay
from replay.sources.record import TableError
from streams.config import effective_config, stream_config
from streams.config.settings import Settings, SettingsError
from streams.kafka import owners, permissions, topics
from streams.records import output_schemas, routing
from streams.records.decoding import REASONS, Decoder
from streams.records.output_values import OutputValues
from streams.sources import modes
from streams.sources.fields import FORECAST, OUTCOME
from streams.sources.registry import RegistryError

#: Exit status when the arguments or settings ask for something impossible (EX_CONFIG of sysexits.h).
MISCONFIGURED = 78
#: Exit status when nobody reads any more what is printed, as a shell has it.
UNREAD = 128 + signal.SIGPIPE

EPILOG = """\
A first look, on this machine alone:
  trueup demo                     real flights through a real broker, with a report

A cluster of your own:
  export TRUEUP_BROKERS=kafka-1:9092,kafka-2:9092
  trueup topics create --partitions 8 --replication 3
  trueup run

Every setting is an environment variable; 'trueup worker --help' lists them.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    _open_streams()
    try:
        with terminal.guarded():
            try:
                return _run_command(arguments)
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _unread():
            raise
        return UNREAD
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich has found it first
            return UNREAD
        raise


def _open_streams() -> None:
    """Point standard streams that are closed at nothing: connections would get their numbers, and be written to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - it stays open


def _unread() -> bool:
    """Return whether the reader of what is printed has gone, as `head` does; what is left for it goes nowhere."""
    ends = select.poll()
    for stream in (sys.stdout, sys.stderr):
        ends.register(stream.fileno(), 0)  # errors are reported in any case
    gone = [end for end, event in ends.poll(0) if event & select.POLLERR]
    if gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for end in gone:
            os.dup2(nowhere, end)
    return bool(gone)


def _run_command(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(replay.joined(sys.argv[1:] if arguments is None else arguments))
    if options.command is None:
        parser.print_help()
        return 0
    logs.configure(os.environ.get("TRUEUP_LOG_LEVEL", "INFO").upper(), options.command)
    if options.command in _PRIVATE:
        os.umask(0o077)
    try:
        return int(_COMMANDS[options.command](options))
    except (SettingsError, topics.TopicsError, TableError) as exc:
        print(f"trueup: {exc}", file=sys.stderr)
        if isinstance(exc, TableError):
            return replay.UNUSABLE
    except KeyboardInterrupt:
        return 130
    return MISCONFIGURED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trueup",
        description="Joins risk forecasts with what happened, on Kafka, and keeps the scores honest.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trueup {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    _add_stages(commands)
    demo = commands.add_parser("demo", help="real flights through a real broker, with a live table and a report")
    demo.add_argument(
        "--scenario",
        choices=("flights", "fraud"),
        default="flights",
        help="flights: 309,772 real ones, outcomes within hours (default); fraud: 120,000 made payments, .4 %% of them "
        "frauds, reported within 45 days, and nothing of the rest",
    )
    demo.add_argument("--rows", type=_positive, help="play only so many flights or payments (default: all)")
    demo.add_argument("--json", action="store_true", help="print one JSON object last, and no table")
    demo.add_argument("--partitions", type=_positive, help="partitions of every topic (default: 2, of fraud 1)")
    demo.add_argument("--out", type=Path, default=Path("trueup-demo.png"), help="where the picture goes")
    demo.add_argument("--export", type=Path, metavar="DIR", help="only write the stream there, for 'trueup replay'")

    _add_broker(commands)
    topic = commands.add_parser("topics", help="make or check the topics, or take them over")
    actions = topic.add_subparsers(dest="action", required=True, metavar="create|check|take|acls")
    create = actions.add_parser("create", help="make the topics that do not exist")
    create.add_argument("--partitions", type=_positive, help="of every topic (default: 4)")
    create.add_argument("--replication", type=_positive, help="copies of each (default: 1; production: 3)")
    create.add_argument("--retention", help="how long inputs and outputs are kept, such as 30d (default: the brokers')")
    actions.add_parser(
        "take",
        help="let this application write topics that were another's, or others than before; stop that first",
    )
    actions.add_parser("check", help="say what is wrong with the topics; status 1 if anything is")
    acls = actions.add_parser("acls", help="print the commands that grant a worker's user what it needs, and no more")
    acls.add_argument("principal", nargs="?", default="User:trueup", help="the user (default: %(default)s)")

    _add_audit(commands)
    skip = commands.add_parser(
        "skip",
        help="leave out a record that ends every process that reads it",
        description="Writes down that a record of an input or of a source is left out; it becomes a dead letter, "
        "'skipped'. A worker, router or intake that dies of the same record again and again prints the command.",
    )
    skip.add_argument("place", metavar="TOPIC/PARTITION@OFFSET", help="the record")
    skip.add_argument("--reason", required=True, help="why; kept, and told in the dead letter")

    _add_rescale(commands)
    config = commands.add_parser("config", help="show the settings in effect, or what is wrong with them")
    checks = config.add_subparsers(dest="action", required=True, metavar="check|suggest")
    check = checks.add_parser(
        "check",
        help="print every setting, secrets hidden; status 78 if one is wrong",
        description="Reads what a worker would read, certificates and the streams file too. Asks no broker.",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    suggest = checks.add_parser(
        "suggest",
        help="propose matures, silence and ttl of a stream, from its history",
        description="Reads a stream's forecasts and outcomes, changes nothing, and says which `matures`, `silence`, "
        "`ttl` and `revisable` fit them and why: in words, and as lines for the streams file.",
        epilog="exit status: 0 with a proposal, 1 where the history is too small for one, 2 without such a stream",
    )
    suggest.add_argument("stream", help="name of the stream")
    replay.add_source(suggest)
    suggest.add_argument("--json", action="store_true", help="print one JSON object")

    _add_sources(commands)
    _add_letters(commands)
    promote = commands.add_parser(
        "promote",
        help="let a challenger serve: champion and challenger change places in the streams file",
        description="Rewrites the file, comments and all, after checking it as a worker would; prints what changed and "
        "appends a line to FILE.audit.jsonl. Workers read the file when they start: restart them.",
    )
    promote.add_argument("stream", help="name of a stream; its pattern's streams change together")
    promote.add_argument("calibrator", help="the challenger's name, or its configuration where names are not enough")
    promote.add_argument("--streams", type=Path, metavar="FILE", help="the streams file (default: TRUEUP_STREAMS)")
    promote.add_argument("--reason", help="why, for the audit line")
    promote.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")

    replay.add(commands)
    load.add(commands)
    _add_readers(commands)
    return parser


def _add_broker(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    broker = commands.add_parser(
        "broker",
        help="run a local Apache Kafka for development, without Docker; send and watch records of any",
        description="Without a further word it runs a broker until Ctrl-C. 'send' and 'watch' use TRUEUP_BROKERS.",
    )
    broker.add_argument("--port", type=_positive, help="port to listen on (default: a free one)")
    broker.add_argument("--data-dir", type=Path, help="keep the data here (default: a temporary directory)")
    by_hand = broker.add_subparsers(dest="action", metavar="send|watch")
    send = by_hand.add_parser("send", help="send each line of standard input to a topic")
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument(
        "--key", metavar="FIELD", default="event_id", help="JSON field that is the record's key (default: %(default)s)"
    )
    watch = by_hand.add_parser("watch", help="print the records of a topic as they come, until Ctrl-C")
    watch.add_argument("topic", metavar="TOPIC")
    watch.add_argument("--first", action="store_true", help="begin with the first record that is kept")


def _add_readers(commands: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    inspect = commands.add_parser(
        "inspect",
        help="show the state of a stream, from the changelog",
        description="Reads the changelog, so it works from anywhere and while workers run.",
    )
    inspect.add_argument("stream", nargs="?", help="name of the stream (default: list the streams)")
    inspect.add_argument("--json", action="store_true", help="print one JSON object")

    verify = commands.add_parser(
        "verify",
        help="compute the certificate of calibration again, from the output records alone",
        description="Reads records of the topic `resolved`, and says of each stream how far its scores are "
        "at most from perfectly calibrated ones. Shares no code with the worker. Its gauge trueup_certificate has "
        "the same digits if the records go back as far as its state.",
    )
    verify.add_argument("records", metavar="FILE|TOPIC", help="a file of such records as JSON lines, or a topic")
    verify.add_argument("--json", action="store_true", help="print one JSON object")

    schema = commands.add_parser(
        "schema",
        help="print the Avro schema of an output",
        description="Prints the Avro schema. With TRUEUP_OUTPUT_REGISTER=no it must be in the registry before a "
        "worker starts.",
    )
    schema.add_argument("output", choices=output_schemas.NAMES, help="the topic, by its usual name")


def _add_sources(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    source = commands.add_parser("sources", help="try what the records of a source become")
    actions = source.add_subparsers(dest="action", required=True, metavar="try")
    trial = actions.add_parser(
        "try",
        help="print what a few records of a source become, or why they become nothing",
        description="Reads the newest records of the source's topics, or a file, and changes nothing.",
        epilog="exit status: 0 if any record becomes one, else 1",
    )
    trial.add_argument("name", help="of the source: [sources.NAME] in the streams file")
    trial.add_argument("file", nargs="?", type=Path, metavar="FILE", help="JSON lines, or one value of another format")
    trial.add_argument("--records", type=_positive, default=10, help="of each topic (default: %(default)s)")
    trial.add_argument("--json", action="store_true", help="print one JSON object a record")


def _add_letters(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    letters = commands.add_parser(
        "letters",
        help="show dead letters by reason and topic, and the newest of them; send their records again",
        description="Reads the dead-letter topic and changes nothing. 'letters send' sends the records of the letters "
        "again, each to its topic and partition, as it was. It leaves out what was sent before, and what the present "
        "settings would refuse: mend the source first.",
        epilog="exit status: 0, or 1 if 'send' left out a record that was not sent before",
    )
    letters.add_argument("action", nargs="?", choices=("send",), help="send the records again")
    letters.add_argument(
        "--reason", choices=sorted(REASONS | routing.REASONS), metavar="REASON", help="only of this reason"
    )
    letters.add_argument("--topic", help="only of records of this topic")
    letters.add_argument("--last", metavar="1d", help="only those of the last so many s, m, h or d")
    letters.add_argument("--limit", type=_positive, metavar="N", help="the newest N (default: 20; send: all)")
    letters.add_argument("--dry-run", action="store_true", help="with send: say what would be sent, and send nothing")
    letters.add_argument("--again", action="store_true", help="with send: also what was sent again before")
    letters.add_argument("--json", action="store_true", help="print one JSON object")


def _add_stages(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serving = commands.add_parser(
        "worker",
        help="serve: read forecasts and outcomes, write calibrated predictions",
        description="Serve until SIGTERM. Run several: partitions are shared out among them.",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serving.add_argument("--of-all-stages", action="store_true", help=argparse.SUPPRESS)  # by 'trueup run'
    commands.add_parser(
        "run",
        help="serve with everything that the settings ask for: the worker, and intake and router if sources need them",
        description="Serve until SIGTERM, each stage in a process of its own, with metrics at the port of the settings "
        "(worker), the next one (router) and the one behind it (intake). If one of them ends, all do.",
    )
    commands.add_parser(
        "intake",
        help="read sources of any keys, and write their records under keys of trueup's own",
        description="Serve until SIGTERM. Reads the [sources.NAME] of the streams file that are not the worker's input "
        "topics. Run several: source partitions are shared out among them.",
    )
    commands.add_parser(
        "router",
        help="send labels that name only their event to the streams that the event was forecast in",
        description="Serve until SIGTERM, behind 'trueup intake'. Run several: partitions are shared out among them.",
    )


def _add_rescale(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    rescale = commands.add_parser(
        "rescale",
        help="move the state of a group to another number of partitions, under another application id",
        description="Reads the state that the settings name, and writes it anew for another group, whose topics must "
        "exist. First stop all workers, when they have applied all records. The old state stays as it is. If the "
        "command is stopped on the way, run it again.",
    )
    rescale.add_argument("--partitions", type=_positive, required=True, help="the new number of partitions")
    rescale.add_argument("--to", required=True, metavar="APP_ID", help="application id of the new group")
    rescale.add_argument(
        "--keys",
        choices=("event", "stream"),
        help="what the worker's inputs are keyed by (default: stream behind a router, else event)",
    )
    rescale.add_argument(
        "changes", nargs="*", metavar="TRUEUP_NAME=VALUE", help="settings of the new group that differ, topics' names"
    )


def _add_audit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    audit = commands.add_parser(
        "audit",
        help="derive every served prediction again from the topics, and compare bit for bit",
        description="Reads forecasts, outcomes and what was made of them, from their first records; changes no topic. "
        "Follows what the workers wrote down as in force; older records are judged by the settings of this command: "
        "give it those of the workers.",
        epilog="exit status: 0 all agree, 1 something differs, 2 it could not be checked",
    )
    audit.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    audit.add_argument(
        "--disk", action="store_true", help="keep the derived state in a temporary RocksDB, not in memory"
    )
    audit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="go on from the files of the last audit there, and write new ones for partitions that agree",
    )
    audit.add_argument(
        "--sources",
        action="store_true",
        help="follow every record from its source first: through intake and router, to the inputs of the workers",
    )
    audit.add_argument(
        "--event",
        metavar="ID",
        help="print the path of one event instead, from its source record to its answer and label; status 1 if nothing "
        "speaks of it",
    )


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _settings_help() -> str:
    import textwrap  # noqa: PLC0415 - only for --help

    lines = ["settings (environment variables):"]
    for name, text, default in Settings.described():
        lines += textwrap.wrap(
            f"{name}  {text} (default: {default})", 100, initial_indent="  ", subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def _worker(options: argparse.Namespace) -> int:
    from agents import all_stages, worker  # noqa: PLC0415 - Faust takes a second to import; --help should not wait

    settings = Settings.from_env(os.environ)
    return all_stages.worker_of_all(settings) if options.of_all_stages else worker.run(settings)


def _run(_: argparse.Namespace) -> int:
    from agents import all_stages  # noqa: PLC0415 - as above

    return all_stages.run(os.environ)


def _intake(_: argparse.Namespace) -> int:
    from agents import intake  # noqa: PLC0415 - as above

    return intake.run(Settings.from_env(os.environ))


def _router(_: argparse.Namespace) -> int:
    from agents import router, worker  # noqa: PLC0415 - as above

    return worker.run(Settings.from_env(os.environ).router, stage=router.ROUTER)


def _demo(options: argparse.Namespace) -> int:
    try:
        from lab import demo  # noqa: PLC0415 - needs the demo's packages
    except ModuleNotFoundError as exc:
        raise SettingsError(f"the demo needs {exc.name}: 'make setup', or pip install '.[demo]'") from exc

    if options.export is not None:
        return demo.export(options.rows, options.export, options.scenario)
    return demo.run(
        rows=options.rows,
        json_output=options.json,
        brokers=os.environ.get("TRUEUP_BROKERS"),
        out=options.out,
        partitions=options.partitions,
        scenario=options.scenario,
    )


def _broker(options: argparse.Namespace) -> int:
    try:
        from lab import broker, records  # noqa: PLC0415 - not part of a worker
    except ModuleNotFoundError as exc:  # the worker's image holds no lab
        raise SettingsError(f"the broker for development needs {exc.name}: run it from a checkout") from exc

    if options.action is None:
        return broker.serve(options.port, options.data_dir)
    settings = Settings.from_env(os.environ)
    try:
        if options.action == "watch":
            asyncio.run(records.watch(settings, options.topic, first=options.first))
        else:
            sent = asyncio.run(records.send(settings, options.topic, sys.stdin.buffer, options.key))
            print(f"sent {sent} records to {options.topic}", file=sys.stderr)
    except KafkaError as exc:
        raise topics.TopicsError(f"{options.topic} at {', '.join(settings.brokers)}: {exc}") from exc
    return 0


def _topics(options: argparse.Namespace) -> int:
    settings = Settings.from_env(os.environ)
    asked: dict[str, int | None] = {}
    if options.action == "acls":
        print("\n".join(permissions.commands(settings, options.principal)))
        return 0
    if options.action == "take":
        print("\n".join(asyncio.run(_taken(settings))) or f"all topics are those of {settings.app_id}")
        return 0
    if options.action == "create":
        try:
            retention = None if options.retention is None else stream_config.duration(options.retention)
        except ValueError as exc:
            raise SettingsError(str(exc)) from exc
        made = [
            name
            for stage in settings.stages
            for name in asyncio.run(
                topics.create(
                    stage,
                    partitions=options.partitions or 4,
                    replication=options.replication or 1,
                    retention_ms=retention,
                )
            )
        ]
        print("made: " + ", ".join(made) if made else "all topics exist")
        asked = {"partitions": options.partitions, "replication": options.replication, "retention_ms": retention}
    worker = options.action == "check"
    problems = dict.fromkeys(
        problem for stage in settings.stages for problem in asyncio.run(topics.check(stage, as_worker=worker, **asked))
    )
    without = asyncio.run(topics.missing_sources(settings))
    if worker:
        problems |= dict.fromkeys(without)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print("trueup's own topics are as they must be" if without else "all topics are as they must be")
        for each in without:
            print(f"note: {each}")
        for remark in dict.fromkeys(each for stage in settings.stages for each in asyncio.run(topics.remarks(stage))):
            print(f"note: {remark}")
    return 1 if problems else 0


async def _taken(settings: Settings) -> list[str]:
    if await topics.partitions(settings, settings.owners) is None:
        raise topics.TopicsError(f"topic {settings.owners} does not exist: run 'trueup topics create'")
    try:
        async with topics.admin_client(settings) as admin:
            return await owners.take(admin, settings)
    except (owners.OwnersError, KafkaError) as exc:
        raise topics.TopicsError(f"nothing was taken over: {str(exc) or type(exc).__name__}") from exc


def _suggest(options: argparse.Namespace, settings: Settings) -> int:
    from cli import suggest  # noqa: PLC0415 - numpy takes a while to import

    policy = settings.policies.of(options.stream)
    if options.table and options.label_time is None:
        raise SettingsError("config suggest needs --label-time: without it nothing says how late labels come")
    direct = None if options.table else settings.direct
    decoder = Decoder(settings.policies, settings.limits, direct, settings.carry_headers)
    source = replay.source(options, settings)
    try:
        seen = suggest.read(source, decoder, options.stream)
    except LookupError as exc:
        print(exc.args[0], file=sys.stderr)
        return 2
    for note in source.notes if options.table else ():
        print(note, file=sys.stderr)
    numbers = policy is not None and suggest.is_numbers(policy.kind)
    proposal = suggest.propose(seen, numbers=numbers, silent=source.silent[options.stream] if options.table else 0)
    print(json.dumps(suggest.plain(seen, proposal)) if options.json else suggest.told(seen, proposal))
    return 0 if proposal.ttl_ms is not None else 1


def _config(options: argparse.Namespace) -> int:
    settings = Settings.from_env(os.environ)
    if options.action == "suggest":
        return _suggest(options, settings)
    try:
        _ = settings.security.context, settings.access.context
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc
    found, streams = effective_config.shown(settings), effective_config.policies(settings)
    hash_, sources = effective_config.fingerprint(settings), effective_config.sources(settings)
    unmapped = effective_config.unmapped(settings)
    if options.json:
        told = {"settings": found, "streams": streams, "sources": sources, "configuration": hash_, "no_map": unmapped}
        print(json.dumps(told))
        return 0
    for name, value in found.items():
        print(f"{name}={value}")
    for pattern, policy in streams.items():
        kept = f"kept {policy['ttl_ms'] / 86_400_000:g} days"
        if policy["matures_ms"]:
            kept += f", labels known after {policy['matures_ms'] / 86_400_000:g} days"
        if policy["silence"] is not None:
            kept += f", no report means {policy['silence']:g}"
        named = [*policy["segments"], *("*".join(pair) for pair in policy["pairs"])]
        segments = f", segments {', '.join(named)}" if named else ""
        beside = f", challengers {', '.join(policy['challengers'])}" if "challengers" in policy else ""
        answers = f"{policy['calibrator']}, configuration {policy['config']}"
        print(f"# streams {pattern!r}: {answers}, {kept}{segments}{beside}")
    for pattern, why in unmapped.items():
        print(f"# streams {pattern!r}: no map in {settings.maps}, because {why}: decide by their raw forecasts")
    if modes.routed(settings.modes, OUTCOME) and not modes.routed(settings.modes, FORECAST):
        print(f"# note: outcomes come through intake, and no forecasts do. {modes.UNROUTED}")
    for each in sources:
        print(f"# source {each['name']!r}: {each['topic']} of {each['role']}s is {each['mode']}, for {each['why']}")
    print(f"# configuration {hash_}")
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from cli import inspect  # noqa: PLC0415 - not part of a worker

    return inspect.run(Settings.from_env(os.environ), options.stream, json_output=options.json)


def _letters(options: argparse.Namespace) -> int:
    from cli import letters  # noqa: PLC0415 - not part of a worker

    settings = Settings.from_env(os.environ)
    try:
        last = None if options.last is None else stream_config.duration(options.last)
    except ValueError as exc:
        raise SettingsError(f"--last: {exc}") from exc
    if options.action is None and (options.dry_run or options.again):
        raise SettingsError("--dry-run and --again are of 'trueup letters send'")
    wanted = letters.Wanted(options.reason, options.topic, last)
    if options.action is None:
        return letters.show(settings, wanted, options.limit or 20, json_output=options.json)
    return letters.send(
        settings, wanted, options.limit, dry_run=options.dry_run, again=options.again, json_output=options.json
    )


def _sources(options: argparse.Namespace) -> int:
    from cli import sources  # noqa: PLC0415 - not part of a worker

    settings = Settings.from_env(os.environ)
    return sources.run(settings, options.name, options.records, options.file, json_output=options.json)


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(output_schemas.avro(options.output), indent=2))
    return 0


def _promote(options: argparse.Namespace) -> int:
    from cli import promote  # noqa: PLC0415 - not part of a worker

    return promote.run(
        os.environ,
        options.stream,
        options.calibrator,
        streams=options.streams,
        reason=options.reason,
        dry_run=options.dry_run,
    )


def _skip(options: argparse.Namespace) -> int:
    from cli import skip  # noqa: PLC0415 - not part of a worker

    settings = Settings.from_env(os.environ)
    of_router = options.place.startswith((f"{settings.routes}/", f"{settings.labels}/"))
    print(skip.run(settings.router if of_router else settings, options.place, options.reason))
    return 0


def _rescale(options: argparse.Namespace) -> int:
    from cli import rescale  # noqa: PLC0415 - not part of a worker

    new = rescale.settled(os.environ, options.to, options.changes)
    print(rescale.run(Settings.from_env(os.environ), new, options.partitions, options.keys))
    return 0


def _audit(options: argparse.Namespace) -> int:
    from replay.audit import auditor, event_path  # noqa: PLC0415 - not part of a worker

    if options.event is not None:
        return event_path.run(Settings.from_env(os.environ), options.event, json_output=options.json)
    return auditor.run(
        Settings.from_env(os.environ),
        json_output=options.json,
        disk=options.disk,
        checkpoint=options.checkpoint,
        sources=options.sources,
    )


def _verify(options: argparse.Namespace) -> int:
    from cli import verify  # noqa: PLC0415 - not part of a worker

    path = Path(options.records)
    try:
        if path.is_file():
            with path.open("rb") as lines:
                found = verify.verify(_resolved(lines, f"{path}, line"))
        else:
            values = asyncio.run(_values(Settings.from_env(os.environ), options.records))
            found = verify.verify(_resolved(values, f"{path}, record"))
    except ValueError as exc:
        print(f"trueup: {exc}", file=sys.stderr)
        return replay.UNUSABLE
    if options.json:
        print(json.dumps(found))
        return 0
    for stream, kinds in found.items():
        for kind, (n, certificate) in kinds.items():
            print(f"{stream}: {kind}, {n:,} events: at most {certificate} from perfectly calibrated")
    return 0


#: Fields that every record of `resolved` has beside its forecasts and label.
_RESOLVED = {"stream": str, "event_id": str, "issued_ts": int, "revision": int}


def _resolved(records: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield records of the topic `resolved` as they are; ValueError names the first one that is none, and why."""
    for number, record in enumerate(records, 1):
        if why := _unlike_resolved(record):
            raise ValueError(f"{where} {number}: {why}; verify reads records of the topic resolved")
        yield record


def _unlike_resolved(record: bytes) -> str:
    """Return what a record lacks to be one of `resolved`, or what is wrong with it; empty if nothing is."""
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return "it is not JSON"
    if not isinstance(found, dict):
        return "it is no JSON object"
    of_classes_or_numbers = any(name in found for name in ("probs", "quantiles", "normal"))
    forecasts = () if of_classes_or_numbers else ("raw", "p", "draw")
    if lacks := [name for name in (*_RESOLVED, "y", *forecasts) if name not in found]:
        return f"it has no {', '.join(lacks)}"
    wrong = [name for name, kind in _RESOLVED.items() if type(found[name]) is not kind]
    wrong += [name for name in forecasts if type(found[name]) not in (int, float) or not 0 <= found[name] <= 1]
    if forecasts and (type(found["y"]) not in (int, float) or found["y"] not in (0, 1)):
        wrong.append("y")
    return f"its {wrong[0]} cannot be {json.dumps(found[wrong[0]])[:60]}" if wrong else ""


async def _values(settings: Settings, topic: str) -> list[bytes]:
    """Return the values of a topic, in JSON; TopicsError if it cannot be read."""
    from streams.kafka.whole_topics import batches  # noqa: PLC0415 - the client takes a while to import

    if await topics.partitions(settings, topic) is None:
        raise topics.TopicsError(f"there is neither a file nor a topic {topic}")
    reads, found = OutputValues(settings.registry), list[bytes]()
    try:
        async for _, records in batches(settings, [topic]):
            values = [record.value for record in records]
            await reads.load(values)
            found += [reads.json(value or b"") for value in values]
    except (RegistryError, ValueError) as exc:
        raise topics.TopicsError(f"cannot read {topic}: {exc}") from exc
    except KafkaError as exc:
        raise topics.TopicsError(f"cannot read {topic} from {', '.join(settings.brokers)}: {exc}") from exc
    return found


_COMMANDS = {
    "audit": _audit,
    "worker": _worker,
    "run": _run,
    "intake": _intake,
    "router": _router,
    "demo": _demo,
    "broker": _broker,
    "topics": _topics,
    "config": _config,
    "inspect": _inspect,
    "letters": _letters,
    "replay": replay.run,
    "load": load.run,
    "promote": _promote,
    "rescale": _rescale,
    "schema": _schema,
    "skip": _skip,
    "sources": _sources,
    "verify": _verify,
}

#: These commands write data: state, records, reports. Only the user who runs them may read it.
_PRIVATE = ("worker", "run", "router", "replay", "load", "audit", "inspect")

if __name__ == "__main__":
    sys.exit(main())
