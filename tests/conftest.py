"""Fixtures that several files share."""

import logging
import os
import signal
from collections.abc import Iterator

# Before torch computes anything: some virtual machines report AMX but do not run it, and tests use bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Before a test imports ray: a Ray that tests start listens on 127.0.0.1 only.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import forked_commands
import hypothesis
import pytest
import torch

from anybatch import native

# A busy machine is not a wrong answer.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")

# A shell's background job ignores these, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile native code before there are worker processes, which would all do it at once."""
    if native.available():
        native.library("float64")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As in runs of small networks: two would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The messages that the library logs during a test."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("anybatch")
    with caplog.at_level(logging.INFO, logger="anybatch"):
        logger.addHandler(handler)
        yield messages
        logger.removeHandler(handler)


@pytest.fixture
def float64() -> Iterator[None]:
    """Everything in double precision, for tests against straight-line code."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked_commands.Commands]:
    """Commands in processes of their own, which are there at once."""
    with forked_commands.opened(tmp_path_factory.mktemp("commands")) as opened:
        yield opened
