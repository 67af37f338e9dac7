"""A real Prometheus server that scrapes real workers, and what it answers."""

import math
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Final, NamedTuple, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson
import pytest
import yaml

from deploy.grafana.panels import Panel, Query
from tests.deploy.promtool import PROMETHEUS, RULES
from tests.e2e.world import Worker, World, wait_for
from tests.events import mixed

needs_prometheus = pytest.mark.skipif(which("prometheus") is None, reason="apt-get install prometheus")

#: What the variables of the dashboards stand for, as if chosen in Grafana.
CHOSEN: Final = {
    "$__rate_interval": "1m",
    "$app": ".+",
    "$job": "trueup",
    "$instance": ".+",
    "$stream": "stream-0",
    "$window": "1h",
}


#: Events of a stream in the backlog.
EVENTS: Final = 300


class Series(NamedTuple):
    """A series of an answer: its labels, its times, s, and as many values."""

    labels: dict[str, str]
    times: list[float]
    values: list[float]


class Server:
    """Prometheus with our configuration; only the targets and the pace, s, are the test's.

    Two workers of 200 streams took 2.6 s to be scraped on a busy machine, and their rules 14 s.
    """

    def __init__(self, directory: Path, targets: list[str], pace: int = 2) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._directory = directory
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = {
            "scrape_interval": f"{pace}s",
            "scrape_timeout": f"{pace}s",
            "evaluation_interval": f"{pace // 2}s",
        }
        ours = next(job for job in config["scrape_configs"] if job["job_name"] == "trueup")
        del ours["dns_sd_configs"]
        ours["static_configs"] = [{"targets": targets}]
        config["scrape_configs"] = [ours]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        for rules in RULES:
            # They read what is as old as the longest scrape.
            document = yaml.safe_load(rules.read_text().replace(" offset 10s", f" offset {pace}s"))
            for group in document["groups"]:
                group["interval"] = f"{pace // 2}s"
            (directory / rules.name).write_text(yaml.safe_dump(document))

    def __enter__(self) -> Self:
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    which("prometheus") or "prometheus",
                    f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "GOMAXPROCS": "1"},
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the HTTP API.

        Raises AssertionError if Prometheus refuses, with its message.
        """
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}", timeout=20) as response:
                return orjson.loads(response.read())["data"]
        except HTTPError as exc:
            raise AssertionError(f"{parameters}: {exc.read().decode()}") from exc

    def ready(self) -> bool:
        """Whether it answers."""
        assert self._process.poll() is None, (self._directory / "prometheus.log").read_text()[-3000:]
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def ask(self, query: str) -> list[Series]:
        """Return the answer to an instant query."""
        result = self.get("query", query=query)
        if result["resultType"] == "scalar":
            return [Series({}, [result["result"][0]], [float(result["result"][1])])]
        return [Series(each["metric"], [each["value"][0]], [float(each["value"][1])]) for each in result["result"]]

    def value(self, query: str) -> float:
        """Return the one value of a query; NaN if there is none."""
        answer = self.ask(query)
        assert len(answer) <= 1, answer
        return answer[0].values[0] if answer else math.nan

    def over(self, query: str, seconds: float) -> list[Series]:
        """Return the answer to a range query that ends now."""
        now = time.time()
        result = self.get("query_range", query=query, start=f"{now - seconds:.3f}", end=f"{now:.3f}", step="1")
        return [
            Series(each["metric"], [at for at, _ in each["values"]], [float(value) for _, value in each["values"]])
            for each in result["result"]
        ]

    def shown(self, panel: Panel, query: Query, seconds: float, chosen: Mapping[str, str] = CHOSEN) -> list[Series]:
        """Return what Grafana would show of a panel's query, with the variables as chosen."""
        text = query.expr
        for name, value in chosen.items():
            text = text.replace(name, value)
        return self.ask(text) if panel.instant else self.over(text, seconds)


@contextmanager
def watched(world: World, slices: int = 8, streams: int = 2) -> Iterator[tuple[Server, list[Worker]]]:
    """Run two workers under load with a Prometheus that scrapes them; yield when it has seen all of it."""
    with (
        world.worker(TRUEUP_DATA_DIR=str(world.directory / "one")) as one,
        world.worker(TRUEUP_DATA_DIR=str(world.directory / "two")) as two,
    ):
        workers = [one, two]
        for worker in workers:
            wait_for("a worker to be ready", worker.ready)
        wait_for("both to hold a partition", lambda: all(each.metric("held_partitions") for each in workers))
        with Server(world.directory, [f"127.0.0.1:{each.port()}" for each in workers], max(2, streams // 20)) as server:
            wait_for("Prometheus", server.ready)
            wait_for("its first scrapes", lambda: len(server.ask("trueup_ready == 1")) == len(workers))
            # A backlog that closes a window of 5,000 outcomes on a partition, and in which each stream leaves its
            # warm-up, then what comes as it comes. Prometheus
            # must have seen the backlog before: the counters of a stream begin with its first records, and only what
            # they gain after that counts in rate().
            _send(world, max(13_000, EVENTS * streams), 0, streams - 1)
            _seen(world, server)
            for i in range(slices):
                _send(world, 300, i + 1, streams)
            _seen(world, server)
            yield server, workers


def _seen(world: World, server: Server) -> None:
    """Return when Prometheus has seen all that was sent."""
    world.wait_until_applied()
    applied = world.applied()  # metrics may be some seconds old
    scored = applied["outcomes_resolved"] + applied["early_joined"]
    # One vector, as a sum of two has no value while all streams are in their warm-up.
    total = 'sum(stream_kind:trueup_events:sum{kind="raw", window="life"} or trueup_warm_up_events)'
    wait_for("Prometheus to have seen it", lambda: server.value(total) == scored)


def _send(world: World, n: int, seed: int, streams: int) -> None:
    world.send(mixed(n, seed, streams, start=int(time.time() * 1000) - 2000, step=1).sent)
