"""``trueup experiments``: reproduce the papers' results, play five real streams, and write one report."""
