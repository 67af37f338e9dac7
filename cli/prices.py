"""What settings of labels cost or gain. It is measured by replaying the history from which they were proposed."""

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from replay import bootstrap
from replay.columns import ResolvedColumns
from replay.configuration import Configuration
from replay.measure import log_losses
from replay.player import parts, play
from replay.processes import cores
from replay.sources.record import ReplaySource
from state.arrays import Floats
from state.policy import Policy
from streams.config.settings import Settings

#: What is measured, in words.
METRICS: Final = {"log_loss": "log loss", "brier": "Brier score"}


@dataclass(frozen=True)
class Change:
    """Relative change of a loss by a setting, with its 95 % interval."""

    value: float
    low: float
    high: float

    def said(self) -> str:
        """Return the change in words."""
        return f"{100 * self.value:+.2f} % [{100 * self.low:+.2f}, {100 * self.high:+.2f}]"


@dataclass(frozen=True)
class Price:
    """What one setting costs, by metric, if all other proposed settings are set; empty if there are too few labels."""

    setting: str
    changes: Mapping[str, Change]

    @property
    def costs(self) -> bool:
        """Whether the setting makes a loss larger: the interval is above 0."""
        return any(each.low > 0.0 for each in self.changes.values())

    def said(self) -> str:
        """Return the price in a sentence."""
        if not self.changes:
            return f"{self.setting}: too few labels for a price."
        told = ", ".join(f"{METRICS[name]} {each.said()}" for name, each in self.changes.items())
        return f"{self.setting}: by replay {told}" + ("; it is not proposed." if self.costs else ".")


def priced(
    source: ReplaySource, settings: Settings, stream: str, made: Callable[[Sequence[str]], Policy], names: Sequence[str]
) -> dict[str, Price]:
    """Price each setting: the history is replayed with all settings, and with all but that one.

    ``made``: returns the policy with some of the settings; raises ValueError if they need another one. Returns prices
    by setting. A setting that others need has no price.
    """
    plans = {"": made(names)}
    for name in names:
        try:
            plans[name] = made([each for each in names if each != name])
        except ValueError:
            continue
    if len(plans) == 1:
        return {}
    pattern = glob.escape(stream)
    groups = [[Configuration(name, settings.policies.changed([(pattern, plan)], None))] for name, plan in plans.items()]
    with TemporaryDirectory(prefix="trueup-prices-") as directory:
        place = Path(directory)
        played = play(parts(source.ready(place), groups, settings, place), cores(), lambda _: None)
        columns = {name: ResolvedColumns.of([part.played[n] for part in played], 1) for n, name in enumerate(plans)}
    # A forecast that is sent again counts as new when its row has left.
    columns = {name: each for name, each in columns.items() if len(each.issued_raw) == len(columns[""].issued_raw)}
    labels = np.full(len(columns[""].issued_raw), np.nan)
    for each in [*columns.values()][::-1]:  # the labels under all settings come last, because they count
        labels[each.at] = each.y
    order = np.argsort(columns[""].issued_ms, kind="stable")
    order = order[~np.isnan(labels[order])]
    y, at = labels[order], columns[""].issued_ms[order]
    losses = {name: _losses(each.issued_p[0][order], y) for name, each in columns.items()}
    how = bootstrap.plan(at)
    prices = {}
    for name in list(columns)[1:]:
        changes = {}
        if how is not None:
            found = bootstrap.means(how, losses[""] - losses[name])
            before = losses[name].mean(axis=0)
            changes = {
                metric: Change(*(float(end / was) for end in ends))
                for metric, ends, was in zip(METRICS, found, before, strict=True)
            }
        prices[name] = Price(name, changes)
    return prices


def _losses(p: Floats, y: Floats) -> Floats:
    """Return log loss and Brier loss of each forecast, [n, 2]."""
    return np.column_stack([log_losses(p, y), np.square(p - y)])
