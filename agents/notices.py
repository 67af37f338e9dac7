"""What an operator should look at: dead letters, times far off, late labels. It is counted by kind.

The log gets at most one line a minute of each kind. Counts and lines are also written to a file, which the worker's
page shows: under `trueup run`, router and intake are other processes. The file also keeps events of operation: starts,
rebalances, why a stage was not ready. They outlive the process, and are also in the log.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import orjson

from streams import atomic_file
from streams.config.settings import Settings, SettingsError
from streams.records import routing
from streams.records.decoding import REASONS
from streams.sources import modes

log = logging.getLogger("trueup")

#: Shortest time between two log lines of one kind, and between two writes of the file, s.
LOG_SECONDS: Final = 60.0
FILE_SECONDS: Final = 5.0
#: The most lines that are kept.
MOST: Final = 1000
#: The most events of operation that are kept for a stage; the most promotions shown; the reason that all these have.
EVENTS: Final = 20
OPERATION: Final = "operation"
#: Stages that may have a file.
STAGES: Final = ("worker", "router", "intake")
_MEANINGS: Final = REASONS | routing.REASONS


class Notices:
    """Counts the notices of one process.

    ``path``: the file; None: there is none.
    ``clock``: a monotonic clock, s.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._path, self._clock = path, clock
        #: By topic and kind: their number, and line and time of the last one, s since 1970.
        self._found: dict[tuple[str, str], tuple[int, str, float]] = {}
        #: By topic and kind: when a line was last logged, and the number in it.
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._changed, self._written = True, -FILE_SECONDS
        #: Events of operation; and the last state of the stage.
        self._events = [] if path is None else [each for each in _read(path) if each["reason"] == OPERATION]
        self._stands = ""

    def happened(self, line: str) -> None:
        """Keep an event of operation."""
        event = {"topic": "", "reason": OPERATION, "count": 1, "line": line, "at": time()}
        self._events = [*self._events, event][-EVENTS:]
        self._changed = True

    def stands(self, said: str) -> None:
        """Keep the state of the stage as an event if it has changed."""
        if said != self._stands:
            self._stands = said
            self.happened(said)

    def dead(self, topic: str, partition: int, offset: int, reason: str) -> None:
        """Count a dead letter of a record."""
        self._count(
            (topic, reason),
            f"dead letters of {topic}, {reason}",
            f"({_MEANINGS[reason]}) The last is {topic}/{partition}@{offset}; for "
            f"more: trueup letters --topic {topic} --reason {reason}",
        )

    def far_off(self, topic: str, records: int, said: str) -> int:
        """Report records of a topic whose times are far off, and the remedy; return how many are new."""
        return self._count((topic, "far_off"), f"records of {topic} with a time far off", f"The last: {said}", records)

    def unrouted(self, topic: str, records: int) -> None:
        """Report forecasts that intake did not write, although labels come through it."""
        self._count((topic, "unrouted"), f"forecasts of {topic} that intake did not write", modes.UNROUTED, records)

    def overdue(self, stream: str, events: int) -> None:
        """Count events of a stream whose outcome came after silence had labelled them."""
        kind = stream, "overdue"
        self._count(
            kind,
            f"labels of {stream} that came after silence had answered for them",
            "Until a label comes, its event counts as silence says: if frauds are reported late, served scores are too "
            "low meanwhile. If the label differs, it is corrected now. If such labels keep coming, set matures above "
            f"the ages that 'trueup streams show {stream}' shows",
            self._found.get(kind, (0,))[0] + events,
        )

    def withheld(self, stream: str, partition: int, *, begins: bool) -> None:
        """Say that what a stream has learnt is no longer served on a partition, or is served again."""
        place = f"{stream}, partition {partition}"
        if begins:
            line = (
                f"{place}: raw scores are served from now on, because most forecasts no longer get a label. The note "
                f"on labels of 'trueup streams show {stream}' says what to set"
            )
        else:
            line = f"{place}: what was learnt is served again, because most forecasts get a label"
        log.log(logging.WARNING if begins else logging.INFO, "%s", line)
        self.happened(line)

    def cleaned(self, changelog: str, policy: str) -> None:
        """Say that the changelog's policy loses rows."""
        self._count(
            (changelog, "cleanup_policy"),
            f"minutes in which {changelog} has had cleanup.policy={policy}",
            "It loses rows that are not written again in time: no worker can restore the state from it then. Set it "
            f"to compact: kafka-configs.sh --alter --topic {changelog} --add-config cleanup.policy=compact",
        )

    def _count(self, kind: tuple[str, str], what: str, more: str, records: int = 0) -> int:
        before = self._found.get(kind, (0,))[0]
        count = records or before + 1
        if count != before and (before or len(self._found) < MOST):
            self._found[kind] = count, f"{what}: {count:,}. {more}", time()
            self._changed = True
        return count - before

    def tell(self) -> None:
        """Log the lines that are due, and write the file if it is due."""
        if not self._changed:
            return
        now, left = self._clock(), False
        for kind, (count, line, _) in self._found.items():
            at, told = self._logged.get(kind, (-LOG_SECONDS, 0))
            if count == told:
                continue
            if now - at >= LOG_SECONDS:
                self._logged[kind] = now, count
                log.warning("%s", line)
            else:
                left = True
        due = now - self._written >= FILE_SECONDS
        if due:
            self._written = now
            self._write()
        self._changed = left or not due

    def _write(self) -> None:
        if self._path is None:
            return
        shown = [
            {"topic": topic, "reason": reason, "count": count, "line": line, "at": at}
            for (topic, reason), (count, line, at) in self._found.items()
        ] + self._events
        with suppress(OSError, SettingsError):  # the log has said it; a disk that cannot be written ends no stage
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file.written(self._path) as file:
                file.write(orjson.dumps(shown))


def path(settings: Settings, stage: str) -> Path:
    """Return the file of a stage of `STAGES`."""
    return settings.data_dir / f"notices-{settings.application}-{stage}.json"


def held(settings: Settings) -> list[dict[str, Any]]:
    """Return the contents of an application's files and its last promotions, the newest first.

    Files that cannot be read are left out.
    """
    found = [each for stage in STAGES for each in _read(path(settings, stage))]
    if settings.streams is not None:
        file = settings.streams.resolve()
        with suppress(OSError):
            changes = filter(None, atomic_file.lines(file.with_name(f"{file.name}.audit.jsonl")))
            found += map(_promoted, list(changes)[-EVENTS:])
    return sorted(found, key=lambda notice: -notice["at"])


def _read(path: Path) -> list[dict[str, Any]]:
    """Return what a stage's file holds; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        found: list[dict[str, Any]] = orjson.loads(path.read_bytes())
        return found
    return []


def _promoted(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a streams file's audit file as an event."""
    before, after = (line.get(name, {}).get("calibrator") for name in ("from", "to"))
    what = f"{before} to {after}" if after else "frozen" if line.get("frozen") else "thawed"
    said = (
        f"streams file: {line.get('pattern')}: {what}, by {line.get('who')}; {line.get('reason') or 'no reason given'}"
    )
    at = datetime.fromisoformat(line["at"]).timestamp()
    return {"topic": "", "reason": OPERATION, "count": 1, "line": said, "at": at}
