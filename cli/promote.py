"""``trueup streams promote``, ``rollback``, ``freeze``, ``thaw``: the streams file says who serves, and who learns.

Nothing is sent to the workers: they read the file when they start. A challenger already has all the state that a
champion has. So a worker that starts with the new file serves it at once, and the old champion becomes a challenger. A
frozen map stays as it was.
"""

import argparse
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

import tomlkit
from tomlkit.items import InlineTable

from agents.status import tables
from cli import condition, show_tables
from cli.condition import ChallengerCondition, Condition
from cli.options import DONE, NO, listed
from cli.streams_file import StreamsFile, changing, edited, matched
from state.policies import Policies
from state.policy import Challenger, Policy
from streams import atomic_file
from streams.config.settings import SettingsError

#: The most streams that a sentence names.
_NAMED: Final = 50


@dataclass(frozen=True)
class Promotion:
    """A champion and a challenger that change places."""

    #: The pattern in the streams file.
    pattern: str
    #: Configuration of both before the promotion.
    champion: Policy
    challenger: Policy
    #: Place of the challenger in ``shadow``.
    place: int

    @property
    def promoted(self) -> Policy:
        """The policy of the pattern after the promotion."""
        beside = list(self.champion.shadow)
        beside[self.place] = Challenger(self.champion.calibrator, self.champion.options)
        return replace(self.challenger, shadow=tuple(beside))


def run(options: argparse.Namespace) -> int:
    """Promote a challenger and return 0; or return 1 if the condition of ``--when`` does not hold.

    Raises SettingsError if there is no such challenger or loss, or the file cannot be read, rewritten or replaced. The
    file is then unchanged.
    """
    asked = None if options.when is None else Condition.parse(options.when)
    with changing() as file:
        settings = file.settings()
        promotion = find(settings.policies, options.stream, options.calibrator)
        beside = condition.read(settings, promotion.pattern, promotion.champion, promotion.challenger)
        dry_run = options.dry_run
        if asked is not None:
            if unmet := asked.unmet(beside, file.beside("looks"), datetime.now(UTC), look=not dry_run):
                sys.stderr.write(f"trueup: {promotion.challenger.calibrator} is not promoted: {unmet}\n")
                return NO
            dry_run |= asked.days is not None and not options.apply
        return _swap(options, file, promotion, beside, options.stream, dry_run=dry_run)


def rollback(options: argparse.Namespace) -> int:
    """Undo the last change in the audit file, which must be a promotion, and return 0.

    Raises SettingsError if there is no change, if the last one is not a promotion, or if the streams file has changed
    since then, or cannot be read, rewritten or replaced.
    """
    with changing() as file:
        audit = file.beside("audit")
        last = (atomic_file.lines(audit) or [{}])[-1]
        if not {"from", "to", "after"} <= last.keys():
            raise SettingsError(f"there is nothing to roll back: {audit} does not end with a promotion")
        if sha256(file.text.encode()).hexdigest() != last["after"]:
            raise SettingsError(
                f"{file.path} was changed since the promotion of {last['at']}: promote the old champion, or edit it"
            )
        settings = file.settings()
        promotion = find(settings.policies, last["stream"], last["from"]["config"])
        beside = condition.read(settings, promotion.pattern, promotion.champion, promotion.challenger)
        options.reason = options.reason or f"rollback of {last['at']}"
        return _swap(options, file, promotion, beside, last["stream"], dry_run=options.dry_run)


def freeze(options: argparse.Namespace) -> int:
    """Freeze or thaw the maps of a stream's pattern. Return 0, or 1 if nothing had to change.

    Raises SettingsError if no pattern matches the stream, or the file cannot be read, rewritten or replaced. The file
    is then unchanged.
    """
    frozen = options.frozen
    done = "frozen" if frozen else "thawed"
    with changing() as file:
        pattern, policy = matched(file.settings().policies, options.stream, f'write [streams."{options.stream}"] first')
        if policy.frozen == frozen:
            sys.stderr.write(f'trueup: the maps of streams."{pattern}" are {done} already\n')
            return NO

        def change(tables: Any) -> None:  # noqa: ANN401 - tomlkit's own
            if frozen:
                tables[pattern]["frozen"] = True
            else:
                del tables[pattern]["frozen"]

        after, line = edited(file.text, change), {"stream": options.stream, "frozen": frozen}
        now = replace(policy, frozen=frozen)
        said = file.change(options, after, done, pattern, now, line, dry_run=options.dry_run)
    if not options.json:
        print(said)
        if not options.dry_run:
            then = "stay as they are" if frozen else "learn again; what came meanwhile is never learnt"
            print(f'restart the workers: from then on the maps of streams."{pattern}" {then}')
    return DONE


def _swap(
    options: argparse.Namespace,
    file: StreamsFile,
    promotion: Promotion,
    beside: ChallengerCondition,
    stream: str,
    *,
    dry_run: bool,
) -> int:
    missing = {} if beside.missing is None else {"figures_missing": beside.missing}
    line = {
        "stream": stream,
        "from": _named(promotion.champion),
        "to": _named(promotion.challenger),
        "names": None if missing else list(beside.names),
        "figures": None if missing else beside.figures,
        **missing,
    }
    after = rewritten(file.text, promotion)
    said = file.change(options, after, "promoted", promotion.pattern, promotion.promoted, line, dry_run=dry_run)
    if not options.json:
        print(_changing(promotion, beside))
        if not dry_run:
            _tell(promotion, beside)
        print(said)
    return DONE


def find(policies: Policies, stream: str, calibrator: str) -> Promotion:
    """Find the challenger of a stream, by the name of its calibrator or by its configuration.

    Raises SettingsError if no pattern matches the stream, or if not exactly one challenger fits.
    """
    pattern, champion = matched(policies, stream, "there is nothing to promote")
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
    """Return the text of the streams file with champion and challenger swapped, and all else unchanged.

    Raises SettingsError if the text has a form that this cannot change.
    """
    champion, challenger = promotion.champion, promotion.challenger

    def swap(tables: Any) -> None:  # noqa: ANN401 - tomlkit's own
        table = tables[promotion.pattern]
        entry = table["shadow"][promotion.place]
        _set(table, challenger)
        if isinstance(entry, MutableMapping):
            _set(entry, champion)
        elif champion.options:
            table["shadow"][promotion.place] = _inline({"calibrator": champion.calibrator, "options": champion.options})
        else:
            table["shadow"][promotion.place] = champion.calibrator

    return edited(text, swap)


def _set(table: MutableMapping[str, Any], policy: Policy) -> None:
    """Write a calibrator and its options into a table, in the form that the file uses."""
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
    return tomlkit.value(f"{{ {table.as_string()[1:-1]} }}")  # with the spaces that people write


def _value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


# -- what is said of it ----------------------------------------------------------------------------------------------


def _named(policy: Policy) -> dict[str, Any]:
    return {"calibrator": policy.calibrator, "options": dict(policy.options), "config": policy.config}


def _changing(promotion: Promotion, beside: ChallengerCondition) -> str:
    """Return in words which streams the change affects."""
    if beside.missing is not None:
        return f'streams of "{promotion.pattern}" change; their names cannot be read: {beside.missing}'
    return f"streams that change: {len(beside.names):,}: {listed(beside.names, _NAMED)}"


def _tell(promotion: Promotion, beside: ChallengerCondition) -> None:
    console = show_tables.console()
    say = partial(console.print, soft_wrap=True)
    if beside.missing is not None:
        say("the audit line has no figures")
    elif beside.comparison.n:
        show_tables.page_tables(console, [tables.challengers([beside.figures])])
    else:
        then = "nothing says which is better" if beside.learnt else "what serves after the restart has learnt nothing"
        say(f"nothing has resolved yet with {beside.calibrators[0]} serving and the other beside it: {then}")
    say(
        f'restart the workers: then streams of "{promotion.pattern}" are served by {promotion.challenger.calibrator} '
        f"({promotion.challenger.config}), and {promotion.champion.calibrator} ({promotion.champion.config}) is a "
        "challenger; until then nothing changes"
    )
