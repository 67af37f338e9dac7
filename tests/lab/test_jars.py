"""An installed trueup fetches Kafka's jars once, whole or not at all; `deploy/test_jars.py` tests the real script."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import broker
from lab.broker import BrokerError, jars

Installed = Callable[..., dict[str, str]]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a maker of an installation whose script does what it is told; it gives the environment."""

    def make(script: str, *programs: str) -> dict[str, str]:
        share = tmp_path / "share"
        for name, text in (("deploy/maven/jars", script), ("requirements/kafka.txt", "lock")):
            (share / name).parent.mkdir(parents=True, exist_ok=True)
            (share / name).write_text(text)
        path = tmp_path / "bin"
        path.mkdir(exist_ok=True)
        for name in programs:
            (path / name).write_text("#!/bin/sh\n")
            (path / name).chmod(0o755)
        monkeypatch.setattr(broker, "SHARE", share)
        monkeypatch.setattr(broker, "IN_CHECKOUT", False)
        monkeypatch.setenv("PATH", f"{path}:/bin:/usr/bin" if programs else str(path))
        return {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    return make


def test_jars_are_fetched_once_into_the_cache(installed: Installed, tmp_path: Path) -> None:
    fetches = f'mkdir -p "$3" && touch "$3/kafka_2.13.jar" && echo once >> {tmp_path}/fetched'
    environment = installed(fetches, "javac", "mvn")
    found = {jars(environment) for _ in range(2)}
    assert [each.parent for each in found] == [tmp_path / "cache" / "trueup"]
    assert (tmp_path / "fetched").read_text() == "once\n"


def test_of_a_fetch_that_fails_nothing_is_left_and_the_reason_is_said(installed: Installed, tmp_path: Path) -> None:
    environment = installed('mkdir -p "$3" && echo "x.jar is not the jar of the lock"; exit 1', "javac", "mvn")
    with pytest.raises(BrokerError, match=r"its output ends:\nx\.jar is not the jar of the lock"):
        jars(environment)
    assert list((tmp_path / "cache" / "trueup").iterdir()) == []


def test_programs_that_are_missing_are_named(installed: Installed) -> None:
    with pytest.raises(BrokerError, match=r"fetched with a JDK 17 or newer and Maven, not found on the PATH"):
        jars(installed(""))
