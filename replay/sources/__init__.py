"""Where a replay's records come from: topics or files, each partition of each topic in the order of its offsets."""
