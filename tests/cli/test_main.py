"""The command line: what it accepts, what it says, and the status it ends with."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents import __version__, worker
from agents.worker import FAILED, MISCONFIGURED
from cli import main, show
from cli.reference import commands
from lab import broker
from replay.audit import auditor
from state.policy import DEFAULT_CALIBRATOR
from streams.config import effective_config
from streams.config.settings import Settings
from streams.kafka import remarks, topics
from streams.kafka.topics import TopicsError
from streams.records.output_schemas import NAMES
from streams.records.output_schemas import text as schema_text

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [words for words, _ in commands(main.parser())]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the commands from this process's settings, and pytest from their logging."""
    for name in os.environ:
        if name.startswith("TRUEUP_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    yield
    logging.root.setLevel(level)


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


def test_without_a_command_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    assert "usage: trueup" in capsys.readouterr().out


def test_help_mentions_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f"\n    {words.split()[0]}" in said for words in COMMANDS), said


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_and_what_all_have(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([*words.split(), "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: trueup {words}" in said
    assert all(option in said for option in ("--brokers", "--streams", "--quiet", "exit status: 0 done"))


def test_an_option_stands_for_its_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (file := tmp_path / "streams.toml").write_text('[streams."fraud-*"]\ncalibrator = "platt"\n')
    monkeypatch.setenv("TRUEUP_BROKERS", "kafka:9092")
    assert main.main(["config", "check", "--json", "-q", "--brokers", "kafka-7:9092", "--streams", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["TRUEUP_BROKERS"] == "kafka-7:9092"
    assert found["streams"]["fraud-*"]["calibrator"] == "platt"
    assert logging.root.level == logging.ERROR
    assert os.environ["TRUEUP_BROKERS"] == "kafka:9092", "what the command sets is taken back"
    assert "TRUEUP_STREAMS" not in os.environ


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_commands_complete_in_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--completion", shell])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(word in said for words in COMMANDS for word in words.split())


def test_help_of_run_lists_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for name, text, default in Settings.described():
        assert f"{name} {text} (default: {default})" in said


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"trueup {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], "invalid choice: 'serve'"),
        (["topics"], "the following arguments are required: COMMAND"),
        (["topics", "delete"], "invalid choice: 'delete'"),
        (["topics", "create", "--partitions", "0"], "--partitions: must be at least 1"),
        (["topics", "create", "--replication", "-3"], "--replication: must be at least 1"),
        (["topics", "check", "--partitions", "4"], "unrecognized arguments"),
        (["dev", "demo", "--rows", "many"], "--rows: invalid"),
        (["dev", "broker", "--port", "0"], "--port: must be at least 1"),
        (["run", "worker", "now"], "unrecognized arguments: now"),
        (["streams", "show", "a", "b"], "unrecognized arguments: b"),
    ],
)
def test_arguments_that_are_not_allowed_are_refused_with_the_reason(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# -- statuses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, FAILED, MISCONFIGURED])
def test_the_worker_ends_with_its_own_status(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setenv("TRUEUP_APP_ID", "mine")
    monkeypatch.setattr(worker, "run", called := Called(status))
    assert main.main(["run", "worker"]) == status
    (((settings,), _),) = called.how
    assert settings.app_id == "mine"


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(broker, "serve", Called(KeyboardInterrupt()))
    assert main.main(["dev", "broker"]) == 130
    assert capsys.readouterr().err == ""


def test_a_defect_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run", Called(RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        main.main(["run", "worker"])


@pytest.mark.parametrize("arguments", [["config", "check"], ["run", "--help"], ["schema", "resolved"]])
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
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (main.UNREAD, "")


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["run"], 78)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_with_closed_streams(arguments: list[str], status: int, closed: str) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m cli.main "$@" {closed}', sys.executable, *arguments],
        env={"PATH": os.environ["PATH"], "TRUEUP_DELTA": "much", "TRUEUP_METRICS_PORT": "no port"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr


def test_a_connection_that_breaks_is_no_reader_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run", Called(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        main.main(["run", "worker"])


# -- settings that are not allowed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["run"], ["topics", "check"], ["topics", "create"], ["streams", "list"], ["audit"]]
)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TRUEUP_BROKER", "kafka:9092", "TRUEUP_BROKER is not a setting of trueup; did you mean TRUEUP_BROKERS? "),
        ("TRUEUP_XYZZY", "1", "TRUEUP_XYZZY is not a setting of trueup; 'trueup run --help' lists all"),
        ("TRUEUP_BROKERS", "kafka", "TRUEUP_BROKERS='kafka': must be host:port"),
        ("TRUEUP_BATCH_RECORDS", "4001", "TRUEUP_BATCH_RECORDS='4001': must be a whole number between 1 and 4000"),
        ("TRUEUP_REQUEST_SECONDS", "301", "TRUEUP_REQUEST_SECONDS='301': must be between 0.5 and 300 seconds"),
        ("TRUEUP_STREAMS", "/nowhere/streams.toml", "cannot read /nowhere/streams.toml"),
        ("TRUEUP_LOG_LEVEL", "LOUD", "TRUEUP_LOG_LEVEL='LOUD': must be one of DEBUG, INFO, WARNING, ERROR"),
        ("TRUEUP_DEFAULT_CALIBRATOR", "plat", "'plat'"),
        ("TRUEUP_SECURITY_PROTOCOL", "SASL_SSL", "SASL_SSL needs TRUEUP_SASL_USERNAME"),
    ],
)
def test_a_bad_setting_is_one_line_and_status_78(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert main.main(arguments) == MISCONFIGURED
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("trueup: ")
    assert said in line
    assert printed.out == ""


def test_a_password_in_an_address_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRUEUP_BROKERS", "ann:hunter2@kafka:9092")
    assert main.main(["run", "worker"]) == MISCONFIGURED
    said = capsys.readouterr().err
    assert "TRUEUP_BROKERS" in said
    assert "hunter2" not in said


def test_a_bad_streams_file_is_one_line_that_names_the_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "streams.toml").write_text('[streams."fraud-*"]\ncalibrator = "plat"\n')
    monkeypatch.setenv("TRUEUP_STREAMS", str(tmp_path / "streams.toml"))
    assert main.main(["run", "worker"]) == MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert 'streams."fraud-*"' in line


@pytest.mark.parametrize("arguments", [["topics", "check"], ["topics", "create"], ["streams", "list"]])
def test_brokers_that_do_not_answer_are_named_last_and_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setenv("TRUEUP_BROKERS", "127.0.0.1:1")
    assert main.main(arguments) == MISCONFIGURED
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith("trueup: cannot reach 127.0.0.1:1")
    assert "Traceback" not in said


def test_an_audit_without_brokers_is_one_that_could_not_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRUEUP_BROKERS", "127.0.0.1:1")
    assert main.main(["audit", "--json"]) == 65
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["status"] == 65
    assert said["unable"][0].startswith("cannot reach 127.0.0.1:1")


def test_the_program_itself_ends_with_the_status() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "run", "worker"],
        env={"PATH": os.environ["PATH"], "TRUEUP_BROKERS": "nobody"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == MISCONFIGURED
    assert ended.stderr.startswith("trueup: TRUEUP_BROKERS='nobody'")
    assert len(ended.stderr.splitlines()) == 1


# -- what the commands pass on -------------------------------------------------------------------------------------


def test_topics_create_makes_what_is_missing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create, check = Called(["forecasts", "outcomes"]), Called([])
    monkeypatch.setattr(topics, "create", create.later)
    monkeypatch.setattr(topics, "check", check.later)
    monkeypatch.setattr(remarks, "of", Called([]).later)
    assert main.main(["topics", "create", "--partitions", "8", "--replication", "3", "--retention", "30d"]) == 0
    ((_, named),) = create.how
    assert named == {"partitions": 8, "replication": 3, "retention_ms": 30 * 86_400_000, "dry_run": False}
    asked = {"partitions": 8, "replication": 3, "retention_ms": 30 * 86_400_000}
    assert check.how[0][1] == {"as_worker": False, **asked}
    assert capsys.readouterr().out == "made: forecasts, outcomes\nall topics are as they must be\n"


def test_topics_create_leaves_what_exists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    create = Called([])
    monkeypatch.setattr(topics, "create", create.later)
    monkeypatch.setattr(topics, "check", Called([]).later)
    monkeypatch.setattr(remarks, "of", Called([]).later)
    assert main.main(["topics", "create"]) == 0
    ((_, named),) = create.how
    assert named == {"partitions": 4, "replication": 1, "retention_ms": None, "dry_run": False}
    assert capsys.readouterr().out.startswith("all topics exist\n")


def test_topics_are_those_of_every_stage_once_intake_reads_a_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    create = Called([])
    monkeypatch.setattr(topics, "create", create.later)
    monkeypatch.setattr(topics, "check", Called([]).later)
    monkeypatch.setattr(remarks, "of", Called([]).later)
    monkeypatch.setattr(topics, "missing_sources", Called([]).later)
    source = '[sources.a]\ntopic = "{}"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
    for topic, stages in (("elsewhere", ["trueup", "trueup-router"]), ("forecasts", ["trueup"])):
        (tmp_path / "streams.toml").write_text(source.format(topic))
        monkeypatch.setenv("TRUEUP_STREAMS", str(tmp_path / "streams.toml"))
        create.how.clear()
        assert main.main(["topics", "create"]) == 0
        assert [given[0].app_id for given, _ in create.how] == stages


def test_topics_check_says_everything_that_is_wrong_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "check", Called(["one is wrong", "two is wrong"]).later)
    assert main.main(["topics", "check"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "one is wrong\ntwo is wrong\n")


def test_topics_check_remarks_on_what_may_surprise_and_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "check", Called([]).later)
    monkeypatch.setattr(remarks, "of", Called(["one is odd"]).later)
    assert main.main(["topics", "check"]) == 0
    assert capsys.readouterr().out == "all topics are as they must be\nnote: one is odd\n"


def test_a_source_topic_that_is_missing_is_wrong_for_check_and_a_note_for_create(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remarks, "of", Called([]).later)
    for name, found in (("create", []), ("check", []), ("missing_sources", ["source a is missing"])):
        monkeypatch.setattr(topics, name, Called(found).later)
    assert main.main(["topics", "check"]) == 1
    assert capsys.readouterr() == ("", "source a is missing\n")
    assert main.main(["topics", "create"]) == 0
    said = "all topics exist\ntrueup's own topics are as they must be\nnote: source a is missing\n"
    assert capsys.readouterr() == (said, "")


@pytest.mark.parametrize(
    ("arguments", "place"), [(["run", "worker"], worker), (["audit"], auditor), (["streams", "list"], show)]
)
def test_what_is_written_of_data_is_for_its_owner_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], place: Any
) -> None:
    def write(*_: object, **__: object) -> int:
        (tmp_path / "state").write_text("data")
        return 0

    monkeypatch.setattr(place, "run", write)
    before = os.umask(0o022)
    try:
        assert main.main(arguments) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def test_a_retention_that_is_no_duration_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "create", Called(AssertionError("must not be reached")).later)
    assert main.main(["topics", "create", "--retention", "1w"]) == MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trueup: ")
    assert "'1w'" in line


def test_topics_that_cannot_be_made_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "create", Called(TopicsError("cannot make topic forecasts")).later)
    assert main.main(["topics", "create"]) == MISCONFIGURED
    assert capsys.readouterr().err == "trueup: cannot make topic forecasts\n"


def test_demo_without_its_packages_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import lab  # noqa: PLC0415 - to take the module out of it

    monkeypatch.delattr(lab, "demo", raising=False)
    monkeypatch.setitem(sys.modules, "lab.demo", None)
    assert main.main(["dev", "demo"]) == MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert "make setup" in line


def test_a_worker_image_without_the_lab_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import lab  # noqa: PLC0415 - to take the module out of it

    monkeypatch.delattr(lab, "broker", raising=False)
    monkeypatch.setitem(sys.modules, "lab.broker", None)
    assert main.main(["dev", "broker"]) == MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert "checkout" in line


def test_the_log_level_of_the_settings_is_that_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run", Called(0))
    monkeypatch.setenv("TRUEUP_LOG_LEVEL", "warning")
    assert main.main(["run", "worker"]) == 0
    assert logging.root.level == logging.WARNING


# -- config check --------------------------------------------------------------------------------------------------


def test_config_check_shows_the_settings_without_their_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "TRUEUP_SECURITY_PROTOCOL": "SASL_SSL",
        "TRUEUP_SASL_USERNAME": "ann",
        "TRUEUP_SASL_PASSWORD": "hunter2",
    }.items():
        monkeypatch.setenv(name, value)
    assert main.main(["config", "check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"TRUEUP_SASL_USERNAME=ann", "TRUEUP_SASL_PASSWORD=(set)", "TRUEUP_BROKERS=127.0.0.1:9092"} <= set(lines)
    assert lines[-1].startswith("# configuration ")
    assert main.main(["config", "check", "--json"]) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert report["configuration"] == lines[-1].split()[-1]
    assert report["settings"]["TRUEUP_SASL_PASSWORD"] == effective_config.HIDDEN
    assert report["streams"]["*"]["calibrator"] == DEFAULT_CALIBRATOR


def test_config_check_shows_what_the_file_says_of_all_streams_and_the_hash_is_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, said = tmp_path / "streams.toml", []
    monkeypatch.setenv("TRUEUP_STREAMS", str(file))
    for days in (10, 45):
        file.write_text(f'[streams."*"]\nmatures = "{days}d"\nsilence = 0\nttl = "60d"\n')
        assert main.main(["config", "check"]) == 0
        said.append(capsys.readouterr().out.splitlines())
    (line,) = (line for line in said[0] if line.startswith("# streams '*'"))
    assert line.endswith("kept 60 days, labels known after 10 days, no report means 0")
    assert said[0][-1] != said[1][-1], "workers of different files show it by their hashes"


def test_config_check_names_challengers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text('[streams.a]\ncalibrator = "platt"\nshadow = ["identity", "histogram"]\n')
    monkeypatch.setenv("TRUEUP_STREAMS", str(tmp_path / "s.toml"))
    assert main.main(["config", "check"]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("# streams 'a'"))
    assert ", challengers identity (" in line
    assert "histogram (" in line


def test_config_check_says_which_streams_have_no_map(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "streams.toml"
    path.write_text('[streams.a]\ncalibrator = "calibrated_regression"\nfeatures = 2\n[streams.b]\nfeatures = 2\n')
    monkeypatch.setenv("TRUEUP_STREAMS", str(path))
    assert main.main(["config", "check"]) == 0
    assert "no map" not in capsys.readouterr().out
    monkeypatch.setenv("TRUEUP_MAPS", "maps")
    assert main.main(["config", "check"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "no map" in line]
    assert line == (
        "# streams 'a': no map in maps, because what "
        "calibrated_regression serves depends on features: decide by their raw forecasts"
    )
    assert main.main(["config", "check", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["no_map"] == {
        "a": "what calibrated_regression serves depends on features"
    }


def test_config_check_shows_segments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    streams = tmp_path / "streams.toml"
    streams.write_text('[streams.s]\nsegments = ["country", "channel"]\npairs = [["country", "channel"]]\n')
    monkeypatch.setenv("TRUEUP_STREAMS", str(streams))
    assert main.main(["config", "check"]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("# streams 's'"))
    assert line.endswith(", segments country, channel, country*channel")
    assert main.main(["config", "check", "--json"]) == 0
    shown = orjson.loads(capsys.readouterr().out)["streams"]["s"]
    assert (shown["segments"], shown["pairs"]) == (["country", "channel"], [["country", "channel"]])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TRUEUP_BROKER", "x:1", "TRUEUP_BROKER is not a setting"),
        ("TRUEUP_APP_ID", "no spaces", "must be 1 to 200 of the characters"),
        ("TRUEUP_STREAMS", "/nowhere.toml", "cannot read /nowhere.toml"),
        ("TRUEUP_METRICS_CERTFILE", "/nowhere.pem", "cannot load TRUEUP_METRICS_CERTFILE=/nowhere.pem"),
        ("TRUEUP_BROKERS", ",".join(["a:1"] * 101), "must be at most 100"),
    ],
)
def test_config_check_says_what_is_wrong_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    assert main.main(["config", "check"]) == MISCONFIGURED
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert says in line


@pytest.mark.parametrize("label", NAMES)
def test_a_schema_is_printed_as_it_is_registered(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["schema", label]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(schema_text(label))
