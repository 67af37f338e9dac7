"""Who takes part: how each is started, and what it guarantees while it is measured."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state.policy import DEFAULT_CALIBRATOR

ROOT = Path(__file__).resolve().parents[2]
#: Where `make bench` installs Kafka Streams' classes and jars.
KAFKA_STREAMS = Path(__file__).parent / "rivals" / "kafka_streams" / "target"

LABELS = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")


@dataclass(frozen=True)
class Contender:
    """One way to do the job."""

    #: In tables.
    name: str
    #: ``{brokers}``, ``{prefix}`` and ``{directory}`` stand for what it is told.
    command: tuple[str, ...]
    #: Where state is, what is acknowledged before what, what a crash does.
    guarantees: str
    #: Of a trueup worker; None: not trueup.
    calibrator: str | None = None
    #: Whether each partition has calibrators of its own; else they are one a stream.
    per_partition: bool = True
    #: Must exist for it to be started.
    needs: Path = field(default_factory=lambda: Path(sys.executable))

    @property
    def missing(self) -> str | None:
        """Why it cannot be started here, or None."""
        if not self.needs.exists():
            return f"{self.needs.relative_to(ROOT)} is not there: `make bench` installs it"
        return None if shutil.which(self.command[0]) else f"there is no {self.command[0]}"

    def environment(self, brokers: str, prefix: str, directory: str) -> Mapping[str, str]:
        """Return the variables it is started with, besides the usual ones."""
        if self.calibrator is None:
            return {}
        return {
            "TRUEUP_BROKERS": brokers,
            "TRUEUP_APP_ID": prefix,
            "TRUEUP_DATA_DIR": directory,
            "TRUEUP_METRICS_PORT": "0",
            "TRUEUP_LOG_LEVEL": "WARNING",
            "TRUEUP_DEFAULT_CALIBRATOR": self.calibrator,
            **{f"TRUEUP_{label.upper().replace('-', '_')}": f"{prefix}-{label}" for label in LABELS},
        }

    def started_by(self, brokers: str, prefix: str, directory: str) -> list[str]:
        """Return the command with its arguments."""
        return [part.format(brokers=brokers, prefix=prefix, directory=directory) for part in self.command]


_ARGUMENTS = ("{brokers}", "{prefix}", "{directory}")
_WORKER = (sys.executable, "-m", "cli.main", "run", "worker")
_GUARANTEES = "RocksDB + changelog, acked before state and answers; state exactly once, answers at least once"


CONTENDERS = (
    Contender(
        "plain loop",
        (sys.executable, "-m", "tests.bench.rivals.plain", *_ARGUMENTS),
        "RocksDB + changelog, acked beside answers, before offsets; learns twice after a crash; restores nothing",
    ),
    Contender(
        "plain loop, all records",
        (sys.executable, "-m", "tests.bench.rivals.plain", *_ARGUMENTS, "all"),
        "as the plain loop; writes records with as many fields as trueup, one for each outcome, too, and packs them",
    ),
    Contender("trueup (histogram)", _WORKER, _GUARANTEES, "histogram"),
    Contender("trueup (default)", _WORKER, _GUARANTEES, DEFAULT_CALIBRATOR),
    Contender(
        "Kafka Streams",
        ("java", "-cp", f"{KAFKA_STREAMS}/classes:{KAFKA_STREAMS}/lib/*", "Job", *_ARGUMENTS),
        "RocksDB + changelog, flushed before offsets (30 s); state and answers at least once",
        needs=KAFKA_STREAMS / "lib",
    ),
)


def named(name: str) -> Contender:
    """Return a contender by its name."""
    return next(contender for contender in CONTENDERS if contender.name == name)
