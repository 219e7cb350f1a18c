"""Speed and memory of the core, as ratios against peers measured in the same run.

Run it with `python benchmarks/core.py` (about two minutes on two cores). Every figure is the
median of `REPEATS` measurements, the peers' taken in turn with ours.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from scipy.spatial.distance import cdist
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import measuring
from fedgem import FedGEM
from fedgem.client import Client, respond
from fedgem.datasets import load_dataset
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.messages import TrainRequest
from fedgem.rows import Rows
from fedgem.server import Settings, Training
from fedgem.superclusters import heuristic_radii, merge_tree, update
from fedgem.typing import Array, IntArray
from measuring import row, show

REPEATS = 7
DATA = Path(__file__).parents[2] / "shared" / "data"
medians = partial(measuring.medians, repeats=REPEATS)


def round_of_a_client() -> None:
    """Time one round with 1,000,000 x 16 rows and K = 16, against scikit-learn and the floor."""
    rng = np.random.default_rng(0)
    n, d, k = 1_000_000, 16, 16
    centres = 2 * rng.normal(size=(k, d))
    X = centres[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    means = centres + 0.1 * rng.normal(size=(k, d))
    client = Client("a", Rows.from_array(X), np.full(k, 1 / k), seed=0)
    peer = GaussianMixture(k, covariance_type="spherical")
    peer._initialize_parameters(X[: 10 * k], np.random.RandomState(0))
    peer.means_, peer.weights_ = means, np.full(k, 1 / k)
    peer.precisions_cholesky_ = np.ones(k)

    def e_and_m() -> None:
        _, log_responsibilities = peer._e_step(X)
        peer._m_step(X, log_responsibilities)

    def floor() -> None:
        """Take two N x d x K products and one exp(N x K), block by block."""
        for start in range(0, n, 2**14):
            block = X[start : start + 2**14]
            gamma = block @ means.T
            np.exp(gamma, out=gamma)
            gamma.T @ block

    for n_threads in (1, 2):
        with ThreadPoolExecutor(n_threads) as pool, threadpool_limits(n_threads):
            respond(TrainRequest(1, 1, means), client, pool)
            ours, theirs, least = medians(
                lambda pool=pool: respond(TrainRequest(1, 1, means), client, pool), e_and_m, floor
            )
        on = f"{n_threads} thread{'s' * (n_threads > 1)}"
        row(f"scikit-learn E + M / a client's round, {on}", theirs / ours, 12, "x", at_least=True)
        row(f"a client's round / the floor, {on}", ours / least, 3.5, "x", at_least=False)


def overhead() -> None:
    """Measure what the engine adds to the clients' own arithmetic in the paper's MNIST setting."""
    if not DATA.is_dir():
        return
    X = load_dataset("mnist", DATA).X[:49_000]
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 9, size=100)
    clients = {
        str(g): Client(str(g), Rows.from_array(part), np.full(size, 1 / size), seed=0)
        for g, (part, size) in enumerate(zip(np.array_split(X, 100), sizes, strict=True))
    }
    seen: list[Training] = []
    engine = LocalEngine(n_jobs=1)
    start = Training(tuple(clients), Settings(max_iter=10))
    engine.run(start, clients, on_round=seen.append)
    rounds = seen[:-1]

    def whole() -> None:
        engine.run(seen[0], clients)

    def arithmetic() -> None:
        for state in rounds:
            for name, client in clients.items():
                components = Gaussians(state.members[name].means)
                e_step(client.rows, components, np.log(client.weights))

    with_engine, alone = medians(whole, arithmetic)
    spent = (with_engine - alone) / (len(rounds) * len(clients))
    row("engine and server, per client and round", 1e6 * spent, 100, "us", at_least=False)
    model = FedGEM.paper(n_local_components=sizes.tolist(), random_state=0)
    (whole_fit,) = medians(lambda: model.fit(list(np.array_split(X, 100))))
    row("FedGEM.paper on MNIST, G = 100 (paper: 552 s)", whole_fit, 1, "s", at_least=False)


def server() -> None:
    """Time 100,000 components of 1,000 clients around 1,000 centres in 16 dimensions."""
    rng = np.random.default_rng(0)
    n, d = 100_000, 16
    for spread in (0.05, 0.1):
        centres = 2 * rng.normal(size=(1000, d))
        means = centres[rng.integers(1000, size=n)] + spread * rng.normal(size=(n, d))
        owners = np.arange(n) // 100
        radii = rng.uniform(0.5, 1.5, n) * (4 * spread) ** 2

        def once(means: Array, radii: Array, owners: IntArray) -> None:
            update(means, radii, owners)
            scales = heuristic_radii(means, np.full(n, 0.01), owners, np.full(1000, 10_000))
            merge_tree(means, scales, owners)

        (spent,) = medians(partial(once, means, radii, owners))
        row(f"server: update + curve, C = 100,000, spread {spread}", spent, 10, "s", at_least=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row("server: peak memory of its process", peak, 2, "GB", at_least=False)
    means, owners, radii = means[:3000], owners[:3000] % 50, radii[:3000]

    def pairs() -> None:
        """Run the update on all pairs at once, as a matrix."""
        root = np.sqrt(radii)
        distance = cdist(means, means)
        overlap = (distance <= root[:, None] + root) & (owners[:, None] != owners)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip(0.5, 1 - root / distance, root[:, None] / distance)
        share = np.where(overlap, share, 0.0)
        means * (1 + overlap.sum(1) - share.sum(1))[:, None] + share @ means

    tree, matrix = medians(lambda: update(means, radii, owners), pairs)
    row("server: all pairs / k-d tree, C = 3,000", matrix / tree, 1, "x", at_least=True)


MEMORY = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from fedgem.client import Client, respond
from fedgem.files import open_source
from fedgem.messages import TrainRequest
from fedgem.rows import Rows
def peak():  # in kB; getrusage would count what the parent held when it forked
    return int(next(line for line in open("/proc/self/status") if "VmHWM" in line).split()[1])
path = sys.argv[1]
rows = Rows.from_array(np.load(path)) if path.endswith("npy") else open_source(path).rows
few = Rows.from_array(np.random.default_rng(0).normal(size=(100, 16)))
request = TrainRequest(1, 1, next(few.read())[:16])
with ThreadPoolExecutor(2) as pool:
    respond(request, Client("a", few, np.full(16, 1 / 16), 0), pool)
    before = peak()
    respond(request, Client("a", rows, np.full(16, 1 / 16), 0), pool)
print((peak() - before) / 2**10)
"""


def memory() -> None:
    """Measure what a round takes beyond its data: an array in memory, a file that is not."""
    with tempfile.TemporaryDirectory() as folder:
        for n in (500_000, 4_000_000):
            array, parquet = Path(folder) / "x.npy", Path(folder) / "x.parquet"
            X = np.random.default_rng(0).normal(size=(n, 16))
            np.save(array, X)
            pyarrow.parquet.write_table(pa.table({str(j): X[:, j] for j in range(16)}), parquet)
            for path, where in ((array, "in memory"), (parquet, "in Parquet")):
                command = [sys.executable, "-c", MEMORY, str(path)]
                extra = float(subprocess.run(command, capture_output=True, check=True).stdout)
                row(f"a round beyond {n:,} x 16 rows {where}", extra, 100, "MB", at_least=False)


def imports() -> None:
    """Time the imports."""
    for statement in ("import fedgem", "from fedgem import FedGEM"):
        command = [sys.executable, "-c", statement]
        bare, full = medians(
            lambda: subprocess.run([sys.executable, "-c", ""], check=True),
            lambda command=command: subprocess.run(command, check=True),
        )
        target = 0.7 if statement == "import fedgem" else 2.0
        row(statement, full - bare, target, "s", at_least=False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # The server before anything large, since its peak memory is read off this process.
    for part in (imports, server, round_of_a_client, overhead, memory):
        part()
    show("fedgem core")
