"""Two ranks with half of the data each take the steps that one takes with all of it."""

import multiprocessing
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from toy_runs import collect, in_float64, prepare, start_in_float64, toy_config

from anybatch.algorithms import ppo
from anybatch.batch_plan import BatchPlan
from anybatch.rollout import Rollout

LEARNING_RATE = 1e-2
# One minibatch an epoch: which samples share a minibatch is each rank's own draw.
CONFIG = toy_config(
    num_envs=4,
    num_steps=7,
    update={"epochs": 3, "minibatches_per_epoch": 1, "noise_scale_every": 2},
    proximal={"policy": "ewma"},
    normalize={"rewards": "iteration"},
    optimizer={"max_grad_norm": 0.1},
)


def columns(data: Rollout, envs: slice) -> Rollout:
    """The rollout of some of the envs."""
    return replace(data, **{name: tensor[:, envs].contiguous() for name, tensor in data.tensors().items()})


def parameters_after_an_update(data: Rollout, num_envs: int) -> torch.Tensor:
    config = replace(CONFIG, num_envs=num_envs)
    state = start_in_float64(config)
    plan: BatchPlan = replace(state.plan, ranks=CONFIG.num_envs // num_envs)
    state.resolved = replace(state.resolved, plan=plan)
    ppo.improve_policy(prepare(in_float64(data), state, config), state, config, LEARNING_RATE)
    return state.steps.flat.values.clone()


def one_rank(rank: int, meeting_point: Path, answers: "Queue[tuple[int, list[float]]]") -> None:
    torch.set_num_threads(1)
    data = collect(CONFIG)  # before there are ranks, so that both have the same
    dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=2)
    values = parameters_after_an_update(columns(data, slice(2 * rank, 2 * rank + 2)), num_envs=2)
    answers.put((rank, values.tolist()))
    dist.destroy_process_group()


@pytest.mark.timeout(120)
def test_two_ranks_with_half_of_the_data_equal_one_with_all_of_it(tmp_path: Path) -> None:
    together = parameters_after_an_update(collect(CONFIG), num_envs=4)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=one_rank, args=(rank, tmp_path / "meet", answers)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    found = dict(answers.get(timeout=100) for _ in ranks)
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    assert found[0] == found[1]
    assert torch.allclose(torch.tensor(found[0], dtype=torch.float64), together, rtol=0, atol=1e-9)
    fresh = start_in_float64(CONFIG).steps.flat.values
    assert (together - fresh).abs().max() > 1e-3
