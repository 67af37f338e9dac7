"""``trueup streams promote``: champion and challenger change places in the streams file, with an audit line beside it.

Nothing is sent to the workers: they read the file when they start. A challenger already has the state that it needs as
champion. So a worker that starts with the new file serves it at once, and the old champion becomes a challenger.
"""

import difflib
import fcntl
import os
import pwd
import stat
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from agents.status import tables
from cli import condition, show_tables
from cli.condition import Beside, Condition
from state.policies import Policies
from state.policy import Challenger, Policy
from streams import atomic_file
from streams.config.settings import Settings, SettingsError

#: Most streams that are named in words.
_NAMED: Final = 50


@dataclass(frozen=True)
class Promotion:
    """The champion and the challenger that change places."""

    #: Of the streams file.
    pattern: str
    #: As they are configured before.
    champion: Policy
    challenger: Policy
    #: Of the challenger in ``shadow``.
    place: int

    @property
    def promoted(self) -> Policy:
        """The policy of the pattern after the promotion."""
        beside = list(self.champion.shadow)
        beside[self.place] = Challenger(self.champion.calibrator, self.champion.options)
        return replace(self.challenger, shadow=tuple(beside))


def run(
    environment: Mapping[str, str],
    stream: str,
    calibrator: str,
    *,
    reason: str | None = None,
    when: str | None = None,
    apply: bool = False,
    dry_run: bool = False,
    json_output: bool = False,
) -> int:
    """Promote a challenger and return 0, or 1 if ``when`` does not hold.

    Raises SettingsError if there is no such challenger or loss, or the file cannot be read, rewritten or replaced; it
    is then as it was.

    Parameters
    ----------
    environment
        That of the workers; its TRUEUP_STREAMS is the file.
    stream, calibrator
        Whose challenger, by name of the calibrator or by configuration.
    when
        The condition, see `cli.condition`. None: none.
    apply
        Whether the file is also changed where the condition is one of days.
    json_output
        Print the change as one JSON object: the audit line, and the difference.
    """
    asked = None if when is None else Condition.parse(when)
    with _file(environment) as path:
        settings = _settings(environment, path)
        promotion = find(settings.policies, stream, calibrator)
        beside = condition.read(settings, promotion.pattern, promotion.champion, promotion.challenger)
        if asked is not None:
            looks = path.with_name(path.name + ".looks.jsonl")
            if unmet := asked.unmet(beside, looks, datetime.now(UTC), look=not dry_run):
                sys.stderr.write(f"trueup: {promotion.challenger.calibrator} is not promoted: {unmet}\n")
                return 1
            dry_run |= asked.days is not None and not apply
        return _swap(environment, path, promotion, beside, stream, reason, dry_run=dry_run, json_output=json_output)


def rollback(
    environment: Mapping[str, str], *, reason: str | None = None, dry_run: bool = False, json_output: bool = False
) -> int:
    """Undo the last change of the streams file that the audit file has, a promotion, and return 0.

    Raises SettingsError if there is none, or the file has changed since, or cannot be read, rewritten or replaced.
    """
    with _file(environment) as path:
        audit = _audit(path)
        lines = audit.read_bytes().splitlines() if audit.exists() else []
        last = orjson.loads(lines[-1]) if lines else {}
        if not {"from", "to", "after"} <= last.keys():
            raise SettingsError(f"there is nothing to roll back: {audit} does not end with a promotion")
        if sha256(path.read_bytes()).hexdigest() != last["after"]:
            raise SettingsError(
                f"{path} was changed since the promotion of {last['at']}: promote the old champion, or edit it"
            )
        settings = _settings(environment, path)
        promotion = find(settings.policies, last["stream"], last["from"]["config"])
        beside = condition.read(settings, promotion.pattern, promotion.champion, promotion.challenger)
        reason = f"rollback of {last['at']}" if reason is None else reason
        return _swap(
            environment, path, promotion, beside, last["stream"], reason, dry_run=dry_run, json_output=json_output
        )


@contextmanager
def _file(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the streams file while nobody else changes it."""
    named = environment.get("TRUEUP_STREAMS")
    if not named:
        raise SettingsError("there is no streams file to change: --streams FILE, or TRUEUP_STREAMS")
    path = Path(named).resolve()  # of a link the target is replaced, not the link
    try:
        with _locked(path.parent):
            yield path
    except OSError as exc:
        raise SettingsError(f"cannot rewrite {path}: {exc.strerror or exc}") from exc


def _settings(environment: Mapping[str, str], path: Path) -> Settings:
    return Settings.from_env({**environment, "TRUEUP_STREAMS": str(path)})


def _audit(path: Path) -> Path:
    return path.with_name(path.name + ".audit.jsonl")


def _swap(
    environment: Mapping[str, str],
    path: Path,
    promotion: Promotion,
    beside: Beside,
    stream: str,
    reason: str | None,
    *,
    dry_run: bool,
    json_output: bool,
) -> int:
    before = path.read_bytes()
    after = rewritten(before.decode(), promotion).encode()
    with _beside(path, after) as new:
        _require_only(promotion, _settings(environment, path).policies, _settings(environment, new))
        shown = {"difference": _diff(path, before.decode(), after.decode())}
        line: dict[str, Any] = {"names": None if beside.missing else list(beside.names)}
        if not json_output:
            sys.stdout.write(shown["difference"])
            print(_changing(promotion, beside))
        if not dry_run:
            line = _audit_line(path, promotion, stream, reason) | line
            line |= {"before": sha256(before).hexdigest(), "after": sha256(after).hexdigest()}
            missing = {"figures": None, "figures_missing": beside.missing}
            line |= {"figures": beside.figures} if beside.missing is None else missing
            # The audit line is written first. If the change then fails, its hash shows that it did not happen.
            atomic_file.append(_audit(path), orjson.dumps(line) + b"\n")
            atomic_file.replace(new, path)
    if json_output:
        sys.stdout.write(orjson.dumps(line | shown).decode() + "\n")
    elif dry_run:
        print("nothing was changed")
    else:
        _tell(promotion, beside, _audit(path))
    return 0


def find(policies: Policies, stream: str, calibrator: str) -> Promotion:
    """Find the challenger of a stream by the name of its calibrator or by its configuration.

    Raises SettingsError if no pattern matches the stream, or not exactly one challenger is meant.
    """
    matched = policies.matched(stream)
    if matched is None:
        raise SettingsError(f"no pattern of the streams file matches {stream!r}: there is nothing to promote")
    pattern, champion = matched
    meant = [i for i, each in enumerate(champion.challengers) if calibrator in {each.calibrator, each.config}]
    if len(meant) == 1:
        return Promotion(pattern, champion, champion.challengers[meant[0]], meant[0])
    there = ", ".join(f"{each.calibrator} ({each.config})" for each in champion.challengers) or "none"
    if meant:
        raise SettingsError(
            f'streams."{pattern}" has several challengers called {calibrator}: name the configuration of one; '
            f"there are: {there}"
        )
    raise SettingsError(f'{calibrator!r} is not a challenger of streams."{pattern}"; there are: {there}')


# -- the file --------------------------------------------------------------------------------------------------------


def rewritten(text: str, promotion: Promotion) -> str:
    """Return the text of the streams file with champion and challenger swapped, and everything else unchanged.

    Raises SettingsError if the text is written in a way this cannot change.
    """
    champion, challenger = promotion.champion, promotion.challenger
    try:
        document: Any = tomlkit.parse(text)
        table = document["streams"][promotion.pattern]
        entry = table["shadow"][promotion.place]
        _set(table, challenger)
        if isinstance(entry, MutableMapping):
            _set(entry, champion)
        elif champion.options:
            table["shadow"][promotion.place] = _inline({"calibrator": champion.calibrator, "options": champion.options})
        else:
            table["shadow"][promotion.place] = champion.calibrator
        return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError) as exc:
        raise SettingsError(f"the streams file cannot be rewritten, change it by hand: {exc}") from exc


def _set(table: MutableMapping[str, Any], policy: Policy) -> None:
    """Write a calibrator and its options into a table; keep the form that the file uses."""
    table["calibrator"] = policy.calibrator
    options = table.get("options")
    if not policy.options:
        table.pop("options", None)
    elif options is None or isinstance(options, InlineTable):
        table["options"] = _inline(policy.options)
    else:
        for name in [name for name in options if name not in policy.options]:
            del options[name]
        for name, value in policy.options.items():
            options[name] = _value(value)


def _inline(values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - tomlkit's own
    table = tomlkit.inline_table()
    for name, value in values.items():
        table[name] = _inline(value) if isinstance(value, Mapping) else _value(value)
    return tomlkit.value(f"{{ {table.as_string()[1:-1]} }}")  # spaced as people write it


def _value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _require_only(promotion: Promotion, before: Policies, after: Settings) -> None:
    """Raise unless the new file differs from the old one by the swap alone."""
    expected = [
        (pattern, promotion.promoted if pattern == promotion.pattern else policy) for pattern, policy in before.patterns
    ]
    now = after.policies
    if (list(now.patterns), now.default, now.early_ttl_ms) != (expected, before.default, before.early_ttl_ms):
        raise SettingsError("the streams file cannot be rewritten so that nothing else changes: change it by hand")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory of the file, so that two promotions run one after the other."""
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


# -- what is said of it ----------------------------------------------------------------------------------------------


def _audit_line(path: Path, promotion: Promotion, stream: str, reason: str | None) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "who": os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name,
        "reason": reason,
        "file": path.name,
        "pattern": promotion.pattern,
        "stream": stream,
        "from": _named(promotion.champion),
        "to": _named(promotion.challenger),
    }


def _named(policy: Policy) -> dict[str, Any]:
    return {"calibrator": policy.calibrator, "options": dict(policy.options), "config": policy.config}


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), path.name, f"{path.name}, promoted"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _changing(promotion: Promotion, beside: Beside) -> str:
    """Return which streams are served otherwise."""
    if beside.missing is not None:
        return f'streams of "{promotion.pattern}" change; their names cannot be read: {beside.missing}'
    named = ", ".join(beside.names[:_NAMED]) + (", …" if len(beside.names) > _NAMED else "")
    return f"streams that change: {len(beside.names):,}{': ' if named else ''}{named}"


def _tell(promotion: Promotion, beside: Beside, audit: Path) -> None:
    console = show_tables.console()
    say = partial(console.print, soft_wrap=True)
    if beside.missing is not None:
        say("the audit line has no figures")
    elif beside.comparison.n:
        show_tables.page_tables(console, [tables.challengers([beside.figures])])
    else:
        say("nothing has resolved under both yet: what serves after the restart has learnt nothing")
    say(f"written down in {audit}")
    say(
        f"restart the workers: until then they serve {promotion.champion.calibrator} ({promotion.champion.config}); "
        f'then streams of "{promotion.pattern}" are served by {promotion.challenger.calibrator} '
        f"({promotion.challenger.config})"
    )
