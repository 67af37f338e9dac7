"""Trace headers and fields arrive at the answers, and no forecast that can be read waits for nothing, whoever dies."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from replay.audit import auditor
from tests.e2e.test_crashes import KILLED
from tests.e2e.test_intake import START
from tests.e2e.world import World, held, produced
from tests.events import Sent

MakeWorld = Callable[..., World]
DIRECT = """
closed = true
on_error = "raw"

[streams."model-*"]
calibrator = "platt+minimax"

[sources.scores]
topic = "TOPIC"
role = "forecast"
event_id = "transaction.id"
stream = "model"
p = "risk"
ts = "at"
carry = { customer = "transaction.customer" }
carry_headers = ["traceparent", "x-*"]
"""


class Score(NamedTuple):
    """A forecast as it was sent: its trace, and the reasons it may be refused for; none if it must be calibrated."""

    trace: str
    key: str
    value: dict[str, Any]
    ts: int
    reasons: frozenset[str]

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As they were sent."""
        note = ("x-note", self.trace[-6:].encode())
        return ("traceparent", self.trace.encode()), ("other", b"stays"), note

    def answer(self) -> dict[str, Any]:
        """Return what every answer to it says."""
        said = {
            "event_id": self.value["transaction"]["id"],
            "stream": self.value.get("model"),
            "raw": self.value["risk"],
            "carried": {"customer": self.value["transaction"]["customer"]},
        }
        return said if not self.reasons else {**said, "p": self.value["risk"]}


def scores(n: int, seed: int = 1) -> Iterator[Score]:
    """Yield scores in order of time: good, twice the same, in conflict, of a time to come, of no known stream."""
    rng = random.Random(seed)
    for i in range(n):
        txn = {"id": f"{seed}-{i}", "customer": f"c{rng.randrange(99)}"}
        value = {"transaction": txn, "model": f"model-{i % 2}", "risk": rng.randrange(1000) / 1000, "at": START + i}
        key = f"card-{rng.randrange(40)}"
        others: tuple[tuple[int, str | None, dict[str, Any]], ...] = (
            (7, None, {}),
            (5, "conflict", {"risk": 1.0}),
            (6, "timestamp", {"at": START + 10**9}),
            (8, "timestamp", {"at": "soon"}),
        )
        yield Score(f"00-{seed:032x}-{i:016x}-00", key, value, START + i, frozenset())
        for which, (every, reason, changed) in enumerate(others, 1):
            if i % every == 0:
                trace = f"00-{seed:032x}-{i:016x}-0{which}"
                yield Score(trace, key, {**value, **changed}, START + i, frozenset({reason} if reason else ()))


def answers(world: World) -> list[tuple[bytes | None, dict[str, Any], tuple[tuple[str, bytes], ...]]]:
    """Return key, value and headers of every answer."""

    async def run() -> list[tuple[bytes | None, dict[str, Any], tuple[tuple[str, bytes], ...]]]:
        every = held(world.bootstrap, world.topic("calibrated"), range(world.partitions))
        return [(r.key, orjson.loads(r.value), tuple(r.headers)) async for r in every]

    return asyncio.run(run())


def judge(world: World, sent: list[Score], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Assert that every score was answered as it must be, and return what an audit has checked."""
    by_trace = defaultdict(list)
    for key, value, headers in answers(world):
        by_trace[dict(headers)["traceparent"].decode()].append((key, value, headers))
    assert by_trace.keys() == {score.trace for score in sent}
    for score in sent:
        for key, value, headers in by_trace[score.trace]:
            assert headers == tuple(each for each in score.headers if each[0] != "other")
            assert score.answer().items() <= value.items(), (score, value)
            assert (value.get("calibrated") is False) == bool(value.get("reason")) == bool(score.reasons), value
            assert not score.reasons or value["reason"] in score.reasons
            assert key is not None
        # What came again says the same; a conflict that intake sent again is another dead letter.
        said = {orjson.dumps({**v, "dead_letter": None}) for _, v, _ in by_trace[score.trace]}
        assert len(said) == 1, said
    capsys.readouterr()
    through_intake = any(not mode.direct for mode in world.settings.modes)
    status = auditor.run(world.settings, json_output=True, sources=through_intake)
    account = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    return dict(account["checked"])


def test_a_worker_that_dies_answers_again_with_what_each_record_carried(
    world: MakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, streams = f"carried-{random.SystemRandom().randrange(10**9)}", tmp_path / "direct.toml"
    streams.write_text(DIRECT.replace("TOPIC", topic))
    w = world(TRUEUP_STREAMS=str(streams), TRUEUP_FORECASTS=topic, TRUEUP_BATCH_RECORDS="60")
    sent = list(scores(600))
    for i in range(0, 600, 6):
        unknown = {
            **sent[i].value,
            "at": START + i,
            "model": "unknown",
            "transaction": {"id": f"u{i}", "customer": "c"},
        }
        sent.append(Score(f"00-unknown-{i:06}", f"u{i}", unknown, START + i, frozenset({"unknown_stream"})))
        nameless = {name: said for name, said in unknown.items() if name != "model"}
        sent.append(Score(f"00-nameless-{i:06}", f"u{i}", nameless, START + i, frozenset({"stream"})))

    # Keyed by event, as a worker's own topics are.
    keyed = [
        Sent(topic, each.value["transaction"]["id"].encode(), orjson.dumps(each.value), each.ts, each.headers)
        for each in sent
    ]
    asyncio.run(produced(w.bootstrap, keyed))
    for step in (1, 2, 3, 4):
        with w.worker("--kill", str(step), "3") as doomed:
            assert doomed.process.wait(90) == KILLED, doomed.printed[-4000:]
    with w.worker() as worker:
        w.wait_until_applied(len(sent))
        assert worker.metric("uncarried_total") == 0
        assert worker.stop() == 0
    checked = judge(w, sent, capsys)
    dead = sum(bool(score.reasons) for score in sent)
    assert (checked["raw_answers"], checked["dead_letters"]) == (dead, dead)
    assert checked["copies"] == 0
