"""A replay, from its request to its result."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import orjson

from agents import __version__
from replay import bootstrap, engine_output, export_state, score
from replay.comparison import compared
from replay.configuration import Configuration
from replay.engine_output import EngineOutput
from replay.measure import VOLUME
from replay.player import Done, parts, play
from replay.report import pdf
from replay.report.page import page
from replay.result import ReplayPace, Result
from replay.sources.record import TOPICS, ReplaySource
from replay.sources.topics import TopicSource
from streams.atomic_file import written
from streams.config.settings import Settings, SettingsError

#: Called with the name of the step, how much of it is done, and its whole size.
Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """The input and the outputs of a replay."""

    #: Where the records are.
    source: ReplaySource
    #: Configurations, one or more.
    configurations: Sequence[Configuration]
    #: See `replay.result.Result.taken`.
    taken: Sequence[str] = ()
    #: The most processes.
    processes: int = 1
    #: Volume of `replay.figures.Scorecard.recall`, in (0, 1].
    volume: float = VOLUME
    #: Length of the bootstrap's blocks; None: the length from `replay.bootstrap.plan`.
    block: int | None = None
    resamples: int = bootstrap.RESAMPLES
    #: Files to write: the manifest, and `replay.report` as HTML and as PDF.
    manifest: Path | None = None
    report: Path | None = None
    pdf: Path | None = None
    #: For the report: the command line, and name and version of the model.
    command: str = ""
    model: str = ""
    #: Files to write: calibrated records, dead letters.
    output: Path | None = None
    letters: Path | None = None
    #: A topic for calibrated records.
    to_topic: str | None = None
    #: The application id of a worker that will go on from the end of the replay.
    write_state: str | None = None

    def __post_init__(self) -> None:
        if (self.answers or self.write_state) and len(self.configurations) > 1:
            raise SettingsError(
                "--output, --to-topic and --write-state take one configuration: give one --calibrator or --streams"
            )
        if self.write_state is not None and not isinstance(self.source, TopicSource):
            raise SettingsError("--write-state needs topics: a worker goes on from their offsets, files have none")

    @property
    def answers(self) -> bool:
        """Whether calibrated records are wanted."""
        return bool(self.output or self.to_topic)

    @property
    def run(self) -> str:
        """Name of the replay, twelve hex digits. It is the same for the same records, configurations and options."""
        made = {
            "version": __version__,
            "manifest": self.source.manifest(),
            "configurations": [[each.name, _recipes(each)] for each in self.configurations],
            "options": [self.volume, self.block, self.resamples],
        }
        return blake2b(orjson.dumps(made, option=orjson.OPT_SORT_KEYS), digest_size=6).hexdigest()


def _recipes(configuration: Configuration) -> list[object]:
    policies = configuration.policies
    default = policies.default
    recipes: list[object] = [[pattern, policy.recipe, policy.labels] for pattern, policy in policies.patterns]
    return [*recipes, default and [default.recipe, default.labels], policies.early_ttl_ms]


def replay(request: Request, environment: Mapping[str, str], show: Show = lambda *_: None) -> tuple[Result, ReplayPace]:
    """Replay, write what is asked for, and return the result.

    An interrupted replay leaves no file, and no state that a worker would accept.

    Raises SettingsError or TopicsError if a request is impossible, mostly before anything is read.
    """
    settings = Settings.from_env(environment)
    source = request.source
    if request.to_topic is not None:
        engine_output.check(settings, request.to_topic, source.partitions)
    successor = request.write_state and Settings.from_env({**environment, "TRUEUP_APP_ID": request.write_state})
    if successor:
        group = export_state.opened(successor, source.partitions)
        if isinstance(source, TopicSource):
            source = export_state.answered(settings, source)
            request = replace(request, source=source)
    written_to = [request.manifest, request.report, request.pdf, request.output, request.letters]
    paths = [path.resolve() for path in written_to if path is not None]
    for path in paths:
        if not path.parent.is_dir():
            raise SettingsError(f"cannot write {path}: there is no such directory")
        if paths.count(path) > 1:
            raise SettingsError(f"two options write {path}: name two files")
    began = perf_counter()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="trueup-replay-")))
        source = source.ready(directory)
        groups = _groups(request.configurations)
        made = parts(
            source,
            groups,
            settings,
            directory / "parts",
            letters=request.letters is not None,
            answers=request.answers,
            rows=request.write_state is not None,
        )
        done = play(made, request.processes, lambda read: show("replaying", read, source.size))
        seconds = perf_counter() - began
        show("scoring", 0, 0)
        result = _result(request, groups, done)
        folded = [part.folded for part in done]
        _write(request, settings, folded, result, show)
        if successor and isinstance(request.source, TopicSource):
            show("writing the state", 0, 0)
            export_state.write(successor, request.source, group, folded)
    return result, ReplayPace(seconds, min(request.processes, source.partitions), result.records / seconds)


def _groups(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Group the configurations that read records in the same way."""
    found: dict[tuple[object, ...], list[Configuration]] = defaultdict(list)
    for each in configurations:
        found[each.reading].append(each)
    return list(found.values())


def _result(request: Request, groups: Sequence[Sequence[Configuration]], done: Sequence[Done]) -> Result:
    boards = [score.board([part.played[i] for part in done], group, request.volume) for i, group in enumerate(groups)]
    found = compared(boards, request.block, request.resamples, request.volume)
    order = {each.name: n for n, each in enumerate(request.configurations)}
    contenders = [contender for board in boards for contender in board.contenders]
    contenders.sort(key=lambda contender: order[contender.name])
    starts, ends = ([at for part in done if (at := getattr(part, name)) is not None] for name in ("start_ms", "end_ms"))
    return Result(
        version=__version__,
        run=request.run,
        manifest=request.source.manifest(),
        taken=request.taken,
        records=sum(part.played[0].records for part in done),
        start_ms=min(starts, default=None),
        end_ms=max(ends, default=None),
        dead=score.dead(part.played[0] for part in done),
        read=_by_topic(part.read for part in done),
        out_of_order=_by_topic(part.out_of_order for part in done),
        contenders=contenders,
        volume=request.volume,
        **vars(found),
    )


def _by_topic(counts: Iterable[tuple[int, int]]) -> dict[str, int]:
    return dict(zip(TOPICS, map(sum, zip(*counts, strict=True)), strict=True))


def _write(request: Request, settings: Settings, folded: Sequence[EngineOutput], result: Result, show: Show) -> None:
    if request.output is not None:
        show(f"writing {request.output}", 0, 0)
        with written(request.output) as file:
            file.writelines(answer.value + b"\n" for answer in engine_output.answers(folded))
    if request.letters is not None:
        with written(request.letters) as file:
            for part in folded:
                with (part.directory / "dead.jsonl").open("rb") as letters:
                    shutil.copyfileobj(letters, file)
    if request.manifest is not None:
        with written(request.manifest) as file:
            file.write(orjson.dumps(result.manifest, option=orjson.OPT_INDENT_2) + b"\n")
    shown = page(result, request.command, request.model) if request.report or request.pdf else b""
    if request.report is not None:
        with written(request.report) as file:
            file.write(shown)
    if request.pdf is not None:
        show(f"printing {request.pdf}", 0, 0)
        with written(request.pdf) as file:
            file.write(pdf.printed(shown))
    if request.to_topic is not None:
        show(f"writing to {request.to_topic}", 0, 0)
        engine_output.send(settings, request.to_topic, result.run, folded)
