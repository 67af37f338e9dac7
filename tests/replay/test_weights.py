"""The report shows what was expected and what happened by chance and weight."""

import random
from pathlib import Path

import pytest

from tests.commands import Trueup


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
