"""Records: bytes to events, and outputs to bytes."""
