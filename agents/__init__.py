"""What a worker runs: the batch processor, the wiring, health, the status page."""

import os

from agents import compiled

__version__ = "0.1.0"

compiled.prefer(os.environ)  # before anything imports `state`
