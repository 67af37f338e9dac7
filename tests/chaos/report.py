"""What a campaign prints: a table of faults, the verdict, and one JSON object as its last line."""

from collections import defaultdict
from collections.abc import Sequence

import orjson

from tests.chaos.campaign import Seen
from tests.chaos.judge import Verdict


def table(seen: Sequence[Seen]) -> str:
    """Return a line a kind of fault: how often, how workers ended, and after how long all was well again."""
    kinds: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        kinds[each.fault.name].append(each)
    lines = [f"{'fault':28}{'times':>6}  {'exits':24}{'well again, s':>14}"]
    for name, found in kinds.items():
        counts: dict[int, int] = defaultdict(int)
        causes = set()
        for each in found:
            for exit_ in each.exits:
                counts[exit_.status] += 1
                causes.add(exit_.cause)
        exits = ", ".join(f"{n} x {status}" for status, n in sorted(counts.items())) or "none"
        lines.append(f"{name:28}{len(found):>6}  {exits:24}{max(each.seconds for each in found):>14.1f}")
        lines += [f"    {cause[:160]}" for cause in sorted(causes - {""})]
    return "\n".join(lines)


def conclusion(verdict: Verdict, faults: int, seconds: float) -> str:
    """Return the verdict in words and, as the last line, as JSON."""
    lines = [f"FOUND: {finding}" for finding in verdict.findings]
    lines += [
        f"{faults} faults in {seconds:.0f} s; {verdict.records:,} records, {verdict.events:,} events",
        f"{verdict.copies:,} records of the outputs are copies of others, as after a crash they may",
        f"lost {verdict.lost}, doubled {verdict.doubled}, differing answers {verdict.differing_answers}",
        orjson.dumps(
            {
                "events": verdict.events,
                "faults": faults,
                "lost": verdict.lost,
                "doubled": verdict.doubled,
                "differing_answers": verdict.differing_answers,
                "seconds": round(seconds, 1),
            }
        ).decode(),
    ]
    return "\n".join(lines)
