"""What the page of ``trueup run`` shows of router and intake. They run beside the worker, and are asked by HTTP."""

from base64 import b64encode
from collections import Counter, defaultdict
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
class OtherStages:
    """Asks the other stages of one command."""

    #: Settings of the command: who may read, and the topics of the sources.
    settings: Settings
    #: Ports of router and intake, by stage.
    ports: Mapping[str, int]

    def read(self) -> list[dict[str, Any]]:
        """Return the state of each stage, and, for each of its inputs, what its records became.

        Counts are ``since`` the stage's start, s since 1970.
        """
        return [self._stage(stage, port) for stage, port in self.ports.items()]

    def _stage(self, stage: str, port: int) -> dict[str, Any]:
        found: dict[str, Any] = {"stage": stage, "port": port, "since": None, "inputs": []}
        try:
            unready, metrics = self._said("/readyz", port), self._said("/metrics", port)
        except (OSError, HTTPException):
            return found | {"unready": "it does not answer"}
        #: By input, as metrics name it: records by fate, dead letters, lag.
        fates, dead, lag = defaultdict[str, Counter[str]](Counter), Counter[str](), Counter[str]()
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                name, labels = sample.name.removeprefix(PREFIX), sample.labels
                if name in ("mapped_records_total", "routed_records_total"):
                    fates[labels["source" if stage == "intake" else "topic"]][labels["fate"]] += int(sample.value)
                elif name == "dead_letters_total":
                    dead[labels["topic"]] += int(sample.value)
                elif name == "lag_records":
                    lag[labels["topic"]] += int(sample.value)
                elif name == "process_start_time_seconds":
                    found["since"] = sample.value
        for name, of in fates.items():
            topics = self._topics(stage, name)
            read = topics if stage == "intake" else [name]
            found["inputs"].append(
                {
                    "name": name,
                    "topics": topics,
                    "fates": {fate: n for fate, n in of.items() if fate != "dead"},
                    "dead": dead[name],
                    "lag": sum(lag[each] for each in read) if any(each in lag for each in read) else None,
                }
            )
        said = unready.strip().removeprefix("no: ")
        return found | {"unready": None if said == "yes" else said}

    def _topics(self, stage: str, name: str) -> list[str]:
        if stage == "intake":
            return [mode.topic for mode in self.settings.modes if not mode.direct and mode.source.name == name]
        return [{"routes": self.settings.routes, "labels": self.settings.labels}[name]]

    def _said(self, path: str, port: int) -> str:
        access = self.settings.access
        headers = {}
        if access.username is not None:
            given = b64encode(f"{access.username}:{now(access.password)}".encode()).decode()
            headers["Authorization"] = f"Basic {given}"
        tls = access.certfile is not None
        return health.asked(self.settings.metrics_host, port, path, SECONDS, tls=tls, headers=headers)[1]
