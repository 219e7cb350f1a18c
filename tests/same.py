"""When two fitted models are the same."""

import numpy as np
from numpy.testing import assert_array_equal


def assert_same_model(a, b):
    """Everything that was fitted is the same, to the last bit; labels and times apart."""

    def same(x, y, where):
        if isinstance(x, np.ndarray):
            assert_array_equal(x, y, err_msg=where, strict=True)
        elif isinstance(x, (list, tuple)):
            assert len(x) == len(y), where
            for i, (part, other) in enumerate(zip(x, y, strict=True)):
                same(part, other, f"{where}[{i}]")
        elif isinstance(x, dict):
            assert list(x) == list(y), where
            for key in x:
                same(x[key], y[key], f"{where}[{key!r}]")
        elif hasattr(x, "__dataclass_fields__"):
            for name in x.__dataclass_fields__:
                if name != "seconds":
                    same(getattr(x, name), getattr(y, name), f"{where}.{name}")
        else:
            assert x == y, where

    names = {name for name in vars(a) if name.endswith("_") and name != "labels_"}
    assert names == {name for name in vars(b) if name.endswith("_") and name != "labels_"}
    for name in sorted(names):
        same(getattr(a, name), getattr(b, name), name)
