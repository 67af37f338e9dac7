"""Source records of any shape, read as the records that trueup knows: the ``[sources.NAME]`` tables."""
