"""Versions of a model: a new one begins with the map of the one before, and each learns from its own outcomes."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from state import kinds
from state.bands import Bands
from state.calibrators.carried import FEW, OWN, CarriedOver
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome
from state.frames import DAMAGE
from state.kind import kind_of
from state.policies import Policies
from state.policy import Challenger, Policy
from state.rescale_stream import Divided
from state.versions import MOST, OTHER, CarriedLine, Version, Versions, line
from tests.state.histories import Table, Worker, folded_again
from tests.state.logistic import logistic, logit

DAY = 86_400_000
POLICY = Policy("prudent+certified", model_version="model.version", ttl_ms=10 * DAY, unlabelled="alike")
PLAN = Policies(default=POLICY)
BESIDE = Challenger("prudent", {}), Challenger("identity", {})
MARKED: dict[str, Any] = {"bands": Bands(("pass", "review"), (0.0, 0.3)), "interval": 0.9}
SMALL = Policies(default=replace(POLICY, calibrator="platt", ttl_ms=40, shadow=BESIDE, **MARKED))


class Scored:
    """A worker whose events have a known risk, which each version sees on a scale of its own."""

    def __init__(self, policies: Policies = PLAN, seed: int = 1) -> None:
        self.worker = Worker(policies)
        self.random = random.Random(seed)
        self.offsets = count()
        self.now, self.mean = 0, -1.0

    def score(
        self, version: str, slope: float, offset: float, n: int, *, told: bool = True
    ) -> list[tuple[float, float]]:
        """Answer n forecasts, each with its outcome if that is told; return risk and served score of each."""
        found = []
        for _ in range(n):
            self.now += 1000
            z = self.random.gauss(self.mean, 1.5)
            at, raw = next(self.offsets), logistic(slope * z + offset)
            made = Forecast(at, b"k", f"e{at}", "s", raw, (), self.now, version=version)
            (answer,) = self.worker.fold(made).outputs
            assert isinstance(answer, Calibrated)
            assert isinstance(answer.p, float)
            found.append((logistic(z), answer.p))
            if told:
                y = float(self.random.random() < logistic(z))
                self.worker.fold(Outcome(at, b"k", f"e{at}", y, self.now))
        return found

    def versions(self) -> Versions:
        return kinds.VERSIONS.decode(self.worker.table[kinds.VERSIONS.key("s")])

    def calibrator(self, version: str) -> CarriedOver:
        config = POLICY.of_version(version).config
        served = kinds.CALIBRATOR.decode(self.worker.table[kinds.CALIBRATOR.key("s", config)], "s")
        assert isinstance(served.calibrator, CarriedOver)
        return served.calibrator


def off(found: list[tuple[float, float]]) -> float:
    """Return the mean excess log loss of served scores over the true risks."""
    losses = [
        -r * math.log(p) - (1 - r) * math.log1p(-p) + r * math.log(r) + (1 - r) * math.log1p(-r) for r, p in found
    ]
    return sum(losses) / len(losses)


def test_a_new_version_is_right_before_its_first_outcome() -> None:
    """Its scores are five times too low and half as far apart, those of the old one were too high."""
    scored = Scored()
    scored.score("1", 1.5, 2.0, 1500)
    first = scored.score("2", 0.5, -2.5, 40, told=False)
    later = scored.score("2", 0.5, -2.5, 360, told=False)
    assert off(first) > 0.1  # raw scores, while too few have come to compare ranks
    assert off(later) < 0.02
    new = scored.versions().of["2"]
    assert (new.after, new.forecasts, new.outcomes) == ("1", 400, 0)
    assert scored.calibrator("2").learnt == 0
    assert scored.calibrator("2").line.seen == 400


def test_both_versions_score_side_by_side_and_each_learns_from_its_own_outcomes() -> None:
    scored = Scored()
    scored.score("1", 1.5, 2.0, 600)
    before = scored.calibrator("1").encode()
    scored.score("2", 0.5, -2.5, FEW, told=False)
    scored.score("2", 0.5, -2.5, 100)
    assert scored.calibrator("1").encode() == before
    assert scored.calibrator("2").learnt == 100
    assert off(scored.score("1", 1.5, 2.0, 200)) < 0.02
    assert off(scored.score("2", 0.5, -2.5, 200)) < 0.04


def test_a_new_version_beside_the_old_one_is_compared_with_its_scores_of_the_same_time() -> None:
    """The population becomes safer at the very moment when the new version begins."""
    scored = Scored()
    scored.score("1", 1.5, 2.0, 1500)
    scored.mean = -3.0
    found = []
    for _ in range(4 * FEW):
        scored.score("1", 1.5, 2.0, 1, told=False)
        found += scored.score("2", 0.5, -2.5, 1, told=False)
    alone = Scored()
    alone.score("1", 1.5, 2.0, 1500)
    alone.mean = -3.0
    after = alone.score("2", 0.5, -2.5, 4 * FEW, told=False)
    assert off(found[2 * FEW :]) < 0.02
    assert off(after[2 * FEW :]) > 0.1


def test_a_line_stays_once_the_version_has_learnt_from_enough_outcomes() -> None:
    scored = Scored()
    scored.score("1", 1.5, 2.0, 300)
    scored.score("2", 0.5, -2.5, FEW, told=False)
    scored.score("2", 0.5, -2.5, OWN)
    scored.score("2", 0.5, -2.5, 4 * FEW, told=False)
    assert scored.calibrator("2").line.seen == FEW


def test_a_version_begins_with_raw_scores_where_that_is_said() -> None:
    scored = Scored(Policies(default=replace(POLICY, carry_over=False)))
    scored.score("1", 1.5, 2.0, 300)
    scored.score("2", 0.5, -2.5, 2 * FEW, told=False)
    assert scored.calibrator("2").line.seen == 0


def test_a_version_whose_outcomes_come_at_once_learns_from_these_alone() -> None:
    scored = Scored()
    scored.score("1", 1.5, 2.0, 300)
    scored.score("2", 0.5, -2.5, 2 * FEW)
    assert scored.calibrator("2").line.seen == 0


def test_the_first_version_goes_on_with_what_the_stream_had_learnt_before() -> None:
    plain = Policies(default=replace(POLICY, model_version=""))
    scored = Scored(plain)
    scored.score("", 1.5, 2.0, 400)
    scored.worker.partition = Partition(PLAN, scored.worker.table.get)
    assert off(scored.score("1", 1.5, 2.0, 100, told=False)) < 0.02
    assert scored.calibrator("1").learnt == 400
    late = scored.worker.fold(Outcome(10_000, b"k", "e0", 1.0, scored.now))
    assert late.fates  # an outcome of before still finds what answered it
    assert scored.calibrator("1").learnt == 400


def test_a_version_beyond_those_that_have_a_place_shares_a_calibrator_that_begins_with_raw_scores() -> None:
    scored = Scored()
    for n in range(8):
        scored.score(f"v{n}", 1.5, 2.0, 60)
    (answer,) = scored.score("one more", 1.5, 2.0, 1, told=False)
    assert list(scored.versions().of) == [*(f"v{n}" for n in range(8)), OTHER]
    scored.score("and another", 1.5, 2.0, 2 * FEW, told=False)
    assert scored.versions().of[OTHER].forecasts == 2 * FEW + 1
    assert scored.calibrator(OTHER).line.seen == 0
    assert answer[1] > answer[0]


def test_a_version_whose_calibrator_is_configured_anew_is_counted_on_and_keeps_its_place() -> None:
    before = Scored()
    before.score("1", 1.0, 0.0, 200)
    changed = Policies(default=replace(POLICY, calibrator="platt"))
    after = Scored(changed)
    after.worker, after.offsets, after.now = Worker(changed, before.worker.table), count(200), before.now
    after.score("1", 1.0, 0.0, 100)
    (known,) = after.versions().of.values()
    assert (known.forecasts, known.outcomes, known.held, known.first_ms) == (300, 300, 100, 1000)
    assert known.config == replace(POLICY, calibrator="platt").of_version("1").config


def test_forecasts_of_versions_have_bands_and_intervals() -> None:
    scored = Scored(Policies(default=replace(POLICY, **MARKED)))
    scored.score("1", 1.0, 0.0, 100)
    (answer,) = scored.worker.fold(Forecast(100, b"k", "last", "s", 0.9, (), 200_000, version="1")).outputs
    assert isinstance(answer, Calibrated)
    assert answer.band == "review"
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low < answer.high


def test_a_version_that_nothing_came_of_for_long_gives_up_its_place_and_its_rows() -> None:
    scored = Scored()
    for n in range(MOST):
        scored.score(f"v{n}", 1.0, 0.0, 60)
    gone = kinds.CALIBRATOR.key("s", POLICY.of_version("v0").config)
    scored.now += 5 * DAY
    scored.score("v1", 1.0, 0.0, 20)  # one record alone does not move stream time so far
    scored.score("too soon", 1.0, 0.0, 1)
    assert gone in scored.worker.table
    assert "v0" in scored.versions().of
    scored.now += 10 * DAY
    scored.score("v1", 1.0, 0.0, 40)  # two rows leave with each record
    scored.score("v8", 1.0, 0.0, 1)
    assert gone not in scored.worker.table
    assert {"v1", "v8"} < set(scored.versions().of)
    assert "v0" not in scored.versions().of


def test_a_version_gives_up_its_place_if_no_version_was_named_while_its_rows_left() -> None:
    named = Scored()
    for n in range(MOST):
        named.score(f"v{n}", 1.0, 0.0, 60)
    later = named
    for policies in (Policies(default=replace(POLICY, model_version="")), PLAN):
        later, before = Scored(policies), later
        later.worker, later.offsets, later.now = Worker(policies, before.worker.table), before.offsets, before.now
        later.now += 15 * DAY
        later.score("", 1.0, 0.0, 300)  # two rows leave with each record
    later.score("new", 1.0, 0.0, 1)
    assert set(later.versions().of) == {"new"}


def test_challengers_begin_with_what_challengers_of_the_version_before_were_taught() -> None:
    policy = replace(POLICY, shadow=(Challenger("twospeed", {}), Challenger("identity", {})))
    scored = Scored(Policies(default=policy))
    scored.score("1", 1.5, 2.0, 400)
    scored.score("2", 0.5, -2.5, 2 * FEW, told=False)
    seen = []
    for each in policy.of_version("2").challengers:
        served = kinds.CALIBRATOR.decode(scored.worker.table[kinds.CALIBRATOR.key("s", each.config)], "s")
        assert isinstance(served.calibrator, CarriedOver)
        seen.append(served.calibrator.line.seen)
    assert seen == [2 * FEW, 0]  # identity serves raw scores, whatever was learnt


def test_an_outcome_that_is_revised_counts_once_in_its_version() -> None:
    scored = Scored()
    scored.score("1", 1.0, 0.0, 1, told=False)
    scored.worker.fold(Outcome(1, b"k", "e0", 0.0, scored.now))
    scored.worker.fold(Outcome(2, b"k", "e0", 1.0, scored.now + 1))
    of = scored.versions().of["1"]
    assert (of.outcomes, of.ones) == (1, 1.0)


def events(seed: int) -> Iterator[Event]:
    """Yield a history in which versions come, score side by side, go for long, and are more than there is room for."""
    chance, now = random.Random(seed), 0
    for at in range(700):
        now += chance.choice([0, 1, 1, 100 if chance.random() < 0.02 else 1])
        name = f"v{at // 110 + chance.choice([0, 0, 0, 1])}" if chance.random() < 0.95 else f"x{chance.randrange(12)}"
        yield Forecast(at, b"k", f"e{at}", "s", chance.random(), (), now, version=name)
        if chance.random() < 0.6:
            back = max(0, at - chance.randrange(40))
            yield Outcome(at, b"k", f"e{back}", float(chance.random() < 0.3), now)


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_and_outputs_do_not_depend_on_batches_and_crashes(seed: int) -> None:
    records = list(events(seed))
    table, outputs = folded_again(lambda table: Partition(SMALL, table.get), records, [(1, "checkpoint")] * 2000)
    chance = random.Random(seed)
    steps = ["", "checkpoint", "killed", "lost", "reset", "twice"]
    plan = [(chance.randint(1, 40), chance.choice(steps)) for _ in range(90)]
    again, others = folded_again(lambda table: Partition(SMALL, table.get), records, plan)
    assert others == outputs
    assert dict(again) == dict(table)
    assert any(each.after for each in kinds.VERSIONS.decode(table[kinds.VERSIONS.key("s")]).of.values())


def test_a_stream_that_is_divided_keeps_its_versions_and_goes_on() -> None:
    scored = Scored()
    scored.score("1", 1.5, 2.0, 300)
    scored.score("2", 0.5, -2.5, 100)
    rows = kinds.apart(scored.worker.table)
    found = [(0, key) for key in rows if kind_of(key).of_stream]
    made: list[dict[bytes, bytes]] = [{}, {}]
    Divided("s", [rows, {}], found, [], {(0, 0), (0, 1)}, 0).into(made)
    moved = kinds.VERSIONS.decode(made[0][kinds.VERSIONS.key("s")]).of
    assert [(each.name, each.cells) for each in moved.values()] == [
        (each.name, each.cells) for each in scored.versions().of.values()
    ]
    assert [each.held for each in moved.values()] == [0, 0]  # of the ledger nothing has moved here
    other = Scored()
    other.worker = Worker(PLAN, Table(kinds.together(made[1])))
    assert off(other.score("2", 0.5, -2.5, 60, told=False)) < 0.04


def test_versions_of_two_partitions_add_up_and_bytes_are_read_back() -> None:
    one, other = Versions(), Versions()
    for versions, names in ((one, "ab"), (other, "bc")):
        for n, name in enumerate(names):
            of = versions.admit(name, f"{ord(name):08x}", 10 * n)
            of.after = "z"
            for k in range(30 * (n + 1)):
                of.observe(k / 100, 10 * n + k)
                of.resolve(k / 100, 0.5, float(k % 2))
    both = one + other
    assert list(both.of) == ["a", "b", "c"]
    assert [each.forecasts for each in both.of.values()] == [30, 90, 60]
    assert sum(both.of["b"].cells) == 90
    assert Versions.decode(both.encode()).encode() == both.encode()
    for cut in range(len(both.encode())):
        with pytest.raises(DAMAGE):
            Versions.decode(both.encode()[:cut])


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.4, -3.0), (2.5, 2.0)])
def test_the_line_undoes_another_scale_of_the_same_scores(slope: float, offset: float) -> None:
    chance = random.Random(5)
    old, new = Version("1", "00000001"), Version("2", "00000002")
    for _ in range(3000):
        z = chance.gauss(-1.0, 1.5)
        old.observe(logistic(z), 0)
        z = chance.gauss(-1.0, 1.5)
        new.observe(logistic(slope * z + offset), 0)
    found = line(new, old, lambda p: logistic(1.2 * logit(p) - 0.5))
    for z in (-3.0, -1.0, 1.0):
        assert found.slope * (slope * z + offset) + found.offset == pytest.approx(1.2 * z - 0.5, abs=0.25)


def test_scores_that_are_all_alike_move_by_an_offset_alone() -> None:
    old, new = Version("1", "00000001"), Version("2", "00000002")
    for _ in range(100):
        old.observe(0.3, 0)
        new.observe(0.9, 0)
    found = line(new, old, lambda p: p)
    assert found.slope == 1.0
    assert logistic(logit(0.9) + found.offset) == pytest.approx(0.3, abs=0.06)
    assert line(new, Version("3", "00000003"), lambda p: p) == CarriedLine(1.0, 0.0)
