"""When outcomes come: as they did, at once, or later."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from state.events import Event, Forecast, Outcome
from streams.config import stream_config
from streams.config.settings import SettingsError

AS_IS = "as-is"
NONE = "none"


@dataclass(frozen=True)
class Delay:
    """A change of the outcomes' times."""

    #: ``as-is``, ``none``, or the added time such as ``+2d``.
    name: str = AS_IS
    #: Added to the time of every outcome.
    added_ms: int = 0
    #: Whether every outcome comes right behind its forecast.
    none: bool = False

    @classmethod
    def parse(cls, text: str) -> "Delay":
        """Read ``as-is``, ``none``, or ``+2d``; raises SettingsError on anything else."""
        if text == AS_IS:
            return cls()
        if text == NONE:
            return cls(NONE, none=True)
        try:
            if text.startswith("+"):
                return cls(text, stream_config.duration(text[1:]))
        except ValueError:
            pass
        raise SettingsError(f"--delay {text}: must be as-is, none, or an added time such as +12h or +2d")


#: Outcomes come as they did.
UNCHANGED: Final = Delay()


def at_once(events: Iterable[Event], known: dict[str, Outcome | int]) -> Iterator[Event]:
    """Yield events with every outcome moved right behind its forecast, and given its time.

    An outcome that came before its forecast stays; so do all but the first of an event.

    Parameters
    ----------
    known
        The first outcome of every event, by its id. Changed: an outcome that was moved is replaced by its offset, until
        its own place comes.
    """
    for event in events:
        if isinstance(event, Forecast):
            yield event
            outcome = known.get(event.event_id)
            if isinstance(outcome, Outcome):
                known[event.event_id] = outcome.offset
                yield outcome._replace(ts=event.ts)
        elif isinstance(event, Outcome):
            first = known.get(event.event_id)
            if isinstance(first, Outcome):
                if first.offset == event.offset:
                    del known[event.event_id]
            elif first == event.offset:
                del known[event.event_id]
                continue
            yield event
        else:
            yield event
