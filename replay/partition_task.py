"""One partition of a replay, from its records to what is measured: the unit that processes share out."""

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from replay.configuration import Configuration
from replay.engine_output import EngineOutput, write_answers
from replay.partition_result import PartitionResult
from replay.player import Player
from replay.processes import Processes, report
from replay.sources.merge import merged
from replay.sources.record import Source, SourceRecord, loaded
from state.events import Event, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from streams.records.output_json import encode_letter
from streams.sources.direct import Direct


@dataclass(frozen=True)
class Part:
    """The replay of one partition, for a process."""

    #: Where the records are.
    source: Source
    partition: int
    #: Configurations, together where they agree in `Configuration.reading`.
    groups: Sequence[Sequence[Configuration]]
    #: What a record may be.
    limits: Limits
    #: The sources whose records are mapped; None for none.
    direct: Direct | None
    #: For everything this part writes.
    directory: Path
    #: Whether dead letters are written, to ``dead.jsonl`` there: those of the first group.
    letters: bool = False
    #: Whether calibrated records are written, and a worker's rows; of both there is one configuration.
    #: Time does not run on beyond the last record where rows are wanted: more records will come.
    answers: bool = False
    rows: bool = False


def parts(
    source: Source,
    groups: Sequence[Sequence[Configuration]],
    settings: Settings,
    directory: Path,
    **wanted: Any,  # noqa: ANN401 - as `Part` has them
) -> list[Part]:
    """Return the parts of a source that is ready, which write below a directory; ``wanted`` is more of `Part`."""
    direct = settings.direct if source.mapped else None
    return [
        Part(source, n, groups, settings.limits, direct, directory / str(n), **wanted) for n in range(source.partitions)
    ]


@dataclass
class Done:
    """What a part gave."""

    #: Of each group.
    played: list[PartitionResult]
    #: What the engine left, as far as `Part` asks for it.
    folded: EngineOutput
    #: Smallest and largest timestamp of a record; None without records.
    start_ms: int | None
    end_ms: int | None
    #: Records of each topic, and those whose time is before that of an earlier one.
    read: tuple[int, int]
    out_of_order: tuple[int, int]


def play(parts: Sequence[Part], processes: int, show: Callable[[int], None]) -> list[Done]:
    """Play parts, at least one, and return what they gave, in their order, whatever the number of processes.

    ``show``: called now and then with how much was read so far, in the unit of `Source.size`.
    """
    with Processes(min(processes, len(parts)), show) as running:
        return running.all([partial(run, part) for part in parts])


def run(part: Part) -> Done:
    """Play one partition."""
    # Rows and tickets hold no cycles and are many: looking through all of them again and again takes half of the time.
    # So only what is new since the last chunk is looked through.
    before = gc.isenabled()
    gc.disable()
    try:
        return _played(part, gc.collect)
    finally:
        if before:
            gc.enable()


def _played(part: Part, collect: Callable[[int], int]) -> Done:
    part.directory.mkdir(parents=True, exist_ok=True)
    source, n = part.source, part.partition
    with ExitStack() as stack:
        dead = stack.enter_context((part.directory / "dead.jsonl").open("wb"))
        answers = stack.enter_context((part.directory / "answers").open("wb")) if part.answers else None

        def bury(letter: Rejected) -> None:
            dead.write(encode_letter(letter, source.names[letter.topic], n, part.limits) + b"\n")

        players = [
            Player(group, part.directory / f"group-{i}", bury if part.letters and not i else _ignore, rows=part.rows)
            for i, group in enumerate(part.groups)
        ]
        readers = [_Reader(part, group[0].policies) for group in part.groups]
        order = _Order()
        for chunk in merged(source.read(FORECASTS, n), source.read(OUTCOMES, n)):
            order.note(chunk.records)
            for reader, player in zip(readers, players, strict=True):
                events = reader.events(chunk.records)
                # Nobody holds the outputs when what is new is looked through: that took a tenth of the time.
                if answers:
                    write_answers(answers, n, chunk.records, events, player.play(events))
                else:
                    player.play(events)
            report(chunk.done)
            collect(0)
    if source.until_ms is not None and not part.rows:
        for player in players:
            player.run_on(max(source.until_ms, order.latest))
    played = [player.end() for player in players]
    folded = EngineOutput(part.directory, players[0].partition.fence)
    if part.rows:
        folded.write_rows(players[0].rows())
    return Done(played, folded, *order.span, (order.read[0], order.read[1]), (order.behind[0], order.behind[1]))


def _ignore(_: Rejected) -> None:
    """Let a dead letter be counted only."""


class _Order:
    """The time span of the records, and how many records of each topic come after a later one."""

    def __init__(self) -> None:
        #: Smallest and largest timestamp of each topic, as far as is known.
        self._least: list[float] = [inf, inf]
        self._latest: list[float] = [-inf, -inf]
        self.read, self.behind = [0, 0], [0, 0]

    def note(self, records: Sequence[SourceRecord]) -> None:
        """Take note of records in the order in which they are played."""
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
        """Largest timestamp as it was played; 0 without records."""
        return int(max(*self._latest, 0))

    @property
    def span(self) -> tuple[int | None, int | None]:
        """Smallest and largest timestamp; None without records."""
        if max(self._latest) == -inf:
            return None, None
        return int(min(self._least)), int(max(self._latest))


class _Reader:
    """Turns records into events for one group."""

    def __init__(self, part: Part, policies: Policies) -> None:
        self._decoder = Decoder(policies, part.limits, part.direct)

    def events(self, records: Sequence[SourceRecord]) -> list[Event]:
        """Return the events of some records."""
        forecast, outcome = self._decoder.forecast, self._decoder.outcome
        return [
            Rejected(offset, key, value, topic, reason)
            if reason
            else (outcome if topic else forecast)(offset, key, value, timestamp if timestamp > 0 else 0, headers)  # noqa: FURB136 - max() is slow
            for timestamp, topic, offset, key, value, reason, headers in loaded(self._decoder, records)
        ]
