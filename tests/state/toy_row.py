"""A kind of row that is declared here and nowhere else: what follows from that, printed as JSON.

A process of its own, because a declaration is there for good.
"""

import json
from dataclasses import dataclass
from struct import Struct
from typing import Final

# ruff: noqa: PLC0415 - the row is declared before what reads declarations is imported
from state.kind import STREAM, Kind, Moves, StreamGauge, form

_COUNT: Final = Struct("<Q")


@dataclass
class Toy:
    """Counts something of a stream."""

    n: int = 0

    def __add__(self, other: "Toy") -> "Toy":
        return Toy(self.n + other.n)

    def encode(self) -> bytes:
        """Return the payload."""
        return _COUNT.pack(self.n)

    @classmethod
    def decode(cls, payload: bytes) -> "Toy":
        """Read a payload."""
        return cls(*_COUNT.unpack(payload))


def main() -> None:
    """Print what follows."""
    toys = Kind[Toy](
        "0",
        "the toys",
        (STREAM,),
        {1: form(Toy)},
        Moves.SUM,
        "one a stream: how many toys it has",
        shown=True,
        figures={"toys": StreamGauge("Toys of a stream.", lambda found: float(sum(each.n for each in found)))},
    )

    from cli import reference
    from state import formats, kinds
    from state.effects import Changes
    from state.fence import Fence
    from state.frames import OtherFormat, seal
    from state.kind import shown
    from state.policies import Policies
    from state.policy import Policy
    from state.rescale import Plan, rescaled
    from streams.metrics.gauges import Gauges
    from streams.metrics.rows import StateRows
    from streams.metrics.snapshot import read
    from tests.exposed import exposed
    from tests.state.histories import ROOT

    policies, key = Policies(default=Policy()), toys.key("s")
    rows = {key: toys.encode(Toy(3))}
    told = Gauges(10, "0", lambda: (), policies)
    for partition, n in enumerate((3, 4)):
        told.assigned(partition, read(rows.get, policies, ["s"], Fence()))
        told.written(partition, Changes({kinds.FENCE.key(): Fence().encode()}, {"s": {key: toys.encode(Toy(n))}}))
    plan = Plan(1, lambda *_: 0, lambda _: frozenset({(0, 0), (1, 0)}), lambda _: 0, [[0, 0]])
    (made,) = rescaled([{key: toys.encode(Toy(n))} for n in (3, 4)], plan)
    older = {key: seal(toys.letter[0], 9, b"")}
    try:
        formats.check(lambda prefix: (key, older[key]) if key.startswith(prefix) else None, policies)
        refused = ""
    except OtherFormat as exc:
        refused = str(exc)
    page = reference.state_format((ROOT / "docs" / "reference" / "state.md").read_text())
    followed = {
        "gauges": [line for line in exposed(told).splitlines() if "toys{" in line],
        "rescaled": toys.decode(made[key]).n,
        "inspected": [each.n for each in StateRows({0: {"s": rows}}).of(toys, "s").values()],
        "refused": refused,
        "called": shown(key),
        "page": [line for line in page.splitlines() if line.startswith("| `0` |")],
        "reference": [line for line in reference.pages()["metrics.md"].splitlines() if line.startswith("| `toys` |")],
    }
    print(json.dumps(followed))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
