"""The state table and where it keeps its rows."""
