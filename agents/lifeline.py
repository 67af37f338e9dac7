"""What ends a process together with its parent."""

import ctypes
import signal
import sys
from typing import Final

#: Linux: a signal that a process gets when its parent ends. See prctl(2).
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


def end_with_parent(signum: signal.Signals) -> None:
    """Let this process get a signal when its parent ends, however that ends. Only Linux can."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signum)
