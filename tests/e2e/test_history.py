"""A first start on months of history through sources of other keys: each label is learnt at its time, not after it."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson

from tests.e2e.test_intake import SOURCES, START, Hour, Source
from tests.e2e.world import World

MakeWorld = Callable[..., World]
DAY = 86_400_000
#: The labels that frauds get come after less than `matures`, or after more; nothing is said of all others.
SILENT = SOURCES.replace('\nttl = "1d"', '\nttl = "90d"\nmatures = "20d"\nsilence = 0').replace('= "1d"', '= "90d"')


def history(n: int, days: int, late: float, seed: int = 3) -> tuple[list[Source], set[str]]:
    """Return payments of so many days, a tenth charged back, and which of these only after they have matured."""
    rng, sent, after = random.Random(seed), [], set()
    for i in range(n):
        ts, txn = START + i * days * DAY // n, f"t{i}"
        at = datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds")
        score = {"transaction": {"id": txn}, "model": "a", "riskScore": rng.randrange(1001), "scoredAt": at}
        sent.append(Source("scores.v3", f"card-{rng.randrange(40)}".encode(), orjson.dumps(score), ts))
        if rng.random() < 0.1:
            delay = rng.uniform(25, 40) if rng.random() < late else rng.uniform(1, 15)
            if ts + delay * DAY < START + days * DAY:
                back = orjson.dumps({"txn": txn, "status": "lost"})
                sent.append(Source("chargebacks", f"cb-{i}".encode(), back, ts + int(delay * DAY)))
                if delay > 20:
                    after.add(txn)
    return sorted(sent, key=lambda each: each.ts), after


def silenced(world: World) -> tuple[set[str], int]:
    """Return the events that were taught as zeros before their label came, and how many labels there are."""
    firsts: dict[str, bool] = {}
    ones = set()
    for record in world.read("resolved"):
        said = orjson.loads(record.value or b"")
        firsts.setdefault(said["event_id"], said["implied"])
        if said["y"] == 1:
            ones.add(said["event_id"])
    return {each for each in ones if firsts[each]}, len(ones)


def test_a_first_start_on_a_history_teaches_no_fraud_as_a_zero(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "months", SILENT, partitions=4)
    sent, after = history(3000, 120, late=0.1)
    hour.send(sent)
    with hour.stages("worker", "router", "intake"):
        hour.wait()
        assert hour.running[0].metric("overdue_labels_total") == len(after)
    found, labels = silenced(hour.world)
    assert labels > 200
    assert found == after, f"{len(found - after)} of {labels} labels were learnt as zeros first"
