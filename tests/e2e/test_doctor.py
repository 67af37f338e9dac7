"""`trueup doctor` on a real broker: it says what is wrong, and that nothing is."""

import asyncio
import json
import time
from pathlib import Path

from streams.kafka import topics
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import forecast


def examined(w: World, **settings: str) -> tuple[int, dict[str, list[str]]]:
    """Return the exit status, and what is wrong by subject."""
    ended = w.command("doctor", "--json", **settings)
    found: dict[str, list[str]] = {}
    for each in json.loads(ended.stdout)["findings"]:
        if each["state"] == "wrong":
            found.setdefault(each["subject"], []).append(each["said"])
    return ended.returncode, found


def test_what_is_wrong_is_named_with_a_remedy_and_nothing_else_is(world: MakeWorld, tmp_path: Path) -> None:
    w = world()
    assert examined(w) == (0, {})

    status, wrong = examined(w, TRUEUP_APP_ID=f"{w.name}-other")
    assert status == 1
    (said, *_) = wrong["topics"]
    assert f"{w.name}-other-journal" in said
    assert "run 'trueup topics create'" in said

    w.serve([forecast("served", 0.5, 1_000_000)])
    changelog = w.topic("changelog")
    w.administer(lambda admin: admin.delete_topics([changelog]))
    wait_for("the changelog to be gone", lambda: len(examined(w)[1].get("topics", ())) > 1)
    gone, lost = examined(w)[1]["topics"]
    assert gone.startswith(f"topic {changelog} does not exist")
    assert lost.startswith(f"group {w.name} has served, and its state was in {changelog}: what 'trueup topics create'")
    asyncio.run(topics.create(w.settings, partitions=2))

    (tmp_path / "file").touch()
    status, wrong = examined(w, TRUEUP_DATA_DIR=str(tmp_path / "file"))
    assert (status, list(wrong)) == (1, ["disk"])
    assert "set TRUEUP_DATA_DIR to another directory" in wrong["disk"][0]

    w.send([forecast("e", 0.5, int(time.time() * 1000) + 100_000)])
    status, wrong = examined(w)
    assert (status, list(wrong)) == (1, ["clocks"])
    assert f"the newest record of {w.topic('forecasts')} is " in wrong["clocks"][0]
    assert "set the clock here by NTP" in wrong["clocks"][0]
