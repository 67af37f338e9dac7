"""What bands, intervals and entities cost: an event of the default with them through one of the default without.

``TRUEUP_COMPILED=yes python -m tests.bench.marked`` takes the records of `tests.bench.parts` through decoding, engine
and encoding as a worker does: in its parts, with a checkpoint after as many records as its. The policies play in turn,
`RUNS` times. Printed are the least us of processor time an event, its ratio to the default's, and the least, median
and largest ratio of a turn. Accounts have two forecasts each, far apart, so that nearly every outcome teaches.
"""

import argparse
from dataclasses import replace
from statistics import median
from time import process_time

import orjson

from agents import compiled
from agents.applying import PART
from agents.served import CHECKPOINT_RECORDS
from agents.worker import collect_rarely
from state.bands import Bands
from state.engine import Partition
from state.fence import FORECASTS
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.merge import Merged
from tests.bench.parts import records
from tests.streams.fakes import record

RUNS = 9
PLAIN = Policy()
BANDS = Bands(("pass", "review", "block"), (0.0, 0.02, 0.3))
POLICIES = {
    "the default": PLAIN,
    "bands": replace(PLAIN, bands=BANDS),
    "intervals": replace(PLAIN, interval=0.9),
    "entity": replace(PLAIN, entity="account"),
    "all three": replace(PLAIN, bands=BANDS, interval=0.9, entity="account"),
}


def accounts(made: list[Merged]) -> list[Merged]:
    """Return the same records, whose forecasts name their account."""
    half = len(made) // 4
    named: list[Merged] = []
    for topic, one in made:
        said, value = orjson.loads(one.value or b""), one.value
        if topic == FORECASTS:
            value = orjson.dumps(said | {"account": f"account-{int(said['event_id'][6:]) % half:06d}"})
        named.append((topic, record("any", 0, one.offset, one.timestamp, one.key, value)))
    return named


def measure(policy: Policy, made: list[Merged]) -> float:
    """Return the us of processor time an event."""
    policies, settings, rows = Policies(default=policy), Settings(), dict[bytes, bytes | None]()
    partition, decoder = Partition(policies, rows.get), Decoder(policies, Limits())
    began, since = process_time(), 0
    for at in range(0, len(made), PART):
        partition.begin()
        encoded(partition.apply(decoder.events(made[at : at + PART])), settings, 0)
        partition.end()
        since += PART
        if since >= CHECKPOINT_RECORDS:
            rows.update(partition.checkpoint().rows)
            since = 0
    return (process_time() - began) / len(made) * 1e6


def main() -> None:
    """Measure in turn, and print a line a policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forecasts", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    collect_rarely()
    plain = records(options.forecasts)
    named = accounts(plain)
    runs = [
        {name: measure(each, named if each.entity else plain) for name, each in POLICIES.items()}
        for _ in range(options.runs)
    ]
    print(f"us an event, {'compiled' if compiled.runs() else 'interpreted'}; through the default's")
    for name in POLICIES:
        ratios = sorted(run[name] / run["the default"] for run in runs)
        least = [min(run[each] for run in runs) for each in (name, "the default")]
        print(
            f"{name:12} {least[0]:6.2f}  {least[0] / least[1]:.3f}"
            f"  (turns {ratios[0]:.3f}, {median(ratios):.3f}, {ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
