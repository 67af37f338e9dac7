"""Champion and challenger in the state, and the condition for promoting the challenger."""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson

from cli import show
from state import kinds
from state.frames import CorruptFrame
from state.policy import Policy
from state.scoring.pair_scores import AnyComparison, of_challenger
from state.scoring.sums import added
from streams import atomic_file
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.metrics import challengers

#: A condition needs this many events that both answered, and a difference this many standard errors below 0.
ENOUGH_EVENTS: Final = 5000
SURE_ERRORS: Final = 2.0
_FORM: Final = re.compile(r"(?P<loss>\w+)(?: better for (?P<days>[1-9]\d{0,3}) days?)?")


class ChallengerCondition(NamedTuple):
    """Scores of champion and challenger, over all streams of their pattern."""

    pattern: str
    #: The streams of the pattern that have state, in order.
    names: tuple[str, ...]
    #: Configurations and calibrators of both.
    pair: challengers.Pair
    calibrators: tuple[str, str]
    #: Scores of the events that both answered, and the number of streams with such events.
    comparison: AnyComparison
    compared: int
    #: Outcomes that the challenger has learnt in streams without a comparison yet.
    learnt: int = 0
    #: Why the state cannot be read; None if it can.
    missing: str | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """Both sides and their difference, as in the JSON."""
        named = dict(zip(self.pair, self.calibrators, strict=True))
        return {"streams": self.compared, **challengers.describe(self.pair, self.comparison, named)}


def read(settings: Settings, pattern: str, champion: Policy, challenger: Policy) -> ChallengerCondition:
    """Read the state of a pattern's streams. If it cannot be read, the result says why."""
    pair = champion.config, challenger.config
    names, found = set[str](), dict[str, list[tuple[challengers.Pair, AnyComparison]]]()
    learnt, missing = 0, None
    try:
        rows = asyncio.run(show.read(settings))
        matched = settings.policies.matched
        names = {stream for stream in rows.streams if (of := matched(stream)) is not None and of[0] == pattern}
        for stream in names:
            held = rows.of(kinds.COMPARISON, stream).items()
            if compared := [(pair, each) for (_, *configs), each in held if tuple(configs) == pair]:
                found[stream] = compared
        for stream in () if found else names:
            served = rows.of(kinds.CALIBRATOR, stream).items()
            learnt += sum(each.calibrator.learnt for (_, config), each in served if config == challenger.config)
    except (TopicsError, CorruptFrame) as exc:
        missing = str(exc)
    total = added(each for compared in found.values() for each in compared).get(pair)
    calibrators = champion.calibrator, challenger.calibrator
    comparison = of_challenger(champion.kind) if total is None else total
    return ChallengerCondition(
        pattern, tuple(sorted(names)), pair, calibrators, comparison, len(found), learnt, missing
    )


@dataclass(frozen=True)
class Condition:
    """The challenger's loss is lower by `SURE_ERRORS` over `ENOUGH_EVENTS`, since it runs or in the last days."""

    loss: str
    #: Only events resolved in this many last days count; None: all.
    days: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``LOSS`` or ``LOSS better for N days``; raises SettingsError if it is neither."""
        if (found := _FORM.fullmatch(text.strip())) is None:
            raise SettingsError(f"--when {text!r}: write LOSS, or 'LOSS better for N days'")
        return cls(found["loss"], None if found["days"] is None else int(found["days"]))

    def unmet(self, beside: ChallengerCondition, looks: Path, now: datetime, *, look: bool) -> str | None:
        """Return why the condition does not hold; None if it does.

        The state has no sums by day. So a condition over days writes the sums into ``looks``, once a day. The sums of a
        time span are today's minus those of an earlier look.

        Raises SettingsError if the streams' kind of forecast does not have this loss. Raises OSError if ``looks``
        cannot be read or written.

        ``look``: whether today's sums are written into ``looks``.
        """
        if beside.missing is not None:
            return f"the state cannot be read: {beside.missing}"
        if self.loss not in (known := beside.figures["difference"]):
            if not known:
                return "no event has resolved under both"
            raise SettingsError(f"--when {self.loss}: this kind of stream has the losses {', '.join(known)}")
        if self.days is None:
            return self._worse(beside.comparison, "")
        before = _looks(looks, beside)
        if look and all(at.date() != now.date() for at, _ in before):
            atomic_file.append(looks, orjson.dumps(_look(beside, now)) + b"\n")
        old = [each for each in before if each[0].date() <= (now - timedelta(days=self.days)).date()]
        if not old:
            first = min((at for at, _ in before), default=now)
            over = (first + timedelta(days=self.days)).date()
            return f"the first look is of {first.date()}: {self.days} days are over on {over}; run it daily until then"
        at, then = old[-1]
        left: Any = beside.comparison
        return self._worse(left - then, f" since {at.date()}")

    def _worse(self, comparison: AnyComparison, since: str) -> str | None:
        if comparison.n < ENOUGH_EVENTS:
            return f"{comparison.n:,} events have resolved under both{since}, {ENOUGH_EVENTS:,} are asked for"
        compared: Any = comparison
        mean, error = compared.difference(self.loss)
        if mean < -SURE_ERRORS * error:
            return None
        said = f"its {self.loss} loss minus the champion's is {mean:.3g} ± {error:.2g}{since}"
        return f"{said}; it has to be two errors below 0"


def _look(beside: ChallengerCondition, now: datetime) -> Mapping[str, Any]:
    sums = base64.b64encode(kinds.COMPARISON.encode(beside.comparison)).decode()
    return {"at": now.isoformat(timespec="seconds"), "of": [beside.pattern, *beside.pair], "sums": sums}


def _looks(path: Path, beside: ChallengerCondition) -> list[tuple[datetime, AnyComparison]]:
    """Return the earlier looks at a pair, the oldest first, from where its comparison last began anew."""
    found = list[tuple[datetime, AnyComparison]]()
    for said in atomic_file.lines(path):
        if said.get("of") == [beside.pattern, *beside.pair]:
            try:
                sums = kinds.COMPARISON.decode(base64.b64decode(said["sums"]))
                found.append((datetime.fromisoformat(said["at"]), sums))
            except CorruptFrame:  # written by a different build
                found.clear()
    most = beside.comparison.n
    for n in reversed(range(len(found))):
        if found[n][1].n > most:
            return found[n + 1 :]
        most = found[n][1].n
    return found
