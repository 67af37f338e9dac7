"""What an experiment is: jobs that can run in any process, and how their results are told."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from state.calibrators import REGISTRY, Calibrator, make
from state.calibrators.registry import check

#: A function of a module with its arguments (`functools.partial`), so that another process can be sent it.
Job = Callable[[], Any]


class TextTable(NamedTuple):
    """A table of the report; cells are text."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


class Section(NamedTuple):
    """What an experiment found.

    Attributes
    ----------
    text
        Paragraphs: what was run, with its seeds.
    findings
        What came of it, a line each, "held" or "failed" first where a theorem was checked.
    tables, pictures
        Pictures are names of files beside the report, with what they show.
    skipped
        What was not run, and why.
    """

    text: list[str]
    findings: list[str]
    tables: list[TextTable]
    pictures: list[tuple[str, str]] = []  # noqa: RUF012 - a default that nobody changes
    skipped: list[str] = []  # noqa: RUF012 - the same


class Experiment(NamedTuple):
    """An experiment: ``tell`` gets what the jobs returned, in their order, and a directory for pictures."""

    name: str
    title: str
    jobs: Callable[[], Sequence[Job]]
    tell: Callable[[Sequence[Any], Path], Section]


def usable(specs: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the specifications whose calibrators are registered, and a note for each other."""
    known, notes = [], []
    for spec in specs:
        try:
            check(spec, {})
        except ValueError:
            notes.append(f"`{spec}`: no such calibrator is registered")
        else:
            known.append(spec)
    return known, notes


def even(spec: str, *, buckets: int, grid: int, name: str, seed: int) -> Calibrator:
    """Return a calibrator as the papers have it: equal buckets, and points i / N."""
    wanted: dict[str, object] = {"buckets": buckets, "grid": grid, "spacing": "uniform", "bucket_spacing": "uniform"}
    has = {option for part in spec.split("+") for option in REGISTRY[part].options}
    return make(spec, name=name, seed=seed, **{option: value for option, value in wanted.items() if option in has})


def verdict(held: int, of: int, what: str) -> str:
    """Return a finding about a theorem that was checked ``of`` times."""
    return f"{'held' if held == of else 'FAILED'}: {what} ({held} of {of})"
