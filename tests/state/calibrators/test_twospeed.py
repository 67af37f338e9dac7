"""What the default promises beyond the laws: order, raw until there is evidence, no debt, never much worse than raw."""

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import Calibrator, make
from state.calibrators.guard import WEIGHT
from state.calibrators.runs import SPAN
from state.calibrators.twospeed import ZEROS, TwoSpeed
from state.policy import DEFAULT_CALIBRATOR
from tests.state.logistic import log_loss, logistic

INSIDE = st.floats(1e-6, 1 - 1e-6)
STREAMS = st.lists(st.tuples(INSIDE, st.sampled_from([0.0, 1.0])), min_size=1, max_size=200)
SPECS = ("twospeed", "prudent", DEFAULT_CALIBRATOR)


def play(calibrator: Calibrator, raw: Sequence[float], y: Sequence[float], due: Sequence[int]) -> list[float]:
    """Return what is served, where outcome t is learnt before forecast ``due[t]``; of a tie, the earlier first."""
    order = sorted(range(len(raw)), key=lambda t: (due[t], t))
    served: list[float] = []
    tickets: list[bytes] = []
    k = 0
    for t, p in enumerate(raw):
        while k < len(order) and due[order[k]] <= t:
            calibrator.update(tickets[order[k]], y[order[k]])
            k += 1
        answer = calibrator.predict(p, (), b"%d" % t)
        served.append(answer.p)
        tickets.append(answer.ticket)
    return served


def taught(spec: str, stream: Sequence[tuple[float, float]], seed: int = 7) -> Calibrator:
    """Return a calibrator that has learnt 60 calibrated outcomes, so that it serves its map, and then a stream."""
    calibrator: Calibrator = make(spec, name="stream")
    rng = random.Random(seed)
    for t in range(60):
        p = rng.random()
        calibrator.update(calibrator.predict(p, (), b"%d" % t).ticket, float(rng.random() < p))
    for t, (p, y) in enumerate(stream):
        calibrator.update(calibrator.predict(p, (), b"%d" % t).ticket, y)
    return calibrator


@pytest.mark.parametrize("spec", SPECS)
@given(stream=STREAMS, forecasts=st.lists(st.integers(1, 99_999), min_size=2, max_size=50, unique=True))
def test_order_of_raw_forecasts_is_kept_without_ties(
    spec: str, stream: list[tuple[float, float]], forecasts: list[int]
) -> None:
    calibrator = taught(spec, stream)
    served = [calibrator.predict(k / 100_000).p for k in sorted(forecasts)]
    assert all(left < right for left, right in pairwise(served))
    assert all(0.0 < p < 1.0 for p in served)


@pytest.mark.parametrize("spec", SPECS)
def test_raw_is_served_until_both_classes_were_seen(spec: str) -> None:
    calibrator: Calibrator = make(spec, name="stream")
    for t in range(19):
        for y in (0.0, 1.0, 1.0):
            ticket = calibrator.predict(0.3, (), b"%d" % t).ticket
            calibrator.update(ticket, y)
            assert [calibrator.predict(p).p for p in (0.001, 0.3, 0.999)] == [0.001, 0.3, 0.999]
    calibrator.update(ticket, 0.0)
    calibrator.update(ticket, 0.0)
    assert calibrator.predict(0.3).p != 0.3


@pytest.mark.parametrize("spec", SPECS)
def test_ones_that_are_taken_back_are_no_evidence_of_zeros(spec: str) -> None:
    calibrator: Calibrator = make(spec, name="stream")
    for t in range(2000):
        ticket = calibrator.predict(0.01, (), b"%d" % t).ticket
        calibrator.update(ticket, 1.0)
        if t % 20 == 0:
            calibrator.revise(ticket, 1.0, 0.0)
    assert [calibrator.predict(p).p for p in (0.001, 0.01, 0.5)] == [0.001, 0.01, 0.5]


def test_zeros_alone_move_it_no_further_than_a_few_in_the_outcomes_seen() -> None:
    calibrator = make("twospeed")
    for t in range(1, 10_001):
        calibrator.update(calibrator.predict(0.2).ticket, 0.0)
        if t <= 19:
            assert calibrator.predict(0.2).p == 0.2
        if t in {100, 1000, 10_000}:
            assert 0.5 / t < calibrator.predict(0.2).p < 16.0 / t


@given(STREAMS)
def test_log_loss_exceeds_raws_by_no_more_than_the_bound(stream: list[tuple[float, float]]) -> None:
    calibrator = TwoSpeed()
    excess = 0.0
    for p, y in [(0.1, 0.0)] * 20 + [(0.1, 1.0)] + stream:
        answer = calibrator.predict(p)
        if calibrator.evident():
            excess += log_loss(answer.p, y) - log_loss(p, y)
        calibrator.update(answer.ticket, y)
    assert excess <= most_excess(calibrator) + 1e-4


def most_excess(calibrator: TwoSpeed) -> float:
    squares = (calibrator._guard.squares, calibrator._steps._guard.squares)
    return -math.log(WEIGHT) * sum(max(1.0, math.sqrt(each) / 2.0) for each in squares)


def test_log_loss_bound_holds_against_whoever_hates_the_map() -> None:
    calibrator = TwoSpeed()
    rng = random.Random(5)
    excess = 0.0
    for t in range(8000):
        p = 0.05 + 0.9 * rng.random()
        answer = calibrator.predict(p)
        y = float(answer.p <= p) if t > 60 else float(t % 2)  # the other side of where the map has moved
        if calibrator.evident():
            excess += log_loss(answer.p, y) - log_loss(p, y)
        calibrator.update(answer.ticket, y)
    assert excess <= most_excess(calibrator) + 1e-4


def rare(n: int, seed: int, rate: float = 0.02) -> tuple[list[float], list[float], list[float]]:
    """Return raw forecasts ten to twenty times too high, true chances and outcomes."""
    rng = random.Random(seed)
    z = [rng.gauss(0.0, 1.0) + math.log(rate / (1 - rate)) for _ in range(n)]
    truth = [logistic(each) for each in z]
    return [logistic(each + 3.0) for each in z], truth, [float(rng.random() < each) for each in truth]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_what_was_served_before_anything_was_known_is_not_paid_back(spec: str, seed: int) -> None:
    raw, truth, y = rare(30_000, seed)
    served = play(make(spec, name="stream"), raw, y, [t + 8000 for t in range(30_000)])
    assert served[:8000] == raw[:8000]
    late = slice(16_000, 30_000)
    assert sum(served[late]) == pytest.approx(sum(truth[late]), rel=0.15)


@pytest.mark.parametrize("seed", [1, 2])
def test_frauds_that_are_reported_first_are_no_evidence(seed: int) -> None:
    raw, truth, y = rare(30_000, seed, rate=0.05)
    rng = random.Random(seed)
    due = [t + (rng.randrange(8000) if one else 8000) for t, one in enumerate(y)]
    served = play(make(DEFAULT_CALIBRATOR, name="stream"), raw, y, [max(each, t + 1) for t, each in enumerate(due)])
    assert served[:8000] == raw[:8000]
    late = slice(16_000, 30_000)
    assert sum(served[late]) == pytest.approx(sum(truth[late]), rel=0.2)


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_broken_model_raw_forecasts_are_served_again(seed: int) -> None:
    rng = random.Random(seed)
    n = 40_000
    truth = [logistic(rng.gauss(0.0, 1.2) - 2.5) for _ in range(n)]
    y = [float(rng.random() < each) for each in truth]
    raw = [min(3 * each + 0.3, 0.99) if 16_000 <= t < 18_000 else each for t, each in enumerate(truth)]
    served = play(make(DEFAULT_CALIBRATOR, name="stream"), raw, y, [t + 2001 for t in range(n)])
    last = slice(30_000, n)
    assert sum(served[last]) == pytest.approx(sum(truth[last]), rel=0.03)


@pytest.mark.parametrize("known", [0.1, 0.3])
@pytest.mark.parametrize("spec", ["twospeed", "platt", DEFAULT_CALIBRATOR])
@pytest.mark.parametrize("seed", range(3))
def test_zeros_by_silence_that_are_corrected_make_nobody_a_fraudster(spec: str, known: float, seed: int) -> None:
    draw, calibrator = random.Random(seed), make(spec, name="stream")
    stream = []
    for t in range(1000):
        p = 1.0 / (1.0 + math.exp(4.0 - 1.35 * draw.gauss(0.0, 1.0)))
        stream.append((calibrator.predict(p, (), b"%d" % t).ticket, p, draw.random() < p, draw.random() < known))
    for ticket, _, y, early in stream:
        calibrator.update(ticket, float(y and early))
    for ticket, _, y, early in stream:
        if y and not early:
            calibrator.revise(ticket, 0.0, 1.0)
    served = sum(calibrator.predict(p, (), b"after").p for _, p, _, _ in stream)
    assert served < 1.5 * sum(p for _, p, _, _ in stream)  # it was up to 27 times


def test_declared_prior_is_served_and_believed_at_first() -> None:
    by_rates = make(DEFAULT_CALIBRATOR, name="stream", prior_rate=0.004, model_rate=0.5)
    assert by_rates.predict(0.5).p == pytest.approx(0.004)
    by_map = make("twospeed", slope=0.5, offset=-1.0)
    assert by_map.predict(0.5).p == pytest.approx(logistic(-1.0))
    assert by_map.predict(logistic(2.0)).p == pytest.approx(0.5)
    with pytest.raises(ValueError, match="must be given together"):
        make("prudent", prior_rate=0.01)


@pytest.mark.parametrize("forecasts", ["half", "any", "rare"])
def test_opponent_who_sees_p_does_not_fool_the_draw(forecasts: str) -> None:
    rng = random.Random(3)
    calibrator = make(DEFAULT_CALIBRATOR, name="opponent", seed=5)
    off: dict[float, float] = {}
    for t in range(20_000):
        raw = {"half": 0.5, "any": rng.random(), "rare": rng.random() / 10}[forecasts]
        p, draw, ticket = calibrator.predict(raw, (), b"%d" % t)
        y = float(p <= 0.5)
        calibrator.update(ticket, y)
        off[draw] = off.get(draw, 0.0) + y - draw
    assert sum(map(abs, off.values())) / 20_000 <= 0.05


def test_a_revision_that_is_the_first_evidence_leaves_the_answers_of_a_restart() -> None:
    calibrator, again = TwoSpeed(), TwoSpeed()
    tickets = [calibrator.predict(0.01).ticket for _ in range(ZEROS + 1)]
    for ticket in tickets:
        calibrator.update(ticket, 0.0)
    calibrator.revise(tickets[0], 0.0, 1.0)
    assert calibrator.evident()
    again.decode(calibrator.encode())
    assert again.predict(0.02) == calibrator.predict(0.02)


def test_bands_do_not_follow_a_wave_that_outcomes_tell_too_late() -> None:
    rng = random.Random(3)
    raw, y = [], []
    for t in range(20_000):
        z = rng.gauss(-1.2, 0.5)
        raw.append(logistic(z))
        y.append(float(rng.random() < logistic(z + math.sin(2.0 * math.pi * t / 6000))))
    p = play(make("twospeed"), raw, y, [t + 2001 for t in range(len(raw))])
    excess = sum((one - z) ** 2 - (other - z) ** 2 for one, other, z in zip(p, raw, y, strict=True)) / len(raw)
    assert excess < 0.012  # .0099 without a bend, .0160 with all of it


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_whose_zeros_come_first_makes_nobody_a_fraudster(spec: str) -> None:
    rng = random.Random(5)
    calibrator: Calibrator = make(spec, name="stream")
    batch = []
    for t in range(1500):
        p = logistic(rng.gauss(-4.4, 1.35))
        batch.append((calibrator.predict(p, (), b"%d" % t).ticket, float(rng.random() < p)))
    for n, (ticket, y) in enumerate(sorted(batch, key=lambda each: each[1])):
        calibrator.update(ticket, y, SPAN + n)
    forecasts = [logistic(rng.gauss(-4.4, 1.35)) for _ in range(1000)]
    served = sum(calibrator.predict(p, (), b"next-%d" % t).p for t, p in enumerate(forecasts))
    assert 0.8 < served / sum(forecasts) < 1.25  # 27 with the curvature of q alone


@pytest.mark.parametrize("level", [-2.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_scores_in_tenths_are_served_no_worse_for_their_zeros_and_ones(level: float, seed: int) -> None:
    """Rounded scores of 0 happen and those of 1 do not, now and then."""
    rng = random.Random(seed)
    risks = [logistic(1.35 * rng.gauss(0.0, 1.0) + level) for _ in range(8000)]
    y = [float(rng.random() < each) for each in risks]
    raw = [round(each, 1) for each in risks]
    served = play(TwoSpeed(), raw, y, range(1, 8001))
    before, after = (sum((p - each) ** 2 for p, each in zip(made, y, strict=True)) for made in (raw, served))
    assert after < 1.002 * before


@given(stream=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.9, 1.0]), st.sampled_from([0.0, 1.0])), max_size=200))
def test_order_is_kept_where_certainties_were_wrong(stream: list[tuple[float, float]]) -> None:
    calibrator = taught("twospeed", [(0.0, 1.0), (1.0, 0.0), *stream])
    served = [calibrator.predict(k / 1000).p for k in range(1001)]
    assert all(left < right for left, right in pairwise(served))


@pytest.mark.parametrize("end", [0, 1])
def test_a_certainty_learns_its_place_and_stays_beyond_all_other_scores(end: int) -> None:
    """Scores of 0 are .02, or those of 1 are .98. A log-odds beyond all others, which are right, they would be .004."""
    rng = random.Random(3)
    calibrator = TwoSpeed()
    for k in range(6000):
        p = rng.randrange(1, 100) / 100 if k % 2 else 0.0
        y = float(rng.random() < (p or 0.02))
        calibrator.update(calibrator.predict(abs(end - p)).ticket, abs(end - y))
    certain, nearest = (abs(end - calibrator.predict(abs(end - p)).p) for p in (0.0, 0.01))
    assert 0.008 < certain < nearest < 0.03


def test_certainties_that_are_right_are_left_as_they_are() -> None:
    calibrator = taught("twospeed", [(k % 2, k % 2) for k in range(5000)])
    assert calibrator.predict(0.0).p < 1e-5
    assert calibrator.predict(1.0).p > 1 - 1e-5


def test_a_burst_that_no_score_saw_hardly_raises_the_scores_after_it() -> None:
    """Half of 300 forecasts of an hour are ones, which no score says; before and after them all scores are right."""
    hour = range(5000, 5300)
    times = [*range(5000), *[5000 + k / 30 for k in range(300)], *range(5010, 9000)]
    for seed in range(2):
        rng = random.Random(seed)
        raw = [logistic(rng.gauss(-4.2, 1.2)) for _ in times]
        y = [float(rng.random() < (0.5 if t in hour else p)) for t, p in enumerate(raw)]
        served = play(make("twospeed"), raw, y, [bisect_left(times, time + 1000) for time in times])
        assert sum(served[6300:]) < 1.2 * sum(raw[6300:])


def test_a_rate_that_rises_for_good_is_learnt_though_outcomes_are_late() -> None:
    rng = random.Random(5)
    true = [logistic(rng.gauss(-4.2, 1.2) + (2.0 if t >= 6000 else 0.0)) for t in range(14_000)]
    raw = [p if t < 6000 else logistic(math.log(p / (1 - p)) - 2.0) for t, p in enumerate(true)]
    y = [float(rng.random() < p) for p in true]
    served = play(make("twospeed"), raw, y, [t + 1000 for t in range(len(raw))])
    assert sum(served[9000:]) == pytest.approx(sum(true[9000:]), rel=0.25)


def test_the_order_of_a_crowds_labels_does_not_matter() -> None:
    """A file of many forecasts that were issued before the last one came, its zeros first or its ones first."""
    found = []
    for first in (0.0, 1.0):
        rng = random.Random(3)
        calibrator = make("twospeed")
        for _ in range(6):
            raw = [logistic(rng.gauss(-3.0, 1.2)) for _ in range(2000)]
            y = [float(rng.random() < p) for p in raw]
            tickets = [calibrator.predict(p).ticket for p in raw]
            for t in sorted(range(len(raw)), key=lambda t: abs(y[t] - first)):
                calibrator.update(tickets[t], y[t])
        found.append(calibrator.predict(0.05).p)
    assert found == pytest.approx([0.05, 0.05], rel=0.15)


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_file_that_is_sorted_by_label_does_no_harm(first: float) -> None:
    """Three files of 5,000 labels, a millisecond from one to the next; scores are right."""
    rng = random.Random(1)
    calibrator, lost = make("twospeed"), [0.0, 0.0]
    for file in range(1, 4):
        tickets = []
        for _ in range(5000):
            p = logistic(rng.gauss(-1.0, 1.2))
            y = float(rng.random() < p)
            answer = calibrator.predict(p)
            tickets.append((answer.ticket, y))
            for n, each in enumerate((p, answer.p)):
                lost[n] -= math.log(each if y else 1.0 - each)
        for n, (ticket, y) in enumerate(sorted(tickets, key=lambda each: abs(each[1] - first))):
            calibrator.update(ticket, y, 86_400_000 * file + n)
    # 1.34 with zeros first when curvature was that of the step's end alone; 1.92 with ones first when a map was judged
    # by labels whose run it had followed.
    assert lost[1] < 1.01 * lost[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_forecasts_that_share_an_outcome_do_little_harm_though_nothing_says_so(seed: int) -> None:
    """Of 60 games each is forecast a hundred times by honest scores, and told when it ends."""
    rng = random.Random(seed)
    calibrator, lost = make(DEFAULT_CALIBRATOR, name="games"), [0.0, 0.0]
    for game in range(60):
        z = rng.gauss(0.0, 1.0)
        y = float(rng.random() < logistic(z))
        tickets = []
        for _ in range(100):
            p = logistic(z)
            answer = calibrator.predict(p, (), b"")
            tickets.append(answer.ticket)
            for n, each in enumerate((p, answer.p)):
                lost[n] += log_loss(each, y)
            z += rng.gauss(0.0, 0.2) + 0.02 * (2.0 * y - 1.0)
        for ticket in tickets:
            calibrator.update(ticket, y, 10_000 * (game + 1))
    assert lost[1] < 1.02 * lost[0]


def test_scores_that_are_far_too_sure_are_soon_corrected() -> None:
    """Log-odds are ten times what they should be. No more is lost than by 66 raw scores of 3,000."""
    for seed in range(3):
        rng = random.Random(seed)
        calibrator, lost, raw = make("twospeed"), 0.0, 0.0
        for _ in range(3000):
            z = rng.gauss(-9.0, 4.0)
            right = logistic(0.1 * z - 1.5)
            y = float(rng.random() < right)
            answer = calibrator.predict(logistic(z))
            calibrator.update(answer.ticket, y)
            best, p, q = (each if y else 1.0 - each for each in (right, logistic(z), answer.p))
            lost += math.log(best / max(q, 1e-6))
            raw += math.log(best / max(p, 1e-6))
        assert lost < 66 * raw / 3000  # 118 to 262 before the steps were proximal


@pytest.mark.parametrize(
    ("level", "wrong", "corrected", "late", "near"),
    [(-3.0, range(2000, 2300), 10_000, 200, 0.02), (-4.1, range(8000, 8300), 9500, 0, 0.12)],
    ids=["late labels, when three times as much is known", "prompt labels, in full"],
)
def test_a_wrong_batch_that_is_corrected_is_taken_back_and_no_more(
    level: float, wrong: range, corrected: int, late: int, near: float
) -> None:
    """300 labels are all ones, and are corrected later."""
    for seed in range(2):
        rng = random.Random(seed)
        raw = [logistic(rng.gauss(level, 1.2)) for _ in range(14_000)]
        y = [float(rng.random() < p) for p in raw]
        calibrator, after = make("twospeed"), 0.0
        tickets: list[bytes] = []
        for t, p in enumerate(raw):
            if t == corrected:
                for k in wrong:
                    calibrator.revise(tickets[k], 1.0, y[k])
            answer = calibrator.predict(p)
            tickets.append(answer.ticket)
            after += answer.p if t >= corrected else 0.0
            if t >= late:
                calibrator.update(tickets[t - late], 1.0 if t - late in wrong else y[t - late])
        assert after == pytest.approx(sum(raw[corrected:]), rel=near)


def test_a_crowd_that_has_reached_its_bounds_ends() -> None:
    """A model that is 50 times too high is replaced by one that is right; outcomes come 20 forecasts late."""
    for seed in range(2):
        rng = random.Random(seed)
        z = [rng.gauss(-4.2, 1.2) for _ in range(22_000)]
        y = [float(rng.random() < logistic(each)) for each in z]
        raw = [logistic(each + (math.log(50.0) if t < 12_000 else 0.0)) for t, each in enumerate(z)]
        served = play(make("twospeed"), raw, y, [t + 20 for t in range(len(raw))])
        assert sum(served[16_000:]) == pytest.approx(sum(raw[16_000:]), rel=0.1)
