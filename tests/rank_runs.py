"""Groups of ranks for the tests: processes that are started as ranks and run one function each."""

import multiprocessing
import os
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
) -> list[Any]:
    """What `function` returns in each of so many ranks, which meet in a file of that name."""
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
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * number
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
