"""Fit maps again every night on all outcomes known so far: the baseline for calibrators that learn online."""

from collections.abc import Callable

import numpy as np

from state.arrays import Floats

#: A map from forecasts [n] to probabilities [n].
Map = Callable[[Floats], Floats]
#: A function that fits a map to forecasts and outcomes, both [n].
Fit = Callable[[Floats, Floats], Map]

#: Forecasts are clipped to [1e-6, 1 - 1e-6] for log-odds.
P_CLIP = 1e-6


def platt(p: Floats, y: Floats) -> Map:
    """Fit sigmoid(a z + b), z the log-odds of the forecast, by maximum likelihood; y must hold both 0 and 1.

    References
    ----------
    Platt 1999, *Probabilistic outputs for support vector machines*, without his smoothing of the outcomes.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow to import

    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(_log_odds(p)[:, None], y)

    def mapped(p: Floats) -> Floats:
        return np.asarray(model.predict_proba(_log_odds(p)[:, None])[:, 1])

    return mapped


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

    Parameters
    ----------
    fit
        `platt` or `isotonic`.
    p, y
        Forecasts and outcomes in order, [n].
    every
        Forecasts between fits, at least 1. Forecasts are served raw until the first fit that has both outcomes.
    delay
        Delay of outcomes, in forecasts: a fit at forecast t uses the outcomes before t - delay.
    window
        Fit on the last outcomes only, this many; None: on all.

    Raises
    ------
    ValueError
        If ``every`` or ``window`` is below 1, or ``delay`` negative.
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


def _log_odds(p: Floats) -> Floats:
    p = np.clip(p, P_CLIP, 1.0 - P_CLIP)
    return np.asarray(np.log(p) - np.log1p(-p))
