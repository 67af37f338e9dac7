"""One history through both engines: a worker's, and that of replay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replay.configuration import Configuration
from replay.player import Player
from state import kinds
from state.calibrators import Recalibrator
from state.events import Calibrated, Event
from state.policies import Policies
from tests.state.histories import Table, Worker


def agreeing(plan: Policies, events: Sequence[Event], directory: Path) -> tuple[Worker, Any, Recalibrator]:
    """Play the events of stream s by both engines, which must serve and teach the same.

    Returns the worker, what replay measured, and the calibrator of the stream.
    """
    worker, served = Worker(plan, Table()), []
    for at in range(0, len(events), 100):
        served += [each.p for each in worker.fold(*events[at : at + 100]).outputs if isinstance(each, Calibrated)]
    player = Player([Configuration("present", plan)], directory)
    player.play(list(events))
    made = player.end()
    assert made.column("p0").tolist() == served
    policy = plan.of("s")
    assert policy is not None
    row = worker.table[kinds.CALIBRATOR.key("s", policy.config)]
    assert kinds.CALIBRATOR.encode(player.partition.services.of("s").learner.served) == row
    return worker, made, kinds.CALIBRATOR.decode(row, "s").calibrator
