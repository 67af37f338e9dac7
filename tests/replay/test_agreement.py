"""What a replay writes down and what a worker's rows say agree on every figure, to the last bit.

Histories have everything that producers send, and streams have every option of labels, every kind of forecast,
challengers and segments. Some clocks run ahead. The workers' engine folds the events in batches of any size,
with checkpoints and crashes in between. Compared are what is served and drawn, what becomes of every record, every
label and revision, the state of every calibrator, the champion's and the challengers', all scores and comparisons, and
what is counted by weight. Entities decide what is learnt; the first looks at a calibrator and the last are at what it
has learnt.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from agents import compiled
from replay.columns import losses
from replay.configuration import Configuration, promotions
from replay.partition_result import WHOLE, PartitionResult
from replay.player import Player
from replay.segments import rows_of
from state import coverage, kinds
from state.bands import Bands
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome, Output, Rejected, Resolved
from state.fence import FORECASTS, OUTCOMES
from state.forecasts import PROBABILITY, Normal, Probs, Quantiles
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Challenger, Policy
from state.scoring import vector_history, warm_up
from state.scoring.band_counts import UNIT, BandCounts
from state.scoring.comparison import Comparison
from state.scoring.pair_scores import PairScores
from state.scoring.scores import Scores
from state.scoring.warm_up import WarmUp
from state.scoring.windows import KINDS
from state.witnesses import SLACK
from tests.night import EXAMPLES
from tests.state.histories import PLANS, Plan, Table, folded_again

#: By stream: calibrator, options, number of features, a label that silence may stand for, challengers.
STREAMS: dict[str, tuple[str, dict[str, Any], int, float, tuple[Challenger, ...]]] = {
    "counts": ("minimax", {"buckets": 2, "grid": 4}, 0, 0.0, (Challenger("histogram", {}), Challenger("platt", {}))),
    "drawn": ("platt+regret_matching", {"buckets": 1, "grid": 5}, 0, 1.0, (Challenger("minimax", {"grid": 9}),)),
    "served": (DEFAULT_CALIBRATOR, {}, 0, 0.0, ()),
    "features": ("calibrated_regression", {}, 1, 0.0, (Challenger("platt+calibrated_regression", {}),)),
    "classes": (
        "multiclass",
        {"classes": 3, "each": "histogram"},
        0,
        2.0,
        (Challenger("multiclass", {"classes": 3, "each": "prudent"}),),
    ),
    "numbers": (
        "quantile",
        {"levels": (0.1, 0.5, 0.9)},
        0,
        3.0,
        (Challenger("quantile", {"levels": (0.1, 0.5, 0.9), "rate": 0.2, "link": "identity"}),),
    ),
}
RAW: dict[str, Sequence[Any]] = {
    "classes": (Probs((0.2, 0.3, 0.5)), Probs((1.0, 0.0, 0.0)), Probs((0.1, 0.8, 0.1))),
    "numbers": (Normal(2.0, 1.5), Normal(-3.0, 0.5), Quantiles((0.1, 0.5, 0.9), (0.0, 2.0, 5.0))),
}
CHANCES = (0.0, 0.003, 0.25, 0.6, 1.0)
#: Segments a stream may have; names, then pairs.
SEGMENTS: Sequence[tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = (
    ((), ()),
    (("country",), ()),
    (("country", "channel"), (("country", "channel"),)),
)
#: Bands that a stream of probabilities may have: none, at probabilities, of shares, of a volume that is held.
BANDS = (
    None,
    Bands(("pass", "review", "block"), (0.0, 0.25, 0.6)),
    Bands(("", "review", "block"), shares=(0.5, 0.2)),
    Bands(("pass", "review"), (0.0, 0.3), hold=True),
)
VALUES = ("", "DE", "FR", "web", "é")
#: So few forecasts and labels are enough to see that most have none, so few outcomes for a warm-up or a window to end.
#: The compiled engine has its own numbers.
SOON = (
    patch.multiple(coverage, CELL=2, LEAST=3, FEWEST=2),
    patch.multiple(warm_up, OF_SEGMENT=3),
    patch("state.served.LONGEST", 9),
    patch.multiple(vector_history, WINDOW=4, LOOK=2),
)
#: Labels; 7 is one that only a number can have.
LABELS = (0.0, 1.0, 1.0, 0.0, 2.0, 7.0)


@st.composite
def policies(draw: st.DrawFn, stream: str) -> Policy:
    """Return a policy of a stream with any options of labels."""
    calibrator, options, features, silent, shadow = STREAMS[stream]
    matures = draw(st.sampled_from([0, 15, 30]))
    ttl = matures + draw(st.sampled_from([1, 40, 300]))
    segments, pairs = draw(st.sampled_from(SEGMENTS))
    silence = silent if matures and draw(st.booleans()) else None
    weighed = stream not in RAW and draw(st.booleans())
    return Policy(
        calibrator,
        options,
        features=features,
        ttl_ms=ttl,
        shadow=shadow if draw(st.booleans()) else (),
        matures_ms=matures,
        silence=silence,
        unlabelled=draw(st.sampled_from(["unknown", "unknown", "alike"])),
        learn=draw(st.sampled_from(["", "arrival", "maturity"] if matures else ["", "arrival"])),
        revisable_ms=draw(st.sampled_from([0, ttl + 1, ttl + 200])),
        segments=segments,
        pairs=pairs,
        bands=None if stream in RAW else draw(st.sampled_from(BANDS)),
        label_rate="chance" if weighed and silence is None else "",
        weight="amount" if weighed else "",
    )


@st.composite
def plans(draw: st.DrawFn) -> Policies:
    """Return policies for all streams, so that they share a partition, its queues and its clock."""
    early = draw(st.sampled_from([5, 25, 400]))
    patterns = [(each, draw(policies(each))) for each in STREAMS]
    return Policies(patterns, early_ttl_ms=early)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Return events of one partition as producers may send them, duplicates, conflicts and junk included."""
    n = draw(st.integers(20, 140))
    events: list[Event] = []
    offsets, now = [0, 0], 1000
    rng = draw(st.randoms(use_true_random=False))
    ids = draw(st.sampled_from([6, 30, 80]))
    gaps = draw(st.sampled_from([(0, 1, 2), (0, 1, 4, 20), (0, 0, 5, 100), (0, 5, SLACK - 50, SLACK + 50)]))
    ahead = draw(st.sampled_from([(0,), (0, 0, 0, 0, 0, 0, SLACK + 1, 40 * SLACK)]))
    streams = draw(st.lists(st.sampled_from(list(STREAMS)), min_size=1, max_size=4, unique=True))
    entities, weighed = draw(st.sampled_from([(0,), (0,), (0, 0, 7), (7, 8, 9)])), draw(st.booleans())
    said: dict[str, tuple[str, Any]] = {}
    for _ in range(n):
        now += rng.choice(gaps)
        ts = now + rng.choice(ahead) - rng.choice((0, 0, 0, 30))
        kind = rng.choices(("forecast", "outcome", "junk"), (10, 12, 1))[0]
        topic = FORECASTS if kind == "forecast" else OUTCOMES if kind == "outcome" else rng.randrange(2)
        offsets[topic] += rng.choice((1, 1, 1, 3))
        place = offsets[topic], b"key"
        name = f"e{max(0, len(events) // 2 - rng.randrange(ids)) if ids > 6 else rng.randrange(ids)}"
        if kind == "forecast":
            stream = rng.choice(streams)
            made = stream, rng.choice(RAW.get(stream, CHANCES))
            if name in said and rng.random() < 0.5:  # as a producer does that tries again
                made = said[name]
            said[name] = made
            x = (rng.choice((-1.0, 0.5)),) if made[0] == "features" else ()
            values = tuple(rng.choice(VALUES) for _ in range(3))  # of which a stream takes those it has names for
            weight, chance = (rng.choice((0.0, 1.0, 250.0)), rng.choice((0.1, 1.0))) if weighed else (1.0, 1.0)
            events.append(
                Forecast(*place, name, *made, x, ts, b"value", values, None, rng.choice(entities), weight, chance)
            )
        elif kind == "outcome":
            events.append(Outcome(*place, name, rng.choice(LABELS), ts, b"value", rng.choice((0, 0, 0, 1, 2))))
        else:
            events.append(Rejected(*place, b"junk", topic, rng.choice(("not_json", "batch"))))
    return events


@dataclass
class Folded:
    """What the workers' engine made: its rows, and the outputs of events that were new."""

    table: Table
    outputs: list[Output]
    issued: list[Calibrated]


def folded(plan: Policies, events: Sequence[Event], crashes: Plan) -> Folded:
    """Fold events as a worker that crashes by a plan."""
    table, outputs = folded_again(lambda table: Partition(plan, table.get), events, crashes)
    issued: list[Calibrated] = []
    for each in outputs:  # the answer to a duplicate has the place of the first
        if isinstance(each, Calibrated) and each.applied > (issued[-1].applied if issued else 0):
            issued.append(each)
    return Folded(table, outputs, issued)


def played_in_memory(
    plan: Policies, events: Sequence[Event], directory: Path
) -> tuple[Player, PartitionResult, list[Rejected]]:
    """Play events to the plan and to every promotion of its challengers."""
    shadowed = any(policy.shadow for _, policy in plan.patterns)
    found = promotions(plan) if shadowed else [Configuration("present", plan)]
    letters: list[Rejected] = []
    player = Player(found, directory, letters.append)
    player.play(events)
    return player, player.end(), letters


@examples(max_examples=3 * EXAMPLES, deadline=None)
@given(plans(), histories(), PLANS)
def test_both_engines_agree_on_every_figure(plan: Policies, events: list[Event], crashes: Plan) -> None:
    events = [fitting(plan, each) for each in events]
    with ExitStack() as stack, TemporaryDirectory() as directory:
        for each in () if compiled.runs() else SOON:
            stack.enter_context(each)
        engine = folded(plan, events, crashes)
        player, made, letters = played_in_memory(plan, events, Path(directory) / "played")
        # Every row that a worker would have, where they are asked for.
        counted = Player([Configuration("present", plan)], Path(directory) / "counted", rows=True)
        counted.play(events)
        assert {key: row for key, row in counted.rows().rows.items() if row is not None} == engine.table
        assert counted.played.labelled == made.labelled, "what is written down is the same beside them"
        # What becomes of every record.
        assert made.fates == engine.table.fence.fates
        assert made.records == engine.table.fence.applied == len(events)
        assert letters == [each for each in engine.outputs if isinstance(each, Rejected)]
        column = {
            name: made.column(name).tolist()
            for name in (
                *("stream", "raw", "p0", "draw0", "version", "issued_ms", "index", "y", "delay_ms", "implied"),
                *("revised", "revised_y", "revised_ms"),
            )
        }
        # What is served and drawn, in order.
        chances = [each for each in engine.issued if plan_of(plan, each.stream).kind == PROBABILITY]
        names = ("stream", "raw", "p0", "draw0", "version", "issued_ms")
        assert [
            (made.streams[stream], *served) for stream, *served in zip(*(column[name] for name in names), strict=True)
        ] == [(each.stream, each.raw, each.p, each.draw, each.version, each.ts) for each in chances]
        # Every label, and every revision, but for those that taught nothing.
        untaught = {(chances[n].event_id, chances[n].ts, chances[n].version) for n in made.column("untaught").tolist()}
        said = [
            each
            for each in engine.outputs
            if isinstance(each, Resolved)
            and plan_of(plan, each.stream).kind == PROBABILITY
            and (each.event_id, each.issued_ts, each.version) not in untaught
        ]
        joined = [each for each in said if not each.revision]
        assert [
            (column["p0"][i], float(y), delay, bool(implied))
            for i, y, delay, implied in zip(
                *(column[name] for name in ("index", "y", "delay_ms", "implied")), strict=True
            )
        ] == [(each.p, each.y, each.resolved_ts - each.issued_ts, each.implied) for each in joined]
        places = {(each.event_id, each.issued_ts, each.version): at for at, each in enumerate(joined)}
        assert list(zip(*(column[name] for name in ("revised", "revised_y", "revised_ms")), strict=True)) == [
            (places[each.event_id, each.issued_ts, each.version], each.y, each.resolved_ts)
            for each in said
            if each.revision
        ]
        labels = [float(y) for y in column["y"]]
        for at, y in zip(column["revised"], column["revised_y"], strict=True):
            labels[at] = float(y)
        for stream in made.streams:
            same_stream(plan, stream, engine.table, player, made, column, labels)


def same_stream(
    plan: Policies,
    stream: str,
    table: Table,
    player: Player,
    made: PartitionResult,
    column: dict[str, list[Any]],
    labels: list[float],
) -> None:
    """See that calibrators and scores of a stream are the same bytes."""
    policy = plan_of(plan, stream)
    service = player.partition.services.of(stream)
    contenders, number = player.streams[stream].served, player.streams[stream].number
    for served in contenders:
        config = next(each.config for each in (policy, *policy.challengers) if each.recipe == served.recipe)
        row = table.get(kinds.CALIBRATOR.key(stream, config))
        assert row is not None
        assert kinds.CALIBRATOR.encode(served) == row
    counted = table.get(kinds.COVERAGE.key(stream))
    assert (counted is None) == (service.coverage is None)
    assert service.coverage is None or kinds.COVERAGE.encode(service.coverage) == counted
    # The first contender is the champion; of the others those that are a challenger here.
    if policy.kind != PROBABILITY:
        row = table.get(kinds.VECTORS.key(stream, policy.config))
        scores = made.vectors.get((stream, 0))
        assert (row is None) == (scores is None)
        assert scores is None or kinds.VECTORS.encode(scores) == row
        same_pairs(policy, stream, table, made, [each.recipe for each in contenders])
        return
    resolved = [(i, y) for i, y in zip(column["index"], labels, strict=True) if column["stream"][i] == number]
    same_segments(policy, stream, table, made)
    same_bands(policy, stream, table, made, resolved)
    same_weights(stream, table, made)
    (look,) = [each for each in made.looks if (each.stream, each.contender) == (stream, 0)][-1:]
    calibrator, outstanding = contenders[0].calibrator, contenders[0].outstanding
    assert look[3:] == (calibrator.learnt, calibrator.error(), calibrator.bound(outstanding))
    scored, apart = Scores(), WarmUp()
    warm = [made.column(f"warm{n}").tolist() for n in range(len(contenders))]
    for i, y in resolved:
        if warm[0][i]:
            apart.observe(column["raw"][i], y)
        else:
            scored.observe(column["raw"][i], column["p0"][i], y, column["draw0"][i])
    history_row = table.get(kinds.SCORES.key(stream))
    if history_row is None:
        assert not resolved
        return
    history = kinds.history(history_row, table.get(kinds.WINDOWS.key(stream)))
    assert history.total == scored
    assert history.warm_up.encode() == apart.encode()
    if policy.features:
        assert made.biases[stream, 0] == history.bias
    for n, served in enumerate(contenders):
        challenger = next((each for each in policy.challengers if each.recipe == served.recipe), None)
        if challenger is None:
            continue
        p, drawn = (made.column(f"{name}{n}").tolist() for name in ("p", "draw"))
        compared = Comparison()
        both = [(i, y) for i, y in resolved if not warm[0][i] and not warm[n][i]]
        for i, y in both:
            compared.observe(column["p0"][i], p[i], y, drawn[i])
        row = table.get(kinds.COMPARISON.key(stream, policy.config, challenger.config))
        assert (row is None) == (not both)
        assert row is None or kinds.COMPARISON.decode(row) == compared


def same_bands(
    policy: Policy, stream: str, table: Table, made: PartitionResult, resolved: Sequence[tuple[int, float]]
) -> None:
    """See that forecasts and labels are counted in the same bands."""
    if policy.bands is None:
        return
    raw, served = (made.column(f"{name}0").tolist() for name in ("raw_band", "band"))
    of_stream = made.column("stream") == made.streams.index(stream)
    counts = BandCounts(len(policy.bands.names))
    for i in np.flatnonzero(of_stream).tolist():
        counts.issue(raw[i], served[i], 0)
    untaught = dict(zip(*(made.column(name).tolist() for name in ("untaught", "untaught_y")), strict=True))
    told = {i: y for i, y in untaught.items() if of_stream[i] and policy.label_rate} | dict(resolved)
    for i, y in told.items():
        stands = round(UNIT * made.column("stands")[i]) if policy.label_rate else UNIT
        counts.resolve(raw[i], served[i], 1, int(y), 0, stands)
    row = table.get(kinds.BAND_COUNTS.key(stream, policy.bands.layout, *kinds.WHOLE))
    assert (row is None) == (not of_stream.any())
    assert row is None or kinds.BAND_COUNTS.decode(row).sums == counts.sums
    moving = made.thresholds.get((stream, 0))
    row = table.get(kinds.THRESHOLDS.key(stream, policy.bands.layout))
    assert row is None or (moving is not None and kinds.THRESHOLDS.encode(moving) == row)


def same_weights(stream: str, table: Table, made: PartitionResult) -> None:
    """See that events are counted by the same weights."""
    stored = {}
    for key, row in table.of(kinds.WEIGHTED.letter).items():
        of, layout, slot = kinds.WEIGHTED.of(key)
        if of == stream:
            stored[WHOLE if (layout, slot) == kinds.WHOLE else slot] = kinds.WEIGHTED.decode(row)
    assert stored == made.weighted.get((stream, 0), {})


def same_pairs(policy: Policy, stream: str, table: Table, made: PartitionResult, recipes: list[str]) -> None:
    """See that comparisons and segments of a stream of classes or numbers are the same bytes."""
    for challenger in policy.challengers:
        row = table.get(kinds.COMPARISON.key(stream, policy.config, challenger.config))
        pair = None if row is None else kinds.COMPARISON.decode(row)
        lost = losses([made], recipes.index(challenger.recipe) + 1).get(stream)
        if lost is None:
            assert pair is None
            continue
        both = 0, recipes.index(challenger.recipe)
        settled = ~np.any([lost.warm[n] for n in both], axis=0)
        assert (0 if pair is None else pair.n) == settled.sum()
        if isinstance(pair, PairScores):
            means = [[pair.loss(loss, kind) for loss in pair.losses] for kind in KINDS]
            served = [lost.served[n][settled].mean(axis=0).tolist() for n in both]
            assert served == [pytest.approx(each, abs=1e-6) for each in means]
    if not policy.segments:
        return
    dictionary, held = rows_of(made, 0, stream) or (None, {})
    assert dictionary is not None
    assert table.get(kinds.NAMES.key(stream, policy.layout)) == kinds.NAMES.encode(dictionary)
    stored = {kinds.SEGMENT.of(key)[2]: row for key, row in table.of(kinds.SEGMENT.letter + policy.scored).items()}
    assert stored.keys() == held.keys()
    for slot, row in stored.items():
        assert kinds.SEGMENT.decode(row) == held[slot]


def same_segments(policy: Policy, stream: str, table: Table, made: PartitionResult) -> None:
    """See that slots and scores of segments are the same."""
    if not policy.segments:
        return
    dictionary, row = made.dictionaries[stream], table.get(kinds.NAMES.key(stream, policy.layout))
    assert row == kinds.NAMES.encode(dictionary)
    prefix = kinds.SEGMENT.letter + policy.layout
    stored = {
        slot: row
        for (of, _, slot), row in ((kinds.SEGMENT.of(key), row) for key, row in table.of(prefix).items())
        if of == stream
    }
    _, of_replay = rows_of(made, 0, stream) or (None, {})
    assert of_replay.keys() == stored.keys()
    for slot, row in stored.items():
        found = kinds.SEGMENT.decode(row)
        for each in (found, of_replay[slot]):
            each.warm_up.since = min(each.warm_up.since, 1)  # it counts forecasts, and not records
        assert found == of_replay[slot]


def fitting(plan: Policies, event: Event) -> Event:
    """Return an event with as many values as its stream has names of segments, as decoding makes it."""
    if not isinstance(event, Forecast):
        return event
    return event._replace(segments=event.segments[: len(plan_of(plan, event.stream).segments)])


def plan_of(plan: Policies, stream: str) -> Policy:
    policy = plan.of(stream)
    assert policy is not None
    return policy
