"""The status page of a worker, and the same as JSON."""
