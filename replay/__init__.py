"""Replay of history: the engine over topics or files, several configurations beside one another."""

import agents  # noqa: F401 - chooses between the compiled and the interpreted engine before `state` is imported
