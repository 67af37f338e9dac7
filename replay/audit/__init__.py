"""``trueup audit``: every answer of a worker derived again from the topics."""
