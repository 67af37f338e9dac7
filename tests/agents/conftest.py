"""The fixtures that are those of the streams."""

from tests.streams.conftest import run

__all__ = ["run"]
