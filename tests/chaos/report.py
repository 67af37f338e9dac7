"""What a campaign prints: a table of faults, the verdict, and one JSON object as its last line."""

import math
from collections import defaultdict
from collections.abc import Sequence

import orjson

from tests.chaos.campaign import Seen
from tests.chaos.judge import Verdict


def table(seen: Sequence[Seen]) -> str:
    """Return a line a kind of fault: how often, how workers ended, the longest silence, and when all was well again."""
    kinds: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        kinds[each.fault.kind.told].append(each)
    lines = [f"{'fault':32}{'times':>6}  {'exits':24}{'silent, s':>10}{'well again, s':>15}"]
    for name, found in kinds.items():
        counts: dict[int, int] = defaultdict(int)
        causes = set()
        for each in found:
            for exit_ in each.exits:
                counts[exit_.status] += 1
                causes.add(exit_.cause)
        exits = ", ".join(f"{n} x {status}" for status, n in sorted(counts.items())) or "none"
        silent, well = max(each.silence for each in found), max(each.seconds for each in found)
        lines.append(f"{name:32}{len(found):>6}  {exits:24}{silent:>10.1f}{well:>15.1f}")
        lines += [f"    {cause[:160]}" for cause in sorted(causes - {""})]
        lines += [f"    BROKEN: {sentence}" for each in found for sentence in each.broken]
    return "\n".join(lines)


def judged(verdict: Verdict) -> str:
    """Return a verdict in words."""
    lines = [f"FOUND: {finding}" for finding in verdict.findings]
    lines += [
        f"{verdict.records:,} records, {verdict.events:,} events",
        f"{verdict.copies:,} records of the outputs are copies of others, as after a crash they may",
        f"differences from what is derived again: {len(verdict.findings)}",
    ]
    return "\n".join(lines)


def conclusion(verdict: Verdict, seen: Sequence[Seen], seconds: float) -> str:
    """Return the verdict in words and, as the last line, as JSON."""
    kinds = len({each.fault.kind for each in seen})
    broken = sum(len(each.broken) for each in seen)
    # Where brokers could be written to and reached, silence is the workers' own.
    silences = [each.silence for each in seen if not (each.fault.outage or math.isnan(each.silence))]
    silent = max(silences, default=0.0)
    lines = [
        f"{len(seen)} faults of {kinds} kinds in {seconds:.0f} s",
        judged(verdict),
        f"promises broken {broken}; longest silence while enough brokers could be reached: {silent:.1f} s",
        orjson.dumps(
            {
                "events": verdict.events,
                "records": verdict.records,
                "source_records": verdict.source_records,
                "sent_twice": verdict.copies,
                "source_sent_twice": verdict.source_copies,
                "faults": len(seen),
                "kinds": kinds,
                "differences": len(verdict.findings),
                "promises_broken": broken,
                "longest_silence": round(silent, 1),
                "seconds": round(seconds, 1),
            }
        ).decode(),
    ]
    return "\n".join(lines)
