"""``trueup streams map``: what is served for each raw score, now or at a time, to read and to use elsewhere."""

import argparse
import asyncio
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.errors import KafkaError
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli import history, show
from cli.options import DONE, NO
from replay.configuration import PRESENT, Configuration
from replay.console import Console
from replay.player import parts, play
from replay.processes import cores
from state import kinds, maps
from state.bands import log_odds
from state.kind import kind_of
from state.policy import Policy
from state.segments import Dictionary
from state.served import Served
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.metrics.rows import StateRows, covered
from streams.metrics.snapshot import by_stream
from streams.records.skips import PoisonError

#: Raw scores of the table.
POINTS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, *(n / 10 for n in range(1, 10)), 0.97, 0.99, 0.997, 0.999, 1.0)


class Map(NamedTuple):
    """What one partition serves: which calibrator, outcomes it had learnt, and the function of the raw score."""

    partition: int
    calibrator: str
    config: str
    version: int
    answer: Callable[[float], float]
    points: maps.Table


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Show the map of a stream; return 0, or 1 where it has none.

    Raises SettingsError or TopicsError if an option cannot be, the stream cannot have a map, or the state or the topics
    cannot be read.
    """
    policy = settings.policies.of(options.stream)
    if policy is None:
        raise SettingsError(f"stream {options.stream!r} is not in the streams file, which is closed")
    if why := maps.why_not(policy):
        raise SettingsError(f"stream {options.stream!r} has no map: {why}")
    if options.form == "sql" and options.diff:
        raise SettingsError("--diff is of two maps, SQL of one: leave out --diff, or choose another form")
    values = _values(options.of, policy)
    of = [
        _maps(_state(options, settings, at), options.stream, policy, values)
        for at in (options.at, options.diff)[: 1 + bool(options.diff)]
    ]
    if not of[0]:
        sys.stderr.write(f"stream {options.stream!r} has learnt nothing by then: raw scores are served\n")
        return NO
    _FORMS[options.form](options, of[0], {each.partition: each for each in of[1]} if options.diff else None)
    return DONE


def _values(given: str, policy: Policy) -> tuple[str, ...]:
    """Return the values of the policy's segments; empty where none is given."""
    pairs = [each.partition("=") for each in given.split(",") if each]
    if wrong := [name for name, _, value in pairs if name not in policy.segments or not value]:
        there = ", ".join(policy.segments) or "none"
        raise SettingsError(f"--of: {wrong[0]!r} is no segment with a value; write NAME=VALUE. There are: {there}")
    found = {name: value for name, _, value in pairs}
    return tuple([found.get(name, "") for name in policy.segments])


def _state(options: argparse.Namespace, settings: Settings, at: str | None) -> StateRows:
    """Return the state of now, or of a time or the end of files, by a replay."""
    if at is None and not (options.forecasts or options.outcomes or options.table):
        try:
            return asyncio.run(show.read(settings))
        except (KafkaError, PoisonError) as exc:
            raise TopicsError(f"cannot read {settings.changelog} from {', '.join(settings.brokers)}: {exc}") from exc
    source = history.source(
        argparse.Namespace(**{**vars(options), "start": None, "end": at, "last": None, "offsets": None}), settings
    )
    present = Configuration(PRESENT, settings.policies)
    with TemporaryDirectory(prefix="trueup-map-") as directory:
        place = Path(directory)
        made = parts(source.ready(place), [[present]], settings, place, rows=True)
        held: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        for n, done in enumerate(play(made, cores(), lambda *_: None)):
            for key, row in done.folded.rows():
                if kind_of(key).shown:
                    held[n][key] = row
    return StateRows({n: by_stream(rows) for n, rows in held.items()}, {})


def _maps(found: StateRows, stream: str, policy: Policy, values: tuple[str, ...]) -> list[Map]:
    """Return the map of each partition that has learnt something."""
    uncovered = {n for n, each in covered(found, stream, policy).items() if each.uncovered} if policy.guarded else set()
    names = {n: each for (n, layout), each in found.of(kinds.NAMES, stream).items() if layout == policy.layout}
    made = []
    for (n, config), served in sorted(found.of(kinds.CALIBRATOR, stream).items()):
        if config != policy.config:
            continue
        calibrator = (Served.fresh(served.recipe, stream) if n in uncovered else served).calibrator
        dictionary = names.get(n) or Dictionary(policy.segments, policy.pairs)
        groups = dictionary.groups(values) if policy.segments else ()
        answer = lambda p, of=calibrator, groups=groups: of.predict(p, (), b"", groups).p  # noqa: E731 - of this partition
        made.append(
            Map(n, policy.calibrator, config, calibrator.learnt, answer, maps.table(answer, calibrator.breaks()))
        )
    return made


def _table(options: argparse.Namespace, found: Sequence[Map], then: Mapping[int, Map] | None) -> None:
    console = Console()
    for each in found:
        before = then.get(each.partition) if then is not None else None
        shown = Table(box=SIMPLE_HEAD, padding=(0, 1))
        for name in ("raw", *(("then",) if before else ()), "served", "log-odds"):
            shown.add_column(name, justify="right", no_wrap=True)
        for p in POINTS:
            first = before.answer(p) if before else p
            cells = [p, *([first] if before else []), each.answer(p)]
            shown.add_row(*[f"{cell:.4g}" for cell in cells], f"{log_odds(each.answer(p)) - log_odds(first):+.2f}")
        console.print(_title(options, each), soft_wrap=True, highlight=False)
        console.print(shown)


def _title(options: argparse.Namespace, of: Map) -> str:
    where = f", {options.of}" if options.of else ""
    learnt = f"{of.calibrator} ({of.config}) after {of.version:,} outcomes"
    return f"{options.stream}{where}, partition {of.partition}: {learnt}"


def _csv(_: argparse.Namespace, found: Sequence[Map], then: Mapping[int, Map] | None) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("partition", "raw", "served", *(("then",) if then is not None else ())))
    for each in found:
        before = then.get(each.partition) if then is not None else None
        for x, y in zip(*each.points, strict=True):
            rows.writerow((each.partition, x, y, *((before.answer(x) if before else x,) if then is not None else ())))


def _json(options: argparse.Namespace, found: Sequence[Map], then: Mapping[int, Map] | None) -> None:
    said = {"stream": options.stream, "at": options.at, "of": options.of, "maps": list(map(_plain, found))}
    if then is not None:
        said |= {"diff": options.diff, "then": list(map(_plain, then.values()))}
    sys.stdout.write(orjson.dumps(said).decode() + "\n")


def _plain(of: Map) -> dict[str, Any]:
    return {
        name: value for name, value in of._asdict().items() if name not in ("answer", "points")
    } | of.points._asdict()


def _sql(options: argparse.Namespace, found: Sequence[Map], _: Mapping[int, Map] | None) -> None:
    """Print a query of the whole map: one CASE a gap, of the column ``raw`` of a table ``scores``."""
    if len(found) > 1:
        raise SettingsError(f"each of {len(found)} partitions has a map of its own, and SQL is of one: use csv or json")
    (of,) = found
    x, y = of.points
    lines = [f"-- {_title(options, of)}", "SELECT raw, CASE"]
    points = pairwise(zip(x, y, strict=True))
    lines += [f"  WHEN raw < {right[0]!r} THEN {_line(left, right)}" for left, right in points]
    lines += [f"  ELSE {y[-1]!r} END AS served", "FROM scores;"]
    sys.stdout.write("\n".join(lines) + "\n")


def _line(left: tuple[float, float], right: tuple[float, float]) -> str:
    """Return the line through two points in SQL, as `state.maps.Table` says."""
    (x0, y0), (x1, y1) = left, right
    if y0 == y1:
        return repr(y0)
    if x0 == 0.0 or x1 == 1.0 or min(y0, y1) == 0.0 or max(y0, y1) == 1.0:
        return f"{y0!r} + {(y1 - y0) / (x1 - x0)!r} * (raw - {x0!r})"
    one, other, low, high = (math.log(each) - math.log1p(-each) for each in (y0, y1, x0, x1))
    slope = (other - one) / (high - low)
    return f"1 / (1 + EXP({slope * low - one!r} - {slope!r} * LN(raw / (1 - raw))))"


_FORMS: Final = {"table": _table, "csv": _csv, "sql": _sql, "json": _json}
