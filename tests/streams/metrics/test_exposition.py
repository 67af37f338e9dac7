"""What is written again, and that it is what would be written afresh."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from state import kinds
from state.fence import Fence
from state.policies import Policies
from state.policy import Policy
from state.scoring.comparison import Comparison
from state.scoring.history import History
from streams.metrics import exposition
from streams.metrics.exposition import Exposition
from streams.metrics.gauges import Gauges
from streams.metrics.mirror import ChangeSource, Mirror
from streams.metrics.routing import IntakeGauges
from streams.metrics.snapshot import PartitionSnapshot
from tests.holding import hold, holding

POLICIES = Policies(default=Policy())


def scored(n: int, seed: int) -> bytes:
    rng, history = random.Random(seed), History()
    for _ in range(n):
        p = rng.random()
        history.observe(p, p, float(rng.random() < p), p)
    return kinds.SCORES.encode(history)


SCORES = [scored(n, seed) for n, seed in ((1, 1), (20, 2), (30, 3))]


class Counted:
    """An exposition whose streams are counted that were written anew."""

    def __init__(self) -> None:
        self.written = 0
        self._exposition = Exposition(POLICIES)

    def text(self, held: dict[int, PartitionSnapshot]) -> str:
        before = dict(self._exposition._written)
        text = self._exposition.text(held, {}).decode()
        self.written += sum(each is not before.get(name) for name, each in self._exposition._written.items())
        return text


def test_a_scrape_that_takes_long_leaves_streams_to_the_next_one_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SECONDS", 0.0)
    made, streams = Counted(), [f"s{i}" for i in range(4)]
    held = {0: holding({kinds.SCORES.key(stream): SCORES[0] for stream in streams})}
    made.text(held)
    assert made.written == 4, "new ones are written at once"
    for stream in streams:
        hold(held[0], kinds.SCORES, SCORES[1], stream)
    texts = [made.text(held) for _ in range(5)]
    assert made.written == 8
    assert [text.count(" 20.0\n") for text in texts] == [n * texts[4].count(" 20.0\n") // 4 for n in (1, 2, 3, 4, 4)]


def test_a_stream_is_written_again_when_a_row_of_it_changed_and_no_other_is() -> None:
    made = Counted()
    held = {n: holding({kinds.SCORES.key(f"s{i}"): SCORES[n] for i in range(10)}) for n in (0, 1)}
    first = made.text(held)
    assert (made.written, made.text(held)) == (10, first)
    assert made.written == 10
    hold(held[1], kinds.SCORES, SCORES[2], "s3")
    second = made.text(held)
    assert made.written == 11
    assert (
        {line for line in second.splitlines() if line not in first}
        == {line for line in second.splitlines() if 'stream="s3"' in line and line not in first}
        != set()
    )
    row = kinds.COMPARISON.encode(Comparison())
    hold(held[0], kinds.COMPARISON, row, "s4", "aabbccdd", "0011aaff")
    assert made.text(held).count("0011aaff") == 1
    assert made.written == 12


STEPS = st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from([None, 0, 1, 2]))


@given(st.lists(STEPS, max_size=20))
def test_what_is_kept_is_what_would_be_written_afresh(steps: list[tuple[int, str, int | None]]) -> None:
    made, held = Counted(), dict[int, PartitionSnapshot]()
    for partition, stream, scores in steps:
        each = held.setdefault(partition, PartitionSnapshot(Fence()))
        if scores is None:
            del held[partition]
        else:
            hold(each, kinds.SCORES, SCORES[scores], stream)
        assert sorted(made.text(held).splitlines()) == sorted(Counted().text(held).splitlines())


def test_every_series_names_the_application() -> None:
    gauges = Gauges(10, "0", lambda: [("ready", (), 1.0), ("lag_records", ("forecasts", "0"), 2.0)], app="eu.b-1")
    gauges.assigned(0, holding({kinds.SCORES.key("s"): SCORES[0]}))
    text = Mirror(ChangeSource(gauges.exposition, gauges), POLICIES, "eu.b-1").exposition()
    text += IntakeGauges("0", ["scores"], list, "eu.b-1").exposition()
    samples = [each for family in text_string_to_metric_families(text.decode()) for each in family.samples]
    assert {each.name for each in samples} >= {"trueup_ready", "trueup_resolved", "trueup_mapped_records_total"}
    assert {each.labels.get("app") for each in samples} == {"eu.b-1"}
