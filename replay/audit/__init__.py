"""``trueup audit``: derives every answer of a worker again from the topics."""
