"""Checks of parameters, each with one clear sentence when it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from fedgem.errors import InputError
from fedgem.gaussian.covariances import CovarianceType
from fedgem.inputs import Inputs
from fedgem.superclusters import MOST_CANNOT_LINK
from fedgem.typing import Array


def require(name: str, value: Any, expected: str, holds: bool) -> None:
    """Refuse a parameter's value unless it is as expected."""
    if not holds:
        raise InputError(f"{name}: found {value!r}, expected {expected}.")


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_parameters(params: Mapping[str, Any]) -> None:
    """Refuse parameters of `FedGEM` that are none, or do not go together."""
    for name, least in (("max_iter", 0), ("n_init", 1), ("n_local_steps", 1)):
        expected = f"a whole number from {least}"
        require(name, params[name], expected, is_whole(params[name]) and params[name] >= least)
    types = get_args(CovarianceType)
    given = params["covariance_type"]
    require("covariance_type", given, f"one of {', '.join(types)}", given in types)
    for name in ("learn_weights", "cannot_link", "scale"):
        require(name, params[name], "True or False", isinstance(params[name], (bool, np.bool_)))
    tol, upsilon = params["tol"], params["upsilon"]
    require("tol", tol, "a number from 0", is_number(tol) and tol >= 0)
    holds = upsilon in ("auto", None) or (is_number(upsilon) and upsilon >= 0)
    require("upsilon", upsilon, "None, a number from 0, or 'auto'", holds)
    if upsilon is not None or params["final_radius"] is not None:
        given = params["n_local_components"]
        expected = "a number, or one for each client, where upsilon or final_radius is given"
        require("n_local_components", given, expected, not isinstance(given, str))
        return
    for name, expected, holds in (
        ("weights", "None", params["weights"] is None),
        ("learn_weights", "True", bool(params["learn_weights"])),
        ("n_local_steps", "1", params["n_local_steps"] == 1),
        ("max_iter", "a whole number from 1", params["max_iter"] >= 1),
        ("cannot_link", "True", bool(params["cannot_link"])),
    ):
        expected += " where neither upsilon nor final_radius is given"
        require(name, params[name], expected, holds)


def by_client(given: Any, names: Sequence[str], parameter: str) -> dict[str, Any]:
    """Return a parameter's value for each client, given for each in order or by name."""
    if isinstance(given, Mapping):
        given = {str(key): value for key, value in given.items()}
        for name in names:
            require(parameter, sorted(given), f"a value for client {name!r}", name in given)
        return {name: given[name] for name in names}
    is_sequence = isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, str)
    require(parameter, given, "one value, or one for each client", is_sequence)
    if len(given) != len(names):
        raise InputError(
            f"{parameter}: found {len(given)} values, expected one for each client, "
            f"{len(names)} in all."
        )
    return dict(zip(names, given, strict=True))


def component_weights(n_local_components: Any, weights: Any, inputs: Inputs) -> dict[str, Array]:
    """Return the weights of every client's components; they also say how many, or none for auto."""
    names = list(inputs.rows)
    if isinstance(n_local_components, str):
        expected = "'auto', a number, or one for each client"
        require("n_local_components", n_local_components, expected, n_local_components == "auto")
        return {name: np.zeros(0) for name in names}
    numbers: dict[str, Any] = (
        dict.fromkeys(names, n_local_components)
        if isinstance(n_local_components, Real)
        else by_client(n_local_components, names, "n_local_components")
    )
    found: dict[str, Array] = {}
    for name, number in numbers.items():
        expected = "a whole number from 1"
        holds = is_whole(number) and number >= 1
        require(f"Client {name!r}, n_local_components", number, expected, holds)
        n_rows = inputs.rows[name].shape[0]
        if 0 < n_rows < number:  # 0 where rows are elsewhere and their client has yet to come
            raise InputError(
                f"Client {name!r}: found {n_rows} row{'s' * (n_rows > 1)} (n_samples={n_rows}), "
                f"expected at least {number}, one for each of its components."
            )
        found[name] = np.full(number, 1 / number)
    if weights is None:
        return found
    for name, given in by_client(weights, names, "weights").items():
        number = len(found[name])
        found[name] = _floats(given)
        holds = found[name].shape == (number,) and bool(
            np.all(found[name] >= 0) and math.isclose(found[name].sum(), 1, abs_tol=1e-6)
        )
        expected = f"{number} numbers from 0 that add up to 1"
        require(f"Client {name!r}, weights", given, expected, holds)
    return found


def refuse_too_many_for_cannot_link(weights: Mapping[str, Array]) -> None:
    """Refuse before training what the merge tree would refuse after it."""
    found = sum(map(len, weights.values()))
    if found > MOST_CANNOT_LINK:
        raise InputError(
            f"All clients, n_local_components: found {found} components in all, expected at most "
            f"{MOST_CANNOT_LINK} with cannot_link=True, which compares all pairs."
        )


def final_radii(given: Any, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the given final radii of every client's components: one for all, or by client."""
    names = list(weights)
    values = (
        dict.fromkeys(names, given) if is_number(given) else by_client(given, names, "final_radius")
    )
    found = {}
    for name in names:
        size = len(weights[name])
        radii = _floats(values[name])
        holds = radii.shape in ((), (size,)) and bool(np.all((radii >= 0) & np.isfinite(radii)))
        expected = f"one number from 0, or one for each of {size} components"
        require(f"Client {name!r}, final_radius", values[name], expected, holds)
        found[name] = np.broadcast_to(radii, size)
    return found


def _floats(given: Any) -> Array:
    """Return numbers as an array; NaN for anything else, for the check that follows."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def refuse_constant_columns(mean: Array, scale: Array, names: Sequence[str] | None) -> None:
    """Refuse features that have one value at every client: they cannot be scaled."""
    for j in np.flatnonzero(scale == 0):
        column = int(j) if names is None else names[int(j)]
        raise InputError(
            f"All clients, column {column!r}: found the value {mean[j]:g} in every row, expected "
            "a column that varies. Leave it out."
        )
