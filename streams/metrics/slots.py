"""The streams that have their own metric series: the configured ones, and the most active of the others.

Names of streams come from records, so a producer can make up any number of them. Series cost memory in the worker and
in Prometheus, so their number is bounded. A made-up name must not displace a stream that matters.
"""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final

from state.policies import Policies

#: Shortest time between changes of slots, s. A stream that gains or loses its series leaves a gap in every diagram.
REVIEW_SECONDS: Final = 60.0
#: The most hidden streams that are counted by name.
MOST_HIDDEN: Final = 10_000
#: Characters that make a configured name a pattern.
_PATTERN: Final = frozenset("*?[")


class Slots:
    """Shares a bounded number of slots among streams.

    ``most``: number of slots. A stream in ``named`` always has one, even if there are more such streams than slots.
    ``named``: streams that the configuration names.

    Notes
    -----
    The other slots go to the streams that come first. Once a stream finds no free slot, events are counted by stream.
    Every `REVIEW_SECONDS` the most active hidden stream takes the slot of the least active shown stream, if it had more
    than twice as many events; then the next of each, and so on. At most `MOST_HIDDEN` names are counted. When another
    name comes, all counts are halved and names with a count of 0 are forgotten. So an active stream is kept, however
    many names come once.
    """

    def __init__(self, most: int, named: Iterable[str] = (), clock: Callable[[], float] = monotonic) -> None:
        self._named = frozenset(named)
        self._free = max(most - len(self._named), 0)
        self._clock = clock
        self._next = 0.0
        #: Shown streams that the configuration does not name, with their events since the last review.
        self._shown: dict[str, int] = {}
        self._hidden: dict[str, int] = {}

    def take(self, stream: str) -> bool:
        """Return whether a stream has a slot. A new stream takes a free slot, or is hidden if there is none."""
        if stream in self._named or stream in self._shown:
            return True
        if len(self._shown) < self._free:
            self._shown[stream] = 0
            return True
        if stream not in self._hidden:
            while len(self._hidden) >= MOST_HIDDEN:
                self._hidden = {name: n // 2 for name, n in self._hidden.items() if n > 1}
            if not self._hidden:
                self._next = self._clock() + REVIEW_SECONDS
            self._hidden[stream] = 0
        return False

    def hides(self, stream: str) -> bool:
        """Return whether `take` would return False; it changes nothing."""
        return len(self._shown) >= self._free and stream not in self._shown and stream not in self._named

    def active(self, events: Mapping[str, int]) -> list[tuple[str, str]]:
        """Count events by stream. Return the slots that change hands now: who loses them, and who gains them."""
        if not self._hidden:
            return []
        for stream, n in events.items():
            counted = self._shown if stream in self._shown else self._hidden
            if stream in counted:
                counted[stream] += n
        if self._clock() < self._next:
            return []
        return self._review()

    def _review(self) -> list[tuple[str, str]]:
        changed = []
        least = sorted(self._shown, key=self._shown.__getitem__)
        most = sorted(self._hidden, key=self._hidden.__getitem__, reverse=True)
        for loses, gains in zip(least, most, strict=False):
            if self._hidden[gains] <= 2 * self._shown[loses]:
                break
            self._hidden[loses], self._shown[gains] = self._shown.pop(loses), self._hidden.pop(gains)
            changed.append((loses, gains))
        self._shown = dict.fromkeys(self._shown, 0)
        self._hidden = dict.fromkeys(self._hidden, 0)
        self._next = self._clock() + REVIEW_SECONDS
        return changed

    @property
    def shown(self) -> list[str]:
        """The streams with a slot, including named streams that never came."""
        return [*self._named, *self._shown]

    @property
    def hidden_streams(self) -> frozenset[str]:
        """The streams that came and have no slot, at most `MOST_HIDDEN`."""
        return frozenset(self._hidden.copy())


def named(policies: Policies) -> list[str]:
    """Return the streams that a configuration names without a pattern."""
    return [pattern for pattern, _ in policies.patterns if not _PATTERN & set(pattern)]
