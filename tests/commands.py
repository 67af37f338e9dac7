"""The command line in the process of a test."""

import logging
import os
from typing import Any, NamedTuple

import orjson
import pytest

from cli import main


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What its last line says."""
        return orjson.loads(self.out.splitlines()[-1])

    @property
    def error(self) -> str:
        """The one line that it wrote where nothing but an error is to be written."""
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("trueup: ")
        return line


class Trueup:
    """Runs commands under those settings alone that a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.patch, self._capsys = patch, capsys
        for name in [name for name in os.environ if name.startswith("TRUEUP_")]:
            patch.delenv(name)
        patch.setattr(logging.root, "handlers", [])

    def set(self, **settings: object) -> None:
        """Set settings by their names without ``TRUEUP_``."""
        for name, value in settings.items():
            self.patch.setenv(f"TRUEUP_{name}", str(value))

    def __call__(self, command: str, *arguments: object) -> Ended:
        """Run a command; ``arguments`` are those that may hold spaces."""
        self._capsys.readouterr()
        try:
            status = main.main([*command.split(), *map(str, arguments)])
        except SystemExit as ended:  # of the parser
            status = int(ended.code or 0)
        return Ended(status, *self._capsys.readouterr())


@pytest.fixture
def trueup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Trueup:
    """Return what runs commands."""
    return Trueup(monkeypatch, capsys)
