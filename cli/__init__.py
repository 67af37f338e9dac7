"""The command line: one module for each command."""

import agents  # noqa: F401 - chooses between the compiled and the interpreted engine before `state` is imported
