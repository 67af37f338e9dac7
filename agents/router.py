"""The router. A label names only its event; the router sends it to the streams that forecast this event.

It is a worker with another engine, `state.router` instead of `state.engine`, and other inputs: routes and labels
instead of forecasts and outcomes. Transport, changelog, fences and the order of effects are the same as in a worker.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from agents import __version__
from agents.applying import Probe
from agents.notices import Notices
from agents.notices import path as noticed
from agents.processor import BatchProcessor
from agents.served import Terms
from agents.showing import Showing
from agents.topology import Topology, samples
from agents.worker import Stage
from state.fold import Fold
from state.router import Router
from streams.config.settings import Settings
from streams.faust.application import Application
from streams.faust.in_force import Announcer
from streams.faust.outputs import Outputs
from streams.faust.routed_outputs import RoutedOutputs
from streams.faust.state_table import StateTable
from streams.metrics.gauges import Gauges
from streams.metrics.metric import Sample
from streams.metrics.routing import RouteGauges
from streams.records.routing import RouteDecoder
from streams.sources.wait import Wait


class RouteProcessor(BatchProcessor):
    """Folds batches of routes and labels; see `agents.processor.BatchProcessor`."""

    def __init__(
        self,
        settings: Settings,
        table: StateTable,
        outputs: RoutedOutputs,
        gauges: RouteGauges,
        probe: Probe,
        current: Callable[[Any], bool],
        notices: Notices,
    ) -> None:
        super().__init__(settings, table, cast("Outputs", outputs), cast("Gauges", gauges), probe, current, notices)
        self._reads, self._applying.scoped = {}, False
        self._showing = cast("Showing", gauges)  # routers show no rows

    @property
    def wait(self) -> Wait:
        """A wait that is never used: the records are JSON and need no registry."""
        return Wait()

    def samples(self) -> Iterator[Sample]:
        """Yield nothing: a router answers no forecast."""
        yield from ()

    def _decoder_of(self, settings: Settings) -> RouteDecoder:  # noqa: ARG002 - its records are never foreign
        return RouteDecoder()

    def _open(self, terms: Terms, read: Callable[[bytes], bytes | None]) -> Fold:
        return Router(terms.settings.policies, read)


def build(settings: Settings, *, abort: Callable[..., None], probe: Probe = lambda _: None) -> Topology:
    """Wire a new router. ``settings`` come from `Settings.router`; for the rest see `agents.topology.build`."""
    app = Application(settings)
    gauges = RouteGauges(__version__, lambda: samples(topology), settings.application)
    outputs = RoutedOutputs(settings, lambda: app.producer, lambda: app.table.widths.outcomes, gauges.produced)
    processor = RouteProcessor(
        settings, app.table, outputs, gauges, probe, app.holds, Notices(noticed(settings, "router"))
    )
    announcer = Announcer(settings, lambda: app.producer, app.table.owner)
    topology = Topology(settings, app, app.table, cast("Gauges", gauges), processor, announcer, abort)
    app.serve(topology)
    return topology


#: The stage that `agents.worker.run` runs as a router.
ROUTER: Final = Stage(build)
