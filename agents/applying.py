"""Steps 1 and 2 of a batch: decodes and applies its records, a part at a time. It also finds the record that fails."""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from agents.served import ServedPartition
from state.events import Forecast, Rejected
from state.frames import CorruptFrame
from streams.config.settings import Settings
from streams.faust.outputs import OutputBatch, Outputs
from streams.faust.stores import DamagedStoreError
from streams.metrics.gauges import Gauges
from streams.records.limits import SCOPED
from streams.records.merge import Batch, Merged
from streams.records.refused import named
from streams.records.skips import PoisonError

#: Records decoded, applied and encoded at a time. With 500 they stay in a processor's own cache: 4.9 us an event with a
#: histogram, 5.4 with 1,000, 6.8 with 2,000 (python -m tests.bench.parts).
PART = 500
#: After this many records of a turn, other tasks run before the next partition. Without this pause, the partitions of a
#: turn held up the loop for up to 67 ms.
PAUSE = 100

#: Called with the number of the step that was just finished. Tests kill the process here.
Probe = Callable[[int], None]


class Applying:
    """Applies the records of batches.

    ``settings``: name the topics and limit a checkpoint.
    ``scoped``: whether labels come through intake; forecasts then have a scope.
    """

    def __init__(self, settings: Settings, outputs: Outputs, gauges: Gauges, probe: Probe, *, scoped: bool) -> None:
        self._settings, self._outputs, self._gauges, self._probe = settings, outputs, gauges, probe
        self._topics = settings.inputs
        self.scoped, self._unbroken = scoped, 0
        #: Forecasts without a scope, although labels come through intake. Intake did not write them.
        self.unrouted = 0

    async def applied(
        self, batch: Batch, served: ServedPartition, records: Sequence[Merged], output_batch: OutputBatch
    ) -> tuple[int, Any, list[Rejected]]:
        """Decode, apply and encode, a part at a time. Other tasks run in between.

        Returns the number of records applied, their effects, and the dead letters. All records are applied, unless
        their changes are too many for one checkpoint.
        """
        engine, decoder, enough = served.engine, served.terms.decoder, self._settings.enough_bytes
        outputs: list[list[Any]] = []
        decoding = folding = 0.0
        engine.begin()
        at = 0
        while at < len(records) and not (at and batch.again is None and (engine.weight > enough or engine.full)):
            if at or self._unbroken >= PAUSE:
                await asyncio.sleep(0)
                self._unbroken = 0
            began = perf_counter()
            part = records[at : at + max(1, min(PART, enough // engine.event_weight))]
            try:
                events = named(decoder.events(part))  # step 1
                if self.scoped:
                    self.unrouted += sum(type(each) is Forecast and SCOPED not in each.event_id for each in events)
                decoded = perf_counter()
                if not at:
                    self._probe(1)
                outputs.append(engine.apply(events))  # step 2
                output_batch.add(outputs[-1])
            except (CorruptFrame, DamagedStoreError):
                raise  # the state is damaged, so no record is at fault
            except Exception as exc:
                raise (self._poison(served, output_batch.partition, records) or exc) from exc
            at += len(part)
            self._unbroken += len(part)
            decoding += decoded - began
            folding += perf_counter() - decoded
        effects = engine.end()
        self._gauges.stage(1, decoding)
        self.done(2, folding)
        if not effects.rejected:
            return at, effects, []
        return at, effects, [each for made in outputs for each in made if isinstance(each, Rejected)]

    def _poison(self, served: ServedPartition, number: int, records: Sequence[Merged]) -> PoisonError | None:
        """Find by bisection the record with which a batch fails. Everything since the last checkpoint is dropped.

        The records up to and including it fail; those before it do not. None if the batch does not fail again.
        """
        if not self._fails(served, number, records):
            return None
        well, fails = 0, len(records)
        while fails - well > 1:
            middle = (well + fails) // 2
            if self._fails(served, number, records[:middle]):
                fails = middle
            else:
                well = middle
        topic, record = records[well]
        return PoisonError(self._topics[topic], number, record.offset)

    def _fails(self, served: ServedPartition, number: int, records: Sequence[Merged]) -> bool:
        served.engine.reset()
        served.engine.begin()
        output_batch = self._outputs.batch(number, served.terms.settings)
        try:
            output_batch.add(served.engine.apply(named(served.terms.decoder.events(records))))
        except Exception:  # noqa: BLE001 - any error ended the batch
            return True
        return False

    def done(self, step: int, seconds: float) -> None:
        """Note the duration of a finished step, and call the probe."""
        self._gauges.stage(step, seconds)
        self._probe(step)
