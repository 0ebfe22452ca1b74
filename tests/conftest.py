"""Fixtures that more than one test file uses."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

REAL_DATA = "ERASE_REAL_DATA"
REAL_FILES = ("criteo/w261_train_137139.tsv.xz", "avazu/random_20000.csv")

# The same examples on every run and host: a property test that fails, fails again.
settings.register_profile("erase", derandomize=True, deadline=None, database=None)
settings.load_profile("erase")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device; torch sees none")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Directory with the real Criteo and Avazu rows named in REAL_FILES."""
    named = os.environ.get(REAL_DATA)
    if not named:
        pytest.skip(f"${REAL_DATA} is not set: a directory with {' and '.join(REAL_FILES)}")
    missing = [name for name in REAL_FILES if not (Path(named) / name).is_file()]
    if missing:
        pytest.skip(f"${REAL_DATA} (={named}) lacks {' and '.join(missing)}")
    return Path(named)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One torch thread: sums in a fixed order, and tiny tensors are faster without a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
