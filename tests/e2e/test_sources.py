"""Source topics that do not exist: what says so, and what does not make them."""

import uuid
from pathlib import Path

from agents.worker import MISCONFIGURED
from tests.e2e.world import MakeWorld

SOURCE = """
[sources.scores]
topic = "{topic}"
role = "forecast"
event_id = "txn.id"
stream = {{ constant = "cards" }}
p = "risk"
"""


def test_a_source_topic_that_does_not_exist_is_named_and_never_made(world: MakeWorld, tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    topic = f"nowhere-{uuid.uuid4().hex[:8]}"
    file.write_text(SOURCE.format(topic=topic))
    w = world(partitions=1, TRUEUP_STREAMS=str(file))

    tried = w.command("streams", "try", "scores")
    assert (tried.returncode, tried.stderr) == (MISCONFIGURED, f"trueup: there is no topic {topic}\n")

    for _ in range(2):
        made = w.done("topics", "create", "--partitions", "1")
        assert f"note: source topic {topic} of sources.scores does not exist" in made
    checked = w.command("topics", "check")
    assert checked.returncode == 1
    (line,) = checked.stderr.splitlines()
    assert line.startswith(f"source topic {topic} of sources.scores does not exist")
    assert "those who write to it make it, not 'trueup topics create'" in line

    w.make({topic: 1})
    checked = w.command("topics", "check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "all topics are as they must be" in checked.stdout
