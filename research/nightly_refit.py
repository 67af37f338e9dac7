"""Fit maps again every night on all outcomes known so far: the baseline for calibrators that learn online."""

from collections.abc import Callable, Sequence

import numpy as np

from state.arrays import Floats

#: A map from forecasts [n] to probabilities [n].
Map = Callable[[Floats], Floats]
#: A function that fits a map to forecasts and outcomes, both [n].
Fit = Callable[[Floats, Floats], Map]

#: Forecasts are clipped to [1e-6, 1 - 1e-6] for log-odds.
P_CLIP = 1e-6
#: Newton's steps of a fit, at most.
STEPS = 50


def platt(p: Floats, y: Floats) -> Map:
    """Fit sigmoid(a z + b), z the log-odds of the forecast, by maximum likelihood of Platt's targets.

    References
    ----------
    Platt 1999, *Probabilistic outputs for support vector machines*, section 2.2.
    """
    a, b = logistic([log_odds(p)], y)
    return lambda q: sigmoid(a * log_odds(q) + b)


def beta(p: Floats, y: Floats) -> Map:
    """Fit sigmoid(a ln p - b ln(1 - p) + c), a and b not negative, by maximum likelihood of Platt's targets.

    References
    ----------
    Kull, Silva Filho & Flach 2017, *Beta calibration*, section 3: a negative one is 0, and the others fitted again.
    """

    def both(q: Floats) -> list[Floats]:
        q = np.clip(q, P_CLIP, 1.0 - P_CLIP)
        return [np.log(q), -np.log1p(-q)]

    x = both(p)
    used = [0, 1]
    *slopes, c = logistic(x, y)
    if min(slopes) < 0:
        used = [int(np.argmax(slopes))]
        *slopes, c = logistic([x[used[0]]], y)
    return lambda q: sigmoid(
        sum((max(a, 0.0) * both(q)[i] for i, a in zip(used, slopes, strict=True)), np.full(len(q), c))
    )


def logistic(columns: Sequence[Floats], y: Floats) -> list[float]:
    """Return the slope of each column, [n], and the intercept of the largest likelihood of Platt's targets.

    The targets are (N+ + 1)/(N+ + 2) and 1/(N- + 2), so the slopes are finite where the columns separate the outcomes.
    """
    x = np.stack([*columns, np.ones(len(y))])
    ones = float(y.sum())
    target = np.where(y == 1, (ones + 1) / (ones + 2), 1 / (len(y) - ones + 2))
    found = tried = np.array([*([1.0] * len(columns)), 0.0])
    best = np.inf
    for _ in range(STEPS):
        v = tried @ x
        loss = float(np.sum(np.logaddexp(0, v) - target * v))
        if loss < best:
            q = sigmoid(v)
            gradient, weight = x @ (q - target), q * (1 - q)
            step = np.linalg.solve((x * weight) @ x.T + 1e-9 * np.eye(len(x)), gradient)
            done = best - loss < 1e-9 * (1 + abs(loss))
            found, best = tried, loss
            if done:
                break
        else:  # too far
            step = step / 2
        tried = found - step
    return [float(each) for each in found]


def isotonic(p: Floats, y: Floats) -> Map:
    """Fit the increasing map with the least Brier score, linear between the forecasts of the data.

    References
    ----------
    Zadrozny & Elkan 2002, *Transforming classifier scores into accurate multiclass probability estimates*, section 3.
    """
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415 - slow to import

    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(p, y)

    def mapped(p: Floats) -> Floats:
        return np.asarray(model.predict(p))

    return mapped


def refitted(fit: Fit, p: Floats, y: Floats, *, every: int, delay: int = 0, window: int | None = None) -> Floats:
    """Return the served scores, [n], when the map is fitted again after every ``every`` forecasts.

    Raises ValueError if ``every`` or ``window`` is below 1, or ``delay`` negative.

    ``fit``: `platt`, `beta` or `isotonic`.
    ``p, y``: forecasts and outcomes in order, [n].
    ``every``: forecasts between fits, at least 1. Forecasts are served raw until the first fit that has both outcomes.
    ``delay``: delay of outcomes, in forecasts: a fit at forecast t uses the outcomes before t - delay.
    ``window``: fit on the last outcomes only, this many; None: on all.
    """
    if every < 1 or delay < 0 or (window is not None and window < 1):
        raise ValueError(f"every and window must be at least 1 and delay 0, got {every}, {window} and {delay}")
    served = p.copy()
    mapped: Map | None = None
    for start in range(0, len(p), every):
        known = slice(0 if window is None else max(start - delay - window, 0), max(start - delay, 0))
        if len(np.unique(y[known])) > 1:
            mapped = fit(p[known], y[known])
        if mapped is not None:
            served[start : start + every] = mapped(p[start : start + every])
    return served


def log_odds(p: Floats) -> Floats:
    """Return ln(p / (1 - p)) of clipped forecasts, [n]."""
    p = np.clip(p, P_CLIP, 1.0 - P_CLIP)
    return np.asarray(np.log(p) - np.log1p(-p))


def sigmoid(v: Floats) -> Floats:
    """Return 1 / (1 + exp(-v)), [n]."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(v, -700.0, 700.0))))
