"""Which forecasts quotas refuse, told before they are folded: a refused forecast has no answer to find its place by."""

from collections.abc import Callable

from state import keys, ledger
from state.events import Forecast
from state.fence import FORECASTS
from state.policy import Policies
from state.quotas import Quotas


class Refusing:
    """The quotas of one partition's forecasts, ahead of the fold.

    What becomes of a forecast depends on the forecasts before it, in the order of their offsets, and on whether its
    event was answered; on nothing that the fold would have to tell first.

    Parameters
    ----------
    get
        Reads a row of the derived state.
    """

    def __init__(self, get: Callable[[bytes], bytes | None]) -> None:
        self._get = get
        self._policies: Policies | None = None
        self._quotas: Quotas | None = None
        #: What earlier quotas left.
        self._rows: dict[bytes, bytes | None] = {}
        #: Events whose answer was read, and which are not folded yet.
        self._answered: set[str] = set()

    def refuses(self, forecast: Forecast, policies: Policies) -> bool:
        """Take the next forecast under what was in force, and return whether it was refused."""
        if policies is not self._policies:
            if self._quotas is not None:
                self._rows |= self._quotas.changes()
            self._policies, self._quotas = policies, Quotas(policies.quota_of, self._row) if policies.limited else None
        if self._quotas is None:
            return False
        new = not self._known(forecast.event_id)
        return bool(self._quotas.refused(FORECASTS, forecast.stream, forecast.ts, new))

    def answered(self, event_id: str) -> None:
        """Note an answer that was read; quotas may begin before it is folded."""
        self._answered.add(event_id)

    def folded(self) -> None:
        """Note that all whose answers were read have been folded."""
        self._answered.clear()

    def _known(self, event_id: str) -> bool:
        if event_id in self._answered:
            return True
        row = self._get(keys.ledger(event_id))
        return row is not None and ledger.unsealed(row)[0] != ledger.EARLY

    def _row(self, key: bytes) -> bytes | None:
        return self._rows[key] if key in self._rows else self._get(key)
