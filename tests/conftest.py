"""One torch thread, as in runs of small networks: two would only wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
