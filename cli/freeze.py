"""``trueup streams freeze`` and ``thaw``: a stream's map stays as it is, or learns again, with an audit line.

Nothing is sent to the workers: they read the file when they start. A frozen map serves what it had learnt until then.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from cli.streams_file import changing, edited
from streams.config.settings import SettingsError


def run(
    environment: Mapping[str, str],
    stream: str,
    *,
    frozen: bool,
    reason: str | None = None,
    dry_run: bool = False,
    json_output: bool = False,
) -> int:
    """Freeze or thaw the map of a stream and of all others of its pattern; return 0, or 1 if it is so already.

    Raises SettingsError if no pattern matches the stream, or the file cannot be read, rewritten or replaced; it is then
    as it was.
    """
    done = "frozen" if frozen else "thawed"
    with changing(environment) as file:
        matched = file.settings().policies.matched(stream)
        if matched is None:
            raise SettingsError(f'no pattern of the streams file matches {stream!r}: write [streams."{stream}"] first')
        pattern, policy = matched
        if policy.frozen == frozen:
            sys.stderr.write(f'trueup: the maps of streams."{pattern}" are {done} already\n')
            return 1

        def change(tables: Any) -> None:  # noqa: ANN401 - tomlkit's own
            if frozen:
                tables[pattern]["frozen"] = True
            else:
                del tables[pattern]["frozen"]

        after = edited(file.path.read_bytes().decode(), change)
        difference = file.difference(after, done)
        said = {"stream": stream, "reason": reason, "frozen": frozen}
        line = file.change(after, pattern, replace(policy, frozen=frozen), said, dry_run=dry_run)
    if json_output:
        sys.stdout.write(orjson.dumps(line | {"difference": difference}).decode() + "\n")
        return 0
    sys.stdout.write(difference)
    if dry_run:
        print("nothing was changed")
        return 0
    then = "stay as they are" if frozen else "learn again; what came meanwhile is never learnt"
    print(f"written down in {file.audit}")
    print(f'restart the workers: from then on the maps of streams."{pattern}" {then}')
    return 0
