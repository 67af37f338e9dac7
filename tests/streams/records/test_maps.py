"""A map says what the engine would serve: at every score, in every segment, and in the order of the scores."""

import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from deploy.clients.python.trueup_maps import Maps, StreamMap
from state import calibrators, kinds, maps
from state.calibrators import REGISTRY
from state.calibrators.composition import Composition
from state.calibrators.logistic import P_CLIP, sigmoid
from state.engine import BATCH_LIMIT, Partition
from state.events import Calibrated, Forecast, Outcome
from state.maps import ROUNDED, TOLERANCE, Table
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.segments import Dictionary
from state.served import Served
from streams.records.maps import MapHead, encode_map, encode_none

SPECS = [
    *REGISTRY,
    "platt+minimax",
    "platt+histogram+minimax",
    "platt+regret_matching",
    "prudent+certified",
    "prudent+minimax",
    "calibrated_regression+prudent",
]
HERE = MapHead("s", 0, claim=5, applied=7, stream_time=9, at=11)


def odds(p: float) -> float:
    p = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return math.log(p / (1.0 - p))


def near(one: float, other: float, times: int = 1) -> bool:
    """Whether two probabilities are as near as a map promises, or so many times as far."""
    return abs(one - other) <= ROUNDED or abs(odds(one) - odds(other)) <= times * TOLERANCE


def learnt(spec: str, n: int, **options: Any) -> Any:
    """Make a calibrator that has learnt a model which says too much, and drifts."""
    made: Any = calibrators.make(spec, name="s", seed=1, **options)
    r = random.Random(1)
    for t in range(n):
        p = r.betavariate(1, 4)
        made.update(made.predict(p, key=b"%d" % t).ticket, float(r.random() < p * (0.7 if t < n / 2 else 0.3)))
    return made


def mapped(spec: str, calibrator: Any, **options: Any) -> StreamMap:
    """Return the map as a client has it that was sent the record."""
    policy = Policy(spec, options)
    value = encode_map(HERE, policy, Served(policy.recipe, calibrator), None, Dictionary(()))
    client = Maps(math.inf)
    client.take(0, b"s", value)
    ((found,),) = client.streams().values()
    return found


def scores(n: int, calibrator: Any) -> list[float]:
    """Return scores of all sizes, with few digits and with many, and those at which a calibrator may jump."""
    r = random.Random(2)
    found = [r.random() for _ in range(n)] + [1 / (1 + math.exp(r.uniform(-18, 18))) for _ in range(n)]
    found += [i / 1000 for i in range(1001)] + [10.0**-i for i in range(1, 16)] + [5e-324, 1 - 1e-16]
    for each in calibrator.breaks() if hasattr(calibrator, "breaks") else ():
        found += [math.nextafter(each, 0.0), each, math.nextafter(each, 1.0)]
    return sorted(found)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("n", [0, 15, 2000])
def test_a_map_equals_the_engine_at_its_points_and_is_near_it_between(spec: str, n: int) -> None:
    calibrator = learnt(spec, n)
    before = calibrator.encode()
    client = mapped(spec, calibrator)
    (first, *rest) = maps.stages(calibrator)
    assert isinstance(first, Table)
    if not rest:
        for p, y in zip(first.x, first.y, strict=True):
            assert y == pytest.approx(calibrator.predict(p).p, rel=1e-9)
            assert client(p) == y
    far = [
        (p, client(p), calibrator.predict(p).p)
        for p in scores(500, calibrator)
        if not near(client(p), calibrator.predict(p).p) and not (rest and beside_a_jump(calibrator, client, p))
    ]
    assert not far
    assert calibrator.encode() == before, "it was only asked"


@pytest.mark.parametrize(("slope", "offset", "seed"), [(1.0, 0.03, 0), (8.0, 0.0, 2)])
def test_a_risk_in_steps_is_in_the_table_wherever_the_steps_are(slope: float, offset: float, seed: int) -> None:
    """The bins of the isotonic regression lie between the points that every table has."""
    calibrator: Any = calibrators.make("twospeed", name="s", seed=1, slope=slope, offset=offset)
    r = random.Random(seed)
    for _ in range(8000):
        z = r.gauss(-1.0, 1.5)
        risk = (0.02, 0.18, 0.6, 0.92)[(z > -2.0) + (z > 0.0) + (z > 1.5)]
        calibrator.update(calibrator.predict(sigmoid((z - offset) / slope)).ticket, float(r.random() < risk))
    client = mapped("twospeed", calibrator, slope=slope, offset=offset)
    several = [sigmoid((k / 400 - offset) / slope) for k in range(-1200, 1200)]
    assert [p for p in several if not near(client(p), calibrator.predict(p).p, 2)] == []


@pytest.mark.parametrize("spec", ["certified", "histogram", "minimax"])
def test_what_goes_up_and_down_is_in_the_table_on_both_sides_of_every_jump(spec: str) -> None:
    calibrator: Any = calibrators.make(spec, name="s", seed=1)
    r = random.Random(1)
    for t in range(10_000):
        p = r.random()
        calibrator.update(calibrator.predict(p, key=b"%d" % t).ticket, float(int(20 * p) % 2))
    client = mapped(spec, calibrator)
    assert len({round(calibrator.predict(i / 20).p) for i in range(20)}) == 2, "it follows the truth"
    assert [p for p in scores(500, calibrator) if not near(client(p), calibrator.predict(p).p)] == []


def beside_a_jump(calibrator: Any, client: StreamMap, p: float) -> bool:
    """Whether the answer is one to something as near to what the parts before a part serve as their tables are."""
    served = client(p)
    return any(near(each, served) for each in possible(calibrator, p))


def possible(calibrator: Any, p: float) -> Iterator[float]:
    """Yield what a calibrator serves where each of its parts but the last is off by up to what a table may be."""
    if not isinstance(calibrator, Composition):
        yield calibrator.predict(p).p
        return
    for between in possible(calibrator.front, p):
        for step in range(-8, 9):
            yield from possible(calibrator.back, 1 / (1 + math.exp(-odds(between) - step * TOLERANCE / 8)))


@pytest.mark.parametrize("spec", ["prudent", DEFAULT_CALIBRATOR, "twospeed", "platt", "platt+prudent"])
def test_a_map_keeps_the_order_that_the_calibrator_keeps(spec: str) -> None:
    calibrator = learnt(spec, 4000)
    client = mapped(spec, calibrator)
    several = sorted({round(p, 9) for p in scores(3000, calibrator)} - {0.0, 1.0})
    served = [client(p) for p in several]
    assert served == sorted(served)
    if spec in {"prudent", DEFAULT_CALIBRATOR}:
        inside = [each for p, each in zip(several, served, strict=True) if 1e-6 < p < 1 - 1e-6]
        assert len(set(inside)) == len(inside), "two scores stay two"


@pytest.mark.parametrize("spacing", ["uniform", "logit"])
def test_jumps_that_lie_close_are_all_in_the_table(spacing: str) -> None:
    options: dict[str, Any] = {"grid": 200, "spacing": spacing, "buckets": 60, "bucket_spacing": spacing}
    calibrator = learnt("minimax", 3000, **options)
    client = mapped("minimax", calibrator, **options)
    wrong = [p for p in scores(3000, calibrator) if client(p) != pytest.approx(calibrator.predict(p).p, rel=1e-9)]
    # Below the first point of a grid it serves 0 or that point, whose line to the next score begins somewhere.
    assert not wrong


class Stream:
    """A stream with segments, folded by the engine; its maps are made from the rows that it would commit."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rows: dict[bytes, bytes] = {}
        self.engine = Partition(Policies([("s", policy)]), self.rows.get)
        self._t = 0

    def fold(self, events: Sequence[tuple[float, tuple[str, ...], float | None]]) -> list[float]:
        """Issue events, and resolve those that have an outcome; return what was served."""
        made: list[Any] = []
        for p, values, y in events:
            t, ts = self._t, 1000 + self._t
            self._t += 1
            made.append(Forecast(t, b"k", f"e{t}", "s", p, (), ts, b"", values))
            made += [] if y is None else [Outcome(t, b"k", f"e{t}", y, ts)]
        served: list[float] = []
        for at in range(0, len(made), BATCH_LIMIT):
            effects = self.engine.fold(made[at : at + BATCH_LIMIT])
            self.rows.update({key: row for key, row in effects.rows.items() if row is not None})
            served += [cast("float", each.p) for each in effects.outputs if isinstance(each, Calibrated)]
        return served

    def map(self) -> StreamMap:
        """Return the map as a client has it."""
        policy = self.policy
        served = kinds.CALIBRATOR.decode(self.rows[kinds.CALIBRATOR.key("s", policy.config)], "s")
        rows = kinds.apart(self.rows)
        history = kinds.history(rows[kinds.SCORES.key("s")], rows.get(kinds.WINDOWS.key("s")))
        names = kinds.NAMES.decode(self.rows[kinds.NAMES.key("s", policy.layout)])
        client = Maps(math.inf)
        client.take(0, b"s", encode_map(HERE, policy, served, history, names))
        ((found,),) = client.streams().values()
        return found


def events(n: int, seed: int, countries: int, *, resolved: bool = True) -> list[tuple[float, tuple[str, ...], Any]]:
    """Return events whose truth depends on two segments and on their pair."""
    r = random.Random(seed)
    found: list[tuple[float, tuple[str, ...], Any]] = []
    for _ in range(n):
        p = r.betavariate(1, 3)
        country, channel = r.randrange(countries), r.randrange(3)
        z = odds(p) + (country % 5 - 2) * 0.8 * (1 - odds(p) / 4) + (0.7 if channel == 1 else 0.0)
        y = float(r.random() < 1 / (1 + math.exp(-z)))
        found.append((p, (f"c{country}" if country else "", f"ch{channel}"), y if resolved else None))
    return found


@pytest.mark.parametrize(
    ("spec", "n", "countries"),
    [
        ("prudent", 3000, 80),
        (DEFAULT_CALIBRATOR, 300, 5),
        (DEFAULT_CALIBRATOR, 3000, 5),
        ("platt+prudent", 1000, 80),
        ("prudent+regret_matching", 1000, 5),
    ],
)
def test_maps_of_segments_equal_the_engine_new_and_other_values_too(spec: str, n: int, countries: int) -> None:
    policy = Policy(spec, segments=("country", "channel"), pairs=(("country", "channel"),))
    stream = Stream(policy)
    stream.fold(events(n, 1, countries))
    client = stream.map()
    # More countries than before: some take a slot of their own, some are the others.
    for p, values, _ in events(400, 2, countries + 40, resolved=False):
        (served,) = stream.fold([(p, values, None)])
        answer = client(p, dict(zip(policy.segments, values, strict=True)))
        assert near(answer, served, 2) or "regret" in spec, (p, values)  # its jumps are judged above
    if (n, countries) == (3000, 5):
        assert client(0.3, {"country": "c4"}) > 1.2 * client(0.3, {"country": "c2"}), "segments are told apart"
        assert client(0.3, {}) == client(0.3, {"country": "", "other": "x"})
        assert client(0.3, {"country": 7}) == client(0.3, {"country": "\n"}) == client(0.3, {})  # type: ignore[dict-item]


def test_a_segment_that_falls_too_steeply_is_put_in_order_as_the_engine_does() -> None:
    policy = Policy("prudent", segments=("country",))
    stream = Stream(policy)
    r = random.Random(3)
    several: list[tuple[float, tuple[str, ...], Any]] = []
    for t in range(6000):  # in one country, the higher the score the rarer the event
        p = r.choice([0.03, 0.1, 0.3, 0.6, 0.9])
        several.append((p, ("up",), float(r.random() < p)) if t % 3 else (p, ("down",), float(r.random() < 1 - p)))
    stream.fold(several)
    client = stream.map()
    grid = [i / 200 for i in range(1, 200)]
    for value in ("up", "down"):
        served = stream.fold([(p, (value,), None) for p in grid])
        answers = [client(p, {"country": value}) for p in grid]
        assert answers == sorted(answers)
        assert all(near(answer, p, 2) for answer, p in zip(answers, served, strict=True))


@pytest.mark.usefixtures("no_warm_up")
def test_a_record_says_version_and_certificate() -> None:
    policy = Policy("prudent", segments=("country", "channel"))
    stream = Stream(policy)
    stream.fold(events(500, 1, 4))
    said = stream.map().said
    assert (said["claim"], said["applied"], said["at"], said["stream_time"]) == (5, 7, 11, 9)
    assert (said["calibrator"], said["config"], said["version"]) == ("prudent", policy.config, 500)
    certificate = said["certificate"]
    assert (certificate["kind"], certificate["events"]) == ("calibrated", 500)
    assert 0.0 < certificate["distance"] < 0.2


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy("quantile"), "quantile does not serve one probability"),
        (Policy("multiclass"), "multiclass does not serve one probability"),
        (Policy("calibrated_regression", features=2), "what calibrated_regression serves depends on features"),
    ],
)
def test_what_cannot_be_a_map_says_why(policy: Policy, why: str) -> None:
    assert maps.why_not(policy) == why
    value = encode_none(HERE, policy, why)
    assert json.loads(value)["why"] == why
    client = Maps(math.inf)
    client.take(0, b"s", value)
    assert client.answer("s", 0.3)[:2] == (0.3, "none")


@pytest.mark.parametrize("policy", [Policy("prudent", features=2), Policy("calibrated_regression")])
def test_features_that_the_calibrator_leaves_alone_do_not_matter(policy: Policy) -> None:
    assert not maps.why_not(policy)
