"""The judge of a campaign: derives again what the topics must hold, and compares.

``trueup audit`` does so for every output, as its users have it done; with sources, for all that intake and router sent,
too. It does not look at the rows of the state, so `World.judge` compares those with a second fold. Behind sources, the
last label of every event is compared without any engine.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

import cli.main
from tests.e2e.world import World
from tests.forks import ended

#: Longest time that an audit takes, s.
PATIENCE = 3600.0


@dataclass
class Verdict:
    """What was found; verdicts of campaigns add up."""

    #: Input records of workers, and forecasts among them.
    records: int = 0
    events: int = 0
    #: Records of source topics that intake has committed.
    source_records: int = 0
    #: Records that were sent once more after a crash, byte for byte the same, which is allowed: outputs of workers, and
    #: what intake and router sent.
    copies: int = 0
    source_copies: int = 0
    #: A sentence for each of the first things that are lost, doubled or other than derived.
    findings: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was lost or doubled and no answer differs."""
        return not self.findings

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.records + other.records,
            self.events + other.events,
            self.source_records + other.source_records,
            self.copies + other.copies,
            self.source_copies + other.source_copies,
            self.findings + other.findings,
        )


def judge(world: World, *, sources: bool = False) -> Verdict:
    """Judge what workers left; with ``sources``, all stages. All that was sent must have been applied."""
    command = "audit", "--json", *(["--sources"] if sources else [])
    audit = ended(cli.main.main, command, {**os.environ, **world.environment}, PATIENCE)
    try:
        account = orjson.loads(audit.stdout.splitlines()[-1])
    except (IndexError, orjson.JSONDecodeError):
        return Verdict(findings=[f"trueup audit ended with {audit.returncode}: {audit.stderr[-2000:]}"])
    findings = [*_differing(account), *_differing_rows(world)]
    if audit.returncode and not findings:
        findings = [f"trueup audit ended with {audit.returncode}: {audit.stderr[-2000:]}"]
    checked = account["checked"]
    followed = account.get("followed", {"sources": {"records": 0, "copies": 0}, "router": {"copies": 0}})
    return Verdict(
        checked["forecasts"] + checked["outcomes"],
        checked["forecasts"],
        followed["sources"]["records"],
        checked["copies"],
        followed["sources"]["copies"] + followed["router"]["copies"],
        findings,
    )


def _differing(account: dict[str, Any]) -> Iterator[str]:
    for each in account["differences"]:
        yield f"{each['topic']}/{each['partition']} offset {each['offset']} event {each['event_id']}: {each['what']}"
    yield from account["unable"]
    for what in ("waiting", "unsettled"):
        if account["checked"][what]:
            yield f"{account['checked'][what]:,} records are {what}"


def _differing_rows(world: World) -> Iterator[str]:
    """Judge one partition after the other: only one is in memory."""
    for partition in range(world.partitions):
        try:
            world.judge(partition)
        except AssertionError as exc:
            yield f"partition {partition}: {str(exc)[:2000]}"
        print(f"judged partition {partition}", file=sys.stderr, flush=True)
