"""Rivals import what only their own environment has."""

collect_ignore = ["rivals"]
