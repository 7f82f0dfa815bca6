"""The signals of an iteration for a controller, and the effect of its decision."""

import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.acting.rollout import Rollout
from anybatch.algorithms.state import TrainState
from anybatch.config import RunConfig
from anybatch.dial import change_of_batch, controllers
from anybatch.dial.controllers import Signals
from anybatch.distributed import collectives
from anybatch.equations import divergence
from anybatch.networks.distributions import kept_log_std, make_distribution

logger = logging.getLogger(__name__)


class Probe(NamedTuple):
    """Some states of a rollout, and the policy at them before an iteration's updates."""

    obs: Tensor
    """[M, …]"""
    policy_params: Tensor
    """[M, A]"""
    log_std: Tensor | None


@torch.no_grad()
def probe(config: RunConfig, state: TrainState[Any], rollout: Rollout) -> Probe | None:
    """The policy at some states of the next rollout, before it is trained on; None if not measured.

    A fresh rollout holds the policy's outputs. A stale one holds those of an earlier policy, so the current
    policy is evaluated again.
    """
    iteration = state.iterations + 1
    if not controllers.measures_at(config.complete_controller, iteration):
        return None
    chosen = probed_states(config, state, rollout, iteration)
    obs = rollout.obs[:-1].flatten(0, 1)[chosen]
    if state.learner.age_of(rollout) == 0:
        return Probe(obs, rollout.policy_params.flatten(0, 1)[chosen], rollout.log_std)
    policy_params = state.backend.outputs(state.network.policy_params, obs)
    return Probe(obs, policy_params, kept_log_std(state.network.distribution(policy_params).log_std))


def probed_states(config: RunConfig, state: TrainState[Any], rollout: Rollout, iteration: int) -> Tensor:
    """Indices into [T · N] of this rank's part of the measured states, drawn from all valid ones."""
    all_valid = collectives.envs_of_all_ranks(rollout.valid, state.batch.num_envs, axis=1)
    states = all_valid.flatten().nonzero().squeeze(1)
    generator = seeding.torch_generator(config.seed, role="probe", draw=(iteration,))
    drawn = torch.randperm(len(states), generator=generator)[: config.controller.states]
    return state.shard.local_indices(states[drawn])


def control_batch(
    config: RunConfig, state: TrainState[Any], before_updates: Probe | None
) -> dict[str, float]:
    """Let the controller decide the next batch. Call after an iteration has been counted."""
    if config.controller.kind == "fixed" and config.minibatch != "noise-scale":
        return {}
    moved = None if before_updates is None else policy_change(config, state, before_updates)
    noise, estimate = state.learner.noise, state.learner.noise.estimate
    trace, signal = (None, None) if estimate is None else (estimate.trace, estimate.signal)
    if config.controller.kind == "noise_scale" and config.controller.noise_estimator == "paper":
        trace, signal = noise.of_batch or (None, None)
    before = state.batch
    signals = Signals(
        iteration=state.iterations,
        env_steps=state.env_steps,
        samples_per_step=before.num_envs,
        minibatches=state.learner.control.minibatches,
        divergence=moved,
        noise_trace=trace,
        noise_signal=signal,
        noise_measurements=noise.measurements,
    )
    if state.learner.control.decide(signals):
        logger.info(change_of_batch(before, state.plan, state.env_steps))
    if config.rescales_within_a_run:
        state.batch_changed(config, before.env_steps_per_gradient_step)
    name = "batch/behavioral_divergence" if config.controller.kind == "divergence" else "batch/policy_kl"
    return {} if moved is None else {name: moved}


@torch.no_grad()
def policy_change(config: RunConfig, state: TrainState[Any], before: Probe) -> float:
    """How far an iteration moved the policy, measured on some of the states that it trained on."""
    after = state.backend.outputs(state.network.policy_params, before.obs)
    if config.controller.kind == "divergence":
        moved = divergence.greedy_action_churn(before.policy_params, after)
    else:
        moved = policy_kl(state, before, after)
    # A rank without any of the states has no mean and contributes nothing.
    count = len(before.obs)
    total = moved * count if count else torch.zeros_like(moved)
    sums = collectives.sum_over_ranks(torch.stack([total, torch.tensor(float(count))]))
    return float(sums[0] / sums[1])


def policy_kl(state: TrainState[Any], before: Probe, after: Tensor) -> Tensor:
    """Exact KL(current ‖ before the updates), averaged over the states."""
    counts = state.network.action_counts
    current = make_distribution(after, state.network.distribution(after).log_std, counts)
    return make_distribution(before.policy_params, before.log_std, counts).kl_from(current).mean()
