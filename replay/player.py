"""The player of a replay: applies the events of one partition to several configurations, with the workers' engine.

No state is stored. The first configuration serves, and the others challenge it, so that all share one ledger. An
observer records answers and outcomes, in place of the workers' counts or beside them. `replay.score` reads these.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from replay.column_file import Tape
from replay.configuration import Configuration
from replay.engine_output import EngineOutput, write_answers
from replay.partition_result import PartitionResult
from replay.processes import Processes, report
from replay.sources.merge import merged
from replay.sources.record import ReplaySource, SourceRecord, loaded
from replay.taping import Taping
from state.counting import Counting
from state.effects import Changes
from state.engine import Partition
from state.events import Event, Output, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.ledger import IMMATURE, WAITING
from state.observer import Observer
from streams.config.settings import Settings
from streams.metrics import functions
from streams.metrics.versions import held
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from streams.records.output_json import encode_letter
from streams.sources.direct import Direct

#: What an observer can be told.
_TOLD: Final = tuple(name for name in vars(Observer) if not name.startswith("_"))


def _both(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    def told(*what: Any) -> Any:  # noqa: ANN401 - as observers are told
        first(*what)
        return then(*what)

    return told


class Player:
    """Plays the events of one partition to several configurations that have the same `Configuration.reading`.

    They learn labels at the same times, so at any time an event has the same label for all.

    ``configurations``: at least one.
    ``directory``: that of the tape.
    ``rejected``: called with each dead letter; None: they are only counted.
    ``rows``: whether `rows` will be called at the end. Then there is one configuration, which may have challengers.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        directory: Path,
        rejected: Callable[[Rejected], None] | None = None,
        *,
        rows: bool = False,
    ) -> None:
        plans = [each.policies for each in configurations]
        self._rejected = rejected
        self._tape = Tape(directory)
        self.played = PartitionResult(directory)
        self._taping = Taping(configurations, self._tape, self.played)
        self.streams = self._taping.streams
        if rows:
            both: Any = SimpleNamespace()  # it tapes events, and also counts as workers do
            self.partition = Partition(plans[0], None, both)
            counting = Counting(plans[0], self.partition.services)
            for name in _TOLD:
                setattr(both, name, _both(getattr(self._taping, name), getattr(counting, name)))
        else:
            self.partition = Partition(plans[0], None, self._taping, plans)
        self.played.fates = self.partition.fence.fates

    def play(self, events: Iterable[Event]) -> list[Output]:
        """Apply events, each topic's in the order of offsets, none twice; return the outputs."""
        partition, dead = self.partition, self.played.dead
        partition.begin()
        outputs = partition.apply(events)
        rejected = partition.end().rejected
        for reason in rejected:
            dead[reason] = dead.get(reason, 0) + 1
        if rejected and self._rejected is not None:
            for output in outputs:
                if isinstance(output, Rejected):
                    self._rejected(output)
        self._tape.spill()
        return outputs

    def run_on(self, now: int) -> None:
        """Let stream time go on to a time, ms, without a record. All forecasts that are due mature."""
        self.partition.begin()
        self.partition.tick(now, len(self.partition.rows))
        self._tape.spill()

    def rows(self) -> Changes:
        """Return all rows that a worker would have now. Nothing can be played after this."""
        return self.partition.checkpoint()

    def end(self) -> PartitionResult:
        """Look at every calibrator for the last time, write the tape, and return the result."""
        partition, played = self.partition, self.played
        self._taping.end()
        for of in self.streams.values():
            if of.service is not None and of.service.versions is not None:
                by_config = {config: held(each) for config, each in of.by_version.items()}
                played.versions[of.name] = of.service.versions.encode(), by_config
            for n, served in enumerate(of.served):
                if (part := functions.part(served))[1]:
                    played.functions[of.name, n] = part
        played.records = partition.fence.applied
        played.immature = sum(row is not None and row.status in (IMMATURE, WAITING) for row in partition.rows.values())
        self._tape.close()
        return played


@dataclass(frozen=True)
class PartitionReplay:
    """The replay of one partition, for a process."""

    #: Where the records are.
    source: ReplaySource
    partition: int
    #: Groups of configurations that have the same `Configuration.reading`.
    groups: Sequence[Sequence[Configuration]]
    #: Limits on records.
    limits: Limits
    #: The sources whose records are mapped; None if no records are mapped.
    direct: Direct | None
    #: Directory for everything that this part writes.
    directory: Path
    #: Whether the dead letters of the first group are written to ``dead.jsonl`` in this directory.
    letters: bool = False
    #: Whether calibrated records, and a worker's rows, are written. Then there is one configuration. If rows are
    #: wanted, stream time stops at the last record, because more records will come.
    answers: bool = False
    rows: bool = False


def parts(
    source: ReplaySource,
    groups: Sequence[Sequence[Configuration]],
    settings: Settings,
    directory: Path,
    **wanted: Any,  # noqa: ANN401 - as `PartitionReplay` has them
) -> list[PartitionReplay]:
    """Return the parts of a source. They write below a directory. ``wanted``: further fields of `PartitionReplay`."""
    direct = settings.direct if source.mapped else None
    return [
        PartitionReplay(source, n, groups, settings.limits, direct, directory / str(n), **wanted)
        for n in range(source.partitions)
    ]


@dataclass
class Done:
    """The result of one part."""

    #: One result for each group.
    played: list[PartitionResult]
    #: Files that `PartitionReplay` asks for.
    folded: EngineOutput
    #: Smallest and largest timestamp of the records; None without records.
    start_ms: int | None
    end_ms: int | None
    #: By topic: the number of records, and of records whose time is before that of an earlier one.
    read: tuple[int, int]
    out_of_order: tuple[int, int]


def play(parts: Sequence[PartitionReplay], processes: int, show: Callable[[int], None]) -> list[Done]:
    """Play one or more parts; return the results in the order of the parts.

    ``show``: called now and then with how much was read so far, in units of `Source.size`.
    """
    with Processes(min(processes, len(parts)), show) as running:
        return running.all([partial(run, part) for part in parts])


def run(part: PartitionReplay) -> Done:
    """Play one partition."""
    part.directory.mkdir(parents=True, exist_ok=True)
    source, n = part.source, part.partition
    with ExitStack() as stack:
        dead = stack.enter_context((part.directory / "dead.jsonl").open("wb"))
        answers = stack.enter_context((part.directory / "answers").open("wb")) if part.answers else None

        def bury(letter: Rejected) -> None:
            dead.write(encode_letter(letter, source.names[letter.topic], n, part.limits) + b"\n")

        players = [
            Player(group, part.directory / f"group-{i}", bury if part.letters and not i else None, rows=part.rows)
            for i, group in enumerate(part.groups)
        ]
        decoders = [Decoder(group[0].policies, part.limits, part.direct) for group in part.groups]
        order = _Order()
        for chunk in merged(source.read(FORECASTS, n), source.read(OUTCOMES, n)):
            order.note(chunk.records)
            for decoder, player in zip(decoders, players, strict=True):
                events = decoded(decoder, chunk.records)
                if answers:
                    write_answers(answers, n, chunk.records, events, player.play(events))
                else:
                    player.play(events)
            report(chunk.done)
    if source.until_ms is not None and not part.rows:
        for player in players:
            player.run_on(max(source.until_ms, order.latest))
    played = [player.end() for player in players]
    folded = EngineOutput(part.directory, players[0].partition.fence)
    if part.rows:
        folded.write_rows(players[0].rows())
    for player in players:
        player.partition.reset()  # its actions refer to it, so its rows would stay until a garbage collection
    return Done(played, folded, *order.span, (order.read[0], order.read[1]), (order.behind[0], order.behind[1]))


def decoded(decoder: Decoder, records: Sequence[SourceRecord]) -> list[Event]:
    """Return the events of some records."""
    forecast, outcome = decoder.forecast, decoder.outcome
    return [
        Rejected(offset, key, value, topic, reason)
        if reason
        else (outcome if topic else forecast)(offset, key, value, timestamp if timestamp > 0 else 0, headers)  # noqa: FURB136 - max() is slow
        for timestamp, topic, offset, key, value, reason, headers in loaded(decoder, records)
    ]


class _Order:
    """The records' time span, and how many records of each topic come after a later one."""

    def __init__(self) -> None:
        #: Smallest and largest timestamp of each topic, as far as known.
        self._least: list[float] = [inf, inf]
        self._latest: list[float] = [-inf, -inf]
        self.read, self.behind = [0, 0], [0, 0]

    def note(self, records: Sequence[SourceRecord]) -> None:
        """Note records in the order in which they are played."""
        for topic in (FORECASTS, OUTCOMES):
            times = [record[0] for record in records if record[1] == topic]
            if not times:
                continue
            self.read[topic] += len(times)
            latest = self._latest[topic]
            in_order = sorted(times)
            if times[0] < latest or times != in_order:
                for time in times:
                    self.behind[topic] += time < latest
                    latest = max(latest, time)
            self._least[topic] = min(self._least[topic], in_order[0])
            self._latest[topic] = max(latest, in_order[-1])

    @property
    def latest(self) -> int:
        """Largest timestamp played so far; 0 without records."""
        return int(max(*self._latest, 0))

    @property
    def span(self) -> tuple[int | None, int | None]:
        """Smallest and largest timestamp; None without records."""
        if max(self._latest) == -inf:
            return None, None
        return int(min(self._least)), int(max(self._latest))
