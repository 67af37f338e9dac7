"""What trueup remembers and how it changes: pure, no clock, no I/O, no environment."""
