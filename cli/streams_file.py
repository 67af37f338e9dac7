"""Changes of the streams file by a command: one at a time, all or nothing, with an audit line beside the file."""

import argparse
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

from cli.options import print_json, user
from state.policies import Policies
from state.policy import Policy
from streams import atomic_file
from streams.config.settings import Settings, SettingsError


@dataclass(frozen=True)
class StreamsFile:
    """The workers' streams file, while nobody else changes it."""

    path: Path

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.path.read_bytes().decode()

    def beside(self, what: str) -> Path:
        """Return the path of a file beside it: ``audit`` has its changes, ``looks`` has the sums of `cli.condition`."""
        return self.path.with_name(f"{self.path.name}.{what}.jsonl")

    def settings(self, path: Path | None = None) -> Settings:
        """Return the settings of the workers, with this streams file or with a different one."""
        return Settings.from_env({**os.environ, "TRUEUP_STREAMS": str(path or self.path)})

    def change(
        self,
        options: argparse.Namespace,
        after: str,
        done: str,
        pattern: str,
        policy: Policy,
        line: Mapping[str, Any],
        *,
        dry_run: bool,
    ) -> str:
        """Replace the text, append an audit line, and print the difference (in JSON also the line).

        Returns a sentence about the change. Raises SettingsError, and leaves the file unchanged, unless the new text
        differs only in the policy of the pattern.

        ``options``: ``reason`` goes into the audit line; ``json``: print JSON.
        ``done``: what was done, in a word.
        ``line``: more fields for the audit line, beside time, user, reason, pattern and the hashes of both texts.
        ``dry_run``: only print.
        """
        before = self.text
        made = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "who": user(),
            "file": self.path.name,
            "pattern": pattern,
            "reason": options.reason,
            **line,
            "before": sha256(before.encode()).hexdigest(),
            "after": sha256(after.encode()).hexdigest(),
        }
        with _beside(self.path, after.encode()) as new:
            _require_only(pattern, policy, self.settings().policies, self.settings(new).policies)
            if not dry_run:
                # The audit line is written first. If the change then fails, its hash shows that it did not happen.
                atomic_file.append(self.beside("audit"), orjson.dumps(made) + b"\n")
                atomic_file.replace(new, self.path)
        old, now = before.splitlines(keepends=True), after.splitlines(keepends=True)
        lines = difflib.unified_diff(old, now, self.path.name, f"{self.path.name}, {done}")
        difference = "".join(each if each.endswith("\n") else each + "\n" for each in lines)
        if options.json:
            print_json(made | {"difference": difference, "dry_run": dry_run})
        else:
            print(difference, end="")
        return "nothing was changed" if dry_run else f"written down in {self.beside('audit')}"


@contextmanager
def changing() -> Iterator[StreamsFile]:
    """Yield the workers' streams file, locked. Raises SettingsError if there is none, or it cannot be changed."""
    named = os.environ.get("TRUEUP_STREAMS")
    if not named:
        raise SettingsError("there is no streams file to change: --streams FILE, or TRUEUP_STREAMS")
    path = Path(named).resolve()  # if the file is a link, its target is replaced
    try:
        with _locked(path.parent):
            yield StreamsFile(path)
    except OSError as exc:
        raise SettingsError(f"cannot rewrite {path}: {exc.strerror or exc}") from exc


def matched(policies: Policies, stream: str, instead: str) -> tuple[str, Policy]:
    """Return the pattern and the policy of a stream. Raises SettingsError, with a remedy, if no pattern matches."""
    if (found := policies.matched(stream)) is None:
        raise SettingsError(f"no pattern of the streams file matches {stream!r}: {instead}")
    return found


def edited(text: str, change: Callable[[Any], None]) -> str:
    """Return a text after a change of its tables, with all else as it was.

    Raises SettingsError if the text has a form that this cannot change.
    """
    try:
        document: Any = tomlkit.parse(text)
        change(document["streams"])
        return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError) as exc:
        raise SettingsError(f"the streams file cannot be rewritten, change it by hand: {exc}") from exc


def _require_only(pattern: str, policy: Policy, before: Policies, now: Policies) -> None:
    """Raise SettingsError unless the new file differs from the old one in only one policy."""
    expected = [(name, policy if name == pattern else each) for name, each in before.patterns]
    if (list(now.patterns), now.default, now.early_ttl_ms) != (expected, before.default, before.early_ttl_ms):
        raise SettingsError("the streams file cannot be rewritten so that nothing else changes: change it by hand")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory of the file, so that changes are made one after another."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """Write a temporary file beside another file, with that file's mode and owner.

    It is removed unless it has replaced the other file.
    """
    with atomic_file.beside(path) as (new, file):
        file.write(content)
        file.flush()
        known = path.stat()
        os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
        with suppress(PermissionError):  # only root may change the owner of a file
            os.fchown(file.fileno(), known.st_uid, known.st_gid)
        os.fsync(file.fileno())
        yield new
