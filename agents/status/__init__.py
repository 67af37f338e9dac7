"""The status page of a worker, and its content as JSON."""
