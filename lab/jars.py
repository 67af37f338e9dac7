"""Where Apache Kafka's jars are, and how they come there, each with the hash that the lock names.

In a checkout `make jars` fetches them. An installed trueup fetches them itself when a broker is first started, by the
same script and lock, into the user's cache.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
#: Whether this is a checkout, whose root has what an installed trueup has in `share/trueup` of its environment.
IN_CHECKOUT: Final = (_CHECKOUT / "deploy" / "maven" / "jars").exists()
SHARE: Final = _CHECKOUT if IN_CHECKOUT else Path(sys.prefix) / "share" / "trueup"
#: What `fetch` runs, beside bash, and what has it.
_PROGRAMS: Final = {"javac": "a JDK 17 or newer", "mvn": "Maven"}


class JarsError(RuntimeError):
    """The jars are not here and cannot be fetched; the message says what to do."""


def kafka(environment: Mapping[str, str]) -> Path:
    """Return the directory of Kafka's jars; an installed trueup fetches them first if they are not there.

    Raises JarsError if they are not there and cannot be fetched.
    """
    if named := environment.get("TRUEUP_KAFKA_LIB"):
        return _held(Path(named).resolve(), "run `make jars`, or set TRUEUP_KAFKA_LIB to their directory")
    if IN_CHECKOUT:
        return _held(SHARE / "deploy" / "kafka" / "lib", "run `make jars`, or set TRUEUP_KAFKA_LIB to their directory")
    lock = SHARE / "requirements" / "kafka.txt"
    try:
        name = f"kafka-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    except OSError as exc:
        raise JarsError(
            f"this installation is damaged: cannot read {lock}: {exc.strerror}; install trueup anew"
        ) from exc
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = home / "trueup" / name
    if not directory.exists():
        _fetch(lock, directory)
    return _held(directory, "remove the directory: the jars are then fetched again")


def _held(directory: Path, remedy: str) -> Path:
    if not any(directory.glob("kafka_*.jar")):
        raise JarsError(f"no Kafka jars in {directory}: {remedy}")
    return directory


def _fetch(lock: Path, directory: Path) -> None:
    """Fetch the jars of a lock by Maven; the directory is there only once all are."""
    if missing := [what for program, what in _PROGRAMS.items() if shutil.which(program) is None]:
        raise JarsError(
            f"Apache Kafka is fetched with {' and '.join(missing)}, not found on the PATH: install it, or set "
            "TRUEUP_KAFKA_LIB to a directory with Kafka's jars"
        )
    print(f"fetching Apache Kafka, once, about 45 MB, into {directory}", file=sys.stderr)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetching-") as made:
        jars = Path(made) / "jars"
        script, pom = SHARE / "deploy" / "maven" / "jars", SHARE / "deploy" / "kafka" / "pom.xml"
        ended = subprocess.run(
            ["bash", str(script), str(pom), str(lock), str(jars)],  # noqa: S607 - the user's own bash
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            said = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-8:])
            raise JarsError(f"Apache Kafka's jars cannot be fetched by {script}; its output ends:\n{said}")
        jars.replace(directory)
