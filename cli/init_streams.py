"""``trueup streams init``: writes a first streams file, with what fits each stream of a history, and why."""

import argparse
import glob
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from cli import history
from cli.label_history import Seen
from cli.options import DONE, NO, settings, tell
from cli.suggest import Proposal, observed, proposed, quoted
from state.policy import DEFAULT_CALIBRATOR
from streams import atomic_file
from streams.config import stream_config
from streams.config.settings import SettingsError

_WIDTH: Final = 110


def run(options: argparse.Namespace) -> int:
    """Write the file and return 0; or return 1 if the history is too small for any proposal.

    Raises SettingsError if the file is there already or cannot be written.
    Raises TopicsError or TableError if the history cannot be read.
    """
    if options.file.exists():
        raise SettingsError(f"{options.file} is there already: name another file, or see 'trueup streams suggest'")
    of, reads = settings(), history.reads(options)
    source, found = observed(options, of)
    proposals = [(each, proposed(each, options, source, of)) for each in found]
    if all(proposal.ttl_ms is None for _, proposal in proposals):
        few = [f"{seen.stream}: {' '.join(proposal.reasons)}" for seen, proposal in proposals]
        print("\n".join(few or ["the history has no forecast that can be read"]), file=sys.stderr)
        return NO
    segments = [each.strip() for each in (options.segments or "").split(",") if each.strip()]
    text = "\n".join(_lines(proposals, segments, reads, str(options.table or "a history"))) + "\n"
    stream_config.parse(text, DEFAULT_CALIBRATOR)  # do not write a file that workers would refuse
    if not options.dry_run:
        with atomic_file.written(options.file) as file:
            file.write(text.encode())
    if options.dry_run and not options.json:
        print(text, end="")
        return DONE
    streams = {seen.stream: proposal for seen, proposal in proposals}
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
