"""Golden rows: one stored row of every kind, kept as files so that no change of their bytes goes unnoticed.

``python -m tests.state.golden`` writes the files of rows that have none, and prints the hexdump of the page on the
state format. It never writes over a file: a row whose bytes changed needs a new version number first.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from state import entities, journal, kinds, rescale, routes, witnesses
from state.banding import Marks, Thresholds
from state.calibrators import REGISTRY
from state.chances import Chances
from state.claim import Claim
from state.coverage import Coverage
from state.entities import Entities
from state.evidence import Evidence, issue, learn
from state.fence import EXPIRY, MATURITY, Fence, QueueBounds
from state.forecasts import PROBABILITY, PROBS, QUANTILES, Classwise, Normal, Probs, Quantiles
from state.inputs import InputIds, Widths
from state.kind import Kind
from state.ledger import EARLY, ISSUED, NAN, RESOLVED, WAITING, LedgerRow, Shadow, names
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.scoring import vector_history
from state.scoring.ages import DAY_MS, Ages
from state.scoring.band_counts import BandCounts
from state.scoring.begun import Begun
from state.scoring.comparison import Comparison
from state.scoring.course import Course
from state.scoring.distribution import Distribution
from state.scoring.history import WINDOW, History
from state.scoring.pair_scores import PairScores
from state.scoring.segment_pairs import SegmentPairScores, observe_segments
from state.scoring.segment_scores import SegmentScores
from state.scoring.vector_history import VectorHistory
from state.scoring.warm_up import SegmentWarmUp
from state.scoring.weighted import Weighted
from state.segments import Dictionary
from state.served import Served
from state.versions import Versions
from state.witnesses import Witness, Witnesses
from streams.records import skips
from streams.records.skips import Skip
from tests.state.histories import altered

FOLDER: Final = Path(__file__).parent / "golden"
#: Calibrators whose rows are kept, and options that make them small.
SPECS: Final = (*REGISTRY, "platt+minimax", DEFAULT_CALIBRATOR, "quantile")
SMALL: Final = {"buckets": 4, "grid": 5}
#: What is served of numbers and of classes, and what was forecast.
LAW, CLASSES = Quantiles((0.25, 0.75), (-1.0, 2.0)), Classwise((0.25, 0.5, 0.75))
RAW_LAW, RAW_CLASSES = Quantiles((0.25, 0.75), (0.0, 1.0)), Probs((0.25, 0.25, 0.5))


class Row(NamedTuple):
    """A row as this build writes it."""

    #: Of its file.
    name: str
    version: int
    frame: bytes
    #: Reads a row and writes it again.
    recode: Callable[[bytes], bytes]

    @property
    def path(self) -> Path:
        """The row's file."""
        return FOLDER / f"{self.name}.v{self.version}.bin"


def issued() -> LedgerRow:
    """Return the entry that the page on the state format takes apart."""
    who = names("a9c7921d", "minimax", "fraud")
    return LedgerRow(ISSUED, 5, PROBABILITY, 1_700_000_000_000, 0, NAN, 0.31, 0.3125, 0.32, 2, who, b"\3\0\x10\0")


def _ledger() -> dict[str, LedgerRow]:
    entry = issued()
    challengers = Shadow("2db8db98", 3, 0.31, 0.31, b""), Shadow("0011aaff", 0, 0.5, 0.4375, b"\1\2\3\4")
    return {
        "ledger-issued": entry,
        "ledger-shadowed": altered(entry, shadows=challengers),
        "ledger-resolved": altered(entry, status=RESOLVED, resolved_ts=1_700_000_060_000, y=1.0),
        "ledger-numbers": altered(entry, raw=Normal(0.5, 2.0), p=LAW, draw=LAW, kind=QUANTILES),
        "ledger-classes": altered(entry, raw=Probs((0.25, 0.25, 0.5)), p=CLASSES, draw=CLASSES, kind=PROBS),
        "ledger-numbers-shadowed": altered(
            entry,
            raw=Normal(0.5, 2.0),
            p=LAW,
            draw=LAW,
            kind=QUANTILES,
            shadows=(Shadow("2db8db98", 3, LAW, LAW, b"\1\2"), Shadow("0011aaff", 0, LAW, LAW, b"")),
            layout=b"\1\2\3\4",
            groups=(2, 66),
        ),
        "ledger-weighed": altered(entry, weighed=True, weight=120.5, chance=0.02),
        "ledger-waiting": altered(
            entry, status=WAITING, resolved_ts=1_700_000_060_000, y=1.0, as_of=1_700_000_060_000, key=b"card-4"
        ),
        "ledger-revised": altered(
            entry,
            status=RESOLVED,
            resolved_ts=1_700_000_090_000,
            y=1.0,
            as_of=1_700_000_090_000,
            number=2,
            window=7,
            revisions=2,
            key=None,
            shadows=challengers,
        ),
        "ledger-segments": altered(entry, layout=b"\1\2\3\4", groups=(2, 66, 300)),
        "ledger-banded": altered(
            entry,
            layout=b"\1\2\3\4",
            groups=(2,),
            shadows=challengers,
            marks=Marks(b"\5\6\7\0", 3, 2, 1, "review", -7, 0.25, 0.75, "raw").encode(),
        ),
        "ledger-segments-revised": altered(
            entry,
            status=RESOLVED,
            resolved_ts=1_700_000_090_000,
            y=1.0,
            revisions=2,
            key=b"card-4",
            shadows=challengers,
            layout=b"\1\2\3\4",
            groups=(2,),
        ),
        "ledger-early": LedgerRow(EARLY, 6, resolved_ts=1_700_000_030_000, y=1.0),
    }


def _coverage() -> Coverage:
    made = Coverage()
    for born in range(300, 900, 2):
        made.issue(born, born / 300 - 2)
        if born % 10 == 0:
            made.label(born - 40, born / 300 - 2, 1_700_000_000_000 + born)
    return made


def _fence() -> Fence:
    queues = {
        (MATURITY, 40): QueueBounds(MATURITY, 40, 3, 70, 1_700_000_000_040),
        (EXPIRY, 2_592_000_000): QueueBounds(EXPIRY, 2_592_000_000),
    }
    return Fence([12, 9], 1_700_000_060_000, 21, [9, 2, 2, 3, 2, 3, 1, 1, 1, 1, 1, 2, 1, 0, 2, 1, 1, 0], queues)


def _calibrator(spec: str) -> Served:
    allowed = {name for part in spec.split("+") for name in REGISTRY[part].options}
    features = 1 if "features" in allowed else 0
    options = {name: value for name, value in SMALL.items() if name in allowed}
    made = Served.fresh(Policy(spec, options, features=features, seed=7).recipe, "fraud")
    for t, (p, y) in enumerate([(0.5, 1.0), (0.25, 0.0), (0.5, 1.0)]):
        made.calibrator.update(made.calibrator.predict(p, (0.5,) * features, b"event-%d" % t).ticket, y)
    made.late = 2
    return made


def _quantile() -> Served:
    made = Served.fresh(Policy("quantile", {"levels": (0.25, 0.75)}, seed=7).recipe, "demand")
    calibrator: Any = made.calibrator  # takes slots
    groups = (), (2, 66), (3, 66)
    tickets = [calibrator.predict(Normal(0.0, 1.0), (), b"event-%d" % t, groups[t]).ticket for t in range(3)]
    for ticket, y in zip(tickets, (0.5, -2.0, 0.0), strict=True):
        made.calibrator.update(ticket, y)
    made.late = 3
    return made


def _history(n: int) -> History:
    history = History()
    for t in range(n):
        history.observe(0.25, 0.5, float(t % 2), 0.375)
    history.warm_up.observe(0.25, 1.0)
    return history


def _vectors() -> dict[str, VectorHistory]:
    made = {name: VectorHistory.of(LAW) for name in ("numbers", "numbers-windows")}
    made |= {name: VectorHistory.of(CLASSES) for name in ("classes", "classes-windows")}
    for name, n in (("", 1), ("-windows", vector_history.WINDOW + 3)):
        for t in range(n):
            key = b"event-%d" % t
            made["numbers" + name].observe(RAW_LAW, LAW, (1.5, -0.25, 1.0)[t % 3], key)
            made["classes" + name].observe(RAW_CLASSES, CLASSES, float(2 * t % 3), key)
    return made


def _comparison() -> Comparison:
    comparison = Comparison()
    for y in (1.0, 0.0, 1.0):
        comparison.observe(0.25, 0.5, y, 0.375)
    return comparison


def _distribution() -> Distribution:
    found = Distribution()
    for day in range(20_000, 20_012):
        for n in range(64):
            found.observe((n % 7) / 6 if day < 20_011 else 0.004 * (n % 3), day * DAY_MS + n)
    return found


def _course() -> Course:
    course = Course()
    for n in range(40):
        course.issue(n * DAY_MS // 12)
        course.resolve(0.5, 0.125, float(n % 8 == 0), n * DAY_MS // 12)
    course.revise(-1.0, 40 * DAY_MS // 12)
    course.label_ms = DAY_MS
    return course


def _ages() -> Ages:
    ages = Ages()
    for age_ms, label in ((0, 1), (90_000, 0), (45 * DAY_MS, 0), (12 * DAY_MS, 1)):
        ages.observe(age_ms, label)
    ages.expire()
    return ages


def _names() -> Dictionary:
    dictionary = Dictionary(("country", "channel"), (("country", "channel"),))
    for values in (("DE", "web"), ("Österreich", ""), ("DE", "web")):
        dictionary.groups(values)
    return dictionary


def _versions() -> Versions:
    versions = Versions()
    for n, name in enumerate(("v6", "v7é")):
        version = versions.admit(name, f"0000000{n}", n * DAY_MS)
        for k in range(3):
            version.observe(0.25 * k, n * DAY_MS + k)
    version.after, version.held = "v6", 2
    version.resolve(0.25, 0.125, 1.0)
    return versions


def _segment() -> SegmentScores:
    scores = SegmentScores()
    for p, y in ((0.5, 1.0), (0.75, 0.0), (0.0005, 0.0)):
        scores.observe(0.25, p, y, 2)
    scores.recent.add((300.0, 100.0, 75.0, 18.75), 3)
    scores.recent.add((40.0, 10.0, 10.0, 2.5), 5)
    scores.issued, scores.known, scores.expired, scores.age_ms = 5, 2, 1, 3 * DAY_MS
    scores.warm_up = SegmentWarmUp(250, 4711)
    return scores


def _pairs() -> dict[str, SegmentPairScores]:
    made = {"numbers": SegmentPairScores(), "classes": SegmentPairScores(), "none": SegmentPairScores()}
    for window in (30, 30, *[40] * 300, 60):
        y = (1.5, -0.25, 1.0)[window // 10 % 3]
        observe_segments([made["numbers"]], RAW_LAW, LAW, y, window)
        observe_segments([made["classes"]], RAW_CLASSES, CLASSES, float(int(y) % 3), window)
    for scores in made.values():
        scores.issued, scores.known, scores.expired, scores.age_ms = 5, 2, 1, 3 * DAY_MS
    return made


def _compared() -> dict[str, PairScores]:
    made = {"numbers": PairScores(), "classes": PairScores(), "none": PairScores()}
    for y in (1.5, -0.25, 1.0):
        made["numbers"].observe(RAW_LAW, LAW, y)
        made["classes"].observe(RAW_CLASSES, CLASSES, float(int(y) % 3))
    return made


def _witnesses() -> list[Witness]:
    found = Witnesses()
    found.add(1_700_003_600_000, 21)
    found.hold(witnesses.WaitingEntry(EXPIRY, 2_592_000_000, 21, "event-é"))
    found.add(1_700_003_600_005, 22)
    return found.waiting


def _route() -> routes.RouteRow:
    known = [routes.RoutedStream(0, "fraud", "fraud#3"), routes.RoutedStream(1, "fraud-é", "fraud-é")]
    said = [
        routes.Said(1_700_000_060_000, 1_700_000_059_000, 1.0, 0, "", ""),
        routes.Said(1_700_000_070_000, 1_700_000_069_000, 0.0, 2, "fraud", "fraud#3"),
    ]
    return routes.RouteRow(5, 1_702_592_060_000, known, said)


def _journal() -> journal.Entry:
    last = journal.last(1_700_000_060_000, b'{"event_id": "event-1", "stream": "fraud", "p": 0.31}'), journal.NONE
    return journal.Entry(4711, (12, 9), (21, 9), 30, 4709, (40, 30, 2), bytes(range(16)), last, bytes(9))


def _entities() -> bytes:
    known = Entities(lambda _: None)
    for z, now in ((-2.0, 1_700_000_000_000), (0.5, 1_700_000_100_000)):
        known.teaches("churn", bytes(4), entities.number(b"account-1"), z, now, DAY_MS)
    (row,) = known.changes().values()
    return row


def _bands() -> BandCounts:
    counts = BandCounts(2)
    for n in range(300):
        counts.issue(n % 2, int(n % 100 == 0), 19_000 + n // 100)
    counts.resolve(1, 0, 1, 1, 19_003)
    counts.resolve(0, 1, 0, -1, 19_003)
    return counts


def _chances() -> Chances:
    found = Chances()
    for n, chance in enumerate((1.0, 0.02, 0.02)):
        found.teaches(-2.5 + n, chance, b"%d" % n)
    return found


def _weighted() -> Weighted:
    found = Weighted()
    found.observe(0.31, 0.02, 1.0, 120.0)
    found.observe(0.04, 0.002, 0.0, 15.5)
    return found


def _whole(name: str, kind: Kind[Any], value: Any) -> Row:
    """Return a row that says all of what it holds."""
    frame = kind.encode(value)
    return Row(name, frame[1], frame, _recode(kind))


@cache
def _recode(kind: Kind[Any]) -> Callable[[bytes], bytes]:
    return lambda row: kind.encode(kind.decode(row))


def _evidence() -> Evidence:
    made, segment = Evidence(), Evidence()
    for band, y in ((-5, 0.0), (2, 1.0), (2, 0.0)):
        issue(band, 0.25, made, [segment])
        learn(band, y, made, [segment])
    made.sums, made.issued = segment.sums, segment.issued
    return made


def golden() -> list[Row]:
    """Return every row that is kept."""

    def calibrator(row: bytes) -> bytes:
        return kinds.CALIBRATOR.encode(kinds.CALIBRATOR.decode(row, "fraud"))

    def skip(frame: bytes) -> bytes:
        (found,) = skips.read([(key, frame)])
        return skips.row(found)[1]

    closed = _history(WINDOW)
    key, left_out = skips.row(Skip(0, 123, "it ends every worker", "é", "2024-01-01T00:00:00Z"))
    entries = [(1_700_000_000_000, 5, "event-1"), (1_700_000_000_100, 6, "événement-2")]
    return [
        _whole("claim", kinds.CLAIM, Claim(4711, 3, "worker-é/17")),
        Row("fence", kinds.FENCE.version, _fence().encode(), lambda row: Fence.decode(row).encode()),
        *(_whole(name, kinds.LEDGER, entry) for name, entry in _ledger().items()),
        *(
            Row(
                f"calibrator-{spec}",
                kinds.CALIBRATOR.version,
                kinds.CALIBRATOR.encode(_quantile() if spec == "quantile" else _calibrator(spec)),
                calibrator,
            )
            for spec in SPECS
        ),
        Row(
            "scores",
            kinds.SCORES.version,
            kinds.SCORES.encode(_history(3)),
            lambda row: kinds.SCORES.encode(kinds.history(row, None)),
        ),
        *(_whole(f"vectors-{name}", kinds.VECTORS, history) for name, history in _vectors().items()),
        Row(
            "windows",
            kinds.WINDOWS.version,
            kinds.WINDOWS.encode(closed),
            lambda row: kinds.WINDOWS.encode(kinds.history(kinds.SCORES.encode(closed), row)),
        ),
        _whole("comparison", kinds.COMPARISON, _comparison()),
        _whole("ages", kinds.AGES, _ages()),
        _whole("course", kinds.COURSE, _course()),
        _whole("alarms", kinds.ALARMS, Begun(40 * DAY_MS)),
        _whole("coverage", kinds.COVERAGE, _coverage()),
        _whole("distribution", kinds.DISTRIBUTION, _distribution()),
        Row(
            "counts",
            kinds.COUNTS.version,
            _counts(),
            lambda row: kinds.COUNTS.encode(kinds.COUNTS.read(_COUNTS, row, dict[bytes, bytes]().get)),
        ),
        _whole("names", kinds.NAMES, _names()),
        _whole("segment", kinds.SEGMENT, _segment()),
        *(_whole(f"segment-{name}", kinds.SEGMENT, pair) for name, pair in _pairs().items()),
        *(_whole(f"comparison-{name}", kinds.COMPARISON, pair) for name, pair in _compared().items()),
        _whole("bands", kinds.BAND_COUNTS, _bands()),
        _whole("chances", kinds.CHANCES, _chances()),
        _whole("weighted", kinds.WEIGHTED, _weighted()),
        _whole("evidence", kinds.EVIDENCE, _evidence()),
        _whole("versions", kinds.VERSIONS, _versions()),
        _whole("thresholds", kinds.THRESHOLDS, Thresholds([-4.0, 0.25], 300)),
        _whole("witnesses", kinds.WITNESSES, _witnesses()),
        _whole("inputs", kinds.INPUTS, InputIds("0" * 32, "0123456789abcdef" * 2)),
        _whole("widths", kinds.WIDTHS, Widths(8, 8)),
        _whole("moved", rescale.MOVED, rescale.Moved("trueup", "0" * 32, (17, 4), 5)),
        _whole("route", routes.EVENT, _route()),
        _whole("origin", routes.ORIGIN, 4711),
        Row("journal", kinds.JOURNAL.version, _journal().encode(), lambda row: journal.Entry.decode(row).encode()),
        _whole("entities", kinds.ENTITIES, kinds.ENTITIES.decode(_entities())),
        _whole("expiry", kinds.QUEUE, entries),
        Row("skip", skips.SKIP.version, left_out, skip),
    ]


_COUNTS: Final = kinds.COUNTS.key("s")


def _counts() -> bytes:
    values: list[tuple[Kind[Any], Any]] = [(kinds.AGES, _ages()), (kinds.ALARMS, Begun(40 * DAY_MS))]
    return kinds.together({kind.key("s"): kind.encode(value) for kind, value in values})[_COUNTS]


def hexdump(frame: bytes) -> str:
    """Return the bytes of a frame, sixteen a line, with their offset and what is printable."""
    lines = []
    for at in range(0, len(frame), 16):
        part = frame[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:04x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)


def write() -> None:
    """Write the files of the rows that have none.

    Raises SystemExit if a file holds other bytes than this build writes.
    """
    for row in golden():
        if not row.path.exists():
            row.path.write_bytes(row.frame)
            print(f"written: {row.path.name}")  # noqa: T201 - run by hand
        elif row.path.read_bytes() != row.frame:
            raise SystemExit(f"{row.path.name} holds other bytes: first raise the version of this kind of row")
    print(hexdump(kinds.LEDGER.encode(issued())))  # noqa: T201 - run by hand


if __name__ == "__main__":
    write()
