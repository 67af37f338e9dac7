"""What the page of ``trueup run`` shows of router and intake: they run beside the worker, and are asked by HTTP."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from agents import health
from streams.config.settings import Settings
from streams.config.variables import now
from streams.metrics.catalogue import PREFIX

#: Longest wait for an answer, s.
SECONDS: Final = 1.0


@dataclass(frozen=True)
class Beside:
    """Asks the other stages of one command."""

    #: Of the command: who may read, and the topics of the sources.
    settings: Settings
    #: Of router and intake, by stage.
    ports: Mapping[str, int]

    def read(self) -> list[dict[str, Any]]:
        """Return how each stage stands, and of each input that it reads how many records became what.

        Counted ``since`` the stage began, s since 1970.
        """
        return [self._stage(stage, port) for stage, port in self.ports.items()]

    def _stage(self, stage: str, port: int) -> dict[str, Any]:
        try:
            unready, metrics = self._said("/readyz", port), self._said("/metrics", port)
        except (OSError, HTTPException):
            return {"stage": stage, "port": port, "unready": "it does not answer", "since": None, "inputs": []}
        counted: defaultdict[tuple[str, str], float] = defaultdict(float)
        lag: defaultdict[str, float] = defaultdict(float)
        dead: defaultdict[str, float] = defaultdict(float)
        since: float | None = None
        of = "source" if stage == "intake" else "topic"
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                name, labels = sample.name.removeprefix(PREFIX), sample.labels
                if name in ("mapped_records_total", "routed_records_total"):
                    counted[labels[of], labels["fate"]] += sample.value
                elif name == "dead_letters_total":
                    dead[labels["topic"]] += sample.value
                elif name == "lag_records":
                    lag[labels["topic"]] += sample.value
                elif name == "process_start_time_seconds":
                    since = sample.value
        said = unready.strip().removeprefix("no: ")
        inputs = [self._input(stage, name, counted, lag, dead) for name in dict.fromkeys(name for name, _ in counted)]
        not_yet = None if said == "yes" else said
        return {"stage": stage, "port": port, "unready": not_yet, "since": since, "inputs": inputs}

    def _input(
        self,
        stage: str,
        name: str,
        counted: Mapping[tuple[str, str], float],
        lag: Mapping[str, float],
        dead: Mapping[str, float],
    ) -> dict[str, Any]:
        known = {"routes": self.settings.routes, "labels": self.settings.labels}
        modes = [mode for mode in self.settings.modes if not mode.direct and mode.source.name == name]
        topics = [mode.topic for mode in modes] if stage == "intake" else [known[name]]
        lags = [lag[topic if stage == "intake" else name] for topic in topics if (topic in lag or name in lag)]
        return {
            "name": name,
            "topics": topics,
            "fates": {fate: int(n) for (of, fate), n in counted.items() if of == name and fate != "dead"},
            "dead": int(dead[name]) if name in dead else 0,
            "lag": int(sum(lags)) if lags else None,
        }

    def _said(self, path: str, port: int) -> str:
        access = self.settings.access
        connection = health.connection(self.settings.metrics_host, port, SECONDS, tls=access.certfile is not None)
        headers = {}
        if access.username is not None:
            given = b64encode(f"{access.username}:{now(access.password)}".encode()).decode()
            headers["Authorization"] = f"Basic {given}"
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()
