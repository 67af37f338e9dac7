"""Alerts fire at a real Prometheus, over a real worker. Weeks are seconds there; levels are as shipped."""

import re
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

from tests.deploy.promtool import RULES
from tests.e2e.prometheus import Server, needs_prometheus
from tests.e2e.test_losses import delete_records
from tests.e2e.world import World, wait_for
from tests.events import Sent, forecast, outcome

pytestmark = needs_prometheus

STREAMS: Final = """
[streams.cards]
[streams.short]
ttl = "20m"
"""
#: What ranges and offsets of the rules are here, s, by the longest that is so.
SECONDS: Final = {10: 2, 60: 4, 900: 8, 1800: 90, 86_400: 12, 259_200: 14, 518_400: 28, 604_800: 30, 1_209_600: 60}
FOUR_WEEKS: Final = 120
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: For so long labels come before they stop, s: two weeks and a day.
FED: Final = 75
AT_ONCE: Final = {
    "TrueupAnswersLate",
    "TrueupDeadLetters",
    "TrueupExpiredEarly",
    "TrueupIdConflicts",
    "TrueupLabelsUnmatched",
    "TrueupPendingGrowing",
    "TrueupStreamsHidden",
    "TrueupTimesFarOff",
}
SILENT: Final = {"TrueupInputSilent", "TrueupLabelsSilent"}
AWAY: Final = {"TrueupNoWorkerReady", "TrueupWorkerDown"}
BACK: Final = {"TrueupWorkerRestarting", "TrueupRecordsLost"}


def shortened(text: str) -> str:
    """Return rules whose ranges, offsets and waits are seconds."""

    def short(match: re.Match[str]) -> str:
        asked = int(match[1]) * UNITS[match[2]]
        return f"{next((short for upto, short in SECONDS.items() if asked <= upto), FOUR_WEEKS)}s"

    return re.sub(r"(?<=[\[ :])(\d+)([smhdw])(?=[\]:\s)])", short, re.sub(r"\bfor: \w+", "for: 2s", text))


def incidents() -> list[Sent]:
    """Return records of which each alert of `AT_ONCE` speaks."""
    at = int(time.time() * 1000)

    def many(n: int, name: str, stream: str = "cards", ts: int = at) -> list[Sent]:
        return [forecast(f"{name}-{i}", 0.3, ts, stream) for i in range(n)]

    return [
        *many(300, "late", ts=at - 60_000),
        *many(2500, "open"),
        *(forecast("late-0", p, at, "cards") for p in (0.8, 0.9)),
        *[Sent("forecasts", b"junk", b"not json", at)] * 60,
        *(each._replace(value=each.value[:-1] + b',"ts":%d}' % (at // 1000)) for each in many(5, "seconds")),
        *(each for i in range(9) for each in many(5, f"unnamed-{i}", f"unnamed-{i}")),
        *(outcome(f"nobody-{i}", 1, at) for i in range(400)),
        *many(20, "short", "short"),
        *many(40, "ahead", ts=at + 2_700_000),
    ]


def feed(world: World, ended: threading.Event) -> None:
    """Send forecasts and their labels, until it is to end."""
    for n in count():
        at, ids = int(time.time() * 1000), [f"e-{n}-{i}" for i in range(16)]
        world.send([forecast(each, 0.3, at, "cards") for each in ids])
        world.send([outcome(each, i % 2, at) for i, each in enumerate(ids)])
        if ended.wait(1.0):
            return


def test_alerts_fire_at_a_server_over_a_worker_to_which_it_happens(world: Callable[..., World], tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text(STREAMS)
    w = world(
        TRUEUP_STREAMS=str(tmp_path / "streams.toml"),
        TRUEUP_AHEAD_SECONDS="7200",
        TRUEUP_METRICS_STREAMS="4",
        TRUEUP_DATA_LOSS="continue",
    )
    with w.worker() as worker:
        wait_for("a worker", worker.ready)
        port = str(worker.port())
        server = Server(tmp_path, [f"127.0.0.1:{port}"])
        for rules in RULES:
            paced = re.sub(r"interval: \w+", "interval: 1s", shortened(rules.read_text()))
            (tmp_path / rules.name).write_text(paced)
        with server:
            seen = set[str]()

            def until(wanted: set[str]) -> None:
                def fired() -> bool:
                    seen.update(each.labels["alertname"] for each in server.ask('ALERTS{alertstate="firing"}'))
                    return wanted <= seen

                try:
                    wait_for("alerts", fired, 120)
                except AssertionError as exc:
                    raise AssertionError(f"{wanted - seen} did not fire, {seen} did") from exc

            wait_for("Prometheus", server.ready)
            ended = threading.Event()
            feeding = threading.Thread(target=feed, args=(w, ended))
            feeding.start()
            try:
                ended.wait(FED)
                w.send(incidents())
                until(AT_ONCE)
            finally:
                ended.set()
                feeding.join()
            until(SILENT)
            worker.kill()
            until(AWAY)
            w.send(forecast(f"lost-{i}", 0.3, int(time.time() * 1000), "cards") for i in range(100))
            delete_records(w, -1)
            for _ in range(3):
                with w.worker(TRUEUP_METRICS_PORT=port) as again:
                    wait_for("a worker", again.ready)
                    wait_for("a scrape", lambda: server.value("sum(trueup_ready)") == 1)
            with w.worker(TRUEUP_METRICS_PORT=port):
                until(BACK)
