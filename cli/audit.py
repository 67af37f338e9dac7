"""``trueup audit``: derive every answer again, follow one event, or compute a certificate from outputs alone."""

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli import reading, state
from cli.options import DONE, UNUSABLE, Commands, command, print_json, refused, settings
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.records.output_values import OutputValues
from streams.sources.registry import RegistryError


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    audit = command(
        commands,
        "audit",
        "derive every served prediction again from the topics, and compare bit for bit",
        "cli.audit:run",
        says="Reads forecasts, outcomes and what was made of them, from their first records; changes no topic. "
        "Follows what workers, routers and intakes wrote down as in force; for all else give it the settings of the "
        f"workers. Status 1: something differs; {UNUSABLE}: it could not be checked.",
    )
    audit.add_argument("--disk", action="store_true", help="keep the derived state in a temporary RocksDB, not memory")
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
        "--from",
        dest="snapshot",
        type=Path,
        metavar="FILE",
        help="begin at a snapshot of 'trueup snapshot': what stands before it may have been deleted. Its rows are "
        "trusted. Partitions that --checkpoint knows go on from there",
    )
    state.add_signers(audit)
    instead = audit.add_mutually_exclusive_group()
    instead.add_argument(
        "--event",
        metavar="ID",
        help="print the path of one event instead, from its source record to its answer and label; status 1 if nothing "
        "mentions it",
    )
    instead.add_argument(
        "--certificate",
        metavar="FILE|TOPIC",
        help="compute instead how far each stream's scores are at most from perfectly calibrated ones, from records "
        "of the topic `resolved` alone, by no code of the worker; a file has them as JSON lines. The gauge "
        "trueup_certificate has the same digits if the records go back as far as its state",
    )


def run(options: argparse.Namespace) -> int:
    """Audit, follow an event, or compute the certificate, and return the status."""
    if options.snapshot is not None and (options.sources or options.event or options.certificate):
        raise SettingsError(
            "--from is for the audit of the workers' answers: leave out --sources, --event and --certificate"
        )
    if options.signers is not None and options.snapshot is None:
        raise SettingsError("--signers is for a snapshot: give it with --from")
    if options.certificate is not None:
        return _certificate(options)
    from replay.audit import auditor, event_path  # noqa: PLC0415 - not part of a worker

    if options.event is not None:
        return event_path.run(settings(), options.event, json_output=options.json)
    return auditor.run(
        settings(),
        json_output=options.json,
        disk=options.disk,
        checkpoint=options.checkpoint,
        sources=options.sources,
        snapshot=options.snapshot,
        signers=options.signers,
    )


def _certificate(options: argparse.Namespace) -> int:
    from cli import certificate  # noqa: PLC0415 - not part of a worker

    path, number = Path(options.certificate), 0

    def counted(records: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal number
        for number, record in enumerate(records, 1):  # noqa: B007 - the one that is no record of `resolved`
            yield record

    try:
        if path.is_file():
            with path.open("rb") as lines:
                found = certificate.verify(counted(lines))
        else:
            found = certificate.verify(counted(asyncio.run(_values(settings(), options.certificate))))
    except (ValueError, KeyError, TypeError) as exc:
        why = f"it has no {exc}" if isinstance(exc, KeyError) else exc
        return refused(ValueError(f"{path}, record {number}: {why}; a certificate is of records of the topic resolved"))
    if options.json:
        print_json(found)
        return DONE
    for stream, kinds in found.items():
        for kind, (n, bound) in kinds.items():
            print(f"{stream}: {kind}, {n:,} events: at most {bound} from perfectly calibrated")
    return DONE


async def _values(settings: Settings, topic: str) -> list[bytes]:
    """Return the values of a topic, in JSON; TopicsError if it cannot be read."""
    await reading.width(settings, topic, ", nor a file of that name")
    reads = OutputValues(settings.registry)
    values = [record.value async for record in reading.records(settings, [topic])]
    try:
        await reads.load(values)
    except RegistryError as exc:
        raise TopicsError(f"cannot read {topic}: {exc}") from exc
    return [reads.json(value or b"") for value in values]
