"""What a campaign says of itself in the end."""

import orjson

from tests.chaos import report
from tests.chaos.campaign import Seen
from tests.chaos.faults import FreezeLeader, KillAll
from tests.chaos.fleet import Exit
from tests.chaos.judge import Verdict

SEEN = [
    Seen(FreezeLeader(partition=0, seconds=12.0), 0.0, 20.0, 8.0, [], [], silence=6.2),
    Seen(
        FreezeLeader(partition=1, seconds=13.0),
        20.0,
        40.0,
        7.0,
        [Exit(0.0, 1, 70, "gave up")],
        ["it ended"],
        silence=34.6,
    ),
    Seen(KillAll(seconds=60.0), 40.0, 120.0, 20.0, [], [], silence=65.0),
]


def test_the_table_has_the_worst_of_each_kind() -> None:
    _, frozen, cause, broken, killed = report.table(SEEN).splitlines()
    assert frozen.split() == ["leader", "frozen", "2", "1", "x", "70", "34.6", "8.0"]
    assert cause.strip() == "gave up"
    assert broken.strip() == "BROKEN: it ended"
    assert killed.split()[-2:] == ["65.0", "20.0"]


def test_the_last_line_is_one_json_object() -> None:
    last = orjson.loads(report.conclusion(Verdict(records=10, events=5), SEEN, 130.0).splitlines()[-1])
    assert last["faults"] == 3
    assert last["kinds"] == 2
    assert last["promises_broken"] == 1
    assert last["longest_silence"] == 34.6, "an outage of all brokers is not the workers' silence"
    assert last["differences"] == 0
