"""How a stream stands: each state, since when, and that what is said is what was counted."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring.ages import DAY_MS, HOUR_MS
from state.scoring.course import Course
from streams.config.settings import Settings
from streams.metrics import standing
from tests.agents.status.rows import folded, readings

START = 20_000 * DAY_MS


def course(days: float, served: Callable[[int], float], true: Callable[[int], float], *, labels: bool = True) -> Course:
    """Return the course of 500 forecasts a day, of day n from 0."""
    made, draw = Course(), random.Random(4)
    for i in range(int(500 * days)):
        now, day = START + i * DAY_MS // 500, i // 500
        made.issue(now)
        if labels:
            made.resolve(0.4, served(day), float(draw.random() < true(day)), now)
            made.label_ms = now
    return made


def described(*, sounds: bool = False, warm: int = 0, why: str | None = None, **more: Any) -> dict[str, Any]:
    alarm = {"alarm": {"recent_sounds": sounds}, "relative_bias": 0.0}
    return {"calibrated": alarm, "warm_up": {"partitions": warm, "of": 1, "until_ms": START, "why": why}, **more}


def at(days: float) -> int:
    return START + int(days * DAY_MS)


def test_a_stream_is_right_since_its_warm_up_or_since_the_last_day_that_was_wrong() -> None:
    good = course(20, lambda _: 0.1, lambda _: 0.1)
    told = standing.state(described(), good, at(20))
    assert (told["state"], told["since_ms"]) == ("right", START)
    mended = course(20, lambda day: 0.3 if day < 8 else 0.1, lambda _: 0.1)
    told = standing.state(described(), mended, at(20))
    assert (told["state"], told["since_ms"]) == ("right", at(8))
    since = standing.describe(mended, at(20), told["since_ms"])["since"]
    assert since["served"] == pytest.approx(0.1)
    assert abs(since["served"] - since["happened"]) <= since["chance"], "right to so much is what was counted"


def test_a_stream_that_is_off_says_since_when_and_how_bad() -> None:
    moved = course(20, lambda _: 0.1, lambda day: 0.1 if day < 14 else 0.25)
    told = standing.state(described(sounds=True), moved, at(20))
    assert (told["state"], told["since_ms"]) == ("off", at(14))
    assert "2.5 times too low over 3,000 outcomes" in told["words"]
    shape = standing.state(described(sounds=True), course(20, lambda _: 0.1, lambda _: 0.1), at(20))
    assert shape["words"].startswith("Right on average, and off at some scores")


def test_raw_scores_that_are_served_again_are_said_before_all_they_bring_about() -> None:
    moved = course(20, lambda _: 0.1, lambda day: 0.1 if day < 14 else 0.25)
    withheld = {"partitions": {"unlabelled": [2]}, "of": 4, "since_ms": at(13)}
    told = standing.state(described(sounds=True, withheld=withheld), moved, at(20))
    assert (told["state"], told["since_ms"]) == ("withheld", at(13))
    assert told["words"] == "Raw scores are served in 1 of 4 partitions: most forecasts get no label."
    young = course(2, lambda _: 0.1, lambda _: 0.1)
    told = standing.state(described(warm=1, why="unlabelled", withheld=withheld), young, at(2))
    assert told["state"] == "warming up"


def test_a_segment_that_is_off_makes_its_stream_off() -> None:
    worst = {"segment": "country", "value": "FR", "served": 0.1, "observed": 0.2, "events": 900, "sounds": True}
    segments = {"recently_off": 1, "scored": 4, "recent": [worst], "of": "probability"}
    told = standing.state(described(segments=segments), course(9, lambda _: 0.1, lambda _: 0.1), at(9))
    assert told["state"] == "off"
    assert "off in 1 of 4 segments. Worst is country = FR: 0.1 served, 0.2 came true in 900 events." in told["words"]


def test_forecasts_have_stopped_after_two_hours_where_every_hour_had_some_and_else_after_a_day() -> None:
    steady = course(9, lambda _: 0.1, lambda _: 0.1)
    assert standing.state(described(), steady, at(9) + HOUR_MS)["state"] == "right"
    stopped = standing.state(described(), steady, at(9) + 3 * HOUR_MS)
    assert (stopped["state"], stopped["since_ms"]) == ("no input", steady.forecast_ms)
    assert standing.state(described(), steady, at(9), idle_ms=3 * HOUR_MS)["state"] == "no input", "of all streams"
    nightly = Course()
    for day in range(9):
        nightly.issue(at(day))
        nightly.resolve(0.1, 0.1, 0.0, at(day))
        nightly.label_ms = at(day)
    assert standing.state(described(), nightly, at(8.9))["state"] == "right"
    assert standing.state(described(), nightly, at(9.2))["state"] == "no input"


def test_labels_have_stopped_after_twice_their_longest_gap() -> None:
    silent = course(9, lambda _: 0.1, lambda _: 0.1)
    for n in range(1, 4):
        silent.issue(at(9 + n))
    assert standing.state(described(), silent, at(12))["state"] == "no labels"
    assert standing.state(described(), silent, at(12))["since_ms"] == silent.label_ms
    weekly = Course()
    for day in range(30):
        weekly.issue(at(day))
        if day % 7 == 0:
            weekly.resolve(0.1, 0.1, 0.0, at(day))
            weekly.label_ms = at(day)
    assert standing.state(described(), weekly, at(29.5))["state"] == "right"


def test_labels_that_silence_implies_do_not_make_rare_frauds_overdue() -> None:
    policy = Policy(silence=0.0, matures_ms=10 * DAY_MS)
    rare = Course()
    for day in range(30):
        rare.issue(at(day))
        rare.resolve(0.1, 0.1, float(day % 6 == 0), at(day))
        if day % 6 == 0:
            rare.label_ms = at(day)
    assert standing.state(described(), rare, at(29.5))["state"] == "no labels"
    assert standing.state(described(), rare, at(29.5), policy=policy)["state"] == "right"
    assert standing.state(described(), rare, at(37), idle_ms=0, policy=policy)["state"] == "no input"
    for day in range(30, 40):
        rare.issue(at(day))
        rare.resolve(0.1, 0.1, 0.0, at(day))
    assert standing.state(described(), rare, at(39.5), policy=policy)["state"] == "no labels"


def test_before_the_first_label_forecasts_may_grow_as_old_as_they_mature() -> None:
    young = course(8, lambda _: 0.1, lambda _: 0.1, labels=False)
    for policy, state in ((Policy(matures_ms=10 * DAY_MS), "warming up"), (Policy(), "no labels")):
        told = standing.state(described(warm=1, why="unknown"), young, at(8), policy=policy)
        assert told["state"] == state


def test_a_stream_warms_up_until_labels_are_overdue() -> None:
    young = course(2, lambda _: 0.1, lambda _: 0.1, labels=False)
    told = standing.state(described(warm=1, why="unknown"), young, at(2))
    assert (told["state"], told["since_ms"]) == ("warming up", START)
    assert "No label is known yet" in told["words"]
    told = standing.state(described(warm=1, why="immature"), young, at(2))
    assert (told["words"], told["todo"]) == (
        "Raw scores are served. Labels have come, and are learnt when their forecasts have matured.",
        "Nothing: labels are learnt when their forecasts are as old as `matures` says.",
    )
    old = course(5, lambda _: 0.1, lambda _: 0.1, labels=False)
    told = standing.state(described(warm=1, why="unknown"), old, at(5))
    assert told["state"] == "no labels"
    assert "No label has ever come" in told["words"]


def test_windows_hold_whole_hours_and_days_with_the_present_one() -> None:
    made = course(31, lambda _: 0.1, lambda _: 0.1)
    windows = standing.describe(made, made.forecast_ms)["windows"]
    assert [windows[name]["known"] for name in ("day", "week", "month")] == [500 + 20, 8 * 500, 31 * 500]
    assert windows["hour"]["known"] == sum(made.hours[hour][1] for hour in sorted(made.hours)[-2:])
    assert standing.describe(Course(), 0)["windows"]["day"]["served"] is None


@pytest.mark.parametrize(("days", "state"), [(24, "warming up"), (40, "right")])
def test_labels_of_raw_scores_that_come_after_the_warm_up_say_nothing_of_what_is_served(days: int, state: str) -> None:
    draw, events = random.Random(4), list[tuple[int, int, int, float]]()
    for i in range(100 * days):
        now, p = START + i * DAY_MS // 100, draw.uniform(0.02, 0.2)
        events.append((now, 0, i, 4 * p))
        if now + 15 * DAY_MS < at(days):
            events.append((now + 15 * DAY_MS, 1, i, float(draw.random() < p)))
    policies, given = Policies(default=Policy()), list[Event]()
    for offset, (now, kind, i, value) in enumerate(sorted(events)):
        given.append(
            Outcome(offset, None, f"e{i}", value, now) if kind else Forecast(offset, None, f"e{i}", "s", value, (), now)
        )
    described = readings(folded(policies, given), settings=Settings(policies=policies)).stream("s") or {}
    told, since = described["standing"], described["course"]["since"]
    assert told["state"] == state
    assert START + 15 * DAY_MS <= told["since_ms"] < at(40)
    assert since["known"] == 0 or since["served"] < 0.5 * since["raw"]
