"""A package, so that it goes before a `tests` that some installed distribution brings.

Its own process is the reference: it runs the sources as they are, unless TRUEUP_COMPILED says yes. The workers that
tests start run as an operator's do, compiled where that was made: so the end-to-end tests compare
the two, byte by byte.
"""

import os
from importlib import import_module

_said = os.environ.get("TRUEUP_COMPILED")
os.environ["TRUEUP_COMPILED"] = _said or "no"
import_module("agents")
if _said is None:
    del os.environ["TRUEUP_COMPILED"]
