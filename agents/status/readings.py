"""Contents of the pages, read from the encoded rows in a mirror of the gauges.

They are decoded here, on the reader's thread.

Nobody changes these rows. Nothing here touches the store, the event loop or Faust. Calibrators are decoded for each
page, so asking them for their maps affects nothing else.
"""

from dataclasses import dataclass
from time import time
from typing import Any, Final

import orjson

from agents import notices
from agents.status.beside import OtherStages
from state.forecasts import PROBABILITY
from state.odds import probability
from state.scoring.losses import NAMES
from state.scoring.scores import SCORED
from state.scoring.windows import KINDS
from streams.config import effective_config
from streams.config.settings import Settings
from streams.metrics import standing
from streams.metrics.description import describe, guarantee
from streams.metrics.mirror import Mirror
from streams.metrics.rows import KNOWN, StateRows
from streams.metrics.served_map import answering, ends

#: Points of a calibration map: 0, 1, and log-odds from -12 to 12 in steps of a quarter. They are as dense for rare
#: events as for others.
POINTS: Final = (0.0, *(probability(k / 4) for k in range(-48, 49)), 1.0)
#: At most this many streams are ordered by state. More are ordered by name, which needs no decoding.
JUDGED: Final = 200


@dataclass(frozen=True)
class Readings:
    """Reads one worker."""

    #: Settings of the worker, and the copy of its gauges.
    settings: Settings
    mirror: Mirror
    #: Version of trueup.
    version: str
    #: Asks the other stages of the same command; None if there are none.
    beside: OtherStages | None = None

    def worker(self) -> dict[str, Any]:
        """Return the facts about the worker itself."""
        held, overview = self.mirror.held(), self.mirror.overview
        unready, recovery, copies, hanging = overview.standing
        return {
            "topics": self._topics(),
            "app_id": self.settings.app_id,
            "instance_id": self.settings.instance_id,
            "version": self.version,
            "config": effective_config.fingerprint(self.settings),
            "ready": not unready,
            "unready": unready or None,
            "recovery": {"left": recovery.left, "whole": recovery.whole},
            "partitions": [
                {
                    "partition": n,
                    "pending": each.fence.pending,
                    "waiting": each.fence.waiting,
                    "early": each.fence.early,
                    "next_offsets": dict(zip(("forecasts", "outcomes"), each.fence.next, strict=True)),
                }
                for n, each in sorted(held.items())
            ],
            "stages": self.beside.read() if self.beside else [],
            "standbys": [{"partition": each.partition, "lag": each.lag} for each in copies],
            "pending": sum(each.fence.pending for each in held.values()),
            "waiting": sum(each.fence.waiting for each in held.values()),
            "early": sum(each.fence.early for each in held.values()),
            "hidden": len(self.mirror.hidden),
            "notices": notices.held(self.settings),
            "hanging": hanging,
            "seconds_since_update": max(time() - overview.updated, 0.0) if overview.updated else None,
        }

    def _topics(self) -> dict[str, Any]:
        """Return the topics that are read, and whether their records are in trueup's own form."""
        modes, own = self.settings.modes, self.settings.inputs
        named = [[mode.topic for mode in modes if mode.source.role == role] for role in ("forecast", "outcome")]
        forecasts, outcomes = (found or [topic] for found, topic in zip(named, own, strict=True))
        calibrated, direct = self.settings.calibrated, not modes
        return {"forecasts": forecasts, "outcomes": outcomes, "calibrated": calibrated, "direct": direct}

    def silent(self) -> dict[str, Any]:
        """Return the last known facts about a worker that does not answer now."""
        return self.worker() | {"ready": False, "unready": "it does not answer"}

    def names(self, query: str = "") -> list[str]:
        """Return the sorted names of streams that contain the text, in any case of letters."""
        wanted = query.casefold()
        found = set[str]().union(*(each.streams() for each in self.mirror.held().values()))
        return sorted(name for name in found if wanted in name.casefold())

    def ordered(self, names: list[str]) -> list[str]:
        """Return the names, first those of streams that need attention; if there are very many, unchanged."""
        if len(names) > JUDGED:
            return names
        shown = {name: (self.stream(name) or {}).get("standing", {}).get("state", "right") for name in names}
        return sorted(names, key=lambda name: standing.STATES.index(shown[name]))

    def stream(self, name: str) -> dict[str, Any] | None:
        """Return the figures of a stream on these partitions, as in ``trueup streams show``; None if unknown."""
        found = self._found(name)
        if not any(found.of(kind, name) for kind in KNOWN):
            return None
        updated = self.mirror.overview.updated
        idle_ms = int(1000 * max(time() - updated, 0.0)) if updated else 0
        untaught = self.mirror.overview.counted.get("untaught_events", {}).get(name)
        told = {} if untaught is None else {"untaught": untaught}
        return {
            "stream": name,
            **told,
            **describe(found, name, self.settings.policies.of(name), found.now_ms(name), idle_ms),
        }

    def missing(self, name: str) -> str:
        """Return why there is nothing to show for a stream: its state is not here, or it has no metric series.

        Pages show the streams that have series: see `streams.metrics.slots`.
        """
        most, hidden = self.settings.metrics_streams, self.mirror.hidden
        how = f"name it in the TOML file, or raise TRUEUP_METRICS_STREAMS, which is {most}; trueup streams show tells"
        if name in hidden:
            return f"this worker holds state of stream {name!r}, which has no metrics and no page: {how}"
        if hidden:
            return (
                f"this worker shows nothing of stream {name!r}: it holds no state of it, or the stream is one of those "
                f"that have no metrics and no page ({len(hidden):,} came since the start): {how}"
            )
        return f"this worker holds no state of stream {name!r}"

    def maps(self, name: str) -> list[dict[str, Any]]:
        """Return the map from raw to calibrated scores of each partition's calibrator, without features.

        A randomised calibrator is shown by its mean answer. ``low`` and ``high`` are the ends of the intervals; empty
        if there are none. Streams of classes or numbers have no map: their forecasts are not one number.
        """
        policy = self.settings.policies.of(name)
        if policy is None or policy.kind != PROBABILITY:
            return []
        x, found, made = (0.0,) * policy.n_features, self._found(name), []
        for place, served in answering(found, name, policy).items():
            points = [served.calibrator.predict(p, x, b"status").p for p in POINTS]
            end = ends(found, name, policy, place)
            left = [end(*each) for each in zip(POINTS, points, strict=True)] if end else []
            made.append(
                {
                    "partition": place[0],
                    "config": place[1],
                    "calibrator": orjson.loads(served.recipe)["calibrator"],
                    "raw": list(POINTS),
                    "calibrated": points,
                    "low": [low for low, _ in left],
                    "high": [high for _, high in left],
                }
            )
        return made

    def _found(self, name: str) -> StateRows:
        held = {n: each for n, each in self.mirror.held().items() if name in each.rows}
        return StateRows(
            {n: {name: each.rows[name]} for n, each in held.items()}, {n: of.fence for n, of in held.items()}
        )


def events(described: dict[str, Any]) -> int:
    """Return the number of resolved events of a stream, for any kind of forecast."""
    vectors = sum(each["resolved"] for each in described.get("vectors", {}).values())
    return int(described["resolved"] + vectors + described.get("warm_up", {}).get("resolved", 0))


def summary(described: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a stream for the list of streams."""
    short: dict[str, Any] = {"stream": described["stream"], "resolved": events(described)}
    for kind in SCORED:
        if kind in described:
            short[kind] = {name: described[kind][name] for name in ("ece", "relative_bias", "brier", "log_loss", "auc")}
            if "alarm" in described[kind]:
                short[kind]["alarm"] = described[kind]["alarm"]
    for config, scored in described.get("vectors", {}).items():
        short.setdefault("vectors", {})[config] = {
            kind: {name: value for name, value in scored[kind].items() if name == "alarm" or isinstance(value, float)}
            for kind in KINDS
        } | {"difference": scored["difference"]}
    if "warm_up" in described:
        short["warm_up"] = described["warm_up"]
    if "standing" in described:
        short["standing"] = described["standing"]
    if "regret" in described:
        short["regret"] = {name: described["regret"][name] for name in NAMES}
    held = guarantee(described["calibrators"])
    short |= {"error": held["error"], "bound": held["bound"]}
    short["findings"] = [each["name"] for each in described.get("ages", {}).get("findings", ())]
    short["shift"] = described.get("forecasts", {}).get("shift")
    short["calibrators"] = sorted({each["calibrator"] for each in described["calibrators"]})
    return short
