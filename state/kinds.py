"""Every kind of row, declared: its name, key, contents, how it moves, and whether metrics read it.

To add a kind, declare it here, or beside its contents if a lower module needs it. `state.kind` says what follows from a
declaration.
"""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Final

from state.banding import Thresholds
from state.chances import CHANCES
from state.claim import CLAIM
from state.coverage import Coverage
from state.entities import ENTITIES
from state.evidence import Evidence
from state.expiry import QUEUE
from state.fence import FENCE
from state.inputs import INPUTS, WIDTHS
from state.journal import JOURNAL
from state.kind import (
    BANDS,
    CHALLENGER,
    CHAMPION,
    CONFIG,
    KINDS,
    LAYOUT,
    SCORED,
    SLOT,
    STREAM,
    Form,
    KeyPart,
    Kind,
    Moves,
    StreamGauge,
    form,
    kind_of,
)
from state.ledger import LEDGER
from state.scoring.ages import Ages
from state.scoring.band_counts import BandCounts
from state.scoring.begun import Begun
from state.scoring.comparison import Comparison
from state.scoring.course import Course
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.pair_scores import AnyComparison, PairScores
from state.scoring.segment_pairs import AnySegmentScores, SegmentPairScores
from state.scoring.segment_scores import SegmentScores
from state.scoring.vector_history import VectorHistory
from state.scoring.weighted import Weighted
from state.segments import Dictionary
from state.served import Served
from state.stream_counts import StreamCounts, joined, payloads
from state.versions import Versions
from state.witnesses import WITNESSES

__all__ = (
    "CHANCES",
    "CLAIM",
    "ENTITIES",
    "FENCE",
    "INPUTS",
    "JOURNAL",
    "LEDGER",
    "QUEUE",
    "WIDTHS",
    "WITNESSES",
)

CALIBRATOR: Final = Kind[Served](
    "C",
    "a calibrator",
    (STREAM, CONFIG),
    {13: form(Served)},  # raised also when the bytes of a calibrator change
    Moves.DIVIDED,
    "one a stream and configuration: a calibrator",
    shown=True,
    asks=lambda key, _: (kind_of(key).stream(key),),
)
WINDOWS: Final = Kind[History](
    "W",
    "the closed windows",
    (STREAM,),
    {5: Form(History, History.encode_closed, bytes)},
    Moves.DIVIDED,
    "one a stream of probabilities: scores of closed windows",
    shown=True,
)
SCORES: Final = Kind[History](
    "S",
    "the scores",
    (STREAM,),
    {4: Form(History, History.encode, History.decode)},
    Moves.DIVIDED,
    "one a stream of probabilities: scores of the present window",
    shown=True,
    part=True,
    asks=lambda key, get: (_closed(get(WINDOWS.letter + key[1:])),),
)
VECTORS: Final = Kind[VectorHistory](
    "V",
    "the scores",
    (STREAM, CONFIG),
    {6: form(VectorHistory)},
    Moves.DIVIDED,
    "one a stream of classes or numbers, and configuration: scores, windows, alarms",
    shown=True,
)
COMPARISON: Final = Kind[AnyComparison](
    "H",
    "a comparison with a challenger",
    (STREAM, CHAMPION, CHALLENGER),
    {3: form(Comparison), 5: form(PairScores)},
    Moves.DIVIDED,
    "one a stream, champion and challenger: scores of both on the same events (version 5: of classes and numbers)",
    shown=True,
)
NAMES: Final = Kind[Dictionary](
    "N",
    "the names of the segments",
    (STREAM, LAYOUT),
    {1: form(Dictionary)},
    Moves.DIVIDED,
    "one a stream with segments: what its slots stand for",
    shown=True,
)
SEGMENT: Final = Kind[AnySegmentScores](
    "G",
    "the scores of a segment",
    (STREAM, SCORED, SLOT),
    {7: form(SegmentScores), 9: form(SegmentPairScores)},
    Moves.DIVIDED,
    "one a segment that has come: its scores (version 9: of classes and numbers)",
    shown=True,
)
AGES: Final = Kind[Ages](
    "A",
    "the ages of outcomes",
    (STREAM,),
    {4: form(Ages)},
    Moves.SUM,
    "one a stream: how old outcomes are when they come",
    shown=True,
    part=True,
)
COURSE: Final = Kind[Course](
    "c",
    "the course",
    (STREAM,),
    {1: form(Course)},
    Moves.SUM,
    "one a stream: what was forecast, served and came true, by hour and by day",
    shown=True,
    part=True,
)
ALARMS: Final = Kind[Begun](
    "a",
    "since when the alarms count",
    (STREAM,),
    {1: form(Begun)},
    Moves.SHARED,
    "one a stream with `alarms_since`: since when its alarms count",
    shown=True,
    part=True,
    figures={
        "alarms_since_seconds": StreamGauge(
            "Stream time since which the alarms of the stream count, where they were let begin anew (Unix time)",
            lambda found: min(each.ms for each in found) / 1000.0,
        )
    },
)
COVERAGE: Final = Kind[Coverage](
    "J",
    "which forecasts have a label",
    (STREAM,),
    {3: form(Coverage)},
    Moves.SHARED,
    "one a stream whose forecasts without a label may be unlike the others: which have a label",
    shown=True,
    part=True,
)
DISTRIBUTION: Final = Kind[Distribution](
    "D",
    "the distribution of forecasts",
    (STREAM,),
    {2: form(Distribution)},
    Moves.SUM,
    "one a stream of probabilities or classes: how its raw forecasts are distributed",
    shown=True,
    part=True,
    figures={
        "forecast_shift": StreamGauge(
            "How much the distribution of the last week's raw forecasts differs from that of the weeks before: the "
            "population stability index minus what chance adds; for classes, that of the highest probability",
            lambda found: reduce(add, found).shift(),
            "from .25 on, ask whether the model, its inputs or the population has changed; see TrueupForecastsShifted",
        )
    },
)

#: Layout and slot of the counts of a whole stream.
WHOLE: Final[tuple[bytes, int]] = bytes(4), 0
_LAYOUTS: Final = KeyPart("layout", "4s", lambda policy: (WHOLE[0], policy.layout) if policy.segments else (WHOLE[0],))
BAND_COUNTS: Final = Kind[BandCounts](
    "R",
    "the counts of bands",
    (STREAM, BANDS, _LAYOUTS, SLOT),
    {3: form(BandCounts)},
    Moves.SUM,
    "one a stream with bands, all zeros as layout and slot, and one a segment of it: how many forecasts each band had, "
    "and what became of them",
    shown=True,
)
WEIGHTED: Final = Kind[Weighted](
    "w",
    "the weighted sums",
    (STREAM, _LAYOUTS, SLOT),
    {2: form(Weighted)},
    Moves.SUM,
    "one a stream with `weight` or `label_rate`, all zeros as layout and slot, and one a segment of it: what was "
    "expected and what came true by weight",
    shown=True,
)
THRESHOLDS: Final = Kind[Thresholds](
    "X",
    "the thresholds of bands",
    (STREAM, BANDS),
    {1: form(Thresholds)},
    Moves.SHARED,
    "one a stream whose bands keep a volume: their thresholds",
    shown=True,
)
VERSIONS: Final = Kind[Versions](
    "v",
    "the versions of the model",
    (STREAM,),
    {3: form(Versions)},
    Moves.DIVIDED,
    "one a stream with model_version: which versions score, how their forecasts are distributed, and what came of them",
    shown=True,
    part=True,
)
EVIDENCE: Final = Kind[Evidence](
    "e",
    "the evidence of scores",
    (STREAM, CONFIG, _LAYOUTS, SLOT),
    {1: form(Evidence)},
    Moves.TAUGHT,
    "one a stream with intervals, all zeros as layout and slot, and one a segment of it: what outcomes say of scores",
    shown=True,
)
COUNTS: Final = Kind[StreamCounts](
    "s",
    "the counts",
    (STREAM,),
    # The version of the row changes with the version of any part.
    {sum(each.version for each in KINDS.values() if each.part): form(StreamCounts)},
    Moves.PARTS,
    "one a stream: what is counted of it; its parts are the rows of the kinds that say so",
    shown=True,
    asks=lambda key, get: (kind_of(key).stream(key), get),
)


def apart(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the stored rows, with a row for each part in place of a stream's counts; raises CorruptFrame."""
    made: dict[bytes, bytes] = {}
    for key, row in rows.items():
        if key[:1] == COUNTS.letter:
            for letter, payload in COUNTS.open(row, payloads).items():
                made[letter + key[1:]] = KINDS[letter].seal(payload)
        else:
            made[key] = row
    return made


def together(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the stored rows from the result of `apart`."""
    made: dict[bytes, bytes] = {}
    found: dict[bytes, dict[bytes, bytes]] = {}
    for key, row in rows.items():
        kind = kind_of(key)
        if kind.part:
            found.setdefault(COUNTS.letter + key[1:], {})[kind.letter] = kind.open(row, bytes)
        else:
            made[key] = row
    return made | {key: COUNTS.seal(joined(own)) for key, own in found.items()}


def history(scores: bytes, windows: bytes | None) -> History:
    """Read both rows of a stream's scores; ``windows`` is None before a window was closed.

    Raises CorruptFrame if a frame is not an intact row of its kind and version, or the rows do not belong together.
    """
    return SCORES.decode(scores, _closed(windows))


def _closed(windows: bytes | None) -> bytes | None:
    return None if windows is None else WINDOWS.open(windows, bytes)
