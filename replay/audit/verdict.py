"""The findings of an audit, as JSON and in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.markup import escape

from replay.audit import account as accounts
from replay.audit.account import Account
from replay.audit.output_matcher import OutputDifference
from replay.audit.partition_verifier import Checked
from replay.console import Console


@dataclass
class Verdict:
    """What an audit found in one partition."""

    #: Number of the partition; and counts of compared records.
    partition: int
    checked: Checked
    #: The first difference, or why the check ended early; None if all was checked.
    difference: OutputDifference | None = None
    unable: str | None = None
    #: Records that operators skipped.
    skipped: list[str] = field(default_factory=list)
    #: Input records that an earlier audit had checked.
    resumed: int = 0
    #: Configurations in force, in order.
    in_force: list[dict[str, Any]] = field(default_factory=list)
    #: What was loaded as first rows; empty if nothing was.
    loaded: str = ""


def account(
    verdicts: Sequence[Verdict], unable: str | None, seconds: float, followed: tuple[Account, float] | None
) -> dict[str, Any]:
    """Return the findings as JSON has them.

    ``verdicts``: one for each partition.
    ``unable``: why not all was checked; None if all was.
    ``followed``: findings about records from their sources on, and the time it took; None if they were not followed.
    """
    totals = {each.name: sum(getattr(verdict.checked, each.name) for verdict in verdicts) for each in fields(Checked)}
    differences = [verdict.difference._asdict() for verdict in verdicts if verdict.difference]
    reasons = ([unable] if unable else []) + [verdict.unable for verdict in verdicts if verdict.unable]
    if followed is not None:
        differences = [each._asdict() for each in followed[0].differences] + differences
        reasons = followed[0].unable + reasons
    events = totals["forecasts"] + totals["outcomes"] - sum(verdict.resumed for verdict in verdicts)
    return {
        "checked": totals,
        "partitions": {str(verdict.partition): asdict(verdict.checked) for verdict in verdicts},
        "differences": differences,
        "unable": reasons,
        "skipped": [place for verdict in verdicts for place in verdict.skipped],
        "loaded": {str(verdict.partition): verdict.loaded for verdict in verdicts if verdict.loaded},
        "resumed": sum(verdict.resumed for verdict in verdicts),
        "in_force": {str(verdict.partition): verdict.in_force for verdict in verdicts},
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    } | ({} if followed is None else {"followed": accounts.shown(*followed)})


def tell(console: Console, account: Mapping[str, Any]) -> None:
    """Print the result of `account`."""

    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    checked = account["checked"]
    for found in account["differences"]:
        at = "" if found["offset"] is None else f" offset {found['offset']}"
        event = "" if found["event_id"] is None else f" event {found['event_id']}"
        line(f"[red]differs[/]  {found['topic']}/{found['partition']}{at}{escape(event)}: {escape(found['what'])}")
        for name, (served, derived) in found["fields"].items():
            line(f"  {escape(name)}: served {escape(str(served))}, derived {escape(str(derived))}")
    for place in account["skipped"]:
        line(f"[yellow]left out[/]  {escape(place)}")
    for reason in account["unable"]:
        line(f"[yellow]not checked[/]  {escape(reason)}")
    _print_began(line, account)
    earlier = f", {account['resumed']:,} of them by earlier audits" if account["resumed"] else ""
    line(
        f"{checked['forecasts']:,} forecasts and {checked['outcomes']:,} outcomes folded in "
        f"{account['seconds']:.1f} s{earlier}"
    )
    if checked["erased"]:
        line(f"{checked['erased']:,} of the outcomes erased an event, or came for one that was erased")
    line(
        f"bit for bit as derived: {checked['calibrated']:,} calibrated, {checked['resolved']:,} resolved, "
        f"{checked['dead_letters']:,} dead letters, {checked['copies']:,} copies"
        + (f", {checked['raw_answers']:,} raw answers" if checked["raw_answers"] else "")
    )
    if "followed" in account:
        _print_followed(line, account["followed"])
    if checked["waiting"] or checked["unsettled"]:
        line(
            f"behind the last entries of the journal, and not judged yet: {checked['waiting']:,} inputs, "
            f"{checked['unsettled']:,} outputs"
        )


def _print_began(line: Callable[[str], None], account: Mapping[str, Any]) -> None:
    for partition, what in account["loaded"].items():
        said = f"partition {partition} began with {escape(what)}"
        line(f"{said}: all that came behind is judged, these rows are not")
    for partition, found in account["in_force"].items():
        for each in found[1:]:
            since = f"from record {each['applied']:,} on, by {escape(str(each['owner']))}"
            line(f"partition {partition}: configuration {each['configuration'][:8]} {since}")


def _print_followed(line: Callable[[str], None], followed: Mapping[str, Any]) -> None:
    source, router = followed["sources"], followed["router"]
    line(
        f"followed in {followed['seconds']:.1f} s from the sources: {source['records']:,} records, "
        f"{source['sent']:,} sent on, {source['dead']:,} dead, {source['passed']:,} passed over; "
        f"{source['waiting']:,} not committed yet, {source['gone']:,} not there any more; "
        f"{source['copies']:,} sent again"
    )
    line(
        f"through the router: {router['routes']:,} routes and {router['labels']:,} labels became "
        f"{router['outcomes']:,} outcomes and {router['dead_letters']:,} dead letters; {router['waiting']:,} wait, "
        f"{router['copies']:,} sent again"
    )
    if source["loaded"]:
        line(
            f"{source['loaded']:,} events were loaded from a table, and are not judged from the sources: what became "
            "of their later labels is"
        )
    if source["of_the_moment"]:
        line(
            f"{source['of_the_moment']:,} dead letters are for what intake's clock or the registry said then, which "
            "nobody can ask any more"
        )
    if source["unaware"]:
        line(
            f"{source['unaware']:,} records were made of what an operator left out, by an intake that did not know of "
            "it yet: such forecasts are answered, and labels may not reach them"
        )
    more = source["differences"] + router["differences"]
    if more:
        line(f"[red]{more:,} differences between the sources and the inputs of the workers[/]")
