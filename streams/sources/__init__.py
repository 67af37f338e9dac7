"""Reads source records of any shape as the records that trueup knows: the ``[sources.NAME]`` tables."""
