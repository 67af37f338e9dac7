"""Demonstrations. Workers do not need them."""

import agents  # noqa: F401 - chooses between the compiled and the interpreted engine before `state` is imported
