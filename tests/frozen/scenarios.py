"""Frozen outputs: what the engine answers on fixed histories, as digests of every byte that it would produce.

A change of structure must leave them as they are. A change that is meant to alter answers writes them anew, and says in
its commit which and why::

    python -m tests.frozen            # compare, all of it; prints where each history first differs
    python -m tests.frozen --write    # write the digests of this build

A file holds the digests of one history. Its first line is of the inputs: where these differ (another version of a
library that makes them), outputs are not compared. Then each topic has a digest for every thousand records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from lab import flights, fraud, payments
from lab.player import TimedRecord
from state.events import Event, Output
from state.formats import ARITHMETIC
from state.policies import Policies
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from tests.events import mixed
from tests.state.histories import BANDED, POLICIES, SHADOWED, Worker, play, promoted, seeded

FOLDER: Final = Path(__file__).parent
#: Records that one digest covers.
STEP: Final = 1000
#: Events folded as one batch.
BATCH: Final = 500
FLIGHTS: Final = """\
[streams.flights]
segments = ["carrier", "origin", "block"]
shadow = [{ calibrator = "platt" }, { calibrator = "histogram" }]
"""
VECTORS: Final = """\
[streams.classes]
calibrator = "multiclass"
[streams.numbers]
calibrator = "quantile"
options = { levels = [0.1, 0.5, 0.9] }
"""


@dataclass
class Digests:
    """Digests of one history as they come: of all inputs, and of each topic by `STEP` records."""

    inputs: Any = field(default_factory=lambda: blake2b(digest_size=8))
    topics: dict[str, list[str]] = field(default_factory=dict)
    _open: dict[str, Any] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, topic: str, record: object) -> None:
        """Add one record of a topic."""
        open_ = self._open.setdefault(topic, blake2b(digest_size=8))
        open_.update(repr(record).encode())
        count = self._counts[topic] = self._counts.get(topic, 0) + 1
        if count % STEP == 0:
            self._close(topic)

    def _close(self, topic: str) -> None:
        self.topics.setdefault(topic, []).append(self._open.pop(topic).hexdigest())

    def text(self) -> str:
        """Return the file: a line for the inputs, then of each topic its count and its digests."""
        for topic in list(self._open):
            self._close(topic)
        lines = [f"arithmetic {ARITHMETIC}", f"inputs {self.inputs.hexdigest()}"]
        for topic, digests in sorted(self.topics.items()):
            lines += [f"{topic} {self._counts[topic]}", *(f"  {each}" for each in digests)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Scenario:
    """A history by name, and what makes its digests."""

    #: Of its file.
    name: str
    #: Returns the digests.
    make: Callable[[], Digests]

    @property
    def path(self) -> Path:
        """The file of its digests."""
        return FOLDER / f"{self.name}.txt"


def _of_messages(messages: Iterable[TimedRecord], streams: str = "") -> Digests:
    """Fold records as a worker would that has one partition, under a streams file."""
    digests = Digests()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "streams.toml"
        file.write_text(streams)
        settings = Settings.from_env({"TRUEUP_STREAMS": str(file)} if streams else {})
    decoder, worker = Decoder(settings.policies, settings.limits), Worker(settings.policies)
    offsets = {"forecasts": 0, "outcomes": 0}
    rest = iter(messages)
    while batch := list(islice(rest, BATCH)):
        events: list[Event] = []
        for time_ms, topic, key, value in batch:
            digests.inputs.update(repr((time_ms, topic, key, value)).encode())
            decode = decoder.forecast if topic == "forecasts" else decoder.outcome
            events.append(decode(offsets[topic], key, value, time_ms))
            offsets[topic] += 1
        _add(digests, worker.fold(*events).outputs, settings)
    return digests


def _of_history(policies: Policies, seed: int) -> Digests:
    """Fold a long history of everything that producers may send, one event a batch."""
    history, digests = play(seeded(6000, seed), policies=policies), Digests()
    for event in history.events:
        # A forecast without a version of the model is the input that it was before there were any, and so is an outcome
        # without headers.
        said = repr(event).replace(", version='')", ")").replace(", carried=None)", ")")
        digests.inputs.update(said.encode())
    _add(digests, history.outputs, Settings.from_env({}))
    return digests


def _add(digests: Digests, outputs: Sequence[Output], settings: Settings) -> None:
    for topic, records in encoded(outputs, settings, 0).items():
        for record in records:
            digests.add(topic, record)


def _mixed() -> Iterator[TimedRecord]:
    for topic, key, value, ts, _ in mixed(20_000).sent:
        yield TimedRecord(ts, topic, key, value)


def _vectors() -> Iterator[TimedRecord]:
    """Yield forecasts of classes and of numbers, with outcomes that come late, early, twice, revised or never."""
    rng = Random(7)
    timed: list[tuple[int, int, TimedRecord]] = []

    def send(ms: int, topic: str, event_id: str, **fields: object) -> None:
        value = orjson.dumps({"event_id": event_id, **fields})
        timed.append((ms, len(timed), TimedRecord(ms, topic, event_id.encode(), value)))

    for n in range(6000):
        now, event_id = 1_000_000 + 1000 * n, f"e{n}"
        if n % 2:
            first = rng.uniform(0.2, 0.6)
            probs = (first, (1 - first) / 2, (1 - first) / 2)
            send(now, "forecasts", event_id, stream="classes", probs=probs)
            y: object = rng.choices((0, 1, 2), (5, 3, 2))[0]
        else:
            middle = rng.gauss(0.0, 1.0)
            law = {"levels": (0.25, 0.5, 0.75), "values": (middle - 1.0, middle, middle + 1.0)}
            send(now, "forecasts", event_id, stream="numbers", quantiles=law)
            y = middle + rng.gauss(0.5, 2.0)
        if rng.random() < 0.9:
            at = now + rng.randrange(-5000, 400_000)
            send(at, "outcomes", event_id, y=y)
            if rng.random() < 0.05:
                send(at + 60_000, "outcomes", event_id, y=0)
    return (message for _, _, message in sorted(timed, key=lambda each: each[:2]))


def _flights(rows: int | None) -> Callable[[], Digests]:
    return lambda: _of_messages(flights.load(rows).messages(), FLIGHTS)


def _fraud(rows: int) -> Callable[[], Digests]:
    return lambda: _of_messages(fraud.make(fraud.Shape(rows=rows)).messages(), payments.PLAN)


#: What the tests check.
QUICK: Final = (
    Scenario("counts-and-floats", lambda: _of_history(POLICIES, 1)),
    Scenario("challengers", lambda: _of_history(SHADOWED, 2)),
    Scenario("promoted", lambda: _of_history(promoted(SHADOWED), 3)),
    Scenario("bands", lambda: _of_history(BANDED, 5)),
    Scenario("mixed", lambda: _of_messages(_mixed())),
    Scenario("vectors", lambda: _of_messages(_vectors(), VECTORS)),
    Scenario("flights-20000", _flights(20_000)),
    Scenario("fraud-10000", _fraud(10_000)),
)
#: What the command checks beside it.
LONG: Final = (Scenario("flights", _flights(None)), Scenario("fraud", _fraud(120_000)))


def difference(stored: str, made: str) -> str:
    """Say in a sentence where two files of digests first differ; empty if they do not."""
    was, now = _read(stored), _read(made)
    if was.pop("inputs", []) != now.pop("inputs"):
        return "the inputs differ, so outputs cannot be compared"
    for topic in sorted(was.keys() | now.keys()):
        before, after = was.get(topic, []), now.get(topic, [])
        for n, (old, new) in enumerate(zip(before[1:], after[1:], strict=False)):
            if old != new:
                return f"{topic}: the first difference is among records {n * STEP} to {(n + 1) * STEP - 1}"
        if before != after:
            return f"{topic}: {before[0] if before else 0} records before, {after[0] if after else 0} now"
    return ""


def _read(text: str) -> dict[str, list[str]]:
    """Return of each topic its count and then its digests; of the inputs their digest."""
    found: dict[str, list[str]] = {}
    topic = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            topic, value = line.split()
            found[topic] = [value]
        else:
            found[topic].append(line.strip())
    return found
