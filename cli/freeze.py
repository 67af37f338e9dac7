"""``trueup streams freeze`` and ``thaw``: a stream's map stays as it is, or learns again, with an audit line.

Nothing is sent to the workers: they read the file when they start. A frozen map serves what it had learnt until then.
"""

import argparse
import sys
from dataclasses import replace
from typing import Any

from cli.options import DONE, NO
from cli.streams_file import changing, edited, matched


def run(options: argparse.Namespace) -> int:
    """Freeze or thaw the map of a stream and of all others of its pattern; return 0, or 1 if it is so already.

    Raises SettingsError if no pattern matches the stream, or the file cannot be read, rewritten or replaced; it is then
    as it was.
    """
    frozen = options.frozen
    done = "frozen" if frozen else "thawed"
    with changing() as file:
        pattern, policy = matched(file.settings().policies, options.stream, f'write [streams."{options.stream}"] first')
        if policy.frozen == frozen:
            sys.stderr.write(f'trueup: the maps of streams."{pattern}" are {done} already\n')
            return NO

        def change(tables: Any) -> None:  # noqa: ANN401 - tomlkit's own
            if frozen:
                tables[pattern]["frozen"] = True
            else:
                del tables[pattern]["frozen"]

        after, line = edited(file.text, change), {"stream": options.stream, "frozen": frozen}
        now = replace(policy, frozen=frozen)
        said = file.change(options, after, done, pattern, now, line, dry_run=options.dry_run)
    if not options.json:
        print(said)
        if not options.dry_run:
            then = "stay as they are" if frozen else "learn again; what came meanwhile is never learnt"
            print(f'restart the workers: from then on the maps of streams."{pattern}" {then}')
    return DONE
