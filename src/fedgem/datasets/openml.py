"""Any classification data set of OpenML, through scikit-learn."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from fedgem.datasets.loading import Dataset
from fedgem.errors import InputError

__all__ = ["load_openml"]


def load_openml(data_id: int) -> Dataset:
    """Load a data set from OpenML: its numeric columns and its default target as the classes.

    Columns of categories are left out, since a Gaussian says nothing of them; `feature_names` says
    which columns are left. Missing values are NaN. scikit-learn keeps what it downloads in
    `sklearn.datasets.get_data_home` and compares it with OpenML's checksum.

    Parameters
    ----------
    data_id : int
        The number of the data set, as in ``https://www.openml.org/d/61``.

    Returns
    -------
    Dataset
        Its name holds the version, as in ``'iris-1'``; licence and citation are what OpenML says.

    Raises
    ------
    InputError
        If the data set cannot be had, or has no numeric columns or no classes.

    Examples
    --------
    >>> from fedgem.datasets import load_openml
    >>> iris = load_openml(61)  # doctest: +SKIP
    >>> iris.name, iris.X.shape, iris.class_names  # doctest: +SKIP
    ('iris-1', (150, 4), ('Iris-setosa', 'Iris-versicolor', 'Iris-virginica'))
    """
    from sklearn.datasets import fetch_openml  # takes long to import

    where = f"OpenML data set {data_id}"
    try:
        found = fetch_openml(data_id=data_id, as_frame=False, parser="liac-arff", n_retries=1)
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot be loaded: {error}") from error
    names, categories = list(found.feature_names), found.categories or {}
    numeric = [j for j, name in enumerate(names) if name not in categories]
    if issparse(found.data):
        raise InputError(f"{where}: found sparse rows, expected dense ones.")
    if not numeric:
        raise InputError(f"{where}: found only columns of categories, expected numeric ones.")
    target = found.target
    if target is None or target.ndim != 1:
        raise InputError(f"{where}: found no single default target, expected one that has classes.")
    if target.dtype.kind == "f" and not np.array_equal(target, np.round(target)):
        raise InputError(f"{where}: found a target of fractions, expected classes.")
    classes, y = np.unique(target, return_inverse=True)
    details = found.details
    return Dataset(
        f"{details['name']}-{details['version']}",
        found.data[:, numeric].astype(np.float64),
        y,
        tuple(names[j] for j in numeric),
        tuple(map(str, classes)),
        None,
        str(details.get("licence", "not stated")),
        str(details.get("citation", "not stated")),
        f"https://www.openml.org/d/{data_id}",
    )
