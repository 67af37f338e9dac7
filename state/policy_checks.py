"""Checks of settings of a policy that belong together. Each raises ValueError that says what to set."""

from typing import TYPE_CHECKING

from state.forecasts import KINDS, LARGEST, PROBABILITY, PROBS
from state.scoring.ages import exact

if TYPE_CHECKING:
    from state.policy import Policy

#: When outcomes are learnt.
MATURITY, ARRIVAL = LEARN = ("maturity", "arrival")

#: Whether forecasts without a label are like those with one: unknown, or alike.
UNKNOWN, ALIKE = UNLABELLED = ("unknown", "alike")

#: The most challengers of a stream. Each costs about as much as the champion. Their tickets must fit one ledger row.
MOST_CHALLENGERS = 8
#: The most bytes of challengers' tickets in a ledger row (`state.ledger`). Those of one probability take far less.
MOST_TICKETS = 65_000


def check_labels(policy: "Policy") -> None:
    """Check when labels are learnt, and how long rows are kept."""
    if policy.matures_ms < 0:
        raise ValueError(f"matures must be positive, got {exact(policy.matures_ms)}")
    if policy.matures_ms >= policy.ttl_ms:
        raise ValueError(
            f"ttl ({exact(policy.ttl_ms)}) must be longer than matures ({exact(policy.matures_ms)}), so that the "
            "row of a forecast is there when it matures"
        )
    if policy.unlabelled not in UNLABELLED:
        raise ValueError(f"unlabelled must be one of {', '.join(UNLABELLED)}, got {policy.unlabelled!r}")
    if policy.learn not in ("", *LEARN):
        raise ValueError(f"learn must be one of {', '.join(LEARN)}, got {policy.learn!r}")
    if not policy.matures_ms and (policy.silence is not None or policy.learn == MATURITY):
        setting = "silence" if policy.silence is not None else 'learn = "maturity"'
        raise ValueError(f"{setting} needs matures: without it, no forecast ever matures")
    rate = policy.label_rate
    if not isinstance(rate, str) and not 0.0 < rate <= 1.0:
        raise ValueError(f"label_rate must be a chance above 0 and at most 1, or a path, got {rate!r}")
    if rate and policy.silence is not None:
        raise ValueError(
            "label_rate and silence exclude each other: with silence every forecast gets a label, so its chance is 1"
        )
    if policy.revisable_ms and policy.revisable_ms < policy.ttl_ms:
        raise ValueError(
            f"revisable ({exact(policy.revisable_ms)}) must not be shorter than ttl ({exact(policy.ttl_ms)})"
        )


def check_silence(policy: "Policy") -> None:
    """Check the label that silence implies."""
    y = policy.silence
    if policy.kind == PROBABILITY:
        if y not in (0.0, 1.0):
            raise ValueError(f"silence must be 0 or 1, got {y!r}")
    elif policy.kind == PROBS:
        if y not in range(policy.classes):
            raise ValueError(f"silence must be the number of a class, 0 to {policy.classes - 1}, got {y!r}")
    elif y is None or not -LARGEST <= y <= LARGEST:
        raise ValueError(f"silence must be a finite number, got {y!r}")


def check_bands(policy: "Policy") -> None:
    """Check bands, points, intervals, weights and costs."""
    for name in ("bands", "points", "interval", "weight"):
        if getattr(policy, name) and policy.kind != PROBABILITY:
            raise ValueError(f"{name}: only of one probability, and {policy.calibrator} serves {KINDS[policy.kind]}")
    if policy.interval and not 0.5 <= policy.interval <= 0.999:
        raise ValueError(f"interval must be between .5 and .999, such as 0.9, got {policy.interval:g}")
    if policy.reasons and not policy.interval:
        raise ValueError("reasons need intervals: set interval, too, such as 0.9")
    costs = policy.cost_miss, policy.cost_alert
    if not all(0.0 <= cost < float("inf") for cost in costs) or (costs[0] > 0.0) != (costs[1] > 0.0):
        raise ValueError(f"cost_miss and cost_alert belong together, each a number above 0, got {costs}")
    if policy.costs and policy.bands is None:
        raise ValueError("cost_miss and cost_alert need bands: set bands, too")


def check_shadow(policy: "Policy") -> None:
    """Check that challengers can be compared with the champion."""
    if len(policy.shadow) > MOST_CHALLENGERS:
        raise ValueError(f"shadow names {len(policy.shadow)} challengers, at most {MOST_CHALLENGERS} are allowed")
    seen: set[str] = set()
    for challenger in policy.challengers:
        if challenger.kind != policy.kind:
            raise ValueError(
                f"{challenger.calibrator} cannot be a challenger of {policy.calibrator}: it takes another forecast"
            )
        if challenger.shape != policy.shape:
            said = (
                f"classes = {policy.classes}"
                if policy.kind == PROBS
                else f"levels = [{', '.join(f'{level:g}' for level in policy.levels)}]"
            )
            raise ValueError(
                f"challenger {challenger.calibrator} cannot be compared with the champion: its options need {said}"
            )
        if challenger.config == policy.config:
            raise ValueError(f"challenger {challenger.calibrator} already serves ({policy.config})")
        if challenger.config in seen:
            raise ValueError(f"shadow names {challenger.calibrator} twice, with the same options")
        seen.add(challenger.config)
    size = 0 if policy.kind == PROBABILITY else sum(each.ticket_bytes for each in policy.challengers)
    if size > MOST_TICKETS:
        raise ValueError(
            f"the tickets of {len(policy.shadow)} challengers may have {size} bytes for one forecast, and there is "
            f"room for {MOST_TICKETS}: fewer challengers, classes or levels"
        )
