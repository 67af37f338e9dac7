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


def test_every_forecast_counts_once_also_the_first_of_a_partition_which_come_before_stream_time_is_known() -> None:
    start, tables = 100 * DAY_MS, []
    for size in (1, 7):  # the row is read again between batches
        worker = Worker(Policies([("s", Policy(learn="arrival", ttl_ms=30 * DAY_MS))]))
        forecasts: list[Event] = [Forecast(n, None, f"e{n}", "s", 0.25, (), start + n) for n in range(7)]
        outcomes: list[Event] = [Outcome(n, None, f"e{n}", 0.0, start + 10 + n) for n in range(7)]
        for events in (forecasts, outcomes):
            for at in range(0, len(events), size):
                worker.fold(*events[at : at + size])
        course = kinds.COURSE.decode(worker.table[kinds.COURSE.key("s")])
        assert {day: (sums[ISSUED], sums[KNOWN]) for day, sums in course.days.items()} == {100: (7, 7)}
        assert {hour: (sums[ISSUED], sums[KNOWN]) for hour, sums in course.hours.items()} == {2400: (7, 7)}
        tables.append(worker.table)
    assert tables[0] == tables[1]


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
        0: (12, 0, 0),  # of the three that moved stream time, two came while it was still in this hour
        7: (1, 10, 1),
        8: (0, 0, 1),
    }
    assert course.hours[2407][RAW] == course.hours[2407][SERVED] == 2.5, "in the warm-up raw is served"
    assert course.days == {100: [13.0, 10.0, 2.0, 2.5, 2.5, 1.875]}
