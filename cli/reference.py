"""``python -m cli.reference``: writes the pages of `docs/reference` from the declarations of the program itself."""

from collections.abc import Sequence
from pathlib import Path
from struct import calcsize
from typing import Final

from cli import main as command_line
from cli.options import STATUSES, commands
from state import kinds, rescale  # noqa: F401 - they declare rows
from state.calibrators import REGISTRY, VECTORS, kind
from state.kind import KINDS, Form, KeyPart
from streams.config import stream_config
from streams.config.settings import Settings
from streams.metrics.catalogue import CATALOGUE, PROCESS, STREAM_SERIES
from streams.records import output_schemas, skips  # noqa: F401 - declares rows
from streams.records.decoding import REASONS
from streams.sources import config
from streams.sources.fields import CARRIED, FIELDS, FORECAST

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"

INTRODUCTION: Final = """\
# {title}

Made by `make docs` from the program itself; a test fails when it is out of date.
"""

SOURCES: Final = """
## Sources

A `[sources.NAME]` table maps records of your own: [connect your topics](../how-to/sources.md) says how.
"""

CHAINS: Final = """
`front+back` feeds the answers of the first to the second, for example `platt+minimax`; up to four parts form a chain,
`platt+histogram+minimax`. An option goes to every part that has it.
"""

OUTPUTS: Final = """
In JSON, a field that does not apply is left out. In Avro it is null: types with a `?` may be.
`trueup schema calibrated` prints the schema: see [outputs with a schema](../how-to/sources.md#outputs-with-a-schema).
"""


def pages() -> dict[str, str]:
    """Return the text of each page that is entirely generated, by its name."""
    made = {
        "settings.md": ("Settings", _settings()),
        "streams-file.md": ("Streams file", _streams_file()),
        "commands.md": ("Commands", _commands()),
        "records.md": ("Records that come out", _records()),
        "metrics.md": ("Metrics", _metrics()),
    }
    return {name: "\n".join([INTRODUCTION.format(title=title), *text]) + "\n" for name, (title, text) in made.items()}


def _settings() -> list[str]:
    described = Settings.described()
    names = [name for name, *_ in described]
    files = [f"{name}_FILE" for name in names if f"{name}_FILE" in names]
    return [
        "Environment variables. An unknown one ends the command with status 78.",
        f"A secret may also be in a file, of one line, which another variable names: {_named(files)}.\n",
        *_table(
            ("variable", "meaning", "default"),
            [(f"`{name}`", text, f"`{default}`") for name, text, default in described if name not in files],
        ),
    ]


def _streams_file() -> list[str]:
    options = [
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
    return [
        "`TRUEUP_STREAMS` names this TOML file: [configure streams](../how-to/streams.md). It has all keys.\n",
        f"```toml\n{stream_config.example()}```",
        SOURCES,
        *_table(
            ("source of", "keys"),
            [
                (role, _named((*config.SETTINGS, *(CARRIED if role == FORECAST else ()), *FIELDS[role])))
                for role in FIELDS
            ],
        ),
        "\n## Calibrators\n",
        *_table(("name", "forecast", "what it is", "options"), options),
        CHAINS.rstrip("\n"),
    ]


def _commands() -> list[str]:
    named = [(f"`trueup {name}`", help_) for name, help_ in commands(command_line.parser())]
    return [
        "`--help` of each says its options. All have `--brokers`, `--streams` and `--quiet`.\n",
        *_table(("command", "what it does"), named),
        "\n## Exit statuses\n",
        *_table(("status", "meaning"), [(str(status), meaning) for status, meaning in STATUSES.items()]),
    ]


def _records() -> list[str]:
    parts = [OUTPUTS.strip("\n")]
    listed: set[tuple[str, ...]] = set()
    for label in output_schemas.NAMES:
        parts += [f"\n## {label}\n"]
        rows = output_schemas.rows(label)
        if again := [avro for _, avro, *_ in filter(listed.__contains__, rows)]:
            parts += [f"With the same meaning as above: {_named(again)}.\n"]
        found = [(f"`{json}`", f"`{avro}`", *rest) for json, avro, *rest in rows if (json, avro, *rest) not in listed]
        parts += _table(("JSON", "Avro", "type in Avro", "meaning"), found)
        listed.update(rows)
    parts += ["\n## Reasons of dead letters\n"]
    return parts + _table(("reason", "meaning"), [(f"`{reason}`", text) for reason, text in REASONS.items()])


def _metrics() -> list[str]:
    return [
        "Each with the prefix `trueup_` and the label `app`, which is `TRUEUP_APP_ID`; counters end in `_total`.\n",
        *_table(
            ("name", "kind", "labels", "meaning", "what to do"),
            [(f"`{m.name}`", m.kind, ", ".join(m.labels) or "–", m.help, m.remedy or "–") for m in CATALOGUE.values()],
        ),
        f"\nA stream has at most {STREAM_SERIES} series.",
        f"\nBeside them, of the process, and of `trueup-readers`, its child: {_named(PROCESS)}.",
    ]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


#: The head of the table of rows.
ROWS: Final = ("kind", "key", "rows", "version", "payload", "in a rescale", "metrics")


def state_format(page: str) -> str:
    """Return the page on the state format, with the table of declared rows, see `state.kind`."""
    before, _, after = page.partition("| " + " | ".join(ROWS) + " |\n")
    if not after:
        raise ValueError("the page has no table of rows")
    found = [
        (
            f"`{kind.letter.decode()}`",
            " · ".join(
                [
                    "a part of `s`" if kind.part else f"`{kind.letter.decode()}`",
                    *map(_part, sorted(kind.parts, key=lambda part: not part.format)),
                ]
            ),
            kind.rows,
            ", ".join(map(str, sorted(kind.forms))),
            ", ".join(sorted({_described(form) for form in kind.forms.values()})),
            kind.moves.value,
            "yes" if kind.shown else "",
        )
        for _, kind in sorted(KINDS.items())
    ]
    rest = after[after.index("\n\n") :]
    return before + "\n".join(_table(ROWS, found)) + rest


def _described(form: Form) -> str:
    """Return where the payload of a form is described: in the class that it holds, beside its code, or here."""
    modules = (each.__module__ or "builtins" for each in (form.type, form.encode, form.decode))
    found = next((each for each in modules if each != "builtins"), "")
    return f"`{found.replace('.', '/')}.py`" if found else "below"


def _part(part: KeyPart) -> str:
    n = calcsize(">" + part.format)
    return f"{part.name} ({n} byte{'s' if n > 1 else ''})" if n else part.name


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def main() -> None:
    """Write the pages, and the table of rows in the page on the state format."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    state = FOLDER / "state.md"
    state.write_text(state_format(state.read_text()))


if __name__ == "__main__":
    main()
