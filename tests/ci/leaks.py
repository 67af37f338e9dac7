"""``python -m tests.ci.leaks``: whether something that looks like a secret has come into the repository.

What stands in ``.secrets.baseline`` was looked at and is none: passwords of tests. ``--accept`` writes it anew; look at
its difference before you commit it. Nothing is sent anywhere.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

ROOT: Final = Path(__file__).resolve().parents[2]
BASELINE: Final = ".secrets.baseline"
#: Hashes of packages and pictures are no secrets and look like them.
LEFT_OUT: Final = r"^requirements/|\.png$|^\.secrets\.baseline$"


class Suspect(NamedTuple):
    """What looks like a secret: where, of which kind, and its hash; not the line, which moves."""

    file: str
    kind: str
    hashed: str


def suspects(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[Suspect, int]:
    """Return what a scan found, with the line of each."""
    return {
        Suspect(file, each["type"], each["hashed_secret"]): each["line_number"]
        for file, several in found.items()
        for each in several
    }


def news(found: dict[Suspect, int], known: Iterable[Suspect]) -> list[str]:
    """Return a sentence for each suspect that is not known."""
    accepted = set(known)
    return [f"{each.file}:{line}: {each.kind}" for each, line in sorted(found.items()) if each not in accepted]


def scan() -> bytes:
    """Return what a scan of the files under version control finds, as JSON."""
    command = [sys.executable, "-m", "detect_secrets", "scan", "--no-verify", "--exclude-files", LEFT_OUT]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=600).stdout


def main() -> int:
    """Scan, and compare or accept."""
    made = scan()
    if "--accept" in sys.argv[1:]:
        report = orjson.loads(made)
        kept = {"exclude": LEFT_OUT, "results": report["results"]}
        (ROOT / BASELINE).write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
        return 0
    known = suspects(orjson.loads((ROOT / BASELINE).read_bytes())["results"])
    found = news(suspects(orjson.loads(made)["results"]), known)
    for each in found:
        sys.stdout.write(f"looks like a secret: {each}\n")
    if found:
        sys.stdout.write("remove it and change it where it is used; if it is none: python -m tests.ci.leaks --accept\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
