"""What runs: the agents, replay, the wiring and the command line."""

__version__ = "0.1.0"
