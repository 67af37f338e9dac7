"""What runs: the agents, replay, the wiring and the command line."""

import os

from agents import compiled

__version__ = "0.1.0"

compiled.prefer(os.environ)  # before anything imports `state`
