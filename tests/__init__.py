"""A package, so that it goes before a `tests` that some installed distribution brings."""
