"""``python -m research.experiments``: the papers' results, and five real streams, run again into one report."""
