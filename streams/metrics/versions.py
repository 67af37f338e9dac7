"""The versions of a stream's model: for gauges, pages, ``streams show`` and the report of a replay."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final, cast

from state import kinds
from state.calibrators.carried import CarriedOver, Held
from state.policy import Policy
from state.served import Served
from state.versions import Versions
from streams.metrics.rows import StateRows

#: The most versions of a stream that have series.
SERIES: Final = 4


#: A stream's versions on one partition, and the calibrator of each by its configuration.
Part = tuple[Versions, Mapping[str, Held]]


def held(served: Served) -> Held:
    """Return the figures of a version's calibrator that are shown."""
    carried = cast("CarriedOver", served.calibrator)
    return Held(carried.line.slope, carried.line.offset, carried.line.seen, carried.learnt)


def parts(found: StateRows, stream: str, policy: Policy | None) -> list[Part]:
    """Return the versions of a stream by partition; empty if all versions share one calibrator."""
    if policy is not None and not policy.model_version:
        return []
    served = found.of(kinds.CALIBRATOR, stream)
    made: list[Part] = []
    for partition, versions in found.of(kinds.VERSIONS, stream).items():
        configs = {each.config for each in versions.of.values()}
        mine = {config: held(one) for (n, config), one in served.items() if n == partition and config in configs}
        made.append((versions, mine))
    return made


def describe(found: Sequence[Part]) -> list[dict[str, Any]]:
    """Return each version of a stream for the JSON, the newest first. Means are None without outcomes.

    ``slope`` and ``offset`` describe the line that was carried over, in log-odds, on the partition where the version
    had most forecasts when the line was found; None without a line.
    """
    if not found:
        return []
    whole = reduce(add, [versions for versions, _ in found])
    described = []
    for each in sorted(whole.of.values(), key=lambda one: (one.first_ms, one.name), reverse=True):
        mine = [of[each.config] for _, of in found if each.config in of]
        began = max(mine, key=lambda one: one.seen, default=Held(1.0, 0.0, 0, 0))
        n = each.outcomes
        described.append(
            {
                "version": each.name,
                "config": each.config,
                "forecasts": each.forecasts,
                "first_ms": each.first_ms,
                "last_ms": each.last_ms,
                "after": each.after or None,
                "slope": began.slope if began.seen else None,
                "offset": began.offset if began.seen else None,
                "learnt": sum(one.learnt for one in mine),
                "outcomes": n,
                "raw": each.raw / n if n else None,
                "served": each.served / n if n else None,
                "observed": each.ones / n if n else None,
                "bias": {"raw": (each.raw - each.ones) / n, "calibrated": (each.served - each.ones) / n} if n else None,
                "log_loss_gain": each.gain / n if n else None,
            }
        )
    return described
