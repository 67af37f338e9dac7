"""A broker starts, keeps what it was given, and leaves nothing behind. All on a real Apache Kafka."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from lab.broker import Broker, BrokerError, serve
from streams.config.settings import Settings
from streams.kafka.topics import admin_client

FOREGROUND = "import sys; from lab.broker import serve; sys.exit(serve())"


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_topics_are_never_created_by_accident(kafka: str) -> None:
    async with admin_client(Settings(brokers=(kafka,))) as admin:
        codes = [(await admin.describe_topics(["misspelt"]))[0]["error_code"] for _ in range(2)]
    assert codes == [UnknownTopicOrPartitionError.errno] * 2


def foreground() -> tuple[subprocess.Popen[str], int, Path]:
    """Start ``trueup dev broker`` as a process; returns it, the pid of its JVM and its temporary directory."""
    process = subprocess.Popen([sys.executable, "-c", FOREGROUND], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert process.stdout.readline().startswith("export TRUEUP_BROKERS=127.0.0.1:")
    jvm = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    return process, jvm, Path(ready.split("Its log: ")[1].strip()).parent


def test_stop_leaves_no_process_and_no_directory() -> None:
    process, jvm, directory = foreground()
    with process:
        assert directory.exists()
        os.kill(jvm, signal.SIGSTOP)  # the hard case: a frozen JVM does not see SIGTERM
        process.terminate()
        assert process.wait(20) == 0
    assert not exists(jvm)
    assert not directory.exists()


def test_ended_broker_cannot_be_paused() -> None:
    with pytest.raises(BrokerError, match="not running"):
        Broker(Path("unused")).pause()


def test_missing_jars_say_what_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRUEUP_KAFKA_LIB", str(tmp_path))
    assert serve(data_dir=tmp_path) == 1
    assert "run `make jars`" in capsys.readouterr().err


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match="install Java 17"):
        Broker(tmp_path).start()


def test_taken_port_is_not_mistaken_for_the_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BrokerError, match="is taken"):
        Broker(tmp_path, port=taken.getsockname()[1]).start()


def test_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="Invalid initial heap size"):
        Broker(tmp_path, heap="much").start()


def command(bootstrap: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TRUEUP_BROKERS": bootstrap}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "cli.main", "dev", "broker", *arguments]
    # A shell lets what it starts in the background ignore Ctrl-C, and this would pass on from there.
    reset = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=reset)  # noqa: PLW1509 - takes no lock


def test_lines_that_are_sent_are_watched_and_keyed_by_their_event(kafka: str) -> None:
    with command(kafka, "send", "--partitions", "1", "by-hand") as sending:  # makes the topic
        _, said = sending.communicate(b'{"event_id": "a1", "p": 0.3}\n\nno JSON \x1b[2J\n', 180)
    assert sending.returncode == 0
    assert said.endswith(b"sent 2 records to by-hand\n")
    with command(kafka, "watch", "by-hand", "--first") as watching:
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline() == b'{"event_id": "a1", "p": 0.3}\n'
            assert watching.stdout.readline() == "no JSON ⟨U+001B⟩[2J\n".encode()
            watching.send_signal(signal.SIGINT)
            assert watching.wait(20) == 130
        finally:
            watching.kill()  # else a failure would wait for it without end

    async def keys() -> list[bytes | None]:
        async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("by-hand", 0)])
            return [(await asyncio.wait_for(consumer.getone(), 20)).key for _ in range(2)]

    assert asyncio.run(keys()) == [b"a1", None]
    with command(kafka, "watch", "misspelt") as watching:
        assert watching.wait(180) == 78
        assert watching.stderr is not None
        assert "there is no topic misspelt" in watching.stderr.read().decode()
