"""What a seed stands for: the records that come, the processes that serve them, and the faults that strike."""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from state.policy import DEFAULT_CALIBRATOR
from streams.config import stream_config
from tests.events import Sent, forecast, mixed, outcome
from tests.simulation.loop import BEGIN

#: How long records come, s, if they do not pause; faults strike as long.
FEEDS: Final = (1.5, 3.0, 8.0)
SESSION: Final = 3.0
NAMES: Final = ("anna", "berta", "carla")
#: The stages, the first of them first, and who may run each.
INTAKE, ROUTER, WORKER = STAGES = ("intake", "router", "worker")
OF_STAGE: Final = {INTAKE: ("ida", "ines"), ROUTER: ("rita", "romy"), WORKER: (*NAMES, "dora")}
#: The worker of the build before, that takes up what waits for one.
HELPER: Final = "dora"
#: Who gives commands; the second takes over from the first, who may come back.
OPERATOR: Final = "operator"
OPERATORS: Final = ("olga", "otto")
#: Who audits now and then, in how many of the histories.
AUDITOR: Final = "alba"
AUDITED: Final = 0.2
#: What operators may have to do, and how often each is drawn; see `tests.simulation.operators`.
TASKS: Final = {"rescale": 4, "skip": 3, "upgrade": 3, "load": 3, "promote": 2}
RESCALE, SKIP, UPGRADE, LOAD, PROMOTE = TASKS
#: The same where there are all stages.
OF_ALL_STAGES: Final = {RESCALE: 4, SKIP: 2, LOAD: 3, PROMOTE: 2}
#: How many of the histories have a task.
TASKED: Final = 0.4
#: More than there are seeds: events of a past have other ids.
MANY: Final = 10**9
#: How often what is left out ends workers; else it is any record.
DEADLY: Final = 0.5
#: The key of a record that ends every process which reads it.
POISON: Final = b"poison"
#: In how many of the histories records have headers.
TRACED: Final = 0.5
#: How many of the histories have all stages, and begin at topics with any keys.
SOURCED: Final = 0.3

#: Source topics, with how many partitions these have.
WIDTHS: Final = {"scores": 3, "chargebacks": 2}
#: The source topic of what else would be sent to trueup's own topics.
SOURCE_OF: Final = {"forecasts": "scores", "outcomes": "chargebacks"}


class Fault(NamedTuple):
    """Something that happens to a process, or to all."""

    #: What: see `World.strike`.
    kind: str
    #: Whom; empty: all.
    worker: str
    #: When it is due, virtual s.
    at: float
    #: How many callbacks of the process later it strikes: between any two of them. Where the process is down it strikes
    #: while it starts and recovers.
    after: int
    #: How long it lasts, s, or how much of it.
    long: float

    def __str__(self) -> str:
        whom = f" {self.worker}" if self.worker else ""
        return f"at {self.at:.2f} s, {self.after} callbacks later: {self.kind}{whom} for {self.long:.2f}"


#: What stands in the kinds that strike amid a request, before the request, and which requests those are.
AMID: Final = " amid "
ANSWER: Final = "an answer"
#: That a worker says under which configuration it answers from there on.
ANNOUNCEMENT: Final = "an announcement"
PLACES: Final = ("an append", ANSWER, "a checkpoint", "a commit", "a claim", "a rebalance", "a look")
#: How those begin after which a process stands still or alone, and after which it may not know that others took over.
STANDING: Final = ("pause", "cut")
UNAWARE: Final = (*STANDING, "trouble")
#: Which faults there are, and how often each is drawn, if all are.
KINDS: Final = {
    "kill": 40,
    "pause": 20,
    "trouble": 8,
    "cut": 6,
    "stop": 6,
    "old disk": 5,
    "lost disk": 4,
    "torn disk": 4,
    "swapped disks": 3,
    "foreign disk": 3,
    "damaged disk": 4,
    "jump": 5,
    "configure": 6,
    "compact": 3,
    "erase": 4,
    "offsets": 3,
    "leaders": 3,
    "full disk": 3,
    "retention": 5,
}
#: How often a history draws a kind, compared with all: many are left out of it, and one strikes again and again.
SWARM: Final = (0, 0, 1, 1, 6)
#: Those that strike nobody alone, and those after which nobody has to recover.
FOR_ALL: Final = ("trouble", "compact", "erase", "offsets", "leaders", "retention")
MILD: Final = (*FOR_ALL, "jump", "full disk")
#: That the end of an input is lost, and its offsets are given to others; and in how many of the histories of workers
#: alone who have no task and no auditor.
LOST_TAIL: Final = "lost tail"
LOSING: Final = 0.2


#: What strikes operators, how often each is drawn, and amid which requests.
AT_OPERATORS: Final = {"kill": 8, "pause": 9, "cut": 2}
OF_COMMANDS: Final = ("an append", "an append", "a claim", "a look")


class Plan(NamedTuple):
    """What a seed stands for, besides chance."""

    seed: int
    #: Sent to source topics, or to trueup's own.
    records: list[Sent]
    #: How long they come, s.
    feed: float
    #: Number of partitions of trueup's topics.
    width: int
    #: The stage of each process, by its name.
    names: dict[str, str]
    settings: dict[str, Any]
    #: Which of `POLICIES` processes begin with; another one of the same pair may follow.
    policies: int
    faults: tuple[Fault, ...]
    #: One of `TASKS`, or empty.
    task: str = ""
    #: When operators begin, s.
    begins: tuple[float, float] = (0.0, 0.0)
    #: Number of partitions after a move; 0: it stays.
    moved: int = 0
    #: What is loaded.
    past: list[Sent] = []  # noqa: RUF012 - a NamedTuple's default is never written to
    #: Whether the group has answered before that.
    before: bool = False
    #: Which calibrators are promoted, one after another.
    goals: tuple[str, ...] = ()
    #: Options of each audit; None: there is none.
    audits: tuple[str, ...] | None = None

    @property
    def sourced(self) -> bool:
        """Whether there are all stages."""
        return INTAKE in self.names.values()

    @property
    def loses(self) -> bool:
        """Whether an input loses its tail."""
        return any(fault.kind == LOST_TAIL for fault in self.faults)

    @property
    def streams(self) -> str:
        """The streams file that operators have."""
        return STREAMS[self.policies] + (_MAPPED if self.sourced else "")


_MAPPED: Final = """
[sources.scores]
topic = "scores"
role = "forecast"
event_id = "event_id"
stream = "stream"
p = "p"
carry = { of = "event_id" }
carry_headers = ["traceparent", "x-*"]

[sources.chargebacks]
topic = "chargebacks"
role = "outcome"
event_id = "event_id"
y = "y"
"""
#: Streams files that a process may be started with, by twos. Under the first, rows expire within the history; under the
#: second, every label finds its forecast.
STREAMS: Final = (
    """
closed = true
early_ttl = "1500ms"
[streams."*"]
calibrator = "histogram"
ttl = "3s"
matures = "1s"
silence = 0
""",
    """
closed = true
on_error = "raw"
early_ttl = "1500ms"
[streams.stream-0]
calibrator = "platt"
ttl = "4s"
learn = "arrival"
shadow = ["histogram"]
[streams."*"]
calibrator = "histogram"
ttl = "2500ms"
matures = "1200ms"
silence = 0
revisable = "4s"
alarms_since = 2023-11-14T22:13:24Z
""",
    """
closed = true
[streams."*"]
calibrator = "histogram"
""",
    """
closed = true
on_error = "raw"
[streams.stream-0]
calibrator = "platt"
shadow = ["histogram"]
alarms_since = 2023-11-14T22:13:24Z
[streams."*"]
calibrator = "histogram"
seed = 1
""",
)
POLICIES: Final = tuple(stream_config.parse(each, DEFAULT_CALIBRATOR) for each in STREAMS)
#: From which of `POLICIES` on nothing expires.
LASTING: Final = 2


def planned(seed: int) -> Plan:
    """Return what a seed stands for."""
    rng = random.Random(f"plan {seed}")
    width, workers = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 2, 2, 3))
    names = dict.fromkeys(NAMES[:workers], WORKER)
    sourced = rng.random() < SOURCED
    if sourced:
        counts = {INTAKE: rng.choice((1, 2)), ROUTER: rng.choice((1, 2)), WORKER: min(workers, 2)}
        names = {name: stage for stage, n in counts.items() for name in OF_STAGE[stage][:n]}
    records, feed = _arriving(seed, rng)
    settings = {
        "batch_records": rng.choice((5, 20, 4_000)),
        "checkpoint_seconds": rng.choice((0.2, 1.0, 2.0, 5.0)),
        "quiet_seconds": rng.choice((0.0, 1.0, 1.0)),
        "latency_ms": rng.choice((0.0, 5.0, 200.0)),
        "batch_bytes": rng.choice((900_000, 20_000, 10_000)),
        "standbys": rng.choice((0, 0, 1)),
    }
    policies = rng.randrange(LASTING)
    if sourced:
        policies += rng.choice((0, LASTING, LASTING))
        records = of_sources(records, rng)
    plan = Plan(seed, records, feed, width, names, settings, policies, tuple(_struck(rng, feed, tuple(names))))
    if rng.random() < TASKED:
        plan = _tasked(plan, rng)
    elif not sourced:
        plan = _aimed(plan)
    if rng.random() < AUDITED or plan.before:
        plan = _audited(plan, rng)
    if not (plan.sourced or plan.task or plan.audits is not None) and rng.random() < LOSING:
        plan = _losing(plan, rng)
    return plan._replace(faults=tuple(sorted(plan.faults, key=lambda fault: fault.at)))


def _arriving(seed: int, rng: random.Random) -> tuple[list[Sent], float]:
    """Return records with pauses and ties, some of them twice, and how long they come, s."""
    n, feed = rng.choice((4, 10, 20, 40, 60)), rng.choice(FEEDS)
    start = int((BEGIN + rng.choice((0.5, 0.5, -20.0))) * 1000)
    step = int(feed * 1000 / (n + 75))
    pauses = [(start + rng.randrange(n) * step, rng.choice((500, 2500))) for _ in range(rng.choice((0, 0, 1, 2)))]
    tie = rng.choice((1, 1, 1, 50, 300))
    records = []
    often = rng.choice((0.0, 0.3))
    for each in mixed(n, seed=seed, start=start, step=step).sent:
        ts = each.ts + sum(pause for at, pause in pauses if each.ts >= at)
        records.append(each._replace(ts=ts - ts % tie))
        if each.topic == "forecasts" and rng.random() < often:
            records.append(each._replace(ts=ts + step * rng.randrange(12)))
    records.sort(key=lambda sent: sent.ts)
    records += [forecast(f"{seed}-last-{n}", 0.5, records[-1].ts + 300) for n in range(3)]  # ripe by the clock alone
    if random.Random(f"headers {seed}").random() < TRACED:
        headers = [(("traceparent", b"00-%d" % n), ("x-of", b""), ("other", b"1")) for n in range(len(records))]
        records = [each._replace(headers=own) for each, own in zip(records, headers, strict=True)]
    return records, feed + sum(pause for _, pause in pauses) / 1000


def _struck(rng: random.Random, feed: float, names: tuple[str, ...]) -> Iterator[Fault]:
    """Yield faults: of few kinds, amid few kinds of requests, and maybe of one process again and again."""
    kinds = {kind: often * rng.choice(SWARM) for kind, often in KINDS.items()}
    places, amid = rng.sample(PLACES, rng.choice((1, 2, len(PLACES)))), rng.choice((0.0, 0.5, 0.9))
    names = rng.choice((names, (*names, *[rng.choice(names)] * 4)))
    for _ in range(rng.choice((2, 4, 6, 9, 14, 20))):
        (kind,) = rng.choices(tuple(kinds), tuple(kinds.values()) if any(kinds.values()) else None)
        at, after, long = rng.random() * feed, int(rng.random() ** 2 * 1000), rng.random() * 2
        whom = "" if kind in FOR_ALL else rng.choice(names)
        if kind.startswith(STANDING):
            long = rng.choice((0.5, 2 * SESSION, 3 * SESSION)) * (0.6 + rng.random())
        if kind == "retention":  # and somebody takes up what is left
            yield Fault("kill", rng.choice(names), at - 0.05, 0, 1.0)
        elif kind == "trouble":
            long = rng.choice((long, feed))
        elif kind not in MILD and rng.random() < 0.5:  # and once more while it recovers, or others do
            again = rng.choice((whom, *names))
            yield Fault("kill", again, at + rng.random() * 0.2, int(rng.random() * 600), long)
        if whom and rng.random() < amid:
            kind, after = kind + AMID + rng.choice(places), rng.randrange(1500)
        yield Fault(kind, whom, at, after, long)


def of_sources(records: list[Sent], rng: random.Random) -> list[Sent]:
    """Return what would be sent to trueup's own topics as records of sources, with any keys."""
    keys = [f"card-{k}".encode() for k in range(7)]
    return [each._replace(topic=SOURCE_OF[each.topic], key=rng.choice(keys)) for each in records]


def _audited(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with an auditor, and with faults that strike her."""
    options = ("--sources",) * plan.sourced + ("--checkpoint",) * (rng.choice((0, 1)) and plan.task != LOAD)
    faults = [
        *plan.faults,
        *(_at_operator(rng, AUDITOR, rng.random() * plan.feed) for _ in range(rng.choice((0, 1, 2)))),
    ]
    if plan.before:  # topics are made anew for the load while she reads
        at = plan.begins[0] + 10 * rng.random()
        faults.append(Fault(f"pause{AMID}a look", AUDITOR, at, rng.randrange(12), 5 + 10 * rng.random()))
    workers = [name for name, stage in plan.names.items() if stage == WORKER]
    if "--checkpoint" in options and len(workers) > 1:
        # What was compared comes again, or who answered before is said late, by one that stood still.
        at, long = rng.random() * plan.feed, 3 * SESSION + 12 * rng.random()
        place, at = rng.choice(((ANSWER, at), (ANNOUNCEMENT, 0.0)))
        faults.append(Fault(f"pause{AMID}{place}", rng.choice(workers), at, 1, long))
    return plan._replace(names=plan.names | {AUDITOR: OPERATOR}, audits=options, faults=tuple(faults))


def _losing(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with the loss of a tail, and mostly with records that come behind it."""
    at = plan.feed * (0.4 + 0.8 * rng.random())
    later = mixed(rng.choice((0, 4, 12)), seed=plan.seed + 2 * MANY, start=int((BEGIN + at) * 1000), step=150).sent
    lost = Fault(LOST_TAIL, "", at, rng.choice((0, 0, 1, 5)), rng.random() * 2)
    return plan._replace(records=[*plan.records, *later], faults=(*plan.faults, lost))


def _aimed(plan: Plan) -> Plan:
    """Return a plan of workers alone, some of them with a scene that chance would seldom draw."""
    rng = random.Random(f"aimed {plan.seed}")
    scene = rng.choice(SCENES) if rng.random() < AIMED else None
    return plan if scene is None else scene(plan, list(plan.names), rng)


def _quiet_end(plan: Plan, workers: list[str], rng: random.Random) -> Plan:
    """Kill who writes down a tick of the clock; a label comes before the ticks are made again."""
    last = plan.records[-1].ts
    label, at = outcome(f"{plan.seed}-last-0", 1, last + 2400), last / 1000 - BEGIN + 1.9
    faults = [Fault(f"kill{AMID}an append", each, at, 1, 1 + 1.5 * rng.random()) for each in workers]
    settings = plan.settings | {"quiet_seconds": 1.0, "checkpoint_seconds": 5.0}
    return plan._replace(records=[*plan.records, label], settings=settings, faults=(*plan.faults, *faults))


def _damaged_meanwhile(plan: Plan, workers: list[str], rng: random.Random) -> Plan:
    """Let partitions come to a worker, go, and come back when its disk is damaged."""
    one, other = rng.choice(workers), rng.choice(workers)
    at = 2 * rng.random()
    faults = (
        Fault("kill", other, at, 0, 0.5),
        Fault("damaged disk", one, at + 6, 0, 0),
        Fault("kill", other, at + 6.5, rng.randrange(300), 1),
    )
    return plan._replace(faults=(*plan.faults, *faults))


def _unheard(plan: Plan, workers: list[str], rng: random.Random) -> Plan:
    """Let no broker answer a worker that has just started."""
    one, at = rng.choice(workers), plan.feed * rng.random()
    cut = Fault(f"cut{AMID}a look", one, at + 0.1, rng.randrange(12), 2 + 4 * rng.random())
    return plan._replace(faults=(*plan.faults, Fault("kill", one, at, 0, 0.2), cut))


#: Scenes that chance would seldom draw, and how many of the histories of workers alone without a task have one.
SCENES: Final[tuple[Callable[[Plan, list[str], random.Random], Plan], ...]] = (
    _quiet_end,
    _damaged_meanwhile,
    _unheard,
)
AIMED: Final = 0.25


def _at_operator(rng: random.Random, whom: str, at: float) -> Fault:
    (kind,) = rng.choices(tuple(AT_OPERATORS), tuple(AT_OPERATORS.values()))
    long, after = rng.choice((0.5, 5.0, 15.0)) * (0.6 + rng.random()), int(rng.random() ** 2 * 800)
    if rng.random() < 0.5:
        kind, after = kind + AMID + rng.choice(OF_COMMANDS), rng.randrange(1500)
    return Fault(kind, whom, at + rng.random() - 0.5, after, long)


def _tasked(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with a task for operators, and with faults that strike them and others meanwhile."""
    tasks = OF_ALL_STAGES if plan.sourced else TASKS
    (task,) = rng.choices(tuple(tasks), tuple(tasks.values()))
    begin = rng.choice((0.2, 0.5)) * (plan.feed if task != LOAD else 2.0)
    begins = begin, begin + rng.choice((1.0, 4.0, 20.0)) * (0.5 + rng.random())
    faults, records = list(plan.faults), list(plan.records)
    scene = random.Random(f"scene {plan.seed}")
    if task == RESCALE and scene.random() < AIMED:  # before most partitions have a time
        begin = max(0.1, records[scene.choice((1, 2, 3, 5)) % len(records)].ts / 1000 - BEGIN)
        begins = begin, begin + 5.0
    elif task == LOAD and scene.random() < AIMED:  # one stands still between its look and its claim, and another loads
        begins = begin, begin + 1.0
        faults.append(Fault(f"pause{AMID}a claim", OPERATORS[0], begin - 0.1, 0, 8 + 8 * scene.random()))
    struck = rng.choice((0, 1, 2, 3))
    faults += [_at_operator(rng, rng.choice((OPERATORS[0], *OPERATORS)), begin) for _ in range(struck)]
    for _ in range(rng.choice((0, 1, 2))):
        kind, whom = rng.choice(("kill", "kill amid an append", "full disk")), rng.choice(tuple(plan.names))
        faults.append(Fault(kind, whom, begin + rng.random() * 6, int(rng.random() ** 2 * 900), rng.random() * 2))
    if task == SKIP and rng.random() < DEADLY:
        n = rng.randrange(len(records) // 4, len(records))
        if plan.sourced and rng.random() < 0.5:  # intake reads it, and the router dies of it
            records[n] = records[n]._replace(topic="chargebacks", value=b'{"event_id":"%b","y":1}' % POISON)
        else:
            records[n] = records[n]._replace(key=POISON)
    names = plan.names | dict.fromkeys(OPERATORS, OPERATOR)
    if task == UPGRADE:
        names[HELPER] = WORKER
    moved = rng.choice((1, 2, 3, 4)) if task == RESCALE else 0
    plan = plan._replace(task=task, begins=begins, moved=moved, names=names, faults=tuple(faults), records=records)
    if task == PROMOTE:
        return plan._replace(
            policies=plan.policies | 1, goals=(("histogram",), ("histogram", "platt"))[rng.randrange(2)]
        )
    return _loading(plan, rng) if task == LOAD else plan


def _loading(plan: Plan, rng: random.Random) -> Plan:
    """Return the plan with a past, and with records of its events that come later."""
    begin, step = int(BEGIN * 1000), 100
    every = mixed(40, seed=plan.seed + MANY, start=begin - 30 * step, step=step).sent
    past, later = [], []
    for each in every:
        if each.ts >= begin:
            later.append(each)
        elif each.value[:1] == b"{" and b'"stream":"another"' not in each.value:
            past.append(each._replace(value=b'{"timestamp":%d,"key":"%b",' % (each.ts, each.key) + each.value[1:]))
    if plan.sourced:
        later = of_sources(later, rng)
    records = sorted([*plan.records, *later], key=lambda sent: sent.ts)
    return plan._replace(past=past, records=records, before=not plan.sourced and rng.random() < 0.3)
