"""The path of one event is told in words that fit what there is of it."""

import pytest

from replay.audit.event_path import PathStep, verdict


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ("", "no record mentions this event"),
        ("dead-letters", "only dead letters mention it"),
        ("source forecasts", "it has no answer yet"),
        ("source forecasts routes calibrated", "answered, and its label has not come"),
        ("source labels", "its label waits in the router: no forecast of it has come"),
        ("source forecasts routes calibrated labels", "its label is not sent on by the router"),
        ("forecasts routes labels outcomes", "it has a label, and no answer"),
        ("forecasts calibrated outcomes", "answered, and its label is not resolved"),
        ("forecasts calibrated outcomes resolved", "answered, and its label is learnt"),
    ],
)
def test_the_verdict_says_how_far_an_event_has_come(stages: str, said: str) -> None:
    assert verdict([PathStep(stage, "topic/0@0", 0, {}) for stage in stages.split()]) == said


def test_the_verdict_says_that_an_event_was_erased() -> None:
    steps = [
        PathStep("resolved", "topic/0@0", 0, {}),
        PathStep("outcomes", "topic/0@1", 1, {"event_id": "a", "erase": True}),
    ]
    assert verdict(steps) == "it was erased; what it had taught before stays"
