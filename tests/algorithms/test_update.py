"""One gradient step: microbatches, clipping, skipped steps, memory, and the noise scale."""

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_runs import (
    changed,
    differences,
    moved_policy_and_samples,
    start_in_float64,
    toy_config,
)

from anybatch.algorithms import ppo
from anybatch.backends import Loss, Minibatch, TorchBackend
from anybatch.backends.minibatches import microbatches
from anybatch.backends.torch_backend import first_bad_value
from anybatch.config import OptimizerConfig, PPOConfig
from anybatch.distributed.shard import Shard
from anybatch.errors import TrainingError

CLIPPED = {"clip": 0.2, "entropy_coefficient": 0.01}
OBJECTIVES = {
    "clip": CLIPPED,
    "clip, minibatch advantages, value clip": CLIPPED
    | {"advantage_normalization": "minibatch", "value_clip": 0.1},
    "sampled KL": {"clip": None, "kl_penalty": 1.0, "kl": "sampled"},
    "exact KL": {"clip": None, "kl_penalty": 1.0, "kl": "exact"},
}
EPISODES_OF_5 = {"num_steps": 31, "env_config": {"max_episode_steps": 5}}


def problem(proximal: str = "ewma", objective: str = "clip", env: str = "toy:Match") -> PPOConfig:
    return toy_config(
        env=env,
        **EPISODES_OF_5,
        update={"epochs": 2, "minibatches_per_epoch": 3},
        proximal={"policy": proximal, "copy_every": 4},
        objective=OBJECTIVES[objective],
        optimizer={"max_grad_norm": 0.2},
    )


def improved(config: PPOConfig, microbatch: int) -> dict[str, object]:
    """Everything that an iteration leaves behind, with microbatches of at most so many samples."""
    state, samples = moved_policy_and_samples(config)
    state.backend.microbatch = microbatch
    metrics = ppo.update_policy(samples, state, config, 1e-2)
    return {
        "parameters": state.backend.flat.values,
        "moments": list(state.steps.state_dict()["optimizer"].values()),
        "norms": torch.tensor(state.steps.counts.norms),
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "proximal": None
        if state.backend.average is None
        else torch.cat([p.flatten() for p in state.backend.average.policy.parameters()]),
        "weight": getattr(state.backend.average, "total_weight", None),
    }


@pytest.mark.parametrize("proximal", ["behavior", "iteration_start", "ewma", "periodic"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_microbatches_equal_one_batch(proximal: str, objective: str):
    config = problem(proximal, objective)
    _, samples = moved_policy_and_samples(config)
    minibatch = math.ceil(int(samples.valid.sum()) / 3)
    whole = improved(config, microbatch=10**6)
    assert whole["metrics"]["proximal/kl"] > 1e-4 and (whole["norms"] > 0.2).any()
    for parts in (2, 3, 7):
        split = improved(config, microbatch=math.ceil(minibatch / parts))
        torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-10)


def test_microbatches_equal_one_batch_for_continuous_actions():
    config = problem(env="toy:Target", objective="exact KL")
    torch.testing.assert_close(
        improved(config, microbatch=7), improved(config, microbatch=10**6), rtol=1e-9, atol=1e-10
    )


def test_any_microbatch_gives_the_same_step():
    config = changed(problem(), update={"epochs": 1, "minibatches_per_epoch": 1})
    whole = improved(config, microbatch=10**6)
    for microbatch in (1, 5, 13, 40):
        torch.testing.assert_close(improved(config, microbatch), whole, rtol=1e-9, atol=1e-10)


def test_the_average_advances_once_per_gradient_step_not_per_microbatch():
    config = problem()
    state, samples = moved_policy_and_samples(config)
    state.backend.average.reset()
    state.backend.microbatch = 2
    ppo.update_policy(samples, state, config, 1e-3)
    assert state.steps.counts.taken == 6
    assert state.backend.average.total_weight == pytest.approx(sum((8 / 9) ** k for k in range(7)), rel=1e-12)
    # Its age is the mean distance of what it averages: 0 for the newest, 6 for where it started.
    weights = [(8 / 9) ** k for k in range(7)]
    age = sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
    assert state.backend.average.age_gradient_steps == pytest.approx(age, rel=1e-12)
    assert state.backend.average.age_env_steps == pytest.approx(age * 3 * 31 / 6, rel=1e-12)


def test_a_copy_is_taken_by_gradient_steps_not_by_microbatches_or_skipped_steps():
    config = problem("periodic")  # a copy every 4 of the 6 gradient steps
    state, samples = moved_policy_and_samples(config)
    copy = state.backend.average
    copy.reset()
    state.backend.microbatch = 2
    ppo.update_policy(samples, state, config, 1e-3)
    assert state.steps.counts.taken == 6
    assert copy.clock == 2
    assert copy.age_gradient_steps == pytest.approx((0 + 1 + 2 + 3 + 0 + 1) / 6, rel=1e-12)
    assert copy.age_env_steps == pytest.approx(7 / 6 * 3 * 31 / 6, rel=1e-12)
    samples.advantage[int(samples.valid.flatten().nonzero()[11])] = torch.nan
    ppo.update_policy(samples, state, config, 1e-3)
    assert (state.steps.counts.taken, state.steps.counts.skipped) == (10, 2)
    assert copy.clock == 10 % 4


def test_a_gradient_that_is_not_a_number_skips_the_step_and_the_average():
    config = problem()
    state, samples = moved_policy_and_samples(config)
    state.backend.average.reset()
    bad = int(samples.valid.flatten().nonzero()[11])
    samples.advantage[bad] = torch.nan
    metrics = ppo.update_policy(samples, state, config, 1e-3)
    # One of the three minibatches of each of the two epochs holds the bad sample.
    assert (state.steps.counts.taken, state.steps.counts.skipped) == (4, 2)
    assert state.backend.average.total_weight == pytest.approx(sum((8 / 9) ** k for k in range(5)), rel=1e-12)
    assert torch.isfinite(state.backend.flat.values).all()
    assert metrics["losses/grad_norm"] is not None and math.isfinite(metrics["losses/grad_norm"])
    assert state.metrics()["losses/skipped_steps"] == 2


@pytest.mark.parametrize("optimizer", ["adam", "radam", "sgd"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_skipped_step_changes_no_parameter_and_no_optimizer_state(optimizer: str, bad: float):
    backend, _ = linear_problem(OptimizerConfig(name=optimizer, learning_rate=0.1))
    flat, steps = backend.flat, backend.main
    flat.grads.fill_(1.0)
    assert backend.apply(steps)
    before = copy.deepcopy({"values": flat.values, "optimizer": steps.state_dict()["optimizer"]})
    flat.grads.fill_(1.0)[2] = bad
    assert not backend.apply(steps)
    after = {"values": flat.values, "optimizer": steps.state_dict()["optimizer"]}
    assert not differences(before, after)
    assert (steps.counts.taken, steps.counts.skipped, steps.counts.skipped_in_a_row) == (1, 1, 1)
    flat.grads.fill_(1.0)
    assert backend.apply(steps)
    assert steps.counts.skipped_in_a_row == 0 and len(steps.counts.norms) == 2


def test_a_resume_continues_to_count_skipped_steps():
    """Else a run that is restarted again and again would never give up."""
    backend, _ = linear_problem()
    for bad in (1.0, torch.nan, torch.nan):
        backend.flat.grads.fill_(bad)
        backend.apply(backend.main)
    resumed, _ = linear_problem()
    resumed.main.load_state_dict(backend.main.state_dict())
    counts = resumed.main.counts
    assert (counts.taken, counts.skipped, counts.skipped_in_a_row) == (1, 2, 2)


@pytest.mark.parametrize(
    ("field", "said"),
    [("advantage", "advantage"), ("value_target", "value target"), ("obs", "observation")],
)
def test_five_skipped_steps_in_a_row_end_the_run_naming_env_step_and_value(field: str, said: str):
    config = changed(problem(), update={"epochs": 11, "minibatches_per_epoch": 1})
    state, samples = moved_policy_and_samples(config)
    step, env = next((t, n) for t, n in samples.valid.nonzero().tolist() if t == 4)
    getattr(samples, field)[step * 3 + env] = torch.nan
    with pytest.raises(TrainingError, match=f"{said} of environment {env} at step {step} "):
        ppo.update_policy(samples, state, config, 1e-3)
    assert (state.steps.counts.taken, state.steps.counts.skipped) == (0, 5)


def test_a_rank_without_samples_of_a_bad_minibatch_names_none_of_them():
    named = {"observation": torch.zeros(0, 2, 3), "advantage": torch.zeros(0)}
    none = torch.zeros(0, dtype=torch.int64)
    assert first_bad_value(named, none, Shard(0, 2, 5)) is None


class OutOfMemory:
    """Sums what it is asked for, but has no memory for a part of more than `limit` samples."""

    def __init__(
        self, loss: Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]], limit: int, error: Exception
    ) -> None:
        self.loss, self.limit, self.error = loss, limit, error

    def __call__(self, part: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        if len(part) > self.limit:
            raise self.error
        return self.loss(part)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
    ],
)
def test_out_of_memory_halves_the_microbatch_and_says_so(error: Exception, logged: list[str]):
    steps, data = linear_problem()
    steps.microbatch = 40
    # The first part of 34 fits, and its gradient must be forgotten again: the second of 33 does not.
    calls = itertools.count()

    def loss(part: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        if next(calls) == 1:
            raise error
        return data.loss(part)

    gradient(steps, loss)
    torch.testing.assert_close(steps.flat.grads, data.gradients[:67].mean(0), rtol=1e-12, atol=1e-12)
    assert steps.microbatch == 20
    assert logged == ["Out of memory: trying again with a microbatch of 20."]
    gradient(steps, OutOfMemory(data.loss, limit=3, error=error))
    torch.testing.assert_close(steps.flat.grads, data.gradients[:67].mean(0), rtol=1e-12, atol=1e-12)
    assert steps.microbatch == 3 and len(logged) == 4


def test_memory_for_not_even_one_sample_is_an_error():
    steps, data = linear_problem()
    with pytest.raises(MemoryError):
        gradient(steps, OutOfMemory(data.loss, limit=0, error=MemoryError()))


def test_other_errors_of_a_loss_are_not_taken_for_missing_memory():
    steps, data = linear_problem()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        gradient(steps, OutOfMemory(data.loss, 0, RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    assert steps.microbatch == 10**6


@pytest.mark.parametrize("size", [0.01, 0.4999, 0.5001, 30.0])
def test_clipping_equals_torch(size: float):
    backend, _ = linear_problem(OptimizerConfig(name="sgd", learning_rate=1.0, max_grad_norm=0.5))
    gradient = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    gradient *= size / gradient.norm()
    parameter = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_([parameter], 0.5)

    before = backend.flat.values.clone()
    backend.flat.grads.copy_(gradient)
    assert backend.apply(backend.main)
    torch.testing.assert_close(before - backend.flat.values, parameter.grad, rtol=1e-12, atol=1e-12)
    assert backend.main.counts.norms == [pytest.approx(float(norm), rel=1e-12)]
    assert backend.main.metrics()["losses/grad_clip_fraction"] == (1.0 if size > 0.5 else 0.0)


def test_the_clipped_fraction_is_absent_without_clipping():
    backend, _ = linear_problem()
    backend.flat.grads.fill_(100.0)
    backend.apply(backend.main)
    assert backend.main.metrics()["losses/grad_clip_fraction"] is None


SIGNAL = torch.tensor([1.0, -0.5, 0.25, 0.0, 2.0], dtype=torch.float64)
NOISE = torch.tensor([3.0, 1.0, 0.5, 2.0, 1.0], dtype=torch.float64)


class LinearData:
    """Losses θ·x whose gradients are the x themselves: normal, with known mean and variances."""

    def __init__(self, weight: nn.Parameter, generator: torch.Generator) -> None:
        self.gradients = SIGNAL + NOISE * torch.randn(67, 5, generator=generator, dtype=torch.float64)
        self.parts: list[Tensor] = []
        self._weight = weight

    def loss(self, part: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        self.parts.append(part)
        return self.gradients[part] @ self._weight, ()

    def rows(self, part: Tensor, _device: torch.device) -> Tensor:
        """The losses take indices."""
        return part


def linear_problem(
    config: OptimizerConfig | None = None, seed: int = 0
) -> tuple[TorchBackend[Any], LinearData]:
    module = nn.ParameterList([nn.Parameter(torch.ones(5, dtype=torch.float64))])
    backend = linear_backend(module, config or OptimizerConfig())
    return backend, LinearData(module[0], torch.Generator().manual_seed(seed))


def linear_backend(module: Any, optimizer: OptimizerConfig) -> TorchBackend[Any]:
    loss = Loss(function=lambda *_: None, objective=None, record=tuple, optimizer=optimizer)
    return TorchBackend(
        module,
        {"policy": loss},
        noise_of={"policy": slice(None)},
        microbatch=10**6,
        device=module[0].device,
    )


def of_indices(loss: Callable[[Tensor], Any]) -> Loss:
    """The loss of a minibatch whose rows are indices."""
    return Loss(
        function=lambda _, part, *__: loss(part), objective=None, record=tuple, optimizer=OptimizerConfig()
    )


def gradient(
    backend: TorchBackend[Any],
    loss: Callable[[Tensor], Any],
    *,
    minibatch: Minibatch | None = None,
) -> None:
    """Leave the mean gradient of a loss in the buffer, by default of 67 samples."""
    backend.main.loss = of_indices(loss)
    samples: Any = LinearData(nn.Parameter(), torch.Generator())
    minibatch = minibatch or Minibatch.of(torch.arange(67), Shard.whole(67), torch.device("cpu"))
    backend.gradient(backend.main, samples, minibatch)


def test_a_loaded_optimizer_is_on_the_device_of_the_parameters():
    backend, data = linear_problem()
    gradient(backend, data.loss)
    backend.apply(backend.main)
    there = nn.ParameterList([nn.Parameter(torch.ones(5, dtype=torch.float64, device="meta"))])
    elsewhere = linear_backend(there, OptimizerConfig()).main
    elsewhere.load_state_dict(backend.main.state_dict())
    (moments,) = elsewhere.optimizer.state.values()
    assert {value.device.type for value in moments.values()} == {"meta"}


def test_hyperparameters_reach_the_optimizer():
    config = toy_config(
        rescale="learning-rate,adam-betas",
        tuned_at={
            "num_envs": 12,
            "num_steps": 7,
            "minibatches_per_epoch": 2,
            "epochs": 2,
        },
    )
    state = start_in_float64(config)
    state.backend.begin_iteration(state.plan.hyperparameters.learning_rate, state.plan)
    group = state.steps.optimizer.param_groups[0]
    assert group["lr"] == pytest.approx(2.5e-4 / 2)
    assert group["betas"] == (pytest.approx(0.9 ** (1 / 4)), pytest.approx(0.999 ** (1 / 4)))


def test_uneven_microbatches_weigh_each_sample_the_same():
    steps, data = linear_problem()
    for microbatch in (67, 66, 20, 7, 2, 1):
        steps.microbatch = microbatch
        gradient(steps, data.loss)
        torch.testing.assert_close(steps.flat.grads, data.gradients.mean(0), rtol=1e-12, atol=1e-12)
    assert len({len(part) for part in microbatches(torch.arange(67), 20)}) == 2
