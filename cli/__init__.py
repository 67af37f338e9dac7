"""What a person types: one module a command."""

import agents  # noqa: F401 - chooses between the compiled and the interpreted engine before `state` is imported
