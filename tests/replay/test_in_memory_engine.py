"""The contest beside the engine: the same fates, the same answers, the same learning, over histories of every kind."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given

from replay.column_file import played
from replay.configuration import Configuration, with_calibrator
from replay.in_memory_engine import Contest, PartitionResult
from state import keys, rows
from state.events import Calibrated, Event, Forecast, Outcome, Rejected, Resolved
from state.fence import FATES
from state.forecasts import Probs
from state.policy import Policies, Policy
from tests.state.histories import HISTORIES, POLICIES, SMALL_BATCH, STEADY, History, Worker, play, seeded


def contest(history: History, directory: Path, *others: Configuration) -> tuple[PartitionResult, list[Rejected]]:
    letters: list[Rejected] = []
    run = Contest([Configuration("present", POLICIES), *others], directory, letters.append, SMALL_BATCH)
    run.play(history.events)
    return run.end(), letters


@STEADY
@given(HISTORIES)
def test_contest_gives_every_record_the_fate_the_engine_gives_it(history: History) -> None:
    with TemporaryDirectory() as directory:
        made, letters = contest(history, Path(directory))
        assert made.fates == history.table.fence.fates
        assert made.records == history.table.fence.applied
        assert letters == [output for output in history.outputs if isinstance(output, Rejected)]


@STEADY
@given(HISTORIES)
def test_contest_serves_and_joins_what_the_engine_does_bit_for_bit(history: History) -> None:
    with TemporaryDirectory() as directory:
        made, _ = contest(history, Path(directory))
        raw, p = (played(made.directory, name, "d").tolist() for name in ("raw", "p0"))
        numbers = played(made.directory, "stream", "i").tolist()
        issued = [(effects, output) for effects in history.effects for output in effects.outputs]
        answers = [
            (output.stream, output.raw, output.p)
            for effects, output in issued
            if isinstance(output, Calibrated) and effects.fates[FATES.index("forecasts_issued")]
        ]
        assert [(made.streams[number], *both) for number, *both in zip(numbers, raw, p, strict=True)] == answers
        draw = played(made.directory, "draw0", "d").tolist()
        said = [output for output in history.outputs if isinstance(output, Resolved)]
        columns = (("index", "q"), ("y", "b"), ("delay_ms", "q"), ("implied", "b"))
        resolved = [
            (raw[i], p[i], draw[i], float(y), delay, bool(implied))
            for i, y, delay, implied in zip(*(played(made.directory, *each).tolist() for each in columns), strict=True)
        ]
        joined = [each for each in said if not each.revision]
        assert resolved == [
            (each.raw, each.p, each.draw, each.y, each.resolved_ts - each.issued_ts, each.implied) for each in joined
        ]
        places = {(each.event_id, each.issued_ts): place for place, each in enumerate(joined)}
        changes = (("revised", "q"), ("revised_y", "b"), ("revised_ms", "q"))
        revised = list(zip(*(played(made.directory, *each).tolist() for each in changes), strict=True))
        assert revised == [
            (places[each.event_id, each.issued_ts], each.y, each.resolved_ts) for each in said if each.revision
        ]


def test_last_look_is_at_what_the_engine_has_learnt(tmp_path: Path) -> None:
    history = play(seeded(3000, seed=5))
    made, _ = contest(history, tmp_path)
    last = {made.streams[look.stream]: look for look in made.looks}
    assert set(last) == {"counts", "regret", "guarded", "ridge"}
    for stream, look in last.items():
        served = history.table.served(stream)
        assert served.calibrator.learnt == look.learnt > 100
        assert look.error == served.calibrator.error()
        assert look.bound == served.calibrator.bound(served.outstanding)
    times = [look.time for look in made.looks]
    assert times[:-4] == sorted(times[:-4])


def test_contenders_side_by_side_are_as_alone(tmp_path: Path) -> None:
    history = play(seeded(800, seed=2))
    both, _ = contest(history, tmp_path / "both", with_calibrator(POLICIES, "identity"))
    alone = Contest([with_calibrator(POLICIES, "identity")], tmp_path / "alone", held=SMALL_BATCH)
    alone.play(history.events)
    alone.end()
    assert played(tmp_path / "both", "p1", "d").tolist() == played(tmp_path / "alone", "p0", "d").tolist()
    assert played(tmp_path / "both", "p1", "d").tolist() == played(tmp_path / "both", "raw", "d").tolist()
    assert both.fates == alone.played.fates


def test_biases_are_those_of_the_engine(tmp_path: Path) -> None:
    policies = Policies([("ridge", Policy("calibrated_regression", features=1, ttl_ms=90))], early_ttl_ms=25)
    history = play(seeded(900, seed=4))
    events = [event for event in history.events if getattr(event, "stream", "ridge") == "ridge"]
    worker = Worker(policies, held=SMALL_BATCH)
    run = Contest([Configuration("present", policies)], tmp_path, held=SMALL_BATCH)
    for event in events:
        worker.fold(event)
    run.play(events)
    bias = run.end().biases[0, 0]
    history_row = worker.table[keys.scores("ridge")]
    assert bias == rows.decode_history(history_row, None).bias
    assert np.isfinite(bias.along("calibrated")).all()


def test_scores_of_classes_follow_labels_that_mature_are_implied_and_revised(tmp_path: Path) -> None:
    policy = Policy("multiclass", {"classes": 3, "each": "histogram"}, ttl_ms=400, matures_ms=100, silence=2.0)
    policies = Policies([("intent", policy)], early_ttl_ms=50)
    worker = Worker(policies)
    run = Contest([Configuration("present", policies)], tmp_path)
    rng = np.random.default_rng(6)
    events: list[Event] = []
    for i in range(300):
        a, b = rng.dirichlet((1, 1, 1))[:2].tolist()
        events.append(Forecast(i, b"k", f"e{i}", "intent", Probs((a, b, 1 - a - b)), (), 10 * i))
        if i >= 30 and i % 3:
            # Within the time to maturity, or beyond it: then silence has spoken.
            events.append(Outcome(i, b"k", f"e{i - (5 if i % 2 else 25)}", float(i % 3), 10 * i + 1))
    for event in events:
        worker.fold(event)
    run.play(events)
    made = run.end()
    assert made.fates == worker.table.fence.fates
    fates = dict(zip(FATES, made.fates, strict=True))
    assert min(fates[each] for each in ("matured", "implied", "outcomes_revised")) > 20
    row = worker.table[keys.vectors("intent", policy.config)]
    assert rows.encode_vector_scores(made.vectors[0, 0]) == row
