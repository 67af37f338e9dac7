"""Parts of a stream in a new partition during a rescale, see `state.rescale_stream`."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from state import calibrators, kinds, ledger
from state.calibrators.quantile import LEVELS
from state.forecasts import KINDS, PROBABILITY, PROBS, QUANTILES
from state.ledger import LedgerRow
from state.policy import layout_of, scored_of
from state.scoring.bias import Bias
from state.scoring.history import History
from state.scoring.pair_scores import AnyComparison
from state.scoring.segment_pairs import AnySegmentScores, of_segment
from state.scoring.vector_history import VectorHistory
from state.segments import Dictionary
from state.served import Served
from state.versions import Version, Versions

Rows = Mapping[bytes, bytes]
#: Pairs of old and new partition: the part of a stream in the old one goes to the new one.
Moves = frozenset[tuple[int, int]]

Sum = TypeVar("Sum")


class Event(NamedTuple):
    """A row of the ledger: its key, its old and its new partition."""

    key: bytes
    old: int
    new: int


@dataclass
class Learning:
    """A calibrator in a new partition, and its old partition.

    ``short``: outcomes learnt before a ticket that this calibrator lacks, summed over open tickets.
    """

    old: int | None
    served: Served
    short: int = 0

    def take(self, version: int) -> None:
        """Note an open ticket that was issued after ``version`` outcomes."""
        self.short += max(0, version - self.served.calibrator.learnt)


@dataclass
class Here:
    """The part of a stream in a new partition, while it is built."""

    sources: list[int]
    learning: dict[str, Learning] = field(default_factory=dict)
    dictionaries: dict[bytes, Dictionary] = field(default_factory=dict)
    #: New slots by layout and old partition, then by old slot.
    slots: dict[tuple[bytes, int], dict[int, int]] = field(default_factory=dict)
    #: Scores of events, by `history_key`.
    histories: dict[str, Any] = field(default_factory=dict)
    comparisons: dict[tuple[str, str], AnyComparison] = field(default_factory=dict)
    #: Scores by their key hash (`state.policy.Policy.scored`) and slot.
    segments: dict[tuple[bytes, int], AnySegmentScores] = field(default_factory=dict)
    #: Number of ledger rows, by configuration.
    rows: Counter[str] = field(default_factory=Counter)

    def scores_of(self, row: LedgerRow, slots: Sequence[int]) -> list[Any]:
        """Return the scores of the segments in which an event counts; their warm-up is over."""
        scored = scored_of(row.layout, row.kind, row.config)
        found = [self.segments.setdefault((scored, slot), of_segment(row.kind)) for slot in slots]
        for each in found:
            each.warm_up.since = 1
        return found


def history_key(row: LedgerRow) -> str:
    """Return under which configuration an event is scored; empty of one probability: all share their scores."""
    return "" if row.kind == PROBABILITY else row.config


def begun(histories: dict[str, Any], row: LedgerRow) -> Any:  # noqa: ANN401 - of the row's kind
    """Return the scores of an event's configuration, by `history_key`; new ones if there are none."""
    found = histories.get(history_key(row))
    if found is None:
        found = histories[history_key(row)] = History() if row.kind == PROBABILITY else VectorHistory.of(row.p)
    return found


def aside(event: Event, row: LedgerRow) -> Any:  # noqa: ANN401 - as `observe` takes it
    """Return the last argument for `History.observe` and `VectorHistory.observe`: the draw, or the event id."""
    return row.draw if row.kind == PROBABILITY else event.key[1:]


def recorded(row: LedgerRow) -> int:
    """Return the record time of an event's label, ms; 0 if silence implied it."""
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
    """Return the sum of several values; ``zero`` if there are none."""
    added: Any = zero
    for each in found:
        added = added + each
    return cast("Sum", added)


def usual(found: Sequence[Bias]) -> Bias:
    """Return the sum of those that have the same number of features as the last one with features."""
    widths = [len(each.along("raw")) for each in found]
    width = max(enumerate(widths), key=lambda each: (each[1] > 0, each[0]))[1]
    return summed([each for each, wide in zip(found, widths, strict=True) if wide == width], Bias())


def divided_versions(found: Sequence[Versions], heres: Mapping[int, Here], home: int) -> Iterator[tuple[int, Versions]]:
    """Yield each new partition with its versions of the model.

    The home gets all counts; the others get only the number of ledger rows of each version. All keep the distribution
    of scores, because the next version is compared with it.
    """
    whole = summed(found, Versions())
    for new, here in heres.items():
        own = whole if new == home else Versions()
        for each in whole.of.values():
            if each.config in here.learning or here.rows[each.config] or new == home:
                version = own.of.setdefault(each.name, Version(each.name, each.config, first_ms=each.first_ms))
                version.last_ms, version.held = each.last_ms, here.rows[each.config]
                version.cells, version.beside = each.cells[:], each.beside[:]
        yield new, own


def anew(found: Iterable[tuple[int, bytes]]) -> bool:
    """Return whether the alarms of a stream began anew in each partition with scores; found: partitions and keys."""
    olds = defaultdict[bytes, set[int]](set)
    for old, key in found:
        olds[key[:1]].add(old)
    return olds[kinds.SCORES.letter] | olds[kinds.VECTORS.letter] <= olds[kinds.ALARMS.letter]
