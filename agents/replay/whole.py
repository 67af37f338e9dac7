"""Files that are there whole, or not at all: see `agents.whole`."""

from agents.whole import written

__all__ = ["written"]
