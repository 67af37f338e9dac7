"""``trueup streams init``: a first streams file, with what fits each stream of a history and why."""

import argparse
import glob
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from cli import history
from cli.label_history import Seen, every
from cli.options import DONE, NO, tell
from cli.suggest import Proposal, propose, quoted
from state.policy import DEFAULT_CALIBRATOR
from streams import atomic_file
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError
from streams.records.decoding import Decoder

_WIDTH: Final = 110


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Write the file, and return 0; 1 where the history is too small for a proposal of any stream.

    Raises SettingsError if the file is there already or cannot be written.
    Raises TopicsError or TableError if the history cannot be read.
    """
    if options.file.exists():
        raise SettingsError(f"{options.file} is there already: name another file, or see 'trueup streams suggest'")
    if options.table and options.label_time is None:
        raise SettingsError("streams init needs --label-time: without it nothing says how late labels come")
    direct = None if options.table else settings.direct
    source = history.source(options, settings)
    found = every(source, Decoder(settings.policies, settings.limits, direct, settings.carry_headers))
    silent = source.silent if options.table else {}
    reads = history.reads(options)
    sampled = "label_rate" in reads
    proposals = [(each, propose(each, silent=silent.get(each.stream, 0), sampled=sampled)) for each in found]
    for note in source.notes if options.table else ():
        print(note, file=sys.stderr)
    if all(proposal.ttl_ms is None for _, proposal in proposals):
        few = [f"{seen.stream}: {' '.join(proposal.reasons)}" for seen, proposal in proposals]
        print("\n".join(few or ["the history has no forecast that can be read"]), file=sys.stderr)
        return NO
    segments = [each.strip() for each in (options.segments or "").split(",") if each.strip()]
    text = "\n".join(_lines(proposals, segments, reads, str(options.table or "a history"))) + "\n"
    stream_config.parse(text, DEFAULT_CALIBRATOR)  # a file that no worker takes must not be written
    if not options.dry_run:
        try:
            with atomic_file.written(options.file) as file:
                file.write(text.encode())
        except OSError as exc:
            raise SettingsError(f"cannot write {options.file}: {exc.strerror}") from exc
    if options.dry_run and not options.json:
        print(text, end="")
        return DONE
    streams = {seen.stream: asdict(proposal) for seen, proposal in proposals}
    done = "would write" if options.dry_run else "wrote"
    said = (
        f"{done} {options.file}, {len(streams)} stream{'s' * (len(streams) != 1)}; export TRUEUP_STREAMS={options.file}"
    )
    tell(options, said, streams=streams, toml=text)
    return DONE


def _lines(
    proposals: Sequence[tuple[Seen, Proposal]], segments: Sequence[str], reads: Sequence[str], origin: str
) -> Iterator[str]:
    yield f"# Made by `trueup streams init` from {json.dumps(origin, ensure_ascii=False)}. Check the reasons."
    yield "# docs/reference/streams-file.md has all keys."
    for seen, proposal in proposals:
        yield ""
        for reason in proposal.reasons:
            yield from textwrap.wrap(reason, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
        if proposal.ttl_ms is None:
            yield f"# [streams.{quoted(glob.escape(seen.stream))}]"
            continue
        yield proposal.toml(seen.stream, reads)
        if segments:
            yield f"segments = {json.dumps(segments, ensure_ascii=False)}"
