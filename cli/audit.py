"""``trueup audit``: derive every answer again, follow one event, or compute a certificate from outputs alone."""

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli import reading, snapshot
from cli.options import DONE, UNUSABLE, Commands, command, print_json, refused, settings
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.records.output_values import OutputValues
from streams.sources.registry import RegistryError

#: Fields that every record of `resolved` has beside its forecasts and label.
_RESOLVED = {"stream": str, "event_id": str, "issued_ts": int, "revision": int}


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
        json_output=True,
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
    snapshot.add_signers(audit)
    instead = audit.add_mutually_exclusive_group()
    instead.add_argument(
        "--event",
        metavar="ID",
        help="print the path of one event instead, from its source record to its answer and label; status 1 if nothing "
        "speaks of it",
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
        raise SettingsError("--from is of the workers' answers: leave out --sources, --event and --certificate")
    if options.signers is not None and options.snapshot is None:
        raise SettingsError("--signers is of a snapshot: give it with --from")
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

    path = Path(options.certificate)
    try:
        if path.is_file():
            with path.open("rb") as lines:
                found = certificate.verify(_resolved(lines, f"{path}, line"))
        else:
            values = asyncio.run(_values(settings(), options.certificate))
            found = certificate.verify(_resolved(values, f"{path}, record"))
    except ValueError as exc:
        return refused(exc)
    if options.json:
        print_json(found)
        return DONE
    for stream, kinds in found.items():
        for kind, (n, bound) in kinds.items():
            print(f"{stream}: {kind}, {n:,} events: at most {bound} from perfectly calibrated")
    return DONE


def _resolved(records: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield records of the topic `resolved` as they are; ValueError names the first one that is none, and why."""
    for number, record in enumerate(records, 1):
        if why := _unlike_resolved(record):
            raise ValueError(f"{where} {number}: {why}; a certificate is of records of the topic resolved")
        yield record


def _unlike_resolved(record: bytes) -> str:
    """Return why a record is not one of `resolved`; empty if it is one."""
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
    await reading.width(settings, topic, ", nor a file of that name")
    reads = OutputValues(settings.registry)
    values = [record.value async for record in reading.records(settings, [topic])]
    try:
        await reads.load(values)
    except RegistryError as exc:
        raise TopicsError(f"cannot read {topic}: {exc}") from exc
    return [reads.json(value or b"") for value in values]
