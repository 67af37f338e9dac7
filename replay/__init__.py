"""Replay of history: the engine over topics or files, with several configurations side by side."""

from agents.compiled import place  # `agents` chooses the engine before `state` is imported

__path__ = place(__name__)
