"""Replay teaches and counts by chance and weight what the workers' engine does, and its report shows it."""

import random
from pathlib import Path

import pytest

from replay.partition_result import WHOLE
from state import kinds
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from tests.commands import Trueup
from tests.replay.engines import agreeing

POLICY = Policy(DEFAULT_CALIBRATOR, ttl_ms=10**6, label_rate="chance", weight="amount", segments=("country",))
PLAN = Policies(default=POLICY)


def payments(seed: int) -> list[Event]:
    """Return payments of two countries, of which a fifth is chosen, with labels that are sometimes taken back."""
    rng = random.Random(seed)
    events: list[Event] = []
    known: list[tuple[int, str, float]] = []
    outcomes = 0
    for at in range(3000):
        chosen, country = rng.random() < 0.2, rng.choice(("DE", "FR", ""))
        chance, name = 1.0 if chosen else 0.1, f"e{at}"
        p, amount = rng.random(), float(rng.randrange(1000))
        events.append(Forecast(at, None, name, "s", p, (), at, None, (country,), weight=amount, chance=chance))
        if rng.random() < chance:
            y = float(rng.random() < p / 2)
            known.append((at + 100, name, y))
            if rng.random() < 0.1:
                known.append((at + 200, name, 1.0 - y))
                known.sort()
        while known and known[0][0] <= at:
            ts, name, y = known.pop(0)
            events.append(Outcome(outcomes, None, name, y, ts))
            outcomes += 1
    return events


def test_both_engines_agree_on_what_labels_of_a_chance_teach_and_on_what_is_counted_by_weight(tmp_path: Path) -> None:
    worker, made, calibrator = agreeing(PLAN, payments(1), tmp_path)
    assert 100 < len(made.column("index")) == calibrator.learnt < made.untaught
    held = made.weighted["s", 0]
    stored = {}
    for key, found in worker.table.of(kinds.WEIGHTED.letter).items():
        _, layout, slot = kinds.WEIGHTED.of(key)
        stored[WHOLE if (layout, slot) == kinds.WHOLE else slot] = kinds.WEIGHTED.decode(found)
    assert stored == held
    assert len(stored) == 3 + 1
    assert held[WHOLE].n == len(made.column("index")) + made.untaught


def test_a_table_gives_amounts_and_chances_and_the_report_shows_what_was_expected_by_weight(
    tmp_path: Path, trueup: Trueup
) -> None:
    rng = random.Random(2)
    lines = []
    for n in range(1500):
        chosen, p = rng.random() < 0.3, rng.random()
        chance = 1.0 if chosen else 0.5
        y = str(int(rng.random() < p)) if rng.random() < chance else ""
        lines.append(f"{p:.3f},{y},{1_700_000_000 + n * 60},{rng.randrange(500)},{chance},{'NL' if n % 2 else 'DE'}")
    lines.append("0.5,1,1700090000,,1,NL")
    path, page, streams = tmp_path / "scores.csv", tmp_path / "review.html", tmp_path / "streams.toml"
    path.write_text("\n".join(["score,label,time,amount,chance,country", *lines]) + "\n")
    streams.write_text('[streams."*"]\nweight = "weight"\nlabel_rate = "label_rate"\nsegments = ["country"]\n')
    named = f"replay --json --table {path} --score score --label label --time time --report {page} --weight amount"
    result = trueup(f"{named} --label-rate chance --segments country --streams {streams}").json
    assert result["dead"]["forecasts"] == {"weight": 1}
    (scored,) = result["contenders"][0]["streams"].values()
    weighted = scored["weighted"]
    assert weighted["events"] == scored["raw"]["n"] + result["contenders"][0]["untaught"]
    assert {each["value"] for each in weighted["segments"]} == {"DE", "NL"}
    assert sum(each["weight"] for each in weighted["segments"]) == pytest.approx(weighted["weight"])
    bias = weighted["raw"]["bias"]
    assert bias["low"] < 0.0 < bias["high"], "scores are the risk"
    text = page.read_text()
    assert "country = NL" in text
    assert "By weight" in text
    assert "Outcomes depend on the score" not in text
    refused = trueup(named)
    assert refused.status
    assert '[streams."scores"]' in refused.err
