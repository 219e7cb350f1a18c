"""Compiled code gives the same bits, whether a process compiled it or loaded it."""

import importlib
import os
import pkgutil
import subprocess
import sys

from numba.core.dispatcher import Dispatcher

E_STEP = """
import sys
import numpy as np
from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.rows import Rows

rng = np.random.default_rng(0)
rows = Rows.from_array(rng.normal(size=(60, 3)))
for k in range(1, 10):
    components = Gaussians(rng.normal(size=(k, 3)), rng.uniform(0.5, 2.0, size=(k, 3)), "diag")
    statistics, log_likelihood = e_step(rows, components, np.full(k, -np.log(k)))
    for part in (statistics.counts, statistics.means, statistics.covariances, log_likelihood):
        sys.stdout.buffer.write(np.asarray(part).tobytes())
"""


def test_the_first_process_computes_what_the_next_does(tmp_path):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, loaded = (
        subprocess.check_output([sys.executable, "-c", E_STEP], env=env) for _ in range(2)
    )
    assert compiled == loaded


def test_what_may_reorder_sums_is_inlined_into_compiled_callers():
    modules = [
        importlib.import_module(name)
        for package in ("fedgem", "fedgem.gaussian", "fedgem.baselines")
        for _, name, _ in pkgutil.iter_modules(
            importlib.import_module(package).__path__, f"{package}."
        )
    ]
    called = {
        callee
        for module in modules
        for caller in vars(module).values()
        if isinstance(caller, Dispatcher)
        for name in caller.py_func.__code__.co_names
        if isinstance(callee := caller.py_func.__globals__.get(name), Dispatcher)
        and (caller.targetoptions.get("fastmath") or callee.targetoptions.get("fastmath"))
    }
    assert called
    assert {f.__name__ for f in called if not f.targetoptions.get("forceinline")} == set()
