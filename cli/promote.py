"""``trueup streams promote``: champion and challenger change places in the streams file, comments and all.

Nothing is sent to the workers: they read the file when they start. A challenger already has the state that it needs as
champion. So a worker that starts with the new file serves it at once, and the old champion becomes a challenger.
"""

import argparse
import difflib
import os
import stat
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from cli.options import DONE
from state.policies import Policies
from state.policy import Challenger, Policy
from streams import atomic_file
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError


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


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Show the change of the file, make it, and return the status.

    Raises SettingsError if there is no such challenger, or the file cannot be read, rewritten or replaced; it is then
    as it was.
    """
    if settings.streams is None:
        raise SettingsError("promote needs the streams file: --streams FILE, or TRUEUP_STREAMS")
    path = settings.streams.resolve()  # of a link the target is replaced, not the link
    promotion = find(settings.policies, options.stream, options.calibrator)
    try:
        before = path.read_bytes()
        after = rewritten(before.decode(), promotion)
        _require_only(promotion, settings, after)
        if not options.dry_run:
            _replace(path, after.encode())
    except OSError as exc:
        raise SettingsError(f"cannot rewrite {path}: {exc.strerror or exc}") from exc
    texts = before.decode().splitlines(), after.splitlines()
    print("\n".join(difflib.unified_diff(*texts, path.name, f"{path.name}, promoted", lineterm="")))
    if not options.dry_run:
        champion, challenger = (f"{of.calibrator} ({of.config})" for of in (promotion.champion, promotion.challenger))
        print(
            f"restart the workers: until then they serve {champion}; then streams of {promotion.pattern!r} are served "
            f"by {challenger}"
        )
    return DONE


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


def _require_only(promotion: Promotion, settings: Settings, after: str) -> None:
    """Raise SettingsError unless the new text means the swap, and nothing else."""
    before = settings.policies
    expected = [
        (pattern, promotion.promoted if pattern == promotion.pattern else policy) for pattern, policy in before.patterns
    ]
    now = stream_config.parse(after, settings.default_calibrator, before.coin)
    if (list(now.patterns), now.default, now.early_ttl_ms) != (expected, before.default, before.early_ttl_ms):
        raise SettingsError("the streams file cannot be rewritten so that nothing else changes: change it by hand")


def _replace(path: Path, content: bytes) -> None:
    """Replace the file by one with the same mode and owner."""
    known = path.stat()
    with atomic_file.written(path) as file:
        file.write(content)
        os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
        with suppress(PermissionError):  # only root may change the owner of a file
            os.fchown(file.fileno(), known.st_uid, known.st_gid)
