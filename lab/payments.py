"""The demo of rare frauds: a run's report, checked against the true risk of every payment, and its picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console

from agents.status import pictures
from lab import fraud, picture
from lab.demo_report import VOLUME, DemoRun, Scenario, identity, table_of, tell
from lab.fraud import Fraud, Shape
from replay.measure import errors
from replay.ranking import ranks
from state.arrays import Floats
from streams.config.settings import Settings

#: What a risk team sets for such a stream. `trueup streams suggest cards` proposes the same from its history.
PLAN: Final = f"""\
[streams.{fraud.STREAM}]
matures = "45d"     # what is fraud was reported by then
silence = 0         # of all the rest nobody says anything
ttl = "60d"
revisable = "120d"  # some first labels are wrong
"""
MATURES_DAYS: Final = 45
#: First day on which served scores are judged. A month of labels is known by then.
SETTLED_DAY: Final = 75
#: Number of points over time in the picture, its size in units, and a side of the diagram beside it.
SPANS: Final = 36
SIZE, SIDE = (560.0, 405.0), 340.0
#: Half a day of payments is played at a time. With larger slices, reports would come after silence had labelled their
#: payment, and would correct that. This is right, but not what the demo should show.
SLICE: Final = 350


def load(rows: int | None) -> Fraud:
    """Make this many payments; None makes 120,000."""
    return fraud.make(Shape() if rows is None else Shape(rows=rows))


def served(played: Fraud, done: DemoRun) -> Floats:
    """Return the served score of each payment, [n]; NaN without an answer."""
    return np.array([done.held.served.get(event, np.nan) for event in played.event_id], dtype=np.float64)


def account(settings: Settings, played: Fraud, done: DemoRun) -> dict[str, Any]:
    """Return the account of a run, as in the JSON. ``problems`` is empty if all counts agree."""
    fates, p = done.reading.fates(), served(played, done)
    matured = {label: int(done.reading.value("matured_events_total", {"label": label})) for label in _LABELS}
    late, early = played.days >= SETTLED_DAY, played.days < MATURES_DAYS
    return {
        "rows": len(played),
        "frauds": int(played.y.sum()),
        "forecasts": {"sent": done.sent["forecasts"], "issued": fates["forecasts"]["issued"]},
        "outcomes": {"sent": done.sent["outcomes"], "revised": fates["outcomes"]["revised"]},
        "learnt": {"reported": matured["reported"], "implied": matured["implied"]},
        "pending": fates["pending"],
        "before": {"raw": _judged(played, played.raw, early), "calibrated": _judged(played, p, early)},
        "after": {"raw": _judged(played, played.raw, late), "calibrated": _judged(played, p, late)},
        **identity(settings, done),
    }


_LABELS: Final = ("reported", "implied")


def _judged(played: Fraud, p: Floats, chosen: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Score some payments against the truth and the final labels; NaN without payments."""
    chosen = chosen & ~np.isnan(p)
    mine, y, truth = p[chosen], played.y[chosen], played.truth[chosen]
    if not len(mine):
        return dict.fromkeys(("mean", "truth", "brier", "log_loss", "auc", "recall", "distinct"), float("nan"))
    scores, order = errors(mine, y), ranks(mine, y, (VOLUME,))
    return {
        "mean": float(mine.mean()),
        "truth": float(truth.mean()),
        "brier": scores.brier,
        "log_loss": scores.log_loss,
        "auc": order.auc,
        "recall": order.recall[VOLUME],
        "distinct": len(np.unique(mine)),
    }


def draw(played: Fraud, done: DemoRun, out: Path) -> None:
    """Draw the means of raw and served scores over time, and from `SETTLED_DAY` on what came true of both."""
    p = served(played, done)
    p = np.where(np.isnan(p), played.raw, p)
    spans = picture.periods(played.forecast_ms.astype(np.float64), played.raw, p, played.y, SPANS)
    drawn = [pictures.course(spans, "Mean scores and frauds over time", *SIZE)]
    late, rate = played.days >= SETTLED_DAY, played.truth.mean()
    if late.any():
        scores = {"raw": played.raw[late], "calibrated": p[late]}
        curves = {kind: picture.bins(each, played.y[late]) for kind, each in scores.items()}
        drawn.append(pictures.reliability(curves, f"What came true of scores, from day {SETTLED_DAY} on", side=SIDE))
    picture.write(
        out,
        f"{int(played.y.sum()):,} frauds among {len(played):,} payments",
        [
            f"scores {played.raw.mean() / rate:.0f} times too high, labels known after {MATURES_DAYS} days",
            f"left: means over time; right: frauds by score, from day {SETTLED_DAY} on",
        ],
        drawn,
    )


def summary(console: Console, account: Mapping[str, Any]) -> None:
    """Print an account as a table and a few lines."""
    table = table_of("raw", "served", "raw", "served")
    table.add_row("[dim]payments of[/]", f"[dim]days 0-{MATURES_DAYS}[/]", "", f"[dim]days {SETTLED_DAY}-[/]", "")
    for label, name, digits in _ROWS:
        cells = [
            f"{account[when][kind][name]:,.{digits}f}" for when in ("before", "after") for kind in ("raw", "calibrated")
        ]
        table.add_row(label, *cells)
    forecasts, outcomes, learnt = account["forecasts"], account["outcomes"], account["learnt"]
    tell(
        console,
        table,
        account,
        f"{forecasts['sent']:,} forecasts, {account['frauds']:,} of them frauds; {outcomes['sent']:,} outcomes, "
        f"{outcomes['revised']:,} of which corrected a label\n"
        f"learnt at maturity: {learnt['reported']:,} that were reported, {learnt['implied']:,} by silence; "
        f"{account['pending']:,} have not matured",
    )


#: Rows of the summary: name, figure, decimals.
_ROWS: Final = (
    ("mean score", "mean", 5),
    ("  mean true risk", "truth", 5),
    ("Brier score", "brier", 5),
    ("log loss", "log_loss", 5),
    ("AUC", "auc", 4),
    ("recall in the highest 2 %", "recall", 3),
    ("different scores", "distinct", 0),
)

SCENARIO: Final = Scenario(
    stream=fraud.STREAM,
    doing="making payments",
    plan=PLAN,
    partitions=1,
    slice_messages=SLICE,
    load=load,
    figures=(
        ("Brier score", "brier", {}),
        ("log loss", "log_loss", {}),
        ("AUC", "auc", {}),
        ("recall in the highest 1 %", "recall", {"volume": "0.01"}),
    ),
    account=account,
    draw=draw,
    summary=summary,
)
