"""Statistics and parsing of the benchmarks. What they measure is never asserted."""

import os

import orjson
import pytest

from tests.bench import backlog, drain, figures, pacer, watch
from tests.bench.rivals import job


def test_quantile_is_a_value_that_occurred() -> None:
    ordered = [float(i) for i in range(1, 1001)]
    assert figures.quantile(ordered, 0.5) == 500
    assert figures.quantile(ordered, 0.99) == 990
    assert figures.quantile(ordered, 0.999) == 999
    assert figures.quantile(ordered, 1.0) == 1000
    assert figures.quantile([3.0], 0.001) == 3


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_quantile_of_nothing_is_refused(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        figures.quantile(values, q)


def test_medians_are_taken_figure_by_figure() -> None:
    assert figures.medians([{"a": 1, "b": 9}, {"a": 5, "b": 7}, {"a": 3, "b": 8}]) == {"a": 3, "b": 8}


def test_table_aligns_columns() -> None:
    assert figures.table(["", "n"], [["one", "1"], ["three", "100"]]).splitlines() == [
        "         n",
        "one      1",
        "three  100",
    ]


def test_stat_of_a_process_whose_name_holds_parentheses() -> None:
    tail = " ".join(["S", *map(str, range(4, 14)), "200", "100", "30", "20", *["0"] * 6, "500", "0"])
    use = watch.parse(f"17 (a ) b) {tail}")
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert use == watch.Use(350 / tick, 500 * page)


def test_waiting_is_not_work() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    assert watch.busy("cpu  100 20 30 5000 600 7 8 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n") == 165 / tick


def test_own_process_is_read() -> None:
    with watch.Watch({"me": os.getpid()}, interval=0.001) as seen:
        while not seen.rss("me"):
            pass
    assert seen.cpu("me", 0.0, float("inf")) >= 0.0


def test_samples_are_interpolated_between_and_kept_outside() -> None:
    times, values = [1.0, 2.0, 4.0], [10.0, 20.0, 40.0]
    assert [watch.interpolated(times, values, at) for at in (0.0, 1.0, 1.5, 3.0, 4.0, 9.0)] == [10, 10, 15, 30, 40, 40]
    with pytest.raises(ValueError, match="nothing"):
        watch.interpolated([], [], 1.0)


def test_backlog_is_the_same_every_time_and_every_outcome_comes_after_its_forecast() -> None:
    made = backlog.backlog(backlog.Job(forecasts=2000))
    assert made == backlog.backlog(backlog.Job(forecasts=2000))
    forecasts, outcomes = made["forecasts"], made["outcomes"]
    known = {key: (ts, partition) for ts, partition, key, _ in forecasts}
    assert len(known) == len(outcomes) == 2000
    assert all(ts > known[key][0] and partition == known[key][1] for ts, partition, key, _ in outcomes)
    assert [record[0] for record in outcomes] == sorted(record[0] for record in outcomes)
    assert [record[2] for record in outcomes] != [record[2] for record in forecasts]


def test_events_of_the_batch_that_starts_the_clock_are_not_counted() -> None:
    class Used:
        def cpu(self, name: str, start: float, end: float) -> float:
            return {"contender": 2.0, "broker": 1.0}[name] * (end - start)

        def elsewhere(self, start: float, end: float) -> float:
            return end - start

        def rss(self, _: str) -> int:
            return 3_000_000

    appended = [10.0] * 50 + [12.0] * 50
    found = drain.figures(backlog.Job(forecasts=100), appended, 14.0, 4.0, Used())  # type: ignore[arg-type]
    assert found["events_per_s"] == 25
    assert found["whole_per_s"] == 20
    assert found["cpu_us_per_event"] == 80_000
    assert found["broker_us_per_event"] == 40_000
    assert found["rss_mb"] == 3
    assert found["first_answer_s"] == 6


def test_answers_count_what_each_calibrator_has_learnt_once() -> None:
    answers = drain.Answers()
    for event_id, learnt, at in [("event-1", 1, 1000), ("probe-0-2-0", 4, 2000), ("probe-1-2-0", 4, 3000)]:
        answers.add(orjson.dumps({"event_id": event_id, "stream": "s0", "learnt": learnt}), at, per_partition=True)
    answers.add(orjson.dumps({"event_id": "probe-1-3-0", "stream": "s0", "learnt": 5}), 4000, per_partition=True)
    assert answers.learnt == {(2, "s0"): (4, 2.0), (3, "s0"): (5, 4.0)}
    assert answers.total == 9
    assert answers.ids == {"event-1"}


@pytest.mark.parametrize("rate", [1000, 10_000, 33_300, 77])
def test_every_forecast_is_due_once_and_at_its_rate(rate: float) -> None:
    ticks = int(10 / pacer.TICK)
    assert [i for tick in range(ticks) for i in pacer.due(tick, rate)] == list(range(int(10 * rate / 2)))


@pytest.mark.parametrize("partitions", [1, 3, 4, 7, 64])
def test_outcomes_meet_their_forecasts_in_their_partition(partitions: int) -> None:
    assert pacer.delay(partitions) % partitions == 0
    assert abs(pacer.delay(partitions) * pacer.TICK - pacer.DELAY) <= partitions * pacer.TICK


def test_calibrator_of_the_job_serves_the_mean_of_its_bin() -> None:
    counts = job.new()
    forecast = {"event_id": "a", "stream": "s", "p": 0.31}
    assert job.answer(counts, forecast)["p"] == 0.31
    for y in (1, 0, 0, 0):
        job.learn(counts, 0.33, y)
    job.learn(counts, 0.9, 1)
    answer = job.answer(counts, forecast)
    assert (answer["p"], answer["learnt"]) == (0.25, 5)
    assert job.bin_of(1.0) == job.BINS - 1
