"""The parts of an experiment: jobs that can run in any process, and a function that reports their results."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from state.calibrators import REGISTRY, Calibrator, make

#: A module's function with its arguments (`functools.partial`), so that it can be sent to another process.
Job = Callable[[], Any]


class TextTable(NamedTuple):
    """A table of the report, with cells of text."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


class Claim(NamedTuple):
    """A claim, table or figure of a paper beside what was found here; ``verdict`` is one of `VERDICTS`."""

    paper: str
    claim: str
    published: str
    found: str
    verdict: str


REPRODUCED, NOT_REPRODUCED, NOT_TRIED = VERDICTS = ("reproduced", "not reproduced", "not tried")


class Section(NamedTuple):
    """The results of an experiment."""

    #: Paragraphs: what was run, with its seeds.
    text: list[str]
    #: The results, one line each. They begin with "held" or "failed" if a theorem was checked.
    findings: list[str]
    #: Tables of the report; pictures are names of files beside the report, with captions.
    tables: list[TextTable]
    pictures: list[tuple[str, str]] = []  # noqa: RUF012 - a default that is never changed
    #: What was not run, and why.
    skipped: list[str] = []  # noqa: RUF012 - the same
    #: The claims of papers that it judges.
    claims: list[Claim] = []  # noqa: RUF012 - the same


class Experiment(NamedTuple):
    """An experiment: ``tell`` gets the results of the jobs in their order, and a directory for pictures."""

    name: str
    title: str
    jobs: Callable[[], Sequence[Job]]
    tell: Callable[[Sequence[Any], Path], Section]


def even(spec: str, *, buckets: int, grid: int, name: str, seed: int) -> Calibrator:
    """Return a calibrator as in the papers, with equal buckets and grid points i / N."""
    wanted: dict[str, object] = {"buckets": buckets, "grid": grid, "spacing": "uniform", "bucket_spacing": "uniform"}
    has = {option for part in spec.split("+") for option in REGISTRY[part].options}
    options = {option: value for option, value in wanted.items() if option in has}
    calibrator: Calibrator = make(spec, name=name, seed=seed, **options)
    return calibrator


def judged(held: bool) -> str:  # noqa: FBT001 - the one thing it says
    """Return the verdict of a claim that was tried."""
    return REPRODUCED if held else NOT_REPRODUCED


def verdict(held: int, of: int, what: str) -> str:
    """Return a finding about a theorem that was checked ``of`` times."""
    return f"{'held' if held == of else 'FAILED'}: {what} ({held} of {of})"
