"""Metrics of a worker and of its streams."""
