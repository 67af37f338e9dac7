"""Slots are bounded; names that come once cannot keep out what the configuration names, nor what keeps coming."""

from hypothesis import given
from hypothesis import strategies as st

from state.policies import Policies
from state.policy import Policy
from streams.metrics import slots
from streams.metrics.slots import REVIEW_SECONDS, Slots, named
from tests.streams.clock import Clock


def test_names_of_the_configuration_are_those_without_a_wildcard() -> None:
    patterns = [("fraud", Policy()), ("card-*", Policy()), ("a?c", Policy()), ("[ab]", Policy()), ("other", Policy())]
    assert named(Policies(patterns)) == ["fraud", "other"]


def test_named_streams_have_slots_even_where_there_are_more_of_them_than_slots() -> None:
    made = Slots(2, ["a", "b", "c"])
    assert [made.take(stream) for stream in "xabc"] == [False, True, True, True]
    assert sorted(made.shown) == ["a", "b", "c"]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 9), st.booleans()), max_size=60))
def test_never_more_streams_are_shown_than_there_are_slots(events: list[tuple[str, int, bool]]) -> None:
    clock = Clock()
    made = Slots(3, ["a"], clock)
    came = set()
    for stream, n, review in events:
        came.add(stream)
        assert made.take(stream) != (stream in made.hidden_streams)
        clock.now += REVIEW_SECONDS if review else 0.0
        for loses, gains in made.active({stream: n}):
            assert loses in made.hidden_streams
            assert gains not in made.hidden_streams
        assert len(made.shown) <= 3
        assert len(made.hidden_streams) == len(came - set(made.shown))


def test_a_stream_changes_places_only_with_one_that_has_less_than_half_of_its_events() -> None:
    clock = Clock()
    made = Slots(1, clock=clock)
    assert made.take("a")
    assert not made.take("b")
    clock.now = REVIEW_SECONDS
    assert made.active({"a": 10, "b": 20}) == []
    clock.now += REVIEW_SECONDS
    assert made.active({"a": 10, "b": 21}) == [("a", "b")]
    # The period begins anew: what was counted then says nothing now.
    clock.now += REVIEW_SECONDS
    assert made.active({"a": 1}) == [("b", "a")]


def test_a_stream_that_keeps_coming_is_known_among_any_number_of_names_that_come_once() -> None:
    clock = Clock()
    made = Slots(1, clock=clock)
    made.take("junk")
    for i in range(5 * slots.MOST_HIDDEN):
        name = f"junk-{i}"
        made.take(name)
        made.active({name: 1})
        if i % 100 == 0:
            made.take("fraud")
            made.active({"fraud": 3})
    assert len(made.hidden_streams) <= slots.MOST_HIDDEN
    clock.now = REVIEW_SECONDS
    assert made.active({}) == [("junk", "fraud")]
