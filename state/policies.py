"""The policies of all streams, by patterns of their names."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from state.forecasts import PROBABILITY
from state.policy import DEFAULT_TTL_MS, NOTHING, RAW, Policy, check_on_error

#: The most streams whose policy is remembered. Names come from records, so there may be any number of streams.
REMEMBERED: Final = 100_000


def thin(found: dict[str, Any]) -> list[str]:
    """Drop every eighth name of a full cache, and return the dropped names.

    Emptying it would be worse: if streams take turns, a few more than it holds, each would be gone before its turn.
    """
    dropped = list(islice(found, 0, None, 8))
    for name in dropped:
        del found[name]
    return dropped


class Policies:
    """The policy of every stream, by the first pattern that matches its name.

    ``patterns``: pairs of a shell pattern (``fraud-*``) and its policy, tried in order.
    ``default``: policy of a stream that no pattern matches; None: its records are rejected.
    ``early_ttl_ms``: how long an outcome waits for a forecast that has not come, in stream time, ms.
    ``coin``: secret that keys every draw, see `build`; empty: none.
    ``on_error``: the `Policy.on_error` for forecasts of unknown streams.
    """

    def __init__(
        self,
        patterns: Sequence[tuple[str, Policy]] = (),
        default: Policy | None = None,
        early_ttl_ms: int = DEFAULT_TTL_MS,
        coin: bytes = b"",
        on_error: str = NOTHING,
    ) -> None:
        check_on_error(on_error)
        self.patterns = tuple(patterns)
        self.default = default
        self.early_ttl_ms = early_ttl_ms
        self.coin = coin
        self.on_error = on_error
        #: Every configured policy.
        self.all = [policy for policy in (default, *(policy for _, policy in self.patterns)) if policy]
        #: Whether dead forecasts of any stream are answered with raw scores.
        self.answering = RAW in (on_error, *[policy.on_error for policy in self.all])
        self._found: dict[str, Policy | None] = {}
        #: Whether every stream forecasts one probability, so that outcomes must be 0 or 1.
        self.binary = all(policy.kind == PROBABILITY for policy in self.all)

    def of(self, stream: str) -> Policy | None:
        """Return the policy of a stream; None if no pattern matches and there is no default."""
        try:
            return self._found[stream]
        except KeyError:
            matched = self.matched(stream)
            policy = self.default if matched is None else matched[1]
            if len(self._found) >= REMEMBERED:
                thin(self._found)
            self._found[stream] = policy
            return policy

    @property
    def coin_name(self) -> str:
        """Return a name of the coin that does not reveal it, 8 hex digits; empty without a coin."""
        return blake2b(b"coin", key=self.coin, digest_size=4).hexdigest() if self.coin else ""

    def matched(self, stream: str) -> tuple[str, Policy] | None:
        """Return the first pattern that matches a stream, with its policy; None if the default applies."""
        return next(((pattern, policy) for pattern, policy in self.patterns if fnmatchcase(stream, pattern)), None)

    def answers_raw(self, stream: str) -> bool:
        """Whether a stream's dead forecasts are answered with raw scores; an empty stream could not be read."""
        policy = self.of(stream) if stream else None
        return (self.on_error if policy is None else policy.on_error) == RAW

    def each(self, change: Callable[[Policy], Policy]) -> "Policies":
        """Return a copy in which every policy is changed."""
        patterns = [(pattern, change(policy)) for pattern, policy in self.patterns]
        return self.changed(patterns, self.default and change(self.default))

    def changed(self, patterns: Sequence[tuple[str, Policy]], default: Policy | None) -> "Policies":
        """Return a copy with other patterns and default."""
        return Policies(patterns, default, self.early_ttl_ms, self.coin, self.on_error)
