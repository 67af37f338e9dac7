"""The command line: what it accepts, what it says, and the status it ends with."""

import asyncio
import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from agents import __version__, worker
from agents.worker import FAILED, MISCONFIGURED
from cli import main, show
from cli.options import commands
from lab import broker
from replay.audit import auditor
from state.policy import DEFAULT_CALIBRATOR
from streams.config import effective_config
from streams.config.settings import Settings
from streams.kafka import remarks, topics
from streams.records.output_schemas import NAMES
from streams.records.output_schemas import text as schema_text
from tests.commands import Trueup

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [words for words, _ in commands(main.parser())]


class Called:
    """Stands for what a command runs: remembers how it was called, and returns a status."""

    def __init__(self, status: Any = 0) -> None:
        self._status = status
        self.how: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.how.append((arguments, named))
        if isinstance(self._status, BaseException):
            raise self._status
        return self._status

    async def later(self, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return self(*arguments, **named)


# -- help and arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("init", "did you mean 'trueup streams init'?"),
        ("demo", "did you mean 'trueup dev demo'?"),
        ("streams shwo", "did you mean 'trueup streams show'?"),
        ("config chek", "did you mean 'trueup config check'?"),
        ("xyzzy", "'dev')\n"),
        ("replay --labell y", "trueup replay: error: unrecognized arguments: --labell y"),
    ],
)
def test_what_is_no_command_names_the_one_that_was_meant(given: str, said: str, trueup: Trueup) -> None:
    ended = trueup(given)
    assert (ended.status, said in ended.err) == (2, True), ended.err
    assert ended.err.startswith(f"usage: trueup {given.split(maxsplit=1)[0] if ' ' in given else '['}")


def test_help_and_completion_know_every_command(trueup: Trueup) -> None:
    shown = trueup("--help")
    assert shown.status == 0
    assert trueup("").out == shown.out
    assert all(f"\n    {words.split()[0]}" in shown.out for words in COMMANDS), shown.out
    for shell in ("bash", "zsh"):
        completion = trueup(f"--completion {shell}")
        assert completion.status == 0
        assert all(word in completion.out for words in COMMANDS for word in words.split())
    assert trueup("--version") == (0, f"trueup {__version__}\n", "")


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_and_what_all_have(words: str, trueup: Trueup) -> None:
    shown = trueup(f"{words} --help")
    assert shown.status == 0
    assert f"usage: trueup {words}" in shown.out
    assert all(option in shown.out for option in ("--brokers", "--streams", "--quiet", "exit status: 0 done"))


def test_every_command_has_what_carries_it_out() -> None:
    def runs(parser: Any) -> Iterator[str]:
        below = parser.get_default("commands")
        for each in below.choices.values() if below else ():
            yield from each.get_default("run").args if each.get_default("run") else ()
            yield from runs(each)

    found = list(runs(main.parser()))
    assert len(found) == len(COMMANDS)
    assert all(callable(resolve_name(each)) for each in found)


def test_help_of_run_lists_every_setting_with_its_default(trueup: Trueup) -> None:
    shown = " ".join(trueup("run --help").out.split())
    for name, text, default in Settings.described():
        assert f"{name} {text} (default: {default})" in shown


def test_an_option_stands_for_its_setting(trueup: Trueup, tmp_path: Path) -> None:
    (file := tmp_path / "streams.toml").write_text('[streams."fraud-*"]\ncalibrator = "platt"\n')
    trueup.set(BROKERS="kafka:9092")
    found = trueup("config check --json -q --brokers kafka-7:9092 --streams", file).json
    assert found["settings"]["TRUEUP_BROKERS"] == "kafka-7:9092"
    assert found["streams"]["fraud-*"]["calibrator"] == "platt"
    assert logging.root.level == logging.ERROR
    assert os.environ["TRUEUP_BROKERS"] == "kafka:9092", "what the command sets is taken back"
    assert "TRUEUP_STREAMS" not in os.environ


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("serve", 2, "invalid choice: 'serve'"),
        ("topics", 2, "the following arguments are required: COMMAND"),
        ("topics delete", 2, "invalid choice: 'delete'"),
        ("topics create --partitions 0", 2, "--partitions: must be at least 1"),
        ("topics create --replication -3", 2, "--replication: must be at least 1"),
        ("topics check --partitions 4", 2, "unrecognized arguments"),
        ("dev demo --rows many", 2, "--rows: invalid"),
        ("dev broker --port 0", 2, "--port: must be at least 1"),
        ("run worker now", 2, "unrecognized arguments: now"),
        ("streams show a b", 2, "unrecognized arguments: b"),
        ("load", MISCONFIGURED, "load needs --table FILE, or --forecasts FILE and --outcomes FILE"),
        ("load --id id", MISCONFIGURED, "--id is for a table"),
        ("load --table x.csv --score p --label y --time t", MISCONFIGURED, "load needs --id"),
        ("forget --key=", MISCONFIGURED, "--key is empty"),
        ("forget --scope shop", MISCONFIGURED, "name events, or --key KEY"),
        ("letters --dry-run", MISCONFIGURED, "are for 'trueup letters send'"),
        ("letters --last soon", MISCONFIGURED, "--last: 'soon' is not a duration"),
        ("topics create --retention 1w", MISCONFIGURED, "'1w'"),
    ],
)
def test_arguments_that_are_not_allowed_or_lack_are_refused_with_the_reason(
    command: str, status: int, said: str, trueup: Trueup
) -> None:
    ended = trueup(command)
    assert ended.status == status
    assert said in ended.err


# -- statuses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, FAILED, MISCONFIGURED])
def test_the_worker_ends_with_its_own_status_under_the_settings_that_are_set(status: int, trueup: Trueup) -> None:
    trueup.set(APP_ID="mine", LOG_LEVEL="warning")
    trueup.patch.setattr(worker, "run", called := Called(status))
    assert trueup("run worker").status == status
    (((settings,), _),) = called.how
    assert settings.app_id == "mine"
    assert logging.root.level == logging.WARNING


def test_ctrl_c_is_no_traceback(trueup: Trueup) -> None:
    trueup.patch.setattr(broker, "serve", Called(KeyboardInterrupt()))
    assert trueup("dev broker") == (130, "", "")


@pytest.mark.parametrize("defect", [RuntimeError("a defect"), BrokenPipeError("of a connection")], ids=repr)
def test_a_defect_and_a_connection_that_breaks_are_tracebacks(defect: Exception, trueup: Trueup) -> None:
    trueup.patch.setattr(worker, "run", Called(defect))
    with pytest.raises(type(defect), match=str(defect)):
        trueup("run worker")


def test_help_does_not_wait_for_libraries_that_only_stages_and_few_sources_need() -> None:
    made = "import sys; from cli import main; main.parser(); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, timeout=180, check=True
    )
    assert not {"aiohttp", "faust", "google.protobuf", "grpc_tools", "pyarrow", "rich"} & {*ended.stdout.split()}


@pytest.mark.parametrize("arguments", [["config", "check"], ["run", "--help"]])
def test_a_reader_that_goes_ends_a_command_quietly(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        env={"PATH": os.environ["PATH"]},
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=180,
        check=False,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (main.UNREAD, "")


@pytest.mark.parametrize(
    "defect",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
    ],
    ids=repr,
)
def test_a_full_disk_and_no_place_for_temporary_files_are_one_line_with_the_remedy(
    defect: OSError, trueup: Trueup
) -> None:
    trueup.patch.setattr(worker, "run", Called(defect))
    ended = trueup("run worker")
    assert ended.status == MISCONFIGURED
    assert ended.error.startswith(
        f"trueup: {defect.strerror}: make room where the output and temporary files go; TMPDIR"
    )


def test_a_path_that_cannot_be_used_is_one_line_that_names_it(trueup: Trueup, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = trueup("dev broker --data-dir", tmp_path / "file")
    assert (ended.status, ended.error) == (MISCONFIGURED, f"trueup: cannot use {tmp_path}/file/tmp: Not a directory")


@pytest.mark.skipif(sys.platform != "linux", reason="asks for /dev/full")
@pytest.mark.parametrize(
    ("redirected", "status", "said"), [("> /dev/full", MISCONFIGURED, "trueup: No space left"), ("<&- >&- 2>&-", 0, "")]
)
def test_an_output_that_is_full_or_closed_is_no_traceback(redirected: str, status: int, said: str) -> None:
    ended = subprocess.run(  # noqa: S602 - a shell redirects
        f"exec {sys.executable} -m cli.main config check {redirected}",
        shell=True,
        env={"PATH": os.environ["PATH"]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == status
    assert ended.stderr.startswith(said)
    assert len(ended.stderr.splitlines()) == bool(said)


# -- settings that are not allowed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name", "value", "said"),
    [
        ("run", "BROKER", "kafka:9092", "TRUEUP_BROKER is not a setting of trueup; did you mean TRUEUP_BROKERS? "),
        ("topics create", "XYZZY", "1", "TRUEUP_XYZZY is not a setting of trueup; 'trueup run --help' lists all"),
        ("streams list", "BROKERS", "kafka", "TRUEUP_BROKERS='kafka': must be host:port"),
        ("audit", "BROKERS", ",".join(["a:1"] * 101), "must be at most 100"),
        ("config check", "APP_ID", "no spaces", "must be 1 to 200 of the characters"),
        ("run", "BATCH_RECORDS", "4001", "TRUEUP_BATCH_RECORDS='4001': must be a whole number between 1 and 4000"),
        (
            "topics create",
            "REQUEST_SECONDS",
            "301",
            "TRUEUP_REQUEST_SECONDS='301': must be between 0.5 and 300 seconds",
        ),
        ("streams list", "STREAMS", "/nowhere/streams.toml", "cannot read /nowhere/streams.toml"),
        ("audit", "LOG_LEVEL", "LOUD", "TRUEUP_LOG_LEVEL='LOUD': must be one of DEBUG, INFO, WARNING, ERROR"),
        ("config check", "DEFAULT_CALIBRATOR", "plat", "'plat'"),
        ("run", "SECURITY_PROTOCOL", "SASL_SSL", "SASL_SSL needs TRUEUP_SASL_USERNAME"),
        ("config check", "METRICS_CERTFILE", "/nowhere.pem", "cannot load TRUEUP_METRICS_CERTFILE=/nowhere.pem"),
        ("run worker", "BROKERS", "ann:hunter2@kafka:9092", "TRUEUP_BROKERS"),
    ],
)
def test_a_bad_setting_is_one_line_and_status_78(
    command: str, name: str, value: str, said: str, trueup: Trueup
) -> None:
    trueup.set(**{name: value})
    ended = trueup(command)
    assert ended.status == MISCONFIGURED
    assert said in ended.error
    assert "hunter2" not in ended.error


@pytest.mark.parametrize("command", ["topics check", "topics create", "streams list"])
def test_brokers_that_do_not_answer_are_named_last_and_without_a_traceback(command: str, trueup: Trueup) -> None:
    trueup.set(BROKERS="127.0.0.1:1")
    ended = trueup(command)
    assert ended.status == MISCONFIGURED
    assert ended.err.splitlines()[-1].startswith("trueup: cannot reach 127.0.0.1:1")
    assert "Traceback" not in ended.err


def test_an_audit_without_brokers_is_one_that_could_not_be_made(trueup: Trueup) -> None:
    trueup.set(BROKERS="127.0.0.1:1")
    ended = trueup("audit --json")
    assert ended.status == ended.json["status"] == 65
    assert ended.json["unable"][0].startswith("cannot reach 127.0.0.1:1")


# -- what the commands pass on -------------------------------------------------------------------------------------


def kafka(trueup: Trueup, **found: Any) -> dict[str, Called]:
    """Let functions of `topics` and the remarks find what is given, and nothing where nothing is."""
    names = "create", "check", "missing_sources", "partitions", "remarks"
    calls = {name: Called(found.get(name, [])) for name in names}
    for name, called in calls.items():
        place, function = (remarks, "of") if name == "remarks" else (topics, name)
        trueup.patch.setattr(place, function, called.later)
    return calls


def test_topics_create_makes_what_is_missing_and_says_so(trueup: Trueup) -> None:
    calls = kafka(trueup, create=["forecasts", "outcomes"])
    ended = trueup("topics create --partitions 8 --replication 3 --retention 30d")
    asked = {"partitions": 8, "replication": 3, "retention_ms": 30 * 86_400_000}
    assert calls["create"].how[0][1] == {**asked, "dry_run": False}
    assert calls["check"].how[0][1] == {"as_worker": False, **asked}
    assert ended == (0, "made: forecasts, outcomes\nall topics are as they should be\n", "")


def test_a_topic_that_was_lost_is_made_as_wide_as_the_others(trueup: Trueup) -> None:
    calls = kafka(trueup, create=["trueup-journal"], partitions=8)
    assert trueup("topics create").status == 0
    assert calls["create"].how[0][1]["partitions"] == 8


def test_topics_are_those_of_every_stage_once_intake_reads_a_source(trueup: Trueup, streams: Path) -> None:
    create = kafka(trueup)["create"]
    source = '[sources.a]\ntopic = "{}"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
    for topic, stages in (("elsewhere", ["trueup", "trueup-router"]), ("forecasts", ["trueup"])):
        streams.write_text(source.format(topic))
        create.how.clear()
        assert trueup("topics create").out.startswith("all topics exist\n")
        assert [given[0].app_id for given, _ in create.how] == stages


WELL = "topics are as they should be\n"


@pytest.mark.parametrize(
    ("command", "found", "ended"),
    [
        ("check", {"check": ["one is wrong", "two is wrong"]}, (1, "", "one is wrong\ntwo is wrong\n")),
        ("check", {"remarks": ["one is odd"]}, (0, f"all {WELL}note: one is odd\n", "")),
        ("check", {"missing_sources": ["a is missing"]}, (1, "", "a is missing\n")),
        (
            "create",
            {"missing_sources": ["a is missing"]},
            (0, f"all topics exist\ntrueup's own {WELL}note: a is missing\n", ""),
        ),
    ],
)
def test_what_is_wrong_with_topics_ends_with_1_and_what_may_surprise_is_a_note(
    command: str, found: dict[str, list[str]], ended: tuple[int, str, str], trueup: Trueup
) -> None:
    kafka(trueup, **found)
    assert trueup(f"topics {command}") == ended


@pytest.mark.parametrize(("command", "place"), [("run worker", worker), ("audit", auditor), ("streams list", show)])
def test_what_is_written_of_data_is_for_its_owner_only(
    command: str, place: Any, trueup: Trueup, tmp_path: Path
) -> None:
    def write(*_: object, **__: object) -> int:
        (tmp_path / "state").write_text("data")
        return 0

    trueup.patch.setattr(place, "run", write)
    os.umask(0o022)
    assert trueup(command).status == 0
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("module", "remedy"), [("demo", "make setup"), ("broker", "checkout")])
def test_where_the_lab_or_its_packages_are_missing_it_is_said_how_to_get_them(
    module: str, remedy: str, trueup: Trueup
) -> None:
    import lab  # noqa: PLC0415 - to take the module out of it

    trueup.patch.delattr(lab, module, raising=False)
    trueup.patch.setitem(sys.modules, f"lab.{module}", None)
    ended = trueup(f"dev {module}")
    assert ended.status == MISCONFIGURED
    assert remedy in ended.error


# -- config check --------------------------------------------------------------------------------------------------


def test_config_check_shows_the_settings_without_their_secrets(trueup: Trueup) -> None:
    trueup.set(SECURITY_PROTOCOL="SASL_SSL", SASL_USERNAME="ann", SASL_PASSWORD="hunter2")  # noqa: S106 - nobody's
    lines = trueup("config check").out.splitlines()
    assert {"TRUEUP_SASL_USERNAME=ann", "TRUEUP_SASL_PASSWORD=(set)", "TRUEUP_BROKERS=127.0.0.1:9092"} <= set(lines)
    assert lines[-1].startswith("# configuration ")
    report = trueup("config check --json").json
    assert report["configuration"] == lines[-1].split()[-1]
    assert report["settings"]["TRUEUP_SASL_PASSWORD"] == effective_config.HIDDEN
    assert report["streams"]["*"]["calibrator"] == DEFAULT_CALIBRATOR


NO_MAP = (
    "# streams 's': no map in maps, because what calibrated_regression serves depends on features: decide by their raw "
    "forecasts"
)


@pytest.mark.parametrize(
    ("plan", "line", "part"),
    [
        (
            'matures = "45d"\nsilence = 0\nttl = "60d"',
            "kept 60d, labels known after 45d, no report means 0",
            {"silence": 0},
        ),
        ('shadow = ["identity"]', ", challengers identity (", {}),
        (
            'segments = ["country", "channel"]\npairs = [["country", "channel"]]',
            ", segments country, channel, country*channel",
            {"segments": ["country", "channel"], "pairs": [["country", "channel"]]},
        ),
        ('calibrator = "calibrated_regression"\nfeatures = 2', NO_MAP, {"calibrator": "calibrated_regression"}),
    ],
)
def test_config_check_shows_what_the_file_says_of_a_stream_and_the_hash_is_of_it(
    plan: str, line: str, part: dict[str, Any], trueup: Trueup, streams: Path
) -> None:
    trueup.set(MAPS="maps")
    streams.write_text("[streams.s]\n")
    plain = trueup("config check").out.splitlines()
    streams.write_text(f"[streams.s]\n{plan}\n")
    shown = trueup("config check").out.splitlines()
    assert any(line in each for each in shown if each.startswith("# streams 's'"))
    assert not any(line in each for each in plain)
    assert plain[-1] != shown[-1]
    report = trueup("config check --json").json
    assert part.items() <= report["streams"]["s"].items()
    reason = "what calibrated_regression serves depends on features"
    assert report["no_map"] == ({"s": reason} if line == NO_MAP else {})
    trueup.patch.delenv("TRUEUP_MAPS")
    assert "no map" not in trueup("config check").out


@pytest.mark.parametrize("label", NAMES)
def test_a_schema_is_printed_as_it_is_registered(label: str, trueup: Trueup) -> None:
    assert json.loads(trueup(f"schema {label}").out) == json.loads(schema_text(label))
