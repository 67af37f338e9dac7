"""What a new partition has of one stream while its state is moved, see `state.rescale_stream`."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from state import calibrators, ledger
from state.calibrators.quantile import LEVELS
from state.forecasts import KINDS, PROBABILITY, PROBS, QUANTILES
from state.ledger import Row
from state.policy import layout_of, scored_of
from state.scoring.bias import Bias
from state.scoring.history import History
from state.scoring.pair_scores import AnyComparison
from state.scoring.segment_pairs import AnySegmentScores, of_segment
from state.scoring.vector_history import VectorHistory
from state.segments import Dictionary
from state.served import Served

Rows = Mapping[bytes, bytes]
#: Which old partition's part of a stream goes to which new one.
Moves = frozenset[tuple[int, int]]

Sum = TypeVar("Sum")


class Event(NamedTuple):
    """A row of the ledger: its key, its old and its new partition."""

    key: bytes
    old: int
    new: int


@dataclass
class Learning:
    """A calibrator of a new partition: whose it was, and how much it has to be ahead of what tickets say."""

    old: int | None
    served: Served
    short: int = 0

    def take(self, version: int) -> None:
        """Note a ticket that is not redeemed yet, and was issued when so many outcomes had been learnt."""
        self.short += max(0, version - self.served.calibrator.learnt)


@dataclass
class Here:
    """What a new partition has of one stream, while it is made."""

    sources: list[int]
    learning: dict[str, Learning] = field(default_factory=dict)
    dictionaries: dict[bytes, Dictionary] = field(default_factory=dict)
    #: The slot here by layout, old partition and slot there.
    slots: dict[tuple[bytes, int], dict[int, int]] = field(default_factory=dict)
    history: History = field(default_factory=History)
    vectors: dict[str, VectorHistory] = field(default_factory=dict)
    comparisons: dict[tuple[str, str], AnyComparison] = field(default_factory=dict)
    #: By the hash that keys them, see `state.policy.Policy.scored`, and slot.
    segments: dict[tuple[bytes, int], AnySegmentScores] = field(default_factory=dict)
    #: Rows of the ledger by the configuration that answered.
    rows: Counter[str] = field(default_factory=Counter)

    def scores_of(self, row: Row, slots: Sequence[int]) -> list[Any]:
        """Return the scores of segments of an event, in which it counts: their warm-up is over here, too."""
        scored = scored_of(row.layout, row.kind, row.config)
        found = [self.segments.setdefault((scored, slot), of_segment(row.kind)) for slot in slots]
        for each in found:
            each.warm_up.since = 1
        return found


def recorded(row: Row) -> int:
    """Return when the label of an event was recorded, ms; 0 of one that silence implied."""
    return 0 if row.as_of == ledger.UNSAID else row.resolved_ts


def layout_in(recipe: str) -> bytes:
    """Return the layout of the segments that a calibrator uses; empty if it uses none."""
    made = json.loads(recipe)
    if not made.get("segments") or not calibrators.grouped(made["calibrator"], made["options"]):
        return b""
    options = made["options"]
    kind = KINDS.index(calibrators.kind(made["calibrator"]))
    shape = {PROBABILITY: (), PROBS: (options.get("classes"),), QUANTILES: options.get("levels") or LEVELS}[kind]
    return layout_of(made["segments"], made["pairs"], kind, shape)


def summed(found: Iterable[Sum], zero: Sum) -> Sum:
    """Return the sum of several, ``zero`` where there is none."""
    added: Any = zero
    for each in found:
        added = added + each
    return cast("Sum", added)


def usual(found: Sequence[Bias]) -> Bias:
    """Return the sum of those with as many features as the last one that has any: others are of other features."""
    widths = [len(each.along("raw")) for each in found]
    width = max(enumerate(widths), key=lambda each: (each[1] > 0, each[0]))[1]
    return summed([each for each, wide in zip(found, widths, strict=True) if wide == width], Bias())
