"""Who reads each source: the worker itself, or the intake, which writes to the worker's input topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streams.sources.fields import FORECAST, OUTCOME

#: What happens if forecasts do not come by the same way as their labels.
UNROUTED: Final = (
    "Labels that come through intake find no forecast that it did not write; with silence that is learnt as a good "
    "one. Send forecasts to the topic of a source, too: see docs/how-to/decide.md"
)
#: Why a source for intake has no scope of its own, and what to set instead.
SCOPED: Final = (
    "and gives each event its stream as scope, so labels would find no forecast. Name what sets the ids apart in "
    'event_id, such as "{kind}:{id}", in the sources of forecasts and of their outcomes'
)


@dataclass(frozen=True)
class Source:
    """Topics whose records are mapped, as the TOML file says."""

    #: Name in the file.
    name: str
    #: ``forecast`` or ``outcome``.
    role: str
    #: Names of topics.
    topics: tuple[str, ...]
    #: Its table in the file, without name and topics.
    table: Mapping[str, Any] = field(compare=False)


class Mode(NamedTuple):
    """How one topic of a source is read. ``direct``: by the worker; ``why`` is for people."""

    source: Source
    topic: str
    direct: bool
    why: str


def routed(modes: Sequence[Mode], role: str) -> bool:
    """Whether intake reads sources of a role."""
    return any(mode.source.role == role and not mode.direct for mode in modes)


def read_directly(modes: Sequence[Mode], topics: tuple[str, str]) -> dict[int, tuple[str, Source | None]]:
    """Return the inputs that intake does not write, by number: name, and the source that maps it, if any."""
    found: dict[int, tuple[str, Source | None]] = {}
    for topic, role in enumerate((FORECAST, OUTCOME)):
        if not routed(modes, role):
            found[topic] = topics[topic], next((mode.source for mode in modes if mode.source.role == role), None)
    return found


def of(sources: Sequence[Source], forecasts: str, outcomes: str) -> list[Mode]:
    """Return how each topic of each source is read, in the order of the file.

    A worker reads one topic of forecasts and one of outcomes. If a source is one of these topics, the worker reads it.

    Raises ValueError if a topic is read in the other role, if a source for the intake has a scope, or if the worker
    would map what the intake has already mapped.

    ``forecasts`` and ``outcomes``: the worker's input topics.
    """
    inputs = {FORECAST: forecasts, OUTCOME: outcomes}
    variable = {FORECAST: "TRUEUP_FORECASTS", OUTCOME: "TRUEUP_OUTCOMES"}
    found = []
    for source in sources:
        own = inputs[source.role]
        for topic in source.topics:
            if topic == own:
                why = f"it is {variable[source.role]}: the worker maps it, so it must be keyed as trueup's own topics"
            elif topic in inputs.values():
                raise ValueError(
                    f"sources.{source.name}: the worker reads {topic} as the other role's topic, "
                    f"and role is {source.role}"
                )
            elif "scope" in source.table:
                raise ValueError(f"sources.{source.name}: scope: the intake reads {topic}, {SCOPED}")
            else:
                why = f"it is not {variable[source.role]}: the intake maps it and writes to {own}"
            found.append(Mode(source, topic, topic == own, why))
    for role, topic in inputs.items():
        mine = [mode for mode in found if mode.source.role == role]
        direct = [mode for mode in mine if mode.direct]
        other = next((mode for mode in mine if not mode.direct), None)
        if direct and other is not None:
            raise ValueError(
                f"sources.{other.source.name}: the intake would write {other.topic} to {topic}, which the worker maps "
                f"by sources.{direct[0].source.name}: set {variable[role]} to a topic of trueup's own"
            )
    return found
