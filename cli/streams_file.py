"""Changes of the streams file by a command: one at a time, whole or not at all, with an audit line beside the file."""

import difflib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import tomlkit
from tomlkit.exceptions import TOMLKitError

from cli.options import user
from state.policies import Policies
from state.policy import Policy
from streams import atomic_file
from streams.config.settings import Settings, SettingsError


@dataclass(frozen=True)
class StreamsFile:
    """The streams file while nobody else changes it."""

    path: Path
    #: That of the workers.
    environment: Mapping[str, str]

    @property
    def audit(self) -> Path:
        """The file of audit lines beside it."""
        return self.path.with_name(self.path.name + ".audit.jsonl")

    def settings(self, path: Path | None = None) -> Settings:
        """Return the settings of the workers, by this file or by another in its place."""
        return Settings.from_env({**self.environment, "TRUEUP_STREAMS": str(path or self.path)})

    def difference(self, after: str, done: str) -> str:
        """Return the difference to a new text; ``done`` says in a word what was done."""
        before = self.path.read_bytes().decode()
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            self.path.name,
            f"{self.path.name}, {done}",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)

    def change(
        self, after: str, pattern: str, policy: Policy, line: Mapping[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        """Replace the text, and return the audit line that was written; an empty one for a dry run.

        Raises SettingsError unless the new file differs only by the policy of a pattern; it is then as it was.

        ``line``: what the audit line says beside the time, who did it, the pattern and hashes of both texts.
        """
        before = self.path.read_bytes()
        with _beside(self.path, after.encode()) as new:
            _require_only(pattern, policy, self.settings().policies, self.settings(new).policies)
            if dry_run:
                return {}
            made = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "who": user(),
                "file": self.path.name,
                "pattern": pattern,
                **line,
                "before": sha256(before).hexdigest(),
                "after": sha256(after.encode()).hexdigest(),
            }
            # The audit line is written first. If the change then fails, its hash shows that it did not happen.
            atomic_file.append(self.audit, orjson.dumps(made) + b"\n")
            atomic_file.replace(new, self.path)
        return made


@contextmanager
def changing(environment: Mapping[str, str]) -> Iterator[StreamsFile]:
    """Yield the streams file of the workers, locked; raises SettingsError if there is none, or it cannot be changed."""
    named = environment.get("TRUEUP_STREAMS")
    if not named:
        raise SettingsError("there is no streams file to change: --streams FILE, or TRUEUP_STREAMS")
    path = Path(named).resolve()  # of a link the target is replaced, not the link
    try:
        with _locked(path.parent):
            yield StreamsFile(path, environment)
    except OSError as exc:
        raise SettingsError(f"cannot rewrite {path}: {exc.strerror or exc}") from exc


def edited(text: str, change: Callable[[Any], None]) -> str:
    """Return a text after a change of its tables, with everything else as it was.

    Raises SettingsError if the text is written in a way this cannot change.
    """
    try:
        document: Any = tomlkit.parse(text)
        change(document["streams"])
        return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError) as exc:
        raise SettingsError(f"the streams file cannot be rewritten, change it by hand: {exc}") from exc


def _require_only(pattern: str, policy: Policy, before: Policies, now: Policies) -> None:
    """Raise unless the new file differs from the old one by one policy alone."""
    expected = [(name, policy if name == pattern else each) for name, each in before.patterns]
    if (list(now.patterns), now.default, now.early_ttl_ms) != (expected, before.default, before.early_ttl_ms):
        raise SettingsError("the streams file cannot be rewritten so that nothing else changes: change it by hand")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory of the file, so that two changes are made one after the other."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """Write a temporary file beside another, with its mode and owner; remove it unless it replaced the other."""
    with atomic_file.beside(path) as (new, file):
        file.write(content)
        file.flush()
        known = path.stat()
        os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
        with suppress(PermissionError):  # only root may change the owner of a file
            os.fchown(file.fileno(), known.st_uid, known.st_gid)
        os.fsync(file.fileno())
        yield new
