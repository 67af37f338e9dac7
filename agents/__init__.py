"""What runs: the agents, replay, the wiring and the command line."""
