"""The model of several machines follows from its costs, and a run that does not go on is given up."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.bench import drain
from tests.bench.drain import Looks, WrongError
from tests.bench.scale import Cost, Model


def test_costs_are_found_from_drains_that_they_made() -> None:
    made = Cost(8.0, 1000.0, 250.0)
    found = Cost.fitted([(m, b, made.of(m, b)) for m, b in ((1, 100), (8, 100), (4, 4000))])
    assert (found.event, found.turn, found.partition) == pytest.approx((8.0, 1000.0, 250.0))


def test_workers_add_up_and_who_holds_most_partitions_is_waited_for() -> None:
    model = Model(Cost(10.0, 0.0, 0.0), Cost(1.0, 0.0, 0.0))
    assert model.rate(1, 8, 1.0, 500) == pytest.approx(100_000)
    assert model.rate(4, 8, 0.5, 500) == pytest.approx(200_000)
    assert model.rate(3, 8, 1.0, 500) == pytest.approx(100_000 * 8 / 3)


def test_a_run_is_given_up_after_looks_that_see_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "LOOK", 0.0)
    monkeypatch.setattr(drain, "LOOKS", 3)
    process = SimpleNamespace(poll=lambda: None)

    looks, seen = Looks("who", process), []

    async def looked() -> None:
        for state in ("1 answer", "1 answer", "2 answers", "2 answers", "2 answers", "2 answers"):
            await looks.look(state)
            seen.append(state)

    with pytest.raises(WrongError, match="who cannot go on: 3 looks in a row saw 2 answers"):
        asyncio.run(looked())
    assert len(seen) == 5


def test_a_run_whose_process_has_ended_says_so() -> None:
    with pytest.raises(WrongError, match="who ended with 70: 1 answer"):
        asyncio.run(Looks("who", SimpleNamespace(poll=lambda: 70)).look("1 answer"))
