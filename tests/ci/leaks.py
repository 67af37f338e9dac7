"""``python -m tests.ci.leaks``: fail if something new in the repository looks like a secret.

``.secrets.baseline`` lists what looks like one and is none: passwords of tests. ``--accept`` writes it anew; read its
diff before you commit it. Nothing is sent anywhere.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

ROOT: Final = Path(__file__).resolve().parents[2]
BASELINE: Final = ".secrets.baseline"
#: Files that are not scanned: hashes of packages, and pictures, look like secrets.
LEFT_OUT: Final = r"^requirements/|\.png$|^\.secrets\.baseline$"


class Suspect(NamedTuple):
    """Something that looks like a secret: its file, kind and hash. The line is left out, because it changes."""

    file: str
    kind: str
    hashed: str


def suspects(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[Suspect, int]:
    """Return the suspects of a scan, each with its line."""
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
