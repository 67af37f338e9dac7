"""``trueup streams promote``: champion and challenger change places in the streams file, with an audit line beside it.

Nothing is sent to the workers: they read the file when they start. A challenger already has the state that it needs as
champion. So a worker that starts with the new file serves it at once, and the old champion becomes a challenger.
"""

import asyncio
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
from aiokafka.errors import KafkaError
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from agents.status import tables
from cli import show, show_tables
from state import kinds
from state.frames import CorruptFrame
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring.pair_scores import AnyComparison, of_challenger
from streams import atomic_file
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.metrics import challengers

#: What a condition asks for: so many events under both, and a difference of so many standard errors below 0.
ENOUGH_EVENTS: Final = 5000
SURE_ERRORS: Final = 2.0


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
    dry_run: bool = False,
    json_output: bool = False,
) -> int:
    """Promote a challenger and return 0, or 1 if ``when`` does not hold.

    Raises SettingsError if there is no such challenger or loss, or the file cannot be read, rewritten or replaced; it
    is then as it was.

    ``environment``: that of the workers; its TRUEUP_STREAMS is the file.
    ``stream, calibrator``: whose challenger, by name of the calibrator or by configuration.
    ``when``: the loss by which the challenger must be better: by two standard errors, over 5,000 events. None: none.
    ``json_output``: print the change as one JSON object: the audit line, and the difference.
    """
    named = environment.get("TRUEUP_STREAMS")
    if not named:
        raise SettingsError("promote needs the streams file: --streams FILE, or TRUEUP_STREAMS")
    path = Path(named).resolve()  # of a link the target is replaced, not the link
    try:
        with _locked(path.parent):
            return _promote(
                environment, path, stream, calibrator, reason, when, dry_run=dry_run, json_output=json_output
            )
    except OSError as exc:
        raise SettingsError(f"cannot rewrite {path}: {exc.strerror or exc}") from exc


def _promote(
    environment: Mapping[str, str],
    path: Path,
    stream: str,
    calibrator: str,
    reason: str | None,
    when: str | None,
    *,
    dry_run: bool,
    json_output: bool,
) -> int:
    settings = Settings.from_env({**environment, "TRUEUP_STREAMS": str(path)})
    promotion = find(settings.policies, stream, calibrator)
    figures, missing = ({}, None) if dry_run and when is None else _figures(settings, promotion)
    if when is not None and (unmet := _unmet(when, figures, missing)):
        sys.stderr.write(f"trueup: {promotion.challenger.calibrator} is not promoted: {unmet}\n")
        return 1
    before = path.read_bytes()
    after = rewritten(before.decode(), promotion).encode()
    with _beside(path, after) as new:
        _require_only(promotion, settings.policies, Settings.from_env({**environment, "TRUEUP_STREAMS": str(new)}))
        difference = _diff(path, before.decode(), after.decode())
        if not json_output:
            sys.stdout.write(difference)
        if dry_run:
            if json_output:
                sys.stdout.write(orjson.dumps({"difference": difference}).decode() + "\n")
            return 0
        line = _audit_line(path, promotion, stream, reason)
        line |= {"before": sha256(before).hexdigest(), "after": sha256(after).hexdigest()}
        line |= {"figures": figures} if missing is None else {"figures": None, "figures_missing": missing}
        audit = path.with_name(path.name + ".audit.jsonl")
        # The audit line is written first. If the change then fails, the hash in the line shows that it did not happen.
        atomic_file.append(audit, orjson.dumps(line) + b"\n")
        atomic_file.replace(new, path)
    if json_output:
        sys.stdout.write(orjson.dumps({**line, "difference": difference}).decode() + "\n")
    else:
        _tell(promotion, figures, missing, audit)
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


def _figures(settings: Settings, promotion: Promotion) -> tuple[dict[str, Any], str | None]:
    """Return what the state says of both over all streams of the pattern, or why it cannot be read."""
    names = promotion.champion.calibrator, promotion.challenger.calibrator
    pair = promotion.champion.config, promotion.challenger.config
    compared, matching = list[tuple[tuple[str, str], AnyComparison]](), set[str]()
    try:
        found = asyncio.run(show.read(settings))
        for stream in found.streams:
            matched = settings.policies.matched(stream)
            if matched is None or matched[0] != promotion.pattern:
                continue
            for (_, *configs), comparison in found.of(kinds.COMPARISON, stream).items():
                if tuple(configs) == pair:
                    compared.append((pair, comparison))
                    matching.add(stream)
    except (KafkaError, TopicsError, CorruptFrame, OSError) as exc:
        return {}, str(exc) or type(exc).__name__
    total = challengers.added(compared).get(pair) or of_challenger(promotion.champion.kind)
    return {
        "streams": len(matching),
        **challengers.describe(pair, total, dict(zip(pair, names, strict=True))),
    }, None


def _unmet(loss: str, figures: Mapping[str, Any], missing: str | None) -> str | None:
    """Return why a challenger is not better by a loss; None if it is. Raises SettingsError for an unknown loss."""
    if missing is not None:
        return f"the state cannot be read: {missing}"
    if loss not in figures["difference"]:
        raise SettingsError(f"--when {loss}: the losses of such streams are {', '.join(figures['difference'])}")
    events, found = figures["events"], figures["difference"][loss]
    if events < ENOUGH_EVENTS:
        return f"{events:,} events have resolved under both, {ENOUGH_EVENTS:,} are asked for"
    mean, error = found["mean"], found["error"]
    if mean < -SURE_ERRORS * error:
        return None
    return f"its {loss} loss less the champion's is {mean:.3g} ± {error:.2g}; it has to be two errors below 0"


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), path.name, f"{path.name}, promoted"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _tell(promotion: Promotion, figures: Mapping[str, Any], missing: str | None, audit: Path) -> None:
    console = show_tables.console()
    say = partial(console.print, soft_wrap=True)
    if missing is not None:
        say(f"the state could not be read, the audit line has no figures: {missing}")
    elif figures["events"]:
        show_tables.page_tables(console, [tables.challengers([figures])])
    else:
        say("nothing has resolved under both yet: what serves after the restart has learnt nothing")
    say(f"written down in {audit}")
    say(
        f"restart the workers: until then they serve {promotion.champion.calibrator} ({promotion.champion.config}); "
        f'then streams of "{promotion.pattern}" are served by {promotion.challenger.calibrator} '
        f"({promotion.challenger.config})"
    )
