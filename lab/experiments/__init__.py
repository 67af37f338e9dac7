"""``trueup experiments``: the papers' results and five real streams, run again from scratch into one report."""
