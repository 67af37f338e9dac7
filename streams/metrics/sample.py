"""One value that a worker exports."""

#: Name of the metric without its prefix, values of its labels in the order of the catalogue, value.
Sample = tuple[str, tuple[str, ...], float]
