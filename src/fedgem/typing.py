"""The array types that the whole package shares."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
