"""Replay of history: the engine over topics or files, several configurations beside one another."""

from agents.compiled import place  # `agents` chooses between the engines before `state` is imported

__path__ = place(__name__)
