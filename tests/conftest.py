"""What all tests share: a deadline that suits compiled code, where strategies and data are."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("fedgem", deadline=None, derandomize=True)
settings.load_profile("fedgem")

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_dir():
    """Return the folder of the paper's data sets."""
    if not DATA.is_dir():
        pytest.skip(f"the data sets are not at {DATA}")
    return DATA
