"""Divides one stream among new partitions.

If the stream moves from one partition to one partition, its rows do not change. Otherwise they are divided:

- **Scores.** The sums over all partitions stay the same. A new partition observes the events that it gets and that
  still have a row, in the order in which they resolved, so that revisions find them. The sums of other events no longer
  change. They go to one partition, the stream's home; so do ages of outcomes and the distribution of forecasts.
- **Coverage.** Each partition starts with the share over all partitions, and counts forecasts anew.
- **Calibrators.** A partition gets the calibrator that had learnt most. It then learns the moved events of other
  partitions that still have a row, so it knows every label that may be revised here.
- **Entities.** The rows of entities move with the calibrator that the entities taught.
- **Segments.** Values keep their slots in that calibrator. Rows from other partitions get these slots, or new ones.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from state import kinds, ledger, rescale_parts
from state.forecasts import PROBS
from state.kind import SLOT, kind_of
from state.kind import Moves as Kept
from state.ledger import LedgerRow
from state.policy import scored_of
from state.rescale_parts import (
    Event,
    Here,
    Learning,
    Moves,
    Rows,
    aside,
    begun,
    divided_versions,
    history_key,
    layout_in,
    recorded,
    summed,
    usual,
)
from state.scoring.pair_scores import compare, of_challenger
from state.scoring.recent import Recent
from state.scoring.segment_pairs import AnySegmentScores, observe_segments
from state.scoring.segment_scores import SegmentScores
from state.scoring.sums import added
from state.scoring.warm_up import WarmUp
from state.scoring.windows import overall
from state.segments import Dictionary
from state.served import Served


class Divided:
    """One stream, from its rows in the old partitions to its rows in the new ones."""

    def __init__(
        self,
        stream: str,
        parts: Sequence[Rows],
        found: Sequence[tuple[int, bytes]],
        events: Sequence[Event],
        moves: Moves | set[tuple[int, int]],
        home: int,
    ) -> None:
        self._stream = stream
        self._parts = parts
        self._found = found
        self._events = events
        olds = {old for old, _ in found} | {each.old for each in events}
        news = {new for _, new in moves} | {home}
        #: Whether the whole stream moves from one partition to one partition.
        self._whole = len(olds) == 1 and len(news) == 1
        self._home = home
        fed = {new: sorted({old for old, to in moves if to == new} & olds) for new in news}
        self._here = {new: Here(fed[new] or sorted(olds)) for new in sorted(news)}
        self._served: dict[str, dict[int, Served]] = defaultdict(dict)
        self._names: dict[bytes, dict[int, Dictionary]] = defaultdict(dict)
        #: Scores of events in the old partitions, by `rescale_parts.history_key`.
        self._before: dict[str, list[Any]] = defaultdict(list)
        #: Scores of the old partitions' segments, by old partition, key hash and slot.
        self._segments: dict[tuple[int, bytes, int], AnySegmentScores] = {}

    def into(self, made: Sequence[dict[bytes, bytes]]) -> None:
        """Add the stream's rows to those of the new partitions."""
        if self._whole:
            for old, key in self._found:
                made[self._home][key] = self._parts[old][key]
            for event in self._events:
                made[event.new][event.key] = self._parts[event.old][event.key]
            return
        self._read()
        for new, here in self._here.items():
            self._choose(new, here)
        self._resume()
        for event, row in self._events_in_order():
            made[event.new][event.key] = kinds.LEDGER.encode(self._moved(event, row))
        self._settle_histories(made)
        self._settle_comparisons(made)
        self._settle_segments(made)
        self._settle_sums(made)
        self._settle_versions(made)
        for new, here in self._here.items():
            for config, learning in here.learning.items():
                learning.served.late += learning.short
                made[new][kinds.CALIBRATOR.key(self._stream, config)] = kinds.CALIBRATOR.encode(learning.served)
                made[new] |= {
                    key: self._parts[old][key]
                    for old, key in self._found
                    if old == learning.old and kind_of(key).moves == Kept.TAUGHT and kind_of(key).of(key)[1] == config
                }
            for layout, dictionary in here.dictionaries.items():
                made[new][kinds.NAMES.key(self._stream, layout)] = kinds.NAMES.encode(dictionary)

    def _read(self) -> None:
        for old, key in self._found:
            row = self._parts[old][key]
            if key[:1] == kinds.CALIBRATOR.letter:
                self._served[kinds.CALIBRATOR.of(key)[1]][old] = kinds.CALIBRATOR.decode(row, self._stream)
            elif key[:1] == kinds.NAMES.letter:
                self._names[kinds.NAMES.of(key)[1]][old] = kinds.NAMES.decode(row)
            elif key[:1] == kinds.SEGMENT.letter:
                self._segments[(old, *kinds.SEGMENT.of(key)[1:])] = kinds.SEGMENT.decode(row)

    # The calibrators and slots with which a new partition begins.

    def _choose(self, new: int, here: Here) -> None:
        layouts = {config: layout_in(next(iter(served.values())).recipe) for config, served in self._served.items()}
        base: dict[bytes, int] = {}
        for layout, named in self._names.items():
            of_layout = [self._served[config] for config, each in layouts.items() if each == layout]
            learnt = {
                old: max([each[old].calibrator.learnt for each in of_layout if old in each], default=0) for old in named
            }
            own = [old for old in here.sources if old in named] or sorted(named)
            base[layout] = max(own, key=lambda old: (learnt[old], -old))
            others = [old for old in (sorted(named) if new == self._home else own) if old != base[layout]]
            self._join(here, layout, [base[layout], *others])
        for config, served in self._served.items():
            own = [old for old in here.sources if old in served]
            if not own:
                continue
            chosen: int | None = max(own, key=lambda old: (served[old].calibrator.learnt, -old))
            if layouts[config]:
                chosen = base.get(layouts[config], chosen)
                chosen = chosen if chosen in served else None  # otherwise it would use the slots of another partition
            if chosen is None:
                here.learning[config] = Learning(None, Served.fresh(served[own[0]].recipe, self._stream))
            else:
                row = self._parts[chosen][kinds.CALIBRATOR.key(self._stream, config)]
                here.learning[config] = Learning(chosen, kinds.CALIBRATOR.decode(row, self._stream))

    def _join(self, here: Here, layout: bytes, olds: Sequence[int]) -> None:
        """Join the slots of several partitions. The values of the first partition keep their slots."""
        first = self._names[layout][olds[0]]
        joined = here.dictionaries[layout] = Dictionary.decode(first.encode())
        for old in olds:
            here.slots[layout, old] = joined.join(self._names[layout][old])

    # The events.

    def _events_in_order(self) -> Iterator[tuple[Event, LedgerRow]]:
        """Yield the stream's events, learnt ones in the order in which they were learnt."""
        found = []
        for event in self._events:
            row = kinds.LEDGER.decode(self._parts[event.old][event.key])
            found.append((row.resolved_ts if row.status == ledger.RESOLVED else 0, event.key, event, row))
        found.sort(key=lambda each: each[:2])
        for _, _, event, row in found:
            yield event, row

    def _moved(self, event: Event, row: LedgerRow) -> LedgerRow:
        """Return an event's new row; count the event in its new partition if it is learnt."""
        here = self._here[event.new]
        here.rows[row.config] += 1
        counting = self._counting(event.old, row)
        slots = here.slots.get((row.layout, event.old)) if row.groups else None
        if slots is not None:
            row = self._regrouped(here, row, slots)
            counting = [slots[slot] for slot in counting]
        # Later it is unknown in which other segments the event has not counted.
        row.groups = tuple(counting)
        champion = here.learning[row.config]
        if row.status != ledger.RESOLVED:
            champion.take(row.version)
            for shadow in row.shadows:
                here.learning[shadow.config].take(shadow.version)
            return row
        if row.window == ledger.UNTAUGHT:
            return row
        if champion.old != event.old and not row.frozen:
            champion.served.calibrator.update(row.ticket, row.y, recorded(row))
        self._compare(here, event, row)
        history = begun(here.histories, row)
        if row.window == ledger.NO_WINDOW:
            history.warm_up.observe(row.raw, row.y)
            return row
        calibrator = champion.served.calibrator
        if calibrator.keeps_features:
            history.bias.observe(calibrator.features_in(row.ticket), row.raw, row.p, row.y)
        row.window = history.windows
        history.observe(row.raw, row.p, row.y, aside(event, row))
        if counting:
            observe_segments(here.scores_of(row, counting), row.raw, row.p, row.y, row.window)
        return row

    @staticmethod
    def _compare(here: Here, event: Event, row: LedgerRow) -> None:
        """Let challengers learn an event, and compare them with the served score."""
        for shadow in row.shadows:
            challenger = here.learning[shadow.config]
            if challenger.old != event.old:
                challenger.served.calibrator.update(shadow.ticket, row.y, recorded(row))
            if shadow.warm or row.window == ledger.NO_WINDOW:
                continue
            compared = here.comparisons.setdefault((row.config, shadow.config), of_challenger(row.kind))
            compare(compared, row.p, shadow.p, row.y, shadow.draw)

    def _counting(self, old: int, row: LedgerRow) -> list[int]:
        """Return the slots, in the old partition, of segments in which an event has counted or will count."""
        learnt = row.status == ledger.RESOLVED
        if learnt and row.window in (ledger.NO_WINDOW, ledger.UNTAUGHT):
            return []
        scored, found = scored_of(row.layout, row.kind, row.config), []
        for slot in row.groups:
            scores = self._segments.get((old, scored, slot))
            since = 0 if scores is None else scores.warm_up.since
            if row.born >= since and (since or not learnt):
                found.append(slot)
        return found

    def _regrouped(self, here: Here, row: LedgerRow, slots: Mapping[int, int]) -> LedgerRow:
        """Return an event's row with other slots, also in its tickets."""
        if all(slots[slot] == slot for slot in row.groups):
            return row

        def turned(config: str, ticket: bytes) -> bytes:
            return here.learning[config].served.calibrator.regrouped(ticket, slots)

        row.shadows = [each._replace(ticket=turned(each.config, each.ticket)) for each in row.shadows]
        row.ticket = turned(row.config, row.ticket)
        row.groups = tuple([slots[slot] for slot in row.groups])
        return row

    # The sums.

    def _old(self, kind: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield old partition, key and row of a kind."""
        for old, key in self._found:
            if key[:1] == kind:
                yield old, key, self._parts[old][key]

    def _resume(self) -> None:
        """Let the home go on with the scores of all partitions, for events without a row."""
        for old, _, stored in self._old(kinds.SCORES.letter):
            windows = self._parts[old].get(kinds.WINDOWS.key(self._stream))
            self._before[""].append(kinds.history(stored, windows))
        for _, key, stored in self._old(kinds.VECTORS.letter):
            self._before[kinds.VECTORS.of(key)[1]].append(kinds.VECTORS.decode(stored))
        left: dict[str, Any] = {}
        counting: dict[str, set[int]] = defaultdict(lambda: {self._home})
        for event, row in self._events_in_order():
            if row.status != ledger.RESOLVED or row.window == ledger.UNTAUGHT:
                continue
            if row.window == ledger.NO_WINDOW:
                begun(left, row).warm_up.observe(row.raw, row.y)
                continue
            begun(left, row).observe(row.raw, row.p, row.y, aside(event, row))
            counting[history_key(row)].add(event.new)
        for of, before in self._before.items():
            rest, warm = overall(before), summed([each.warm_up for each in before], WarmUp())
            if of in left:
                rest, warm = rest - left[of].total, warm - left[of].warm_up
            resumed = self._here[self._home].histories[of] = type(before[0]).resumed(before, rest, len(counting[of]))
            resumed.warm_up = warm

    def _settle_histories(self, made: Sequence[dict[bytes, bytes]]) -> None:
        for of, before in self._before.items():
            own = {new: here.histories[of] for new, here in self._here.items() if of in here.histories}
            home = own[self._home]
            if of:
                order, now = (
                    [sum(sums) for sums in zip(*(each.ordered() for each in found), strict=True)]
                    for found in (before, own.values())
                )
                home.rank([one - other for one, other in zip(order, now, strict=True)])
            else:
                left = usual([each.bias for each in before])
                width = len(left.along("raw"))
                for each in own.values():
                    if len(each.bias.along("raw")) == width:
                        left -= each.bias
                home.bias = usual([left, home.bias])
            for new, history in own.items():
                if of:
                    made[new][kinds.VECTORS.key(self._stream, of)] = kinds.VECTORS.encode(history)
                    continue
                made[new][kinds.SCORES.key(self._stream)] = kinds.SCORES.encode(history)
                if history.windows:
                    made[new][kinds.WINDOWS.key(self._stream)] = kinds.WINDOWS.encode(history)

    def _settle_comparisons(self, made: Sequence[dict[bytes, bytes]]) -> None:
        before: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for _, key, row in self._old(kinds.COMPARISON.letter):
            before[kinds.COMPARISON.of(key)[1:]].append(kinds.COMPARISON.decode(row))
        for pair, found in before.items():
            own: dict[int, Any] = {
                new: here.comparisons[pair] for new, here in self._here.items() if pair in here.comparisons
            }
            rest = sum(found[1:], found[0])
            for each in own.values():
                rest -= each
            own[self._home] = own[self._home] + rest if self._home in own else rest
            for new, comparison in own.items():
                made[new][kinds.COMPARISON.key(self._stream, *pair)] = kinds.COMPARISON.encode(comparison)

    def _settle_segments(self, made: Sequence[dict[bytes, bytes]]) -> None:
        home = self._here[self._home]
        layouts = {scored_of(layout, PROBS, config): layout for layout in self._names for config in self._served}
        rest = added(
            ((scored, home.slots[layouts.get(scored, scored), old][slot]), scores)
            for (old, scored, slot), scores in self._segments.items()
        )
        for event, row in self._events_in_order():
            counting = self._counting(event.old, row) if row.status == ledger.RESOLVED else []
            if counting:
                slots = home.slots[row.layout, event.old]
                scored = scored_of(row.layout, row.kind, row.config)
                found = [rest[scored, slots[slot]] for slot in counting]
                observe_segments(found, row.raw, row.p, row.y, sign=-1)
        for scores in rest.values():
            scores.warm_up.since = min(scores.warm_up.since, 1)  # applied counts of another partition mean nothing here
            scores.recent = Recent() if isinstance(scores, SegmentScores) else None  # the windows no longer exist
        home.segments = added((*home.segments.items(), *rest.items()))
        for new, here in self._here.items():
            for (scored, slot), scores in here.segments.items():
                made[new][kinds.SEGMENT.key(self._stream, scored, slot)] = kinds.SEGMENT.encode(scores)

    def _at_home(self, old: int, key: bytes) -> bytes:
        """Return the key that a summed row has in the home, where slots may differ."""
        kind = kind_of(key)
        if SLOT not in kind.parts:
            return key
        *of, layout, slot = kind.of(key)
        slots = self._here[self._home].slots.get((layout, old))
        return key if slots is None else kind.key(*of, layout, slots[slot])

    def _settle_sums(self, made: Sequence[dict[bytes, bytes]]) -> None:
        """Add up the rows that move as a sum."""
        anew = rescale_parts.anew(self._found)
        sums = added(
            (self._at_home(old, key), kind.decode(self._parts[old][key]))
            for old, key in self._found
            if (kind := kind_of(key)).moves in (Kept.SUM, Kept.SHARED) and (kind is not kinds.ALARMS or anew)
        )
        for key, value in sums.items():
            kind = kind_of(key)
            for new in self._here if kind.moves == Kept.SHARED else (self._home,):
                made[new][key] = kind.encode(value)

    def _settle_versions(self, made: Sequence[dict[bytes, bytes]]) -> None:
        """Divide the versions of the model, see `divided_versions`."""
        if found := [kinds.VERSIONS.decode(row) for _, _, row in self._old(kinds.VERSIONS.letter)]:
            for new, own in divided_versions(found, self._here, self._home):
                made[new][kinds.VERSIONS.key(self._stream)] = kinds.VERSIONS.encode(own)
