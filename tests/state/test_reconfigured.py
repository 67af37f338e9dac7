"""A stream whose configuration changes goes on: labels and revisions come of forecasts that another one answered."""

from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from state.events import Event, Forecast, Outcome
from state.forecasts import Normal, Probs
from state.policies import Policies
from state.policy import Challenger, Policy
from tests.state.histories import Table, Worker

#: Forecasts of the kinds of policies.
RAW: Final = (0.25, Probs((0.5, 0.3, 0.2)), Normal(0.0, 1.0))


def configured(rng: Random) -> Policy:
    """Return any configuration of a stream."""
    ttl = rng.choice((200, 10**5))
    options: dict[str, Any] = {
        "ttl_ms": ttl,
        "unlabelled": rng.choice(("unknown", "alike")),
        "segments": rng.choice(((), ("country",), ("country", "channel"))),
        "revisable_ms": rng.choice((0, ttl + 1000)),
    }
    if rng.random() < 0.3:
        return rng.choice((Policy("multiclass", {"classes": 3}, **options), Policy("quantile", **options)))
    champion, challenger = rng.sample(("identity", "platt", "histogram", "prudent+certified"), 2)
    options |= rng.choice(({}, {"label_rate": "chance"}, {"matures_ms": 100}, {"matures_ms": 100, "silence": 0.0}))
    return Policy(
        champion,
        interval=rng.choice((0.0, 0.9)),
        weight=rng.choice(("", "amount")),
        shadow=rng.choice(((), (Challenger(challenger, {}),))),
        model_version=rng.choice(("", "", "", "version")),
        **options,
    )


def events(rng: Random, policy: Policy, told: list[Event]) -> list[Event]:
    """Return further events of a stream, behind those of before; outcomes are also of these."""
    made: list[Event] = []
    names = [each.event_id for each in told if isinstance(each, Forecast)]
    offsets = [len(names), len(told) - len(names)]
    for now in range(len(told), len(told) + 60):
        if rng.random() < 0.5 or not names:
            names.append(f"e{offsets[0]}")
            chance = rng.choice((0.1, 1.0)) if policy.label_rate else 1.0
            version = rng.choice("12") if policy.model_version else ""
            values = tuple(rng.choice(("DE", "FR", "")) for _ in policy.segments)
            raw = RAW[policy.kind]
            more: dict[str, Any] = {"weight": 2.0, "chance": chance, "version": version}
            made.append(Forecast(offsets[0], None, names[-1], "s", raw, (), 2 * now, None, values, **more))
            offsets[0] += 1
        else:
            made.append(Outcome(offsets[1], None, rng.choice(names[-60:]), float(rng.random() < 0.5), 2 * now))
            offsets[1] += 1
    return made


@pytest.mark.parametrize("seed", range(12))
def test_a_stream_goes_on_under_any_other_configuration_and_restarts_leave_no_trace(seed: int) -> None:
    rng, told = Random(seed), list[Event]()
    tables = Table(), Table()
    policy = configured(rng)
    for _ in range(4):
        plan = Policies([("s", policy)])
        one, other = (Worker(plan, table) for table in tables)
        for event in events(rng, policy, told):
            told.append(event)
            if rng.random() < 0.2:
                other = Worker(plan, tables[1])
            assert one.fold(event).outputs == other.fold(event).outputs
        beside, policy = policy, configured(rng)
        if beside.shadow and rng.random() < 0.6:  # a promotion
            champion = Challenger(beside.calibrator, beside.options)
            policy = replace(beside, calibrator=beside.shadow[0].calibrator, shadow=(champion,))
    assert tables[0] == tables[1]
