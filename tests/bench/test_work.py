"""How much is done for an event, counted and not timed: calls of Python and C functions, the same in every run."""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from types import FrameType

import pytest

from state.engine import Partition
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from tests.bench.parts import POLICIES
from tests.streams.fakes import record

EVENTS = 4_000
BATCH = 1_000


def calls_an_event(policy: Policy, said: Callable[[float], str] = '"p":{:.4f}'.format) -> float:
    """Return how many calls decoding, folding and encoding make for a forecast or an outcome, in the mean."""
    policies = Policies(default=policy)
    decoder, settings = Decoder(policies, Limits()), Settings()
    table: dict[bytes, bytes | None] = {}
    partition = Partition(policies, table.get)
    records = []
    waiting: deque[int] = deque()
    for i in range(EVENTS // 2):
        forecast = said((i * 7919 % 10_007) / 10_007).encode()
        value = b'{"event_id":"event-%07d","stream":"s%d",%s}' % (i, i % 3, forecast)
        records.append((FORECASTS, record("forecasts", 0, i, i, b"k", value)))
        waiting.append(i)
        if len(waiting) > EVENTS // 8:  # outcomes come that much later, as far as they come
            j = waiting.popleft()
            value = b'{"event_id":"event-%07d","y":%d}' % (j, j % 3 == 0)
            records.append((OUTCOMES, record("outcomes", 0, j, i, b"k", value)))
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    batches = iter(records)
    while batch := list(islice(batches, BATCH)):
        sys.setprofile(count)
        effects = partition.fold(decoder.events(batch))
        encoded(effects.outputs, settings, 0)
        sys.setprofile(None)
        table.update(effects.rows)
    return calls / len(records)


#: What it was when it was last looked at, rounded up. More is a regression, or a price to be stated here. Four of
#: these are what scores of draws, ranks and the ages of outcomes cost; two the distribution of forecasts, and eight
#: which forecasts get labels, and three entities. Four are what an observer is told of an event. Five
#: count it by hour and day. One at most is the check of labels and the step of Newton, which all calibrators share.
#: Half of one is that an answer is made in one place, the first time and again.
#: Of the last two, six are the proximal step, three the isotonic regression, and six the run of equal labels. One
#: writes the JSON of an output, whichever it is. Some three ask for a length in `state.quick.search`, which compiled
#: code reads without a call.
@pytest.mark.parametrize(
    ("calibrator", "most"),
    [
        ("histogram", 83),
        ("platt+regret_matching", 101),
        ("prudent", 127),
        (DEFAULT_CALIBRATOR, 140),
    ],
)
def test_an_event_costs_no_more_calls_than_it_did(calibrator: str, most: float) -> None:
    assert calls_an_event(Policy(calibrator)) <= most


def probs(p: float) -> str:
    """Return the member of a forecast of three classes."""
    return f'"probs":[{0.5 * p:.4f},{0.5 - 0.5 * p:.4f},0.5]'


#: Of three classes and of seven levels: without segments, and what two of them cost in addition. Of this the recent
#: windows are 7 calls of classes and 6 of numbers.
@pytest.mark.parametrize(
    ("policy", "said", "most", "segments"),
    [
        (Policy("multiclass", {"classes": 3, "each": "platt"}), probs, 338, 87),
        (Policy("quantile"), '"normal":{{"mean":{:.4f},"std":1}}'.format, 310, 182),
    ],
)
def test_segments_of_classes_and_numbers_cost_no_more_calls_than_they_did(
    policy: Policy, said: Callable[[float], str], most: float, segments: float
) -> None:
    plain = calls_an_event(policy, said=said)
    assert plain <= most
    named = replace(policy, segments=("country", "channel"))
    carried = ',"segments":{"country":"DE","channel":"web"}'
    assert calls_an_event(named, said=lambda p: said(p) + carried) <= plain + segments


#: Bands are 6 of them, intervals 19 and entities 16. `tests.bench.parts --marked` has the time that they take compiled.
def test_bands_intervals_and_entities_cost_no_more_calls_than_they_did() -> None:
    assert (
        calls_an_event(POLICIES["all three"], said='"p":{0:.4f},"account":"a{0}"'.format)
        <= calls_an_event(Policy()) + 39
    )
