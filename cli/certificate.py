"""The certificate of calibration, from ``resolved`` records alone. It imports only the standard library.

``trueup audit --certificate``, or ``python cli/certificate.py < resolved.jsonl``. docs/explanation/calibrators.md says
what is computed.
"""

import json
import sys
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from math import exp, log

LOW = [1 / (1 + exp(-((9 - k) * log(1e-4 / (1 - 1e-4)) + k * log(1 / 9)) / 9)) for k in range(9)]
ODDS = [*(-13 + k / 4 for k in range(15)), *(-9.25 + k / 16 for k in range(180)), *(2 + k / 4 for k in range(28))]
EDGES = [0.0, *sorted({*LOW, *(k / 10 for k in range(1, 10)), *(1 / (1 + exp(-z)) for z in ODDS)}), 1.0]


def verify(records: Iterable[bytes | str]) -> dict[str, dict[str, tuple[int, float]]]:
    """Return events and certificate by stream, then by kind of forecast; the last revision of an event counts."""
    last: dict[tuple[str, str, int], tuple[int, int, dict[str, float]]] = {}
    for r in map(json.loads, records):
        key = r["stream"], r["event_id"], r["issued_ts"]
        if isinstance(r.get("p"), float) and r["revision"] >= last.get(key, (0,))[0]:
            last[key] = r["revision"], r["y"], {"raw": r["raw"], "calibrated": r["p"], "draw": r["draw"]}
    cells: dict[str, dict[str, dict[int, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: [0, 0]))
    )
    for (stream, _, _), (_, y, forecasts) in last.items():
        for kind, p in forecasts.items():
            cells[stream][kind][bisect_right(EDGES, p, 1, len(EDGES) - 1) - 1][y] += 1
    return {
        s: {k: (sum(map(sum, each.values())), certificate(each)) for k, each in kinds.items()}
        for s, kinds in cells.items()
    }


def certificate(cells: dict[int, list[int]]) -> float:
    """Return the certificate of events by cell. Each cell has its zeros and its ones."""
    order, held = sorted(cells), [cells[c] for c in sorted(cells)]
    mid = [(EDGES[c] + EDGES[c + 1]) / 2 for c in order]
    weight = [max(m, 1 - m) for m in mid]
    excess = [(one - m * (zero + one)) / w for m, w, (zero, one) in zip(mid, weight, held, strict=True)]
    bends, within, slope, shift, moved = [(0.0, 2 * weight[0])], [], weight[0], 0.0, 0.0
    for i, w in enumerate(weight):  # bends of the least cost up to this cell, by what is moved on
        for end in (0, -1):
            cut = slope - w
            while len(bends) > 1 and bends[end][1] <= cut:
                cut -= bends.pop(end)[1]
            bends[end] = bends[end][0], bends[end][1] - cut
        within.append((bends[0][0] + shift, bends[-1][0] + shift))
        step, shift = (mid[i + 1] - mid[i] if i + 1 < len(mid) else 0.0) * 1.000001, shift + excess[i]
        insort(bends, (-shift, 2 * step))
        slope = w + step
    up = [[0] * (len(mid) + 1), [0] * (len(mid) + 1)]  # zeros and ones that come into a cell from the cell below
    for i in range(len(mid) - 1, 0, -1):
        moved = min(max(moved - excess[i], within[i][0]), within[i][1])
        label = int((mid[i - 1] + mid[i]) / 2 < 0.5)
        up[label][i] = round(moved if label else -moved)
    for label in (0, 1):
        for i in range(1, len(mid)):
            up[label][i] = min(up[label][i], held[i - 1][label] + up[label][i - 1])
        for i in range(len(mid) - 1, 0, -1):
            up[label][i] = max(up[label][i], up[label][i + 1] - held[i][label])
    cost = sum((EDGES[c + 1] - EDGES[c]) / 2 * sum(n) for c, n in zip(order, held, strict=True))
    for i, m in enumerate(mid):
        zero, one = (held[i][label] + up[label][i] - up[label][i + 1] for label in (0, 1))
        cost += abs(one - m * (zero + one))
        cost += (abs(up[1][i]) + abs(up[0][i])) * (m - mid[i - 1]) if i else 0.0
    return cost / sum(map(sum, held))


if __name__ == "__main__":
    json.dump(verify(sys.stdin), sys.stdout)
