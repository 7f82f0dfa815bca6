"""Initial weights that depend on a seed alone, even if several threads make networks at once."""

import contextlib
import threading
from collections.abc import Iterator

import torch

_ONE_AT_A_TIME = threading.RLock()
"""torch initializes layers from its one global generator, which all threads share."""


@contextlib.contextmanager
def seeded(generator_seed: int) -> Iterator[None]:
    """Layers made in here get their weights from `generator_seed`; torch's generator is left as it was."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_seed)
        yield
