"""``python -m cli.reference``: the reference page, written from the settings and catalogues themselves.

With a file, ``python -m cli.reference docs/state-format.md``, the table of rows in that page is written anew.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from struct import calcsize
from typing import Final

from state import kinds, rescale  # noqa: F401 - they declare rows
from state.calibrators import REGISTRY, VECTORS, kind
from state.fence import FATES
from state.kind import KINDS, Part
from streams.config.settings import Settings
from streams.metrics.catalogue import CATALOGUE, PROCESS
from streams.records import output_schemas, skips  # noqa: F401 - declares rows
from streams.records.decoding import REASONS

INTRODUCTION = """\
# Reference

Made by `make docs` from the program itself; a test fails when it is out of date.
"""

CHAINS = """
`front+back` feeds the answers of the first to the second, for example `platt+minimax`; up to four parts form a chain,
`platt+histogram+minimax`. An option goes to every part that has it.
"""

OUTPUTS = """
## Records that come out

In JSON, a field that does not apply is left out. In Avro it is null: types with a `?` may be.
`trueup schema calibrated` prints the schema; [connect your topics](sources.md#outputs-with-a-schema) has more.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION, "## Settings\n\nEnvironment variables. An unknown one ends the command with status 78.\n"]
    parts += _table(
        ("variable", "meaning", "default"), [(f"`{n}`", text, f"`{d}`") for n, text, d in Settings.described()]
    )
    parts += ["\n## Calibrators\n"]
    rows = [
        (
            f"`{name}`",
            f"`{kind(name)}`",
            (each.__doc__ or "").split("\n")[0],
            "; ".join(
                f"`{option}`: {o.meaning}; {o.allowed}, default {'none' if o.default == () else o.default}"
                for option, o in each.options.items()
            )
            or "none",
        )
        for name, each in sorted((REGISTRY | VECTORS).items())
    ]
    parts += _table(("name", "forecast", "what it is", "options"), rows)
    parts += [CHAINS]
    named = "Each with the prefix `trueup_` and the label `app`, which is `TRUEUP_APP_ID`; counters end in `_total`."
    parts += [f"\n## Metrics\n\n{named}\n"]
    parts += _table(
        ("name", "kind", "labels", "meaning", "what to do"),
        [(f"`{m.name}`", m.kind, ", ".join(m.labels) or "–", m.help, m.remedy or "–") for m in CATALOGUE.values()],
    )
    parts += [
        "\nBeside them, of the process, and of `trueup-readers`, its child: "
        + ", ".join(f"`{name}`" for name in PROCESS)
        + "."
    ]
    parts += [OUTPUTS]
    for label in output_schemas.NAMES:
        parts += [f"\n### {label}\n"]
        found = [(f"`{json}`", f"`{avro}`", kind, said) for json, avro, kind, said in output_schemas.rows(label)]
        parts += _table(("JSON", "Avro", "type in Avro", "meaning"), found)
    parts += ["\n## Reasons of dead letters\n"]
    parts += _table(("reason", "meaning"), [(f"`{reason}`", text) for reason, text in REASONS.items()])
    parts += [
        "\n## Fates\n\nCounted in the fence of each partition, exactly once: " + ", ".join(f"`{f}`" for f in FATES)
    ]
    return "\n".join(parts) + ".\n"


#: The head of the table of rows.
ROWS: Final = ("kind", "key", "rows", "version", "in a rescale", "metrics")


def state_format(page: str) -> str:
    """Return the page on the state format with its table of rows as they are declared, see `state.kind`."""
    before, _, after = page.partition("| " + " | ".join(ROWS) + " |\n")
    if not after:
        raise ValueError("the page has no table of rows")
    found = [
        (
            f"`{kind.letter.decode()}`",
            " · ".join(
                [f"`{kind.letter.decode()}`", *map(_part, sorted(kind.parts, key=lambda part: not part.format))]
            ),
            kind.rows,
            ", ".join(map(str, sorted(kind.forms))),
            kind.moves.value,
            "yes" if kind.shown else "",
        )
        for _, kind in sorted(KINDS.items())
    ]
    rest = after[after.index("\n\n") :]
    return before + "\n".join(_table(ROWS, found)) + rest


def _part(part: Part) -> str:
    n = calcsize(">" + part.format)
    return f"{part.name} ({n} byte{'s' if n > 1 else ''})" if n else part.name


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def main(*names: str) -> None:
    """Write the reference page to the standard output, or the table of rows into the pages of these names."""
    for name in names:
        written = Path(name)
        written.write_text(state_format(written.read_text()))
    if not names:
        sys.stdout.write(page())


if __name__ == "__main__":
    main(*sys.argv[1:])
