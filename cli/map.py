"""``trueup streams map``: what is served for each raw score, now or at a time, to read or to use elsewhere."""

import argparse
import asyncio
import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli import history, show
from cli.options import DONE, NO, listed, print_json, settings
from replay.configuration import PRESENT, Configuration
from replay.console import Console
from replay.player import parts, play
from replay.processes import cores
from state import kinds, maps
from state.kind import kind_of
from state.odds import cut_log_odds, log_odds
from state.policies import Policies
from state.policy import Policy
from state.segments import Dictionary
from streams.config.settings import Settings, SettingsError
from streams.metrics.rows import StateRows, covered
from streams.metrics.served_map import Ends, answering, ends, withheld
from streams.metrics.snapshot import by_stream

#: Raw scores in the table.
POINTS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, *(n / 10 for n in range(1, 10)), 0.97, 0.99, 0.997, 0.999, 1.0)


class Map(NamedTuple):
    """What one partition serves: the calibrator, the outcomes it had learnt, and the served score by raw score."""

    partition: int
    #: Version of the model; None if one calibrator serves all versions.
    model_version: str | None
    calibrator: str
    config: str
    version: int
    answer: Callable[[float], float]
    points: maps.Table
    #: Whether the map is frozen now.
    frozen: bool
    #: The intervals; None if the stream has none.
    ends: Ends | None
    #: Whether the raw score is served although something was learnt.
    withheld: bool

    @property
    def place(self) -> tuple[int, str | None]:
        """What identifies this map among the maps of another time."""
        return self.partition, self.model_version

    def row(self, p: float, served: float, then: "Map | None") -> dict[str, float]:
        """Return the row of a raw score, by column names. ``then``: the map of another time."""
        left = {} if self.ends is None else dict(zip(("low", "high"), self.ends(p, served), strict=True))
        return {"raw": p, "served": served, **left, **({} if then is None else {"then": then.answer(p)})}


#: Maps of another time, by `Map.place`; None if no other time is asked for.
Then = Mapping[tuple[int, str | None], Map] | None


def run(options: argparse.Namespace) -> int:
    """Show the map of a stream. Return 0, or 1 if the stream has none.

    Raises SettingsError or TopicsError if an option is wrong, the stream cannot have a map, or state or topics cannot
    be read.
    """
    of_past = options.at or options.forecasts or options.outcomes or options.table
    configured = settings() if of_past else show.running(settings())
    policy = configured.policies.of(options.stream)
    if policy is None:
        raise SettingsError(f"stream {options.stream!r} is not in the streams file, which is closed")
    if why := maps.why_not(replace(policy, model_version="")):  # here each version has its own map
        raise SettingsError(f"stream {options.stream!r} has no map: {why}")
    if options.form == "sql" and options.diff:
        raise SettingsError("--diff shows two maps, SQL only one: leave out --diff, or choose another form")
    values = _values(options.of, policy)
    states = [_state(options, configured, at) for at in (options.at, options.diff)[: 1 + bool(options.diff)]]
    cautions = list(_cautions(states[0], options.stream, policy, values))  # reading maps adds to the known values
    of = [_maps(each, options.stream, policy, values, options.of_version) for each in states]
    if not of[0]:
        sys.stderr.write(f"{_nothing(options, states[0])}\n")
        return NO
    options.of = _whose(values, policy)
    sys.stderr.writelines(f"{said}\n" for said in cautions)
    _FORMS[options.form](options, of[0], {each.place: each for each in of[1]} if options.diff else None)
    return DONE


def _values(given: str, policy: Policy) -> tuple[str, ...]:
    """Return the values of the policy's segments; empty if none is given."""
    pairs = [each.partition("=") for each in given.split(",") if each]
    if wrong := [name for name, _, value in pairs if name not in policy.segments or not value]:
        there = ", ".join(policy.segments) or "none"
        raise SettingsError(f"--of: {wrong[0]!r} is not a segment with a value; write NAME=VALUE. There are: {there}")
    found = {name: value for name, _, value in pairs}
    return tuple([found.get(name, "") for name in policy.segments])


def _nothing(options: argparse.Namespace, found: StateRows) -> str:
    """Say why there is no map."""
    names, then = sorted(filter(found.knows, found.streams)), f" by {options.at}" if options.at else ""
    if options.stream not in names:
        return f"no stream {options.stream!r}{then}; there are: {listed(names)}"
    of = f", version {options.of_version}," if options.of_version else ""
    return f"stream {options.stream!r}{of} has learnt nothing{then}: raw scores are served"


def _whose(values: tuple[str, ...], policy: Policy) -> str:
    """Return in words whose forecasts a map serves; empty if the stream has no segments."""
    has = [f"{name}={value}" for name, value in zip(policy.segments, values, strict=True) if value]
    lacks = [name for name, value in zip(policy.segments, values, strict=True) if not value]
    return ", ".join([*has, *([f"without {' and '.join(lacks)}"] if lacks else [])])


def _cautions(found: StateRows, stream: str, policy: Policy, values: tuple[str, ...]) -> Iterator[str]:
    """Warn if raw scores are served, if the map leaves segments out, or if a segment's value never came."""
    if raw := [str(n) for n in covered(found, stream, policy) if withheld(found, stream, policy, n)]:
        yield (
            f"withheld: raw scores are served in partition {', '.join(raw)}, as most forecasts get no label, see "
            f"'trueup streams show {stream}'"
        )
    if lacks := [name for name, value in zip(policy.segments, values, strict=True) if not value]:
        yield (
            f"this is the map of forecasts without {' and '.join(lacks)}; those with a value are served another: "
            f"--of {lacks[0]}=VALUE"
        )
    given = [each.given()[0] for (_, layout), each in found.of(kinds.NAMES, stream).items() if layout == policy.layout]
    for n, (name, value) in enumerate(zip(policy.segments, values, strict=True)):
        known = sorted({each for of in given for each in of[n]})
        if value and value not in known:
            yield f"no forecast with {name}={value} came: it is served as any new {name}; known: {', '.join(known)}"


def _state(options: argparse.Namespace, settings: Settings, at: str | None) -> StateRows:
    """Return the present state; or the state at a time or at the end of files, by a replay."""
    if at is None and not (options.forecasts or options.outcomes or options.table):
        return asyncio.run(show.read(settings))
    source = history.source(
        argparse.Namespace(**{**vars(options), "start": None, "end": at, "last": None, "offsets": None}), settings
    )
    present = Configuration(PRESENT, _thawed(settings.policies, options.stream))
    with TemporaryDirectory(prefix="trueup-map-") as directory:
        place = Path(directory)
        made = parts(source.ready(place), [[present]], settings, place, rows=True)
        held: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        for n, done in enumerate(play(made, cores(), lambda *_: None)):
            for key, row in done.folded.rows():
                if kind_of(key).shown:
                    held[n][key] = row
    return StateRows({n: by_stream(rows) for n, rows in held.items()}, {})


def _thawed(policies: Policies, stream: str) -> Policies:
    """Return the policies with no map frozen. A frozen map learnt earlier, and nothing says until when."""
    if (policy := policies.of(stream)) and policy.frozen:
        sys.stderr.write(f"the map of {stream!r} is frozen now, and is played as if it had never been\n")
    return policies.each(lambda policy: replace(policy, frozen=False))


def _maps(
    found: StateRows, stream: str, policy: Policy, values: tuple[str, ...], version: str | None = None
) -> list[Map]:
    """Return the maps of each partition that has learnt something: one for each version, or only for ``version``."""
    names = {n: each for (n, layout), each in found.of(kinds.NAMES, stream).items() if layout == policy.layout}
    versions = found.of(kinds.VERSIONS, stream).items() if policy.model_version else ()
    named = {(n, each.config): each.name for n, of in versions for each in of.of.values()}
    made = []
    for (n, config), served in answering(found, stream, policy).items():
        name = named.get((n, config))
        if (name is None if policy.model_version else config != policy.config) or version not in (None, name):
            continue
        dictionary = names.get(n) or Dictionary(policy.segments, policy.pairs)
        groups = dictionary.groups(values) if policy.segments else ()
        calibrator, learnt = served.calibrator, found.of(kinds.CALIBRATOR, stream)[n, config].calibrator.learnt
        answer = lambda p, of=calibrator, groups=groups: of.predict(p, (), b"", groups).p  # noqa: E731 - of this partition
        points = maps.table(answer, calibrator.breaks())
        left = ends(found, stream, policy, (n, config), groups if any(values) else ())
        raw = withheld(found, stream, policy, n)
        made.append(Map(n, name, policy.calibrator, config, learnt, answer, points, policy.frozen, left, raw))
    return made


def _table(options: argparse.Namespace, found: Sequence[Map], then: Then) -> None:
    console = Console()
    for each in found:
        before = _before(each, then)
        rows = [each.row(p, each.answer(p), before) for p in POINTS]
        shown = Table(box=SIMPLE_HEAD, padding=(0, 1))
        for name in (*rows[0], "log-odds"):
            shown.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            moved = cut_log_odds(row["served"]) - cut_log_odds(row.get("then", row["raw"]))
            shown.add_row(*[f"{cell:.4g}" for cell in row.values()], f"{moved:+.2f}")
        console.print(_title(options, each), soft_wrap=True, highlight=False)
        console.print(shown)


def _title(options: argparse.Namespace, of: Map) -> str:
    where = f", {options.of}" if options.of else ""
    where += "" if of.model_version is None else f", version {of.model_version}"
    how = f"{', frozen' if of.frozen else ''}{', withheld: raw scores are served' if of.withheld else ''}"
    learnt = f"{of.calibrator} ({of.config}) after {of.version:,} outcomes"
    return f"{options.stream}{where}, partition {of.partition}: {learnt}{how}"


def _csv(options: argparse.Namespace, found: Sequence[Map], then: Then) -> None:
    versions = any(each.model_version is not None for each in found)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    for n, each in enumerate(found):
        before = _before(each, then)
        for m, (x, y) in enumerate(zip(*each.points, strict=True)):
            row: dict[str, Any] = {
                "partition": each.partition,
                **({"model_version": each.model_version} if versions else {}),
                **({"of": options.of} if options.of else {}),
                **each.row(x, y, before),
            }
            if not n and not m:
                rows.writerow(row)
            rows.writerow(row.values())


def _before(of: Map, then: Then) -> Map | None:
    """Return the map of another time. If there was none then, raw scores were served."""
    return None if then is None else then.get(of.place, of._replace(answer=lambda p: p))


def _json(options: argparse.Namespace, found: Sequence[Map], then: Then) -> None:
    said = {"stream": options.stream, "at": options.at, "of": options.of, "maps": list(map(_plain, found))}
    if then is not None:
        said |= {"diff": options.diff, "then": list(map(_plain, then.values()))}
    print_json(said)


def _plain(of: Map) -> dict[str, Any]:
    named = {name: value for name, value in of._asdict().items() if name not in ("answer", "points", "ends")}
    left = [] if of.ends is None else [of.ends(x, y) for x, y in zip(*of.points, strict=True)]
    return named | of.points._asdict() | {"low": [low for low, _ in left], "high": [high for _, high in left]}


def _sql(options: argparse.Namespace, found: Sequence[Map], _: Then) -> None:
    """Print the maps as one query of the column ``raw`` of a table ``scores``: one CASE for each gap, else NULL.

    Several maps are one below the other, and two more columns say of which partition and version each row is.
    """
    queries = []
    for of in found:
        x, y = of.points
        version = "NULL" if of.model_version is None else "'{}'".format(of.model_version.replace("'", "''"))
        whose = f"{of.partition} AS partition_number, {version} AS model_version, " if len(found) > 1 else ""
        points = pairwise(zip(x, y, strict=True))
        lines = [
            f"-- {' '.join(_title(options, of).split())}",
            f"SELECT {whose}raw, CASE",
            "  WHEN raw < 0.0 THEN NULL",
        ]
        lines += [f"  WHEN raw < {right[0]!r} THEN {_line(left, right)}" for left, right in points]
        queries.append("\n".join([*lines, f"  WHEN raw <= 1.0 THEN {y[-1]!r} END AS served", "FROM scores"]))
    print("\nUNION ALL\n".join(queries) + ";")


def _line(left: tuple[float, float], right: tuple[float, float]) -> str:
    """Return the line through two points as SQL, as `state.maps.Table` defines it."""
    (x0, y0), (x1, y1) = left, right
    if y0 == y1:
        return repr(y0)
    if x0 == 0.0 or x1 == 1.0 or min(y0, y1) == 0.0 or max(y0, y1) == 1.0:
        return f"{y0!r} + {(y1 - y0) / (x1 - x0)!r} * (raw - {x0!r})"
    one, other, low, high = map(log_odds, (y0, y1, x0, x1))
    slope = (other - one) / (high - low)
    return f"1 / (1 + EXP({slope * low - one!r} - {slope!r} * LN(raw / (1 - raw))))"


_FORMS: Final = {"table": _table, "csv": _csv, "sql": _sql, "json": _json}
