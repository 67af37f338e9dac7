"""A registry that cannot start says why and what to do; tests/e2e/test_registry.py has what a real one does."""

from pathlib import Path

import pytest

from tests import apicurio
from tests.apicurio import Apicurio, ApicurioError


def test_a_missing_registry_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(apicurio, "LIB", tmp_path)
    assert not Apicurio.there()
    with pytest.raises(ApicurioError, match="run `make registry`"):
        Apicurio(tmp_path).start()


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ApicurioError, match="install Java 17"):
        Apicurio(tmp_path).start()


def test_a_start_that_fails_shows_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken-runner.jar").write_bytes(b"no jar")
    monkeypatch.setattr(apicurio, "LIB", tmp_path)
    with pytest.raises(ApicurioError, match="broken-runner"):
        Apicurio(tmp_path / "data").start()
