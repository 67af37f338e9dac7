"""Where a replay's records come from: topics or files. Each partition of a topic is in the order of its offsets."""
