"""The course of a stream: what a period holds, what leaves, and that partitions add up."""

import random

from state import kinds
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring.ages import DAY_MS, HOUR_MS
from state.scoring.course import DAYS, HOURS, ISSUED, KNOWN, ONES, RAW, SERVED, Course
from tests.state.histories import Worker


def observed(seed: int, n: int = 2000) -> Course:
    draw, course = random.Random(seed), Course()
    for i in range(n):
        now = i * 45 * DAY_MS // n
        course.issue(now)
        course.resolve(draw.random(), draw.random(), float(draw.random() < 0.3), now)
    return course


def test_only_the_last_hours_and_days_are_kept() -> None:
    course = observed(0)
    assert sorted(course.days) == list(range(45 - DAYS, 45))
    assert min(course.hours) > 45 * 24 - 1 - HOURS


def test_a_worker_counts_forecasts_labels_and_revisions_when_they_are_learnt() -> None:
    policies = Policies([("s", Policy(matures_ms=5 * HOUR_MS, silence=0.0, ttl_ms=30 * DAY_MS))])
    worker = Worker(policies)
    start = 100 * DAY_MS
    later = start + 8 * HOUR_MS - 60_000
    events: list[Event] = [Forecast(n, None, f"e{n}", "s", 0.25, (), start + n) for n in range(10)]
    events += [
        Outcome(0, None, "e0", 1.0, start + 60_000),
        *(Forecast(10 + n, None, f"later{n}", "s", 0.5, (), later) for n in range(3)),  # three move stream time
        Outcome(1, None, "e1", 1.0, start + 8 * HOUR_MS),  # ten have matured, nine by silence: wrong about this one
    ]
    worker.fold(*events)
    course = kinds.COURSE.decode(worker.table[kinds.COURSE.key("s")])
    assert (course.forecast_ms, course.label_ms) == (later, start + 8 * HOUR_MS)
    assert {hour - 2400: (s[ISSUED], s[KNOWN], s[ONES]) for hour, s in course.hours.items()} == {
        0: (10, 0, 0),  # two came before stream time had begun
        7: (1, 10, 1),
        8: (0, 0, 1),
    }
    assert course.hours[2407][RAW] == course.hours[2407][SERVED] == 2.5, "in the warm-up raw is served"
    assert course.days == {100: [11.0, 10.0, 2.0, 2.5, 2.5, 1.875]}
