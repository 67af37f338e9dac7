"""Whether most forecasts get labels: what is counted, what is concluded from it, and what is served then."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from state import kinds
from state.arrays import Floats
from state.calibrators import make
from state.coverage import CELL, FEWEST, LEAST, MOST, Coverage
from state.events import Calibrated, Event, Forecast, Outcome, Output
from state.forecasts import Classwise, Probs
from state.policies import Policies
from state.policy import Challenger, Policy
from tests.state.histories import Table, Worker

FORECASTS, DAYS = 12_000, 180.0
Random = np.random.Generator


def judged(at: Floats, row: Iterable[int], day: Floats, place: Floats | None = None) -> list[tuple[float, bool]]:
    """Play forecasts and the first labels of some of them; return when the conclusion changed, and to what.

    ``place``: log-odds of the forecasts; drawn if they are not given.
    """
    coverage, found = Coverage(), list[tuple[float, bool]]()
    place = np.random.default_rng(1).standard_normal(len(at)) if place is None else place
    labels = sorted(zip(day.tolist(), row, strict=True))
    steps = sorted([(each, 0, k) for k, each in enumerate(at.tolist())] + [(when, 1, k) for when, k in labels])
    born: dict[int, int] = {}
    for applied, (when, label, k) in enumerate(steps, 1):
        if when > at[-1]:
            break
        if label:
            coverage.label(born[k], float(place[k]), 0)
        else:
            born[k] = applied
            coverage.issue(applied, float(place[k]))
        if coverage.uncovered != (found[-1][1] if found else False):
            found.append((when, coverage.uncovered))
    return found


def even(rng: Random) -> Floats:
    return np.sort(rng.random(FORECASTS) * DAYS)


def growing(rng: Random) -> Floats:
    """Return days of forecasts whose number doubles every week."""
    return np.sort(7 * np.log2(1 + rng.random(FORECASTS) * (2 ** (DAYS / 14) - 1)))


def stopping(rng: Random) -> Floats:
    return np.sort(np.concatenate([60 * rng.random(FORECASTS // 2), 120 + 60 * rng.random(FORECASTS // 2)]))


def outage(at: Floats, rng: Random) -> Floats:
    """Label two days later on average, but for a week in which nothing is labelled; that is caught up at once."""
    day = at + rng.exponential(2.0, len(at))
    return np.where((day > 80) & (day < 87), 87 + 0.1 * rng.random(len(at)), day)


#: Traffic, when all forecasts are labelled, and the day from which on it may not be doubted any more.
FULL: dict[str, tuple[Callable[[Random], Floats], Callable[[Floats, Random], Floats], float]] = {
    "prompt": (even, lambda at, _: at + 1e-6, 0.0),
    "5 days later": (even, lambda at, _: at + 5, 0.0),
    "45 days later": (even, lambda at, _: at + 45, 0.0),
    "exponential, 2 days": (even, lambda at, rng: at + rng.exponential(2.0, len(at)), 8.0),
    "exponential, 20 days": (even, lambda at, rng: at + rng.exponential(20.0, len(at)), 40.0),
    "uniform, 1 to 45 days": (even, lambda at, rng: at + rng.uniform(1, 45, len(at)), 45.0),
    "log-normal": (even, lambda at, rng: at + 5 * np.exp(2 * rng.standard_normal(len(at))), 40.0),
    "every night": (even, lambda at, _: np.ceil(at) + 1e-7 * np.arange(len(at)), 0.0),
    "every night, shuffled": (even, lambda at, rng: np.ceil(at) + 1e-3 * rng.random(len(at)), 2.01),
    "every week, shuffled": (even, lambda at, rng: 7 * np.ceil(at / 7) + 1e-2 * rng.random(len(at)), 14.02),
    "every night, newest first": (even, lambda at, _: np.ceil(at) + 1e-3 * (np.ceil(at) - at), 8.0),
    "an outage of a week": (even, outage, 8.0),
    "doubling every week": (growing, lambda at, rng: at + rng.exponential(5.0, len(at)), 20.0),
    "stopping for two months": (stopping, lambda at, rng: at + rng.exponential(5.0, len(at)), 15.0),
}


@pytest.mark.parametrize("name", list(FULL))
def test_streams_whose_forecasts_all_get_a_label_are_covered_but_at_their_beginning(name: str) -> None:
    traffic, labelled, settled = FULL[name]
    rng = np.random.default_rng(list(FULL).index(name))
    at = traffic(rng)
    changes = judged(at, range(len(at)), labelled(at, rng))
    whole = [when for when, uncovered in changes if uncovered and when > settled and not _brief(changes, when)]
    assert not whole, changes
    assert not changes or not changes[-1][1]


def _brief(changes: Sequence[tuple[float, bool]], when: float) -> bool:
    """Whether what was concluded at a time was withdrawn within a batch of labels."""
    return any(not uncovered and 0 < later - when < 0.02 for later, uncovered in changes)


def test_ones_first_and_zeros_on_day_45_are_covered_as_soon_as_zeros_come() -> None:
    rng = np.random.default_rng(5)
    at = even(rng)
    y = rng.random(FORECASTS) < 0.02
    changes = judged(at, range(FORECASTS), np.where(y, at + rng.uniform(1, 45, FORECASTS), at + 45))
    assert changes[-1][1] is False
    assert changes[-1][0] < 45 + 250 * DAYS / FORECASTS
    assert len(changes) == 2


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2, 0.3])
@pytest.mark.parametrize("slow", [False, True])
def test_streams_with_few_labels_are_uncovered_to_their_end(share: float, slow: bool) -> None:  # noqa: FBT001 - a parameter
    rng = np.random.default_rng([int(share * 100), slow])
    at = even(rng)
    row = np.flatnonzero(rng.random(FORECASTS) < share)
    day = at[row] + (rng.exponential(20.0, len(row)) if slow else rng.uniform(0.2, 3, len(row)))
    changes = judged(at, row.tolist(), day)
    assert [uncovered for _, uncovered in changes] == [True]
    assert changes[0][0] < 60.0


def days_of_doubt(changes: Sequence[tuple[float, bool]]) -> float:
    """Return for how long a stream was uncovered that is covered in the end, days."""
    assert not changes or not changes[-1][1]
    return sum(later - when for (when, _), (later, _) in zip(changes[::2], changes[1::2], strict=True))


@pytest.mark.parametrize("mean", [10.0, 20.0, 60.0])
def test_labels_at_random_delays_are_doubted_for_less_than_half_a_mean_delay(mean: float) -> None:
    rng = np.random.default_rng(int(mean))
    at = even(rng)
    day = at + rng.exponential(mean, FORECASTS)
    doubt = days_of_doubt(judged(at, range(FORECASTS), day))
    assert doubt < mean / 2
    same = days_of_doubt(judged(at, range(FORECASTS), day, np.full(FORECASTS, -3.0)))
    assert doubt < same < mean, "scores that are all the same say nothing of who has a label"


@pytest.mark.parametrize("higher", [True, False])
def test_labels_of_forecasts_unlike_the_others_are_not_taken_for_late(higher: bool) -> None:  # noqa: FBT001 - a parameter
    """Two in five get a label, at random delays: those with the highest scores, or anyone."""
    rng = np.random.default_rng(11)
    at, place = even(rng), rng.standard_normal(FORECASTS)
    by = place if higher else rng.standard_normal(FORECASTS)
    row = np.flatnonzero(by > np.quantile(by, 0.6))
    changes = judged(at, row.tolist(), at[row] + rng.exponential(60.0, len(row)), place)
    assert ([uncovered for _, uncovered in changes] == [True]) is higher


def test_who_labels_the_highest_scores_makes_labelled_ones_unlike_all_and_who_draws_them_does_not() -> None:
    rng = np.random.default_rng(12)
    place, drawn = rng.standard_normal(4000), rng.random(4000)
    chosen: list[Callable[[int], bool]] = [
        lambda t: bool(place[t] > 1.3),
        lambda t: bool(drawn[t] < 0.1),
        lambda _: True,
        lambda t: t < FEWEST - 1,
    ]
    found = []
    for chooses in chosen:
        coverage, same = Coverage(), Coverage()
        for t in range(4000):
            for each, at in ((coverage, float(place[t])), (same, 0.5)):
                each.issue(t + 1, at)
                if chooses(t):
                    each.label(t + 1, at, 0)
        assert not same.unlike, "scores that are all the same tell nothing"
        found.append(coverage.unlike)
    assert found == [True, False, False, False]


def test_labels_that_become_few_or_many_are_noticed() -> None:
    rng = np.random.default_rng(7)
    at = even(rng)
    for before, after in ((1.0, 0.05), (0.05, 1.0)):
        row = np.flatnonzero(rng.random(FORECASTS) < np.where(at < DAYS / 2, before, after))
        changes = judged(at, row.tolist(), at[row] + rng.exponential(2.0, len(row)))
        assert changes[-1][1] is (after < before)
        assert DAYS / 2 < changes[-1][0] < DAYS


def test_cells_are_few_hold_every_forecast_and_are_no_longer_than_what_came_since() -> None:
    coverage = Coverage()
    for born in range(1, 100_001):
        coverage.issue(born, 0.0)
        if born % 9973 == 0:
            issued = coverage._cells[1::3]
            assert sum(issued) == born
            assert issued[0] == LEAST
            for i, n in enumerate(issued[1:], 1):
                assert n <= max(CELL, sum(issued[i + 1 :]))
    assert len(coverage._cells) <= 3 * (1 + (MOST + 1) * 14)
    assert len(coverage.encode()) < 400


def test_a_cell_never_has_more_labels_than_forecasts() -> None:
    coverage = Coverage()
    for born in range(1, 201):
        coverage.issue(born, 0.0)
        coverage.label(born, 0.0, 0)
        coverage.label(born, 0.0, 0)
    assert coverage.share == 1.0


def test_a_label_of_a_forecast_that_is_not_counted_is_ignored() -> None:
    coverage = Coverage()
    coverage.label(5, 0.0, 0)
    coverage.issue(10, 0.0)
    coverage.label(5, 0.0, 0)
    assert coverage.labels == 0


def test_of_two_partitions_the_share_is_of_the_labels_of_both_and_doubt_remains() -> None:
    few, full = Coverage(), Coverage()
    for born in range(1, 1001):
        for each, every in (few, 10), (full, 1):
            each.issue(born, 0.0)
            if born % every == 0:
                each.label(born, 0.0, 0)
    both = few + full
    assert both.uncovered
    assert both.labels == few.labels + full.labels
    assert few.share < both.share < full.share
    assert len((both + Coverage()).encode()) == len(Coverage().encode())


# What is served.

#: It would serve 1 as soon as it has learnt a few outcomes of 1.
HASTY = Policy("platt", ttl_ms=10**9)


class Stream:
    """Forecasts of one stream and outcomes of some of them, each in a batch of its own."""

    def __init__(self, policy: Policy, stream: str = "s") -> None:
        self.policies = Policies(default=policy)
        self.worker = Worker(self.policies, Table())
        self.stream, self.next = stream, [0, 0]
        self.answers: list[Calibrated] = []
        #: What effects said of whether raw scores are served from now on, and the number of the forecast.
        self.changes: list[tuple[int, bool]] = []

    def play(self, n: int, every: int, y: float = 1.0, raw: float = 0.2) -> None:
        """Issue so many forecasts, of which every so manyth is labelled at once."""
        for _ in range(n):
            t = self.next[0]
            self._fold(Forecast(t, b"k", f"e{t}", self.stream, raw, (), 1000 + t))
            self.next[0] += 1
            if t % every == 0:
                self._fold(Outcome(self.next[1], b"k", f"e{t}", y, 1000 + t))
                self.next[1] += 1

    def _fold(self, event: Event) -> None:
        effects = self.worker.fold(event)
        self.changes += [(self.next[0], begins) for begins in effects.withheld.values()]
        made: list[Output] = effects.outputs
        self.answers += [each for each in made if isinstance(each, Calibrated)]

    @property
    def calibrator(self) -> object:
        return self.worker.table.served(self.stream, self.policies).calibrator


def test_the_raw_forecast_is_served_while_most_have_no_label_and_the_calibrator_learns() -> None:
    few = Stream(HASTY)
    few.play(1000, every=10)
    last = few.answers[-1]
    assert (last.p, last.draw, last.version) == (0.2, 0.2, 100)
    full = Stream(HASTY)
    full.play(1000, every=1)
    served = full.answers[-1].p
    assert isinstance(served, float)
    assert served > 0.9
    few.play(1000, every=1)
    now = few.answers[-1].p
    assert isinstance(now, float)
    assert now > 0.9, "what was learnt meanwhile is served"


def test_it_is_told_when_a_stream_that_was_served_is_withheld_and_when_that_ends() -> None:
    stream = Stream(HASTY)
    stream.play(600, every=10)
    stream.play(1000, every=1)
    assert not stream.changes, "it had never been served"
    stream.play(1500, every=10)
    stream.play(1500, every=1)
    (began, begins), (ended, again) = stream.changes
    assert (begins, again) == (True, False)
    assert 1600 < began < 3100 < ended
    coverage = kinds.COVERAGE.decode(stream.worker.table[kinds.COVERAGE.key("s")])
    assert coverage.since_ms == 1000 + ended - 1


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ((True, 100), (False, 200), (True, 100)),
        ((True, 100), (True, 200), (True, 100)),
        ((False, 100), (False, 200), (False, 200)),
    ],
)
def test_together_partitions_are_withheld_since_the_first_of_them(
    one: tuple[bool, int], two: tuple[bool, int], both: tuple[bool, int]
) -> None:
    parts = [Coverage(), Coverage()]
    for part, said in zip(parts, (one, two), strict=True):
        part.uncovered, part.since_ms = said
    for made in (parts[0] + parts[1], parts[1] + parts[0]):
        assert (made.uncovered, made.since_ms) == both


@pytest.mark.parametrize(
    "policy", [replace(HASTY, unlabelled="alike"), replace(HASTY, matures_ms=10, silence=1.0, learn="arrival")]
)
def test_what_a_missing_label_means_is_believed_if_it_is_said(policy: Policy) -> None:
    stream = Stream(policy)
    stream.play(1000, every=10)
    served = stream.answers[-1].p
    assert isinstance(served, float)
    assert served > 0.9
    assert kinds.COVERAGE.key("s") not in stream.worker.table


def test_a_declared_prior_is_served_while_most_forecasts_have_no_label() -> None:
    stream = Stream(Policy(options={"prior_rate": 0.004, "model_rate": 0.5}, ttl_ms=10**9))
    stream.play(1, every=10)
    before = stream.answers[-1].p
    stream.play(1500, every=10)
    assert stream.answers[-1].p == before != 0.2


def test_challengers_are_withheld_with_the_champion() -> None:
    stream = Stream(replace(HASTY, shadow=(Challenger("histogram", {}),)))
    stream.play(1000, every=10)
    entry = stream.worker.table.entry("e999")
    assert entry is not None
    fresh = make("histogram", name="s", seed=0).predict(0.2).p
    assert [each.p for each in entry.shadows] == [fresh]


def test_classes_and_numbers_are_withheld() -> None:
    policy = Policy("multiclass", {"classes": 2, "each": "platt"}, ttl_ms=10**9)
    worker = Worker(Policies(default=policy), Table())
    answers = []
    for t in range(800):
        made = worker.fold(Forecast(t, b"k", f"e{t}", "s", Probs((0.8, 0.2)), (), 1000 + t)).outputs
        answers += [each for each in made if isinstance(each, Calibrated)]
        if t % 10 == 0:
            worker.fold(Outcome(t // 10, b"k", f"e{t}", 1.0, 1000 + t))
    served = answers[-1].p
    assert isinstance(served, Classwise)
    assert tuple(served) == pytest.approx((0.8, 0.2))


def test_the_guarantee_counts_only_what_was_served() -> None:
    """While most forecasts have no label the cells count nothing; after that, only what is served from then on."""
    few = Stream(Policy(ttl_ms=10**9))
    few.play(LEAST + 10 * FEWEST + 1000, every=10, y=0.0)
    learnt = few.calibrator.learnt  # type: ignore[attr-defined]
    counted = few.calibrator.back._counted  # type: ignore[attr-defined]
    assert 0 < counted < 2 * FEWEST < learnt
    few.play(400, every=1)
    assert few.answers[-1].p != 0.2
    since = few.calibrator.back._counted - counted  # type: ignore[attr-defined]
    assert 100 < since < 400


@pytest.mark.parametrize("spec", ["prudent+certified", "prudent", "platt"])
def test_from_an_answer_that_was_not_served_the_map_learns_as_from_one_that_was(spec: str) -> None:
    one, other = make(spec, name="s", seed=0), make(spec, name="s", seed=0)
    rng = np.random.default_rng(3)
    for t in range(600):
        p, y = float(rng.random()), float(rng.random() < 0.1)
        key = b"%d" % t
        one.update(one.predict(p, key=key).ticket, y)
        ticket = other.unserved(other.predict(p, key=key).ticket)
        other.update(ticket, y)
        if t % 7 == 0:
            other.revise(ticket, y, 1.0 - y)
    assert one.learnt == other.learnt == 600
    if spec == "platt":
        return
    assert other.error() is None or spec == "prudent"
    assert one.error() is not None
