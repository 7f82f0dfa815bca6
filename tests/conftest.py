"""Fixtures that several files share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As in runs of small networks: two would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def float64() -> Iterator[None]:
    """Everything in double precision, for tests against straight-line code."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
