"""Histories of one partition: what producers may send in any order, and the table and worker it meets.

``python -m tests.state.histories`` prints a digest of every row and output of a long one, for runs that must agree.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from agents import compiled
from state import kinds, served
from state.bands import Bands, Points
from state.coverage import Coverage
from state.effects import Changes, Effects
from state.engine import Partition
from state.events import Event, Forecast, Outcome, Output, Rejected
from state.fence import FATES, FORECASTS, OUTCOMES, Fence
from state.kind import KINDS
from state.ledger import LedgerRow
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring.segment_pairs import of_segment
from state.scoring.warm_up import SegmentWarmUp
from state.served import Served
from tests.night import EXAMPLES

#: For tests that derive a class from a compiled one.
INTERPRETED: Final = pytest.mark.skipif(compiled.runs(), reason="compiled classes have no other subclasses")
#: Whether the warm-ups of a `Worker` have ended before its first record.
_judging = False


@contextmanager
def judged_at_once() -> Iterator[None]:
    """Let every outcome count, as after a warm-up: of a `Worker`; and, where this runs interpreted, of all others."""

    def admits(self: SegmentWarmUp, *_: int) -> bool:
        self.since = 1
        return True

    with (
        patch.object(served, "LONGEST", 0),
        patch.object(Coverage, "covered", property(lambda self: not self.uncovered)),
        patch.object(SegmentWarmUp, "admits", admits),
        patch(f"{__name__}._judging", new=True),
    ):
        yield


#: The same examples in every run, however slow the machine: a test fails by what the code does.
STEADY: Final = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
ROOT: Final = Path(__file__).resolve().parents[2]
#: Most events of a batch in short histories.
SMALL_BATCH: Final = 3
#: Counting and float calibrators, alone and composed, two times to live; streams that no pattern matches are closed. Of
#: the streams one knows silence, one matures without it and may be revised for longer, one learns before maturity. Two
#: have segments.
POLICIES: Final = Policies(
    [
        (
            "counts",
            Policy(
                "minimax",
                {"buckets": 2, "grid": 4},
                ttl_ms=40,
                matures_ms=15,
                silence=0.0,
                segments=("country", "channel"),
                pairs=(("channel", "country"),),
            ),
        ),
        (
            "regret",
            Policy("regret_matching", {"buckets": 1, "grid": 5}, ttl_ms=90, seed=3, matures_ms=30, revisable_ms=120),
        ),
        (
            "guarded",
            Policy(
                "platt+minimax",
                {"buckets": 1, "grid": 10},
                ttl_ms=40,
                matures_ms=20,
                silence=1.0,
                learn="arrival",
            ),
        ),
        ("ridge", Policy("calibrated_regression", features=1, ttl_ms=90, segments=("country",))),
    ],
    early_ttl_ms=25,
)
STREAMS: Final = ("counts", "regret", "guarded", "ridge")
#: Of each stream; one that counts and learns nothing, one of floats, one that takes features.
CHALLENGERS: Final = {
    "counts": (Challenger("identity", {}), Challenger("platt", {})),
    "regret": (Challenger("minimax", {"buckets": 2, "grid": 4}),),
    "guarded": (),
    "ridge": (Challenger("platt+minimax", {"buckets": 1, "grid": 10}), Challenger("platt+calibrated_regression", {})),
}
#: The same, with challengers.
SHADOWED: Final = Policies(
    [(stream, replace(policy, shadow=CHALLENGERS[stream])) for stream, policy in POLICIES.patterns],
    early_ttl_ms=POLICIES.early_ttl_ms,
)
#: The same as `POLICIES`, with bands, points and intervals of every kind.
MARKED: Final[dict[str, dict[str, Any]]] = {
    "counts": {
        "bands": Bands(("pass", "review", "block"), (0.0, 0.3, 0.7)),
        "points": Points(600, 50, 20),
        "interval": 0.5,
    },
    "regret": {"bands": Bands(("", "review", "block"), shares=(0.5, 0.25))},
    "guarded": {"bands": Bands(("pass", "review"), (0.0, 0.5), hold=True), "interval": 0.9, "reasons": True},
    "ridge": {"points": Points(0, 1, -10), "bands": Bands(("pass", "high"), shares=(0.5,)), "frozen": True},
}
BANDED: Final = Policies(
    [(stream, replace(policy, **MARKED[stream])) for stream, policy in POLICIES.patterns],
    early_ttl_ms=POLICIES.early_ttl_ms,
)
#: The same, with weights and chances of labels.
WEIGHTS: Final[dict[str, dict[str, Any]]] = {
    "counts": {"weight": "amount"},
    "regret": {"label_rate": "chance", "weight": "amount"},
    "guarded": {"alarms_since_ms": 1060},
    "ridge": {"label_rate": "chance", "alarms_since_ms": 1030},
}
WEIGHED: Final = Policies(
    [(stream, replace(policy, **WEIGHTS[stream])) for stream, policy in BANDED.patterns],
    early_ttl_ms=POLICIES.early_ttl_ms,
)


def promoted(policies: Policies) -> Policies:
    """Return policies under which every stream's first challenger has changed places with the champion."""

    def turned(policy: Policy) -> Policy:
        if not policy.shadow:
            return policy
        (calibrator, options), *others = policy.shadow
        was = Challenger(policy.calibrator, policy.options)
        return replace(policy, calibrator=calibrator, options=options, shadow=(*others, was))

    patterns = [(stream, turned(policy)) for stream, policy in policies.patterns]
    return Policies(patterns, early_ttl_ms=policies.early_ttl_ms)


def compared(calibrator: str, options: dict[str, Any], other: dict[str, Any]) -> Policy:
    """Return a policy of classes or numbers with segments, and a challenger that has other options."""
    beside = Challenger(calibrator, options | other)
    return Policy(calibrator, options, ttl_ms=10**9, segments=("country",), shadow=(beside,))


Answer = Literal["no", "yes", "against", "drift"]


class Table(dict[bytes, bytes]):
    """The stored rows, behind those of a checkpoint that is on its way. A part of a stream's counts is a row, too."""

    waiting: Changes | None = None

    def get(self, key: bytes, default: Any = None) -> Any:
        """Return a row, as a worker reads it."""
        if self.waiting is not None and self.waiting.has(key):
            return self.waiting.rows[key]
        return super().get(key) or self._parts(key).get(key, default)

    def __missing__(self, key: bytes) -> bytes:
        return self._parts(key)[key]

    def __contains__(self, key: object) -> bool:
        return self.get(cast("bytes", key)) is not None

    def _parts(self, key: bytes) -> dict[bytes, bytes]:
        whole = kinds.COUNTS.letter + key[1:]
        return kinds.apart({whole: self[whole]}) if key[:1] != kinds.COUNTS.letter and whole in self else {}

    def arrive(self) -> None:
        """Store the checkpoint that is on its way, whose rows are made while others are served."""
        if self.waiting is not None:
            for _ in self.waiting.slices():
                pass
            self.write(self.waiting.rows)
            self.waiting = None

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        """Apply the rows of a batch."""
        for key, row in changes.items():
            if row is None:
                self.pop(key, None)
            else:
                self[key] = row

    @property
    def fence(self) -> Fence:
        row = self.get(kinds.FENCE.key())
        return Fence() if row is None else Fence.decode(row)

    def entry(self, event_id: str) -> LedgerRow | None:
        """Return an event's ledger row."""
        row = self.get(kinds.LEDGER.key(event_id))
        return None if row is None else kinds.LEDGER.decode(row)

    def entries(self) -> list[LedgerRow]:
        """Return every ledger row."""
        return [kinds.LEDGER.decode(row) for key, row in self.items() if key.startswith(kinds.LEDGER.letter)]

    def served(self, stream: str, policies: Policies = POLICIES) -> Served:
        """Return the calibrator that serves a stream now."""
        policy = policies.of(stream)
        assert policy is not None
        return kinds.CALIBRATOR.decode(self[kinds.CALIBRATOR.key(stream, policy.config)], stream)

    def of(self, kind: bytes) -> dict[bytes, bytes]:
        """Return the rows of one kind."""
        return {key: row for key, row in kinds.apart(self).items() if key.startswith(kind)}


def fates(of: Effects | Fence) -> dict[str, int]:
    """Return what a batch or a fence has counted, by name."""
    return {fate: n for fate, n in zip(FATES, of.fates, strict=True) if n}


def altered(row: LedgerRow, **fields: Any) -> LedgerRow:
    """Return a row that differs from another in these fields."""
    made = kinds.LEDGER.decode(kinds.LEDGER.encode(row))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def judged(policies: Policies, key: bytes) -> bytes | None:
    """Return the first row of a calibrator or a segment whose warm-up has ended; None of another kind of row."""
    kind = KINDS.get(key[:1])
    if kind is kinds.CALIBRATOR:
        stream, config = kinds.CALIBRATOR.of(key)
        known = [each for policy in policies.all for each in (policy, *policy.challengers) if each.config == config]
        if known:
            row = Served.fresh(known[0].recipe, stream, policies.coin)
            row.warmed_ms = 1
            return kinds.CALIBRATOR.encode(row)
    if kind is kinds.SEGMENT and (policy := policies.of(kind.stream(key))) is not None:
        scores = of_segment(policy.kind)
        scores.warm_up = SegmentWarmUp(since=1)
        return kinds.SEGMENT.encode(scores)
    return None


class Worker:
    """A partition on a table, and the store that follows each fold."""

    def __init__(self, policies: Policies = POLICIES, table: Table | None = None) -> None:
        self.table = Table() if table is None else table
        stored = self.table.get

        def get(key: bytes) -> bytes | None:
            row: bytes | None = stored(key)
            return judged(policies, key) if row is None and judging else row

        judging = _judging
        self.partition = Partition(policies, get)

    def fold(self, *events: Event) -> Effects:
        """Apply one batch and store its rows."""
        effects = self.partition.fold(events)
        self.table.write(effects.rows)
        return effects


#: How long a batch is, and what follows: a checkpoint; what is lost with a working copy that is recreated, or reset.
Plan = Sequence[tuple[int, str]]
PLANS = st.lists(
    st.tuples(st.integers(1, 2 * SMALL_BATCH), st.sampled_from(["", "checkpoint", "killed", "lost", "reset", "twice"])),
    max_size=80,
)


def folded_again(make: Callable[[Table], Any], records: Sequence[Any], plan: Plan) -> tuple[Table, list[Any]]:
    """Fold records as a worker does that crashes by a plan, and return the rows and the outputs.

    Each batch is a journal entry. A checkpoint arrives after the batch that follows it. After a crash those since the
    last one that arrived are folded again, along the journal. So is, later, a batch that was lost before it was in the
    journal.

    ``make``: returns an engine on a table.
    ``records``: what comes in.
    ``plan``: its batches; when it ends, all that is left is one batch.
    """
    table, outputs, at = Table(), list[Any](), 0
    checkpoint = frozen = 0, 0
    engine, steps = make(table), iter(plan)

    def apply(part: Sequence[Any]) -> list[Any]:
        engine.begin()
        made = [*engine.apply(part)]
        engine.end()
        return made

    while at < len(records):
        length, then = next(steps, (len(records), ""))
        made, upto = apply(records[at : at + length]), min(at + length, len(records))
        if then != "lost":
            outputs, at = outputs + made, upto
        if then in ("", "checkpoint", "reset"):
            table.arrive()
            checkpoint = frozen
        table.waiting = None
        first, said = frozen = checkpoint
        if then == "checkpoint":
            table.waiting, frozen = engine.freeze(), (at, len(outputs))
        elif then == "reset":
            engine.reset()
        elif then:
            engine = make(table)
        if then == "twice":
            apply(records[first : (first + at) // 2])
            engine = make(table)
        if then not in ("", "checkpoint"):
            assert apply(records[first:at]) == outputs[said:]
    table.arrive()
    if records:
        table.write(engine.checkpoint().rows)
    return table, outputs


class Step(NamedTuple):
    """What a producer does next; the event it names, and how its outcome relates to what was served."""

    kind: Literal["forecast", "outcome", "dead forecast", "dead outcome"]
    event: int
    stream: str
    p: float
    answer: Answer
    gap: int
    behind: int


STEPS = st.builds(
    Step,
    st.sampled_from(["forecast", "forecast", "outcome", "outcome", "dead forecast", "dead outcome"]),
    st.integers(0, 7),
    st.sampled_from(STREAMS),
    st.sampled_from([0.0, 0.25, 0.6, 0.9, 1.0]),
    st.sampled_from(["no", "yes", "against", "drift"]),
    st.sampled_from([0, 1, 4, 20, 100]),
    st.sampled_from([0, 0, 0, 30]),
)


@dataclass(repr=False)
class History:
    """A history as it was folded one event a batch."""

    #: What came in, and what each did.
    events: list[Event]
    effects: list[Effects]
    #: The rows at the end.
    table: Table
    #: Under which.
    policies: Policies

    @property
    def outputs(self) -> list[Output]:
        """Everything that came out, in order."""
        return [output for effects in self.effects for output in effects.outputs]


def play(steps: Iterable[Step], policies: Policies = POLICIES) -> History:
    """Turn steps into events, folding as it goes: an adversary has to see what was served."""
    worker = Worker(policies)
    history = History([], [], worker.table, policies)
    offsets = [0, 0]
    said: dict[str, tuple[str, float]] = {}
    now = 1000
    for n, step in enumerate(steps):
        now += step.gap
        topic = FORECASTS if step.kind.endswith("forecast") else OUTCOMES
        offsets[topic] += 1 + n % 3 // 2  # offsets may have holes
        event_id = f"event-{step.event}"
        place = offsets[topic], event_id.encode()
        event: Event
        if step.kind == "forecast":
            # Every other one that reuses an id says what the one before it said, as a producer does that tries again.
            stream, p = said.get(event_id, (step.stream, step.p)) if n % 2 else (step.stream, step.p)
            said[event_id] = stream, p
            x = (0.5,) if stream == "ridge" else ()
            event = Forecast(*place, event_id, stream, p, x, now - step.behind, b"value", _values(policies, stream, n))
            weight, chance = _weights(policies, stream, n)
            event = event._replace(weight=weight, chance=chance)
        elif step.kind == "outcome":
            y = _outcome(step.answer, worker.table.entry(event_id), n)
            event = Outcome(*place, event_id, y, now - step.behind, None, (0, 0, 0, 0, 1, 2)[n % 6])
        else:
            event = Rejected(*place, b"junk", topic, "not_json")
        history.events.append(event)
        history.effects.append(worker.fold(event))
    return history


def _values(policies: Policies, stream: str, n: int) -> tuple[str, ...]:
    """Return values of a stream's segments: more than there are slots, and some missing."""
    policy = policies.of(stream)
    assert policy is not None
    return tuple(("", "DE", "FR", f"é{n % 97}")[(n + k) % 4] for k, _ in enumerate(policy.segments))


def _weights(policies: Policies, stream: str, n: int) -> tuple[float, float]:
    """Return a forecast's weight and chance of a label; 1 where its stream has none."""
    policy = policies.of(stream)
    assert policy is not None
    return 10.0 * (n % 4) if policy.weight else 1.0, (1.0, 0.5, 0.05)[n % 3] if policy.label_rate else 1.0


def _outcome(answer: Answer, entry: LedgerRow | None, n: int) -> float:
    if answer == "against":
        return float(entry is None or not cast("float", entry.p) > 0.5)
    if answer == "drift":
        return float(n // 10 % 2)
    return float(answer == "yes")


def cut(events: Sequence[Event], at: Iterable[int]) -> Iterator[Sequence[Event]]:
    """Cut events into batches of 1 to `SMALL_BATCH`, their lengths taken from ``at``, which may run out."""
    lengths = iter(at)
    start = 0
    while start < len(events):
        length = next(lengths, SMALL_BATCH)
        yield events[start : start + length]
        start += length


CUTS = st.lists(st.integers(1, SMALL_BATCH), max_size=60)


def seeded(n: int, seed: int) -> list[Step]:
    """Return a long history's steps: mostly forecasts with one outcome each, some of everything else."""
    rng = random.Random(seed)
    answers: tuple[Answer, ...] = ("no", "yes", "against", "drift")
    return [
        Step(
            rng.choices(("forecast", "outcome", "dead forecast", "dead outcome"), (20, 20, 1, 1))[0],
            max(0, t // 2 - rng.randrange(12)),
            rng.choice(STREAMS),
            rng.random(),
            rng.choice(answers),
            rng.randrange(4),
            rng.choice((0, 0, 5)),
        )
        for t in range(n)
    ]


#: Short ones that shrink, and some long enough for expiry to get under way.
_LENGTHS = (
    st.lists(STEPS, max_size=40)
    | st.lists(STEPS, min_size=40, max_size=80)
    | st.builds(seeded, st.integers(100, 250), st.integers(0, 2**32))
)
HISTORIES = st.builds(play, _LENGTHS, st.sampled_from([POLICIES, SHADOWED]))
SHADOWED_HISTORIES = st.builds(play, _LENGTHS, st.just(SHADOWED))
WEIGHED_HISTORIES = st.builds(play, _LENGTHS, st.just(WEIGHED))


def digest(history: History) -> str:
    """Return a hash of every row at the end and every output on the way."""
    hashed = sha256()
    for key, row in sorted(history.table.items()):
        hashed.update(len(key).to_bytes(4, "big") + key + row)
    for output in history.outputs:
        hashed.update(repr(output).encode())
    return hashed.hexdigest()


if __name__ == "__main__":
    print(digest(play(seeded(3000, seed=1), policies=SHADOWED)))  # noqa: T201 - what the caller compares
