"""Groups of ranks for the tests: processes that are started as ranks and run one function each."""

import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from anybatch.distributed import group


def in_ranks(
    number: int,
    function: Callable[..., Any],
    *arguments: Any,
    meeting: Path,
    timeout: timedelta = group.TIMEOUT,
    patience_seconds: float | None = None,
) -> list[Any]:
    """What `function` returns in each of so many ranks, which meet in a file of that name.

    Ranks that wait for each other longer than `patience_seconds` are ended, and fail the test.
    """
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    ranks = [
        context.Process(
            target=_one_rank, args=(rank, number, meeting, timeout, function, arguments, answers), daemon=True
        )
        for rank in range(number)
    ]
    for process in ranks:
        process.start()
    deadline = None if patience_seconds is None else time.monotonic() + patience_seconds
    for process in ranks:
        process.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    for process in ranks:
        process.kill()
        process.join()
    codes = [process.exitcode for process in ranks]
    assert codes == [0] * number, codes
    found = dict(answers.get() for _ in ranks)
    return [found[rank] for rank in range(number)]


def _one_rank(
    rank: int,
    number: int,
    meeting: Path,
    timeout: timedelta,
    function: Callable[..., Any],
    arguments: tuple,
    answers: Any,
) -> None:
    torch.set_num_threads(1)
    group.TIMEOUT = timeout
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(number),
        "GLOO_SOCKET_IFNAME": "lo",
        group.MEETING_FILE: str(meeting),
    }
    with group.joined():
        answers.put((rank, function(*arguments)))
