"""Read a worker's ``/metrics`` over HTTP, as Prometheus does."""

import math
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

#: Longest wait for an answer, s. The worker needs milliseconds, but the thread shares a core with its other work.
PATIENCE: Final = 10.0


class Fates(NamedTuple):
    """The present state of all input records, as counts of records or events."""

    #: Forecasts answered for the first time, answered again, and rejected.
    issued: int
    forecast_duplicate: int
    forecast_dead: int
    #: Outcomes that have met their forecast, in either order. They are learnt, or wait for maturity.
    resolved: int
    #: Outcomes that still wait for their forecast.
    early: int
    #: Outcomes that were repeated with the same value, that replaced a label, that were older than the label, and that
    #: were rejected.
    outcome_duplicate: int
    outcome_revised: int
    outcome_stale: int
    outcome_dead: int
    #: Issued forecasts that still wait for their outcome.
    pending: int
    #: Forecasts and early outcomes that waited longer than their time to live.
    expired_forecast: int
    expired_outcome: int

    @property
    def forecasts(self) -> int:
        """Forecasts applied."""
        return self.issued + self.forecast_duplicate + self.forecast_dead

    @property
    def outcomes(self) -> int:
        """Outcomes applied."""
        waited = self.resolved + self.early + self.expired_outcome
        labels = self.outcome_duplicate + self.outcome_revised + self.outcome_stale
        return waited + labels + self.outcome_dead


class ScrapedSamples:
    """The samples of one scrape.

    ``text``: the body of ``/metrics``; of which application it is does not count.
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
        """Return one sample, NaN if there is none; ``name`` is without ``trueup_``."""
        return self._samples.get((f"trueup_{name}", frozenset((labels or {}).items())), math.nan)

    def total(self, name: str) -> float:
        """Return the sum of a metric over all its labels, 0 if there are none."""
        return sum(value for (sample, _), value in self._samples.items() if sample == f"trueup_{name}")

    @property
    def written(self) -> bool:
        """Whether the scores have all events that were counted: scores are as of the last checkpoint.

        Of a worker that has counted all events of its state.
        """
        return self.total("scored_events_total") == self.total("resolved") + self.total("warm_up_events")

    def score(self, name: str, stream: str, kind: str, labels: Mapping[str, str] | None = None) -> float:
        """Return a score of a stream's forecasts of a kind, the expected calibration error by the bins; or NaN."""
        of = {"stream": stream, "kind": kind, **(labels or {})}
        if name != "ece":
            return self.value(name, of)
        bins = [{**of, "bin": str(i)} for i in range(10)]
        gaps = [self.value("resolved_bin_forecasts", b) - self.value("resolved_bin_outcomes", b) for b in bins]
        off = sum(abs(gap) for gap in gaps if not math.isnan(gap))
        return off / n if (n := self.value("resolved", {"stream": stream})) else math.nan

    def regret(self, loss: str, stream: str) -> float:
        """Return the Brier score or log loss of what was served less that of the raw forecasts, summed; or NaN.

        ``loss`` is ``brier`` or ``log``.
        """
        gauge = "log_loss" if loss == "log" else loss
        served, raw = (self.score(gauge, stream, kind) for kind in ("calibrated", "raw"))
        return self.value("resolved", {"stream": stream}) * (served - raw)

    def fates(self) -> Fates:
        """Return the present state of all records applied so far.

        The counters count a record once, when it comes. So an early outcome stays counted as early after its forecast
        has come. The gauges say how many still wait.
        """
        early, met = self._count("outcomes", "early"), self._count("outcomes", "resolved")
        waiting = int(self.value("early_outcomes"))
        expired = int(self.value("expired_total", {"kind": "outcome"}))
        return Fates(
            issued=self._count("forecasts", "issued"),
            forecast_duplicate=self._count("forecasts", "duplicate"),
            forecast_dead=self._count("forecasts", "dead"),
            resolved=met + self._count("outcomes", "waiting") + early - waiting - expired,
            early=waiting,
            outcome_duplicate=self._count("outcomes", "duplicate"),
            outcome_revised=self._count("outcomes", "revised"),
            outcome_stale=self._count("outcomes", "stale"),
            outcome_dead=self._count("outcomes", "dead"),
            pending=int(self.value("pending_events")),
            expired_forecast=int(self.value("expired_total", {"kind": "forecast"})),
            expired_outcome=expired,
        )

    def _count(self, topic: str, fate: str) -> int:
        return int(self.value("records_total", {"topic": topic, "fate": fate}))


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return status and body of a GET. Raises OSError if nothing listens there, or the answer is not HTTP."""
    connection = HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except HTTPException as exc:
        raise OSError(f"{host}:{port}{path}: {exc!r}") from exc
    finally:
        connection.close()
