"""What a worker tells of itself and of its streams."""
