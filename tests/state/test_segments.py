"""Segments: what a value's slot is, that it stays, and that each segment is scored by its own events."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import calibrators, kinds
from state.calibrators.answer import Answer
from state.calibrators.histogram import Histogram
from state.events import Calibrated, Forecast, Outcome
from state.frames import CorruptFrame, seal
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring.segment_scores import SegmentScores
from state.segments import LIMIT, LONGEST, MISSING, OTHER, Dictionary, Segment
from tests.holding import shown
from tests.state.histories import INTERPRETED, STEADY, Worker

pytestmark = pytest.mark.usefixtures("no_warm_up")

NAMES, PAIRS = ("country", "channel"), (("channel", "country"),)
POLICY = Policy("identity", segments=NAMES, pairs=PAIRS, ttl_ms=100)
VALUES = st.tuples(st.text(max_size=3) | st.integers(0, 99).map(str), st.sampled_from(["", "web", "shop"]))


def forecast(offset: int, *values: str, p: float = 0.75, ts: int = 1000, stream: str = "s") -> Forecast:
    name = f"e{offset}"
    return Forecast(offset, name.encode(), name, stream, p, (), ts, None, values)


def outcome(offset: int, of: int, y: float = 1.0, ts: int = 1010) -> Outcome:
    return Outcome(offset, f"e{of}".encode(), f"e{of}", y, ts)


def scores(one: Worker, policy: Policy, slot: int, stream: str = "s") -> SegmentScores:
    found = kinds.SEGMENT.decode(one.table[kinds.SEGMENT.key(stream, policy.layout, slot)])
    assert isinstance(found, SegmentScores)
    return found


# -- slots ---------------------------------------------------------------------------------------------------------


@STEADY
@given(st.lists(VALUES, max_size=150))
def test_a_slot_is_of_its_name_and_never_changes_hands(values: list[tuple[str, str]]) -> None:
    dictionary = Dictionary(NAMES, PAIRS)
    had: dict[tuple[str, str], tuple[int, ...]] = {}
    for each in values:
        groups = dictionary.groups(each)
        assert [slot // LIMIT for slot in groups] == [0, 1, 2]
        assert had.setdefault(each, groups) == groups
        for name, value, slot in zip(NAMES, each, groups, strict=False):
            within = slot % LIMIT
            assert (within == MISSING) == (not value)
            if within not in (OTHER, MISSING):
                assert dictionary.segment(slot) == (name, value)
    again = Dictionary.decode(dictionary.encode())
    assert again.encode() == dictionary.encode()
    assert again.taken == dictionary.taken
    assert {each: again.groups(each) for each in had} == had
    assert {slot for groups in had.values() for slot in groups} <= set(again.slots)


def test_values_that_find_no_slot_are_one_segment_first_come_first_served() -> None:
    dictionary = Dictionary(NAMES, PAIRS)
    found = [dictionary.groups((f"v{n}", "web"))[0] for n in range(100)]
    assert found[:62] == list(range(2, LIMIT))
    assert set(found[62:]) == {OTHER}
    assert dictionary.groups(("v3", "web"))[0] == 5
    assert dictionary.groups(("", "web"))[0] == MISSING, "events without a value have a slot however many came before"
    assert dictionary.segment(OTHER) == Segment("country", "(other)")
    assert len(dictionary.slots) == LIMIT + 3 + LIMIT


def test_the_bytes_are_bounded() -> None:
    names = [str(n) * LONGEST for n in range(8)]
    pairs = [(names[n], names[(n + 1) % 8]) for n in range(8)]
    dictionary = Dictionary(names, pairs)
    rng = random.Random(3)
    for _ in range(2000):
        dictionary.groups(tuple(f"{rng.randrange(200):0{LONGEST}}" for _ in names))
    assert 30_000 < len(dictionary.encode()) <= 34_000
    assert Dictionary.decode(dictionary.encode()).encode() == dictionary.encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\1\1a\0",
        b"\1\1a\0\2\1x\1x",
        b"\1\1a\0\1\0",
        b"\1\1a\0\0\0",
        b"\2\1a\1b\1\0\0\0\0\0",
        b"\2\1a\1b\1\0\1\0\0\1\2\0",
        b"\1\1a\0\x3f" + b"".join(b"\2%02d" % n for n in range(63)),
    ],
    ids=["empty", "cut", "a value twice", "an empty value", "too long", "a pair of one", "no such slot", "too many"],
)
def test_what_is_no_dictionary_is_refused(payload: bytes) -> None:
    with pytest.raises(CorruptFrame):
        kinds.NAMES.decode(seal(kinds.NAMES.letter[0], kinds.NAMES.version, payload))


# -- scores --------------------------------------------------------------------------------------------------------


def test_each_segment_counts_its_own_events() -> None:
    one = Worker(Policies([("s", POLICY)]))
    one.fold(forecast(0, "DE", "web"), forecast(1, "DE", ""), forecast(2, "FR", "web"))
    one.fold(outcome(0, 0), outcome(1, 1, 0.0, 1030), outcome(2, 2, ts=1090))
    dictionary = kinds.NAMES.decode(one.table[kinds.NAMES.key("s", POLICY.layout)])
    found = {dictionary.segment(slot): scores(one, POLICY, slot) for slot in (2, 3, 65, 66, 129, 130, 131)}
    assert {segment.value: each.n for segment, each in found.items()} == {
        "DE": 2, "FR": 1, "(missing)": 1, "web": 2, "web*DE": 1, "(missing)*DE": 1, "web*FR": 1,
    }  # fmt: skip
    germany = found[Segment("country", "DE")]
    assert (germany.issued, germany.known, germany.age_ms, germany.expired) == (2, 2, 40, 0)
    assert (germany.mean("raw"), germany.observed, germany.brier("raw")) == (0.75, 0.5, (0.0625 + 0.5625) / 2)


def test_rows_of_segments_are_written_only_when_they_are_touched() -> None:
    one = Worker(Policies([("s", POLICY)]))
    one.fold(forecast(0, "DE", "web"), forecast(1, "FR", "web"))
    touched = {kinds.SEGMENT.key("s", POLICY.layout, slot) for slot in (2, 66, 129)}
    effects = one.fold(forecast(2, "DE", "web"))
    assert {key for key in effects.rows if key[:1] in (kinds.SEGMENT.letter, kinds.NAMES.letter)} == touched
    effects = one.fold(outcome(0, 0))
    assert {key for key in effects.rows if key[:1] in (kinds.SEGMENT.letter, kinds.NAMES.letter)} == touched


def test_events_without_any_value_are_a_segment_that_has_a_name() -> None:
    one = Worker(Policies([("s", POLICY)]))
    one.fold(forecast(0, "", ""))
    assert kinds.NAMES.decode(one.table[kinds.NAMES.key("s", POLICY.layout)]).segment(MISSING) == (
        "country",
        "(missing)",
    )
    effects = one.fold(forecast(1, "", ""))
    assert kinds.NAMES.key("s", POLICY.layout) not in effects.rows


def test_a_revision_leaves_scores_as_if_the_right_label_had_come_first() -> None:
    revised, right = (Worker(Policies([("s", POLICY)])) for _ in range(2))
    for one in (revised, right):
        one.fold(forecast(0, "DE", "web"), forecast(1, "DE", "web", p=0.1), outcome(0, 1, 0.0))
    revised.fold(outcome(1, 0, 0.0), outcome(2, 0, 1.0, 1020), outcome(3, 0, 0.0, 1030))
    right.fold(outcome(1, 0, 0.0))
    assert scores(revised, POLICY, 2) == scores(right, POLICY, 2)


def test_a_forecast_that_expires_counts_in_its_segments() -> None:
    one = Worker(Policies([("s", POLICY)]))
    one.fold(forecast(0, "DE", "web"), forecast(1, "DE", "", ts=2000))
    germany = scores(one, POLICY, 2)
    assert (germany.issued, germany.expired, germany.n) == (2, 1, 0)


def test_other_names_have_other_slots_and_old_tickets_count_where_they_belong() -> None:
    one = Worker(Policies([("s", POLICY)]))
    one.fold(forecast(0, "DE", "web"))
    later = Policy("identity", segments=("shop",), ttl_ms=100)
    two = Worker(Policies([("s", later)]), one.table)
    effects = two.fold(forecast(1, "DE"), outcome(0, 0))
    assert scores(two, POLICY, 2).n == 1
    assert (scores(two, later, 2).issued, scores(two, later, 2).n) == (1, 0)
    policies = Policies([("s", later)])
    assert shown(effects, policies, kinds.NAMES).keys() == {("s", later.layout)}
    assert shown(effects, policies, kinds.SEGMENT).keys() == {("s", later.layout, 2)}, (
        "gauges are of the segments that there are now"
    )


# -- what the ledger keeps -------------------------------------------------------------------------------------------


def test_the_row_of_an_event_holds_its_slots_through_every_change() -> None:
    policy = Policy("identity", segments=("country",), shadow=(Challenger("platt", {}),), ttl_ms=900, matures_ms=50)
    one = Worker(Policies([("s", policy)]))
    one.fold(forecast(0, "DE")._replace(key=b"another"))
    one.fold(outcome(0, 0))
    one.fold(forecast(1, "FR", ts=1200))
    for y, ts in ((0.0, 1210), (1.0, 1220)):
        one.fold(outcome(int(ts), 0, y, ts))
    entry = one.table.entry("e0")
    assert entry is not None
    assert (entry.layout, entry.groups) == (policy.layout, (2,))
    assert (entry.revisions, entry.key, len(entry.shadows), entry.ticket) == (2, b"another", 1, b"")
    assert scores(one, policy, 2).n == 1


# -- calibrators that use segments -----------------------------------------------------------------------------------


class Told(Histogram):
    """Serve a number that says which slots it was given."""

    name = "told"
    grouped: bool = True

    def predict(self, p: float, x: Any = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Answer[float]:
        made = super().predict(p, x, key)
        return Answer(sum(groups) / 1000, sum(groups) / 1000, made.ticket)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calibrators.REGISTRY, "told", Told)


@INTERPRETED
@pytest.mark.usefixtures("told")
def test_a_calibrator_that_uses_segments_is_told_them() -> None:
    policy = Policy("told", segments=NAMES, pairs=PAIRS)
    one = Worker(Policies([("s", policy)]))
    (answer,) = one.fold(forecast(0, "DE", "web")).outputs
    assert isinstance(answer, Calibrated)
    assert answer.p == (2 + 66 + 129) / 1000


@INTERPRETED
@pytest.mark.usefixtures("told")
def test_a_challenger_that_uses_segments_is_told_them_beside_a_champion_that_does_not() -> None:
    policy = Policy("platt", segments=("country",), shadow=(Challenger("told", {}),))
    one = Worker(Policies([("s", policy)]))
    one.fold(forecast(0, "DE"), forecast(1, ""))
    entries = one.table.entry("e0"), one.table.entry("e1")
    assert [entry and entry.shadows[0].p for entry in entries] == [0.002, 0.001]


@INTERPRETED
@pytest.mark.usefixtures("told")
def test_names_are_part_of_the_configuration_only_where_they_change_what_is_served() -> None:
    for calibrator, changes in (("platt", False), ("told", True)):
        one, other = (Policy(calibrator, segments=names) for names in (("a", "b"), ("b", "a")))
        assert (one.config != other.config) == changes
        assert (one.config != Policy(calibrator).config) == changes
