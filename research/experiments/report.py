"""Write the report: one Markdown file, with pictures beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agents import __version__
from research.experiments.absent import ABSENT
from research.experiments.base import Claim, Section, TextTable
from research.experiments.registry import REGISTRY
from streams.atomic_file import written


def write(sections: Mapping[str, Section], out: Path) -> Path:
    """Write ``report.md`` into a directory that exists and return its path; equal sections give equal bytes."""
    lines = [
        "# Experiments",
        "",
        (
            f"Made by `python -m research.experiments`, trueup {__version__}. Every seed stands where it is used; "
            "nothing depends on the clock or on the number of processes, so another run on the same versions gives "
            "the same file."
        ),
        "",
    ]
    claims = [claim for section in sections.values() for claim in section.claims]
    lines += [*markdown(_table([*claims, *absent(claims)])), ""]
    for name, section in sections.items():
        lines += [f"- [{REGISTRY[name].title}](#{name})", *(f"  - {finding}" for finding in section.findings)]
    for name, section in sections.items():
        lines += ["", f'<a id="{name}"></a>', f"## {REGISTRY[name].title}", ""]
        lines += [f"Again: `python -m research.experiments --only {name}`", ""]
        for paragraph in section.text:
            lines += [paragraph, ""]
        lines += [*(f"- {finding}" for finding in section.findings), ""]
        for picture, shows in section.pictures:
            lines += [f"![{shows}]({picture})", ""]
        for table in section.tables:
            lines += [*markdown(table), ""]
        if section.skipped:
            lines += ["Skipped:", "", *(f"- {note}" for note in section.skipped), ""]
    path = out / "report.md"
    with written(path) as file:
        file.write(("\n".join(lines).rstrip() + "\n").encode())
    return path


def absent(claims: Sequence[Claim]) -> list[Claim]:
    """Return what nothing tried, of the papers that claims are of."""
    return [each for each in ABSENT if each.paper in {claim.paper for claim in claims}]


def _table(claims: Sequence[Claim]) -> TextTable:
    head = ("paper", "claim, table or figure", "published", "here", "verdict")
    rows = [
        tuple(claim)
        for paper in dict.fromkeys(each.paper for each in claims)
        for claim in claims
        if claim.paper == paper
    ]
    return TextTable("Papers, claim by claim", head, rows)


def markdown(table: TextTable) -> list[str]:
    """Return the lines of a table, its title before it and its note after."""
    rows = [table.head, tuple("---" for _ in table.head), *table.rows]
    note = ["", table.note] if table.note else []
    return [
        f"**{table.title}**",
        "",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
        *note,
    ]
