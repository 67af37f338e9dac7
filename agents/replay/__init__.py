"""Replay of history: the engine over topics or files, several configurations beside one another."""
