"""A judge that cannot fail is worth nothing: what it must notice, done to what a real worker left."""

import asyncio
from pathlib import Path

from state import kinds
from tests.chaos.judge import judge
from tests.e2e.world import World, produced
from tests.events import Sent, mixed


def test_what_a_worker_left_is_good_and_a_forged_answer_and_row_are_not(kafka: str, tmp_path: Path) -> None:
    world = World(kafka, tmp_path, partitions=1)
    made = mixed(200)
    world.send(made.sent)
    with world.worker() as worker:
        world.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    found = judge(world)
    assert (found.findings, found.records, found.copies) == ([], len(made.sent), 0)

    answer = world.read("calibrated")[7]
    forged = (answer.value or b"").replace(b'"version":', b'"version":1')
    asyncio.run(
        produced(
            world.bootstrap,
            [
                Sent(world.settings.calibrated, answer.key or b"", forged, answer.timestamp),
                Sent(world.settings.changelog, kinds.LEDGER.key("1-7"), b"forged", answer.timestamp),
            ],
        )
    )
    answers, rows, *_ = judge(world).findings
    assert answers.endswith("event 1-7: a copy that is not the same")
    assert "1 rows differ" in rows
