"""Types of arrays, by their content."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Times in ms since 1970, positions, or counts.
Integers = NDArray[np.int64]
