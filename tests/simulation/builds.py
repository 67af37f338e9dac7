"""Builds of other arithmetics: what the modules of the product hold while a process of one runs.

All processes of a simulation share the modules. So the loop says before each callback of which build its process is.
"""

from typing import Final

from state.calibrators.histogram import Histogram
from state.formats import ARITHMETIC
from streams.config import in_force
from streams.faust import assignor, membership

#: The build of now, and one that answers otherwise.
BUILDS: Final = (ARITHMETIC, ARITHMETIC + 1)

_SHRINK: Final = Histogram.SHRINK
_MODULES: Final = (assignor, in_force, membership)

#: The one that runs.
RUNNING = ARITHMETIC


def run(build: int) -> None:
    """Let what runs from now on be of a build; one that is not of now shrinks histograms more."""
    global RUNNING  # noqa: PLW0603 - as what it stands for
    if build == RUNNING:
        return
    RUNNING = build
    for module in _MODULES:
        vars(module)["ARITHMETIC"] = build
    Histogram.SHRINK = _SHRINK + build - ARITHMETIC
