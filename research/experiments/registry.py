"""Every experiment by name, in the order of the report."""

from research.experiments import (
    foster_kakade,
    kuleshov_ermon,
    okoroafor,
    optimisation,
    quantiles,
    real_quantiles,
    roth,
    streams,
)
from research.experiments.base import Experiment

REGISTRY: dict[str, Experiment] = {
    each.name: each
    for each in (
        roth.EXPERIMENT,
        kuleshov_ermon.EXPERIMENT,
        okoroafor.EXPERIMENT,
        foster_kakade.EXPERIMENT,
        quantiles.EXPERIMENT,
        optimisation.EXPERIMENT,
        streams.EXPERIMENT,
        real_quantiles.EXPERIMENT,
    )
}
