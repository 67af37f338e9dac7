"""Reads a worker's ``/metrics`` over HTTP, as Prometheus does."""

import math
from collections import defaultdict
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, Self

from prometheus_client.parser import text_string_to_metric_families

from agents.health import asked

#: Longest wait for an answer, s. The worker needs milliseconds, but the thread shares a core with its other work.
PATIENCE: Final = 10.0


class ScrapedSamples:
    """The samples of one scrape.

    ``text``: the body of ``/metrics``; the label of the application is ignored.
    """

    def __init__(self, text: str) -> None:
        self._samples = {
            (sample.name, frozenset(sample.labels.items() - {("app", sample.labels.get("app"))})): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """Scrape a worker. Raises OSError if it does not answer with metrics."""
        status, body = get(host, port, "/metrics")
        if status != 200:
            raise OSError(f"/metrics answered {status}")
        return cls(body)

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """Return one sample, NaN if there is none. ``name`` is without ``trueup_``."""
        return self._samples.get((f"trueup_{name}", frozenset((labels or {}).items())), math.nan)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all samples with the given labels; 0 if there are none."""
        return sum(
            value
            for (sample, of), value in self._samples.items()
            if sample == f"trueup_{name}" and labels.items() <= of
        )

    @property
    def written(self) -> bool:
        """Whether the scores, which are as of the last checkpoint, include all counted events.

        It works only for a worker that has counted all events of its state.
        """
        return self.total("scored_events_total") == self.total("resolved") + self.total("warm_up_events")

    def score(self, name: str, stream: str, kind: str, labels: Mapping[str, str] | None = None) -> float:
        """Return a score of a stream's forecasts of a kind, the expected calibration error by the bins; or NaN."""
        of = {"stream": stream, "kind": kind, **(labels or {})}
        if name != "ece":
            return self.value(name, of)
        gaps: dict[str, float] = defaultdict(float)  # by tenths: a point in a label is of a band in the lowest
        for sign, what in ((1.0, "forecasts"), (-1.0, "outcomes")):
            for (sample, at), value in self._samples.items():
                if sample == f"trueup_resolved_bin_{what}" and of.items() <= at:
                    gaps[dict(at)["bin"][0]] += sign * value
        off = sum(map(abs, gaps.values()))
        return off / n if (n := self.value("resolved", {"stream": stream})) else math.nan

    def regret(self, loss: str, stream: str) -> float:
        """Return the summed Brier score or log loss of what was served minus that of raw forecasts; or NaN.

        ``loss`` is ``brier`` or ``log``.
        """
        gauge = "log_loss" if loss == "log" else loss
        served, raw = (self.score(gauge, stream, kind) for kind in ("calibrated", "raw"))
        return self.value("resolved", {"stream": stream}) * (served - raw)

    def fates(self) -> dict[str, Any]:
        """Return what became of the records applied so far, and how many events wait or have expired.

        ``resolved``: outcomes that have met their forecast, in either order; ``early``: those that still wait for it.
        The counters count a record once, when it comes. So an early outcome stays counted as early after its forecast
        has come. The gauges say how many still wait.
        """
        waiting = int(self.value("early_outcomes"))
        expired = {kind: int(self.value("expired_total", {"kind": kind})) for kind in ("forecast", "outcome")}
        outcomes = {fate: self._count("outcomes", fate) for fate in ("duplicate", "revised", "stale", "dead")}
        met = sum(self._count("outcomes", fate) for fate in ("resolved", "waiting", "early"))
        return {
            "forecasts": {fate: self._count("forecasts", fate) for fate in ("issued", "duplicate", "dead")},
            "outcomes": {"resolved": met - waiting - expired["outcome"], "early": waiting, **outcomes},
            "pending": int(self.value("pending_events")),
            "expired": expired,
        }

    def _count(self, topic: str, fate: str) -> int:
        return int(self.value("records_total", {"topic": topic, "fate": fate}))


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return status and body of a GET. Raises OSError if nothing listens there, or the answer is not HTTP."""
    try:
        return asked(host, port, path, PATIENCE, tls=False)
    except HTTPException as exc:
        raise OSError(f"{host}:{port}{path}: {exc!r}") from exc
