"""Erased events: what is left of them, what comes later, and what the counts say."""

from dataclasses import replace

import orjson
import pytest

from state import ledger
from state.engine import Partition
from state.events import ERASE, Calibrated, Event, Forecast, Outcome, Rejected
from state.fence import INPUT_FATES, OUTCOME_ERASED
from state.ledger import LedgerRow
from state.policies import Policies
from state.policy import Policy
from state.rescale import Plan, RescaleError, rescaled
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from tests.state.histories import Table, Worker, fates, folded_again, play, seeded

pytestmark = pytest.mark.usefixtures("no_warm_up")

COUNTS = Policy("histogram", {"bins": 4}, ttl_ms=100)
RIPE = replace(COUNTS, matures_ms=40, silence=0.0)


def forecast(offset: int, event_id: str, ts: int) -> Forecast:
    return Forecast(offset, b"k", event_id, "s", 0.7, (), ts, b"secret")


def outcome(offset: int, event_id: str, ts: int, y: float = 1.0) -> Outcome:
    return Outcome(offset, b"k", event_id, y, ts, b"secret")


def worker(policy: Policy = COUNTS) -> Worker:
    return Worker(Policies(default=policy, early_ttl_ms=60))


@pytest.mark.parametrize(
    ("policy", "before"),
    [
        (COUNTS, [forecast(0, "another", 1000)]),
        (COUNTS, [outcome(0, "a", 1000)]),
        (COUNTS, [forecast(0, "a", 1000)]),
        (RIPE, [forecast(0, "a", 1000)]),
        (RIPE, [forecast(0, "a", 1000), outcome(0, "a", 1001)]),
        (COUNTS, [forecast(0, "a", 1000), outcome(0, "a", 1001)]),
    ],
    ids=["unknown", "early", "issued", "immature", "waiting", "resolved"],
)
def test_of_an_erased_event_its_name_is_left_and_that_goes_in_its_time(
    policy: Policy, before: list[Forecast | Outcome]
) -> None:
    one = worker(policy)
    one.fold(*before)
    one.fold(outcome(1, "a", 1002, ERASE))
    erased = one.table.entry("a")
    assert erased is not None
    left = LedgerRow(ledger.ERASED, erased.born, names=ledger.names("00000000", "", erased.stream))
    assert erased.encode() == left.encode()
    fence = one.table.fence
    assert (fence.pending, fence.waiting, fence.early) == (sum(each.event_id != "a" for each in before), 0, 0)
    assert sum(fence.fates[:INPUT_FATES]) == fence.applied == len(before) + 1
    again = one.fold(forecast(1, "a", 1003), outcome(2, "a", 1003)).outputs
    (letter,) = again
    assert isinstance(letter, Rejected)
    assert (letter.reason, letter.withheld) == ("erased", True)
    assert (fates(one.table.fence)["forecasts_dead"], fates(one.table.fence)["outcomes_erased"]) == (1, 2)
    for n, ts in enumerate((1045, 1110, 1111, 1180, 1181)):
        one.fold(forecast(2 + n, f"b{n}", ts))
    assert one.table.entry("a") is None


def test_an_erasure_moves_no_stream_time() -> None:
    one = worker(RIPE)
    one.fold(forecast(0, "a", 1000))
    for n in range(4):  # three others would move it
        one.fold(outcome(n, f"x{n}", 9_000_000, ERASE))
    assert one.table.fence.stream_time == 1000
    assert fates(one.table.fence) == {"forecasts_issued": 1, "outcomes_erased": 4}


def test_an_erased_event_goes_with_its_records_to_another_number_of_partitions() -> None:
    group = [worker(), worker()]
    for one in group:  # as `trueup forget` sends it, to every partition
        one.fold(forecast(0, "a" if one is group[1] else "b", 1000), outcome(0, "a", 1001, ERASE))

    def of_event(name: str, _: str, old: int) -> int:
        if name == "a" and old != 1:
            raise RescaleError("it is not of this partition")
        return 0

    plan = Plan(1, of_event, lambda _: frozenset([(0, 0), (1, 0)]), lambda _: 0, [[0, 0]])
    one = Worker(Policies(default=COUNTS), Table(rescaled([each.table for each in group], plan)[0]))
    (letter,) = one.fold(forecast(0, "a", 1002)).outputs
    assert isinstance(letter, Rejected)
    assert letter.reason == "erased"
    assert one.table.fence.pending == 1
    for n in range(1, 4):
        one.fold(forecast(n, f"c{n}", 1100 + n))
    assert one.table.entry("a") is None


def test_erasures_survive_crashes_anywhere_byte_for_byte() -> None:
    history = play(seeded(400, seed=3))
    events: list[Event] = [
        each._replace(y=ERASE) if isinstance(each, Outcome) and n % 4 == 0 else each
        for n, each in enumerate(history.events)
    ]

    def make(table: Table) -> Partition:
        return Partition(history.policies, table.get)

    whole, said = folded_again(make, events, [])
    assert whole.fence.fates[OUTCOME_ERASED] > 30
    crashes = [(3, "killed"), (4, "checkpoint"), (2, "lost"), (5, "twice"), (3, ""), (4, "reset")] * 30
    again, repeated = folded_again(make, events, crashes)
    assert (again, repeated) == (whole, said)


def test_what_an_erased_event_has_taught_stays_and_what_waited_is_not_learnt() -> None:
    for policy, learnt in ((COUNTS, 1), (RIPE, 0)):
        one = worker(policy)
        one.fold(forecast(0, "a", 1000), outcome(0, "a", 1001), outcome(1, "a", 1002, ERASE))
        answers = one.fold(forecast(1, "b", 1045)).outputs
        assert [type(each) for each in answers] == [Calibrated]
        assert one.table.served("s", Policies(default=policy)).calibrator.learnt == learnt


def test_a_record_erases_only_where_it_says_so_and_gives_no_label() -> None:
    decoder = Decoder(Policies(default=COUNTS), Limits())

    def read(**fields: object) -> object:
        made = decoder.outcome(0, None, orjson.dumps({"event_id": "a", **fields}), 1000)
        return made.reason if isinstance(made, Rejected) else str(made.y) if isinstance(made, Outcome) else made

    assert read(erase=True) == "nan"
    assert (read(erase=1), read(erase=False), read(erase="true")) == ("label", "label", "label")
    assert read(erase=True, y=1) == "1.0"


def test_the_name_of_an_erased_event_stays_as_long_as_its_label_could_be_revised() -> None:
    one = worker(replace(COUNTS, revisable_ms=300))
    one.fold(forecast(0, "a", 1000), outcome(0, "a", 1001), outcome(1, "a", 1002, ERASE))
    one.fold(forecast(1, "b", 1200))
    (letter,) = one.fold(forecast(2, "a", 1201), outcome(2, "a", 1202)).outputs
    assert isinstance(letter, Rejected)
    assert letter.reason == "erased"
    one.fold(forecast(3, "c", 1400), forecast(4, "d", 1401))
    assert one.table.entry("a") is None


def test_an_event_that_is_erased_before_anything_comes_is_refused_however_old_the_partition_is() -> None:
    one = worker()
    one.fold(outcome(0, "a", 5000, ERASE))
    (letter,) = one.fold(forecast(0, "a", 5001)).outputs
    assert isinstance(letter, Rejected)
    assert letter.reason == "erased"
