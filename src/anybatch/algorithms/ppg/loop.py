"""PPG and PPG-EWMA (arXiv:2009.04416, arXiv:2110.00641).

A phase is `policy_iterations` of PPO, then an auxiliary phase: the data of the whole phase trains the value
function and, through an auxiliary head, the policy's encoder, while the policy's outputs are kept unchanged.
"""

from dataclasses import replace

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.algorithms.arithmetic import torch_beside_native_code
from anybatch.algorithms.ppg.state import AuxiliaryProgress, AuxiliaryRecord, PPGState
from anybatch.algorithms.ppo import loop as ppo
from anybatch.algorithms.ppo.samples import Samples
from anybatch.algorithms.steps import Minibatch, minibatches
from anybatch.config import PPGConfig
from anybatch.distributed import collectives
from anybatch.equations import objectives
from anybatch.learning import minibatch
from anybatch.learning.gradient_steps import by_autograd
from anybatch.learning.staging import on_device, take
from anybatch.networks.distributions import kept_log_std, make_distribution
from anybatch.runs.run import Run

AUXILIARY_VALUE_COEFFICIENT = 0.5
"""Weight of both squared value errors in the auxiliary phase, as in the paper's code."""
VALUE_CULPRIT = "the loss of the value function overflowed"


def train(config: PPGConfig, state: PPGState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    while state.env_steps < config.total_env_steps and not run.is_to_stop:
        if state.data.is_full:
            with run.timer("auxiliary"), torch_beside_native_code(state, config):
                auxiliary_phase(config, state, run)
            continue
        learning_rate = state.learner.learning_rate
        metrics: dict[str, float | None] = {"charts/learning_rate": learning_rate}
        with run.timer("rollout"):
            due = state.source.next(state.network, state.batch.num_steps, state.learner.origin)
        if due is None:  # the first data has not arrived: nothing to learn from, or to count
            state.learner.iterations += 1
            run.save_if_due(state)
            continue
        with run.timer("returns"):
            samples = ppo.prepare(due, state.policy, config)
        with run.timer("update"):
            metrics |= policy_iteration(samples, state, config, learning_rate)
        state.data.add(
            state.iterations, obs=samples.obs, value_target=samples.value_target, valid=samples.valid
        )
        state.learner.count(due)
        metrics = state.metrics() | metrics | state.take_auxiliary_metrics()  # for the batch it had
        ppo.decide_batch(config, state.policy, None, run)  # the minibatch limit may move
        run.record(state, due.episodes, metrics)
    finish(config, state, run)


def finish(config: PPGConfig, state: PPGState, run: Run) -> None:
    """Save the end of the run; if phases are not saved, only its last weights or the last phase's end."""
    if not state.data.can_be_saved:
        if state.env_steps >= config.total_env_steps:
            state.leave_phase()
            run.say("phase.save-data is off: a resume of this run would start a new phase.")
        else:
            run.say("phase.save-data is off: the newest checkpoint is from before this phase.")
    run.save(state)


def policy_iteration(
    samples: Samples, state: PPGState, config: PPGConfig, learning_rate: float
) -> dict[str, float | None]:
    """PPO on one iteration batch. If its epochs differ, the value has its own optimizer."""
    samples = on_device(samples, state.device)
    if state.value_steps is None:
        return ppo.improve_policy(samples, state.policy, config, learning_rate)
    metrics = ppo.improve_policy(samples, state.policy, without_value_loss(config), learning_rate)
    return metrics | improve_value(samples, state, config, learning_rate)


def without_value_loss(config: PPGConfig) -> PPGConfig:
    """The same config for the policy alone, whose gradient steps leave the value function unchanged."""
    return replace(config, objective=replace(config.objective, value_coefficient=0.0))


def improve_value(
    samples: Samples, state: PPGState, config: PPGConfig, learning_rate: float
) -> dict[str, float | None]:
    """`value_epochs` passes of the value loss alone. Returns its mean over all samples."""
    steps, objective = state.value_steps, config.objective
    assert steps is not None
    steps.begin_iteration(learning_rate, state.plan.hyperparameters)

    def loss_of(part: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        error = objectives.value_loss(
            state.network.value(take(samples.obs, part, state.device)),
            take(samples.value_target, part, state.device),
            collected_value=take(samples.value, part, state.device),
            clip=objective.value_clip,
        )
        return objective.value_coefficient * error, (error.detach(),)

    errors: list[tuple[Tensor]] = []
    for _ in range(config.phase.value_epochs):
        for batch in minibatches(samples.all_valid, state, config, device=samples.obs.device):
            errors += steps.gradient(batch.own, by_autograd(loss_of), batch.count)
            steps.apply(lambda: VALUE_CULPRIT)
    if not errors:  # reset steps only
        return {}
    seen = torch.cat([error for (error,) in errors])
    total, number = collectives.sum_over_ranks(torch.stack([seen.sum(), seen.new_tensor(len(seen))])).tolist()
    return {"losses/value_loss": total / number}


def auxiliary_phase(config: PPGConfig, state: PPGState, run: Run) -> None:
    """All auxiliary epochs on the phase's data, then a new phase; returns early if a stop is requested.

    The position is part of the state, so that a checkpoint can be taken, and a run resumed, in the middle.
    """
    phase = state.plan.phase
    assert phase is not None
    if state.progress is None:
        state.progress = AuxiliaryProgress(
            frozen_location=frozen_policy(state), frozen_log_std=kept_log_std(state.network.policy.log_std)
        )
    progress = state.progress
    state.auxiliary_steps.set_learning_rate(phase.auxiliary_learning_rate)
    while progress.epoch < config.phase.auxiliary_epochs:
        parts = auxiliary_minibatches(state, config)
        while progress.minibatch < len(parts):
            auxiliary_step(parts[progress.minibatch], state, config)
            progress.minibatch += 1
            done = progress.epoch + progress.minibatch / len(parts)
            run.display.update(state.env_steps, {"auxiliary/epochs": done})
            run.save_if_due(state)
            if run.is_to_stop:
                return
        progress.epoch, progress.minibatch = progress.epoch + 1, 0
    begin_phase(state)
    run.display.update(state.env_steps, {"auxiliary/epochs": None})
    if config.phase.save_data:
        run.save_if_due(state)
    else:  # the only points at which the state can be saved
        run.save(state)


def begin_phase(state: PPGState) -> None:
    """Begin the next phase. The metrics of the auxiliary phase go into the next row of the log."""
    assert state.progress is not None
    state.auxiliary_metrics = auxiliary_metrics(state.progress)
    state.auxiliary_steps.counts.norms.clear()
    state.phases += 1
    state.leave_phase()


@torch.no_grad()
def frozen_policy(state: PPGState) -> Tensor:
    """Outputs of the policy on all of the phase's observations, before any auxiliary step. [S·T·N, A]."""
    return state.learner.over(state.network.locate, state.data.flat_obs)


def auxiliary_minibatches(state: PPGState, config: PPGConfig) -> list[Minibatch]:
    """The epoch's minibatches, one draw over all ranks' data. The order depends only on phase and epoch."""
    assert state.progress is not None
    generator = seeding.torch_generator(
        config.seed, role="auxiliary", draw=(state.phases, state.progress.epoch)
    )
    phase = state.plan.phase
    assert phase is not None
    valid = collectives.envs_of_all_ranks(state.data.valid, state.batch.num_envs, axis=2)
    parts = minibatch.sequence_epoch(valid, phase.auxiliary_minibatches, generator, config.update.draw)
    return [Minibatch.of(part, state.shard, state.data.flat_obs.device) for part in parts]


def auxiliary_step(batch: Minibatch, state: PPGState, config: PPGConfig) -> None:
    """One gradient step of  β_clone KL(π_frozen ‖ π) + ½ (V_auxiliary - target)² + ½ (V - target)²."""
    if batch.count == 0:
        return
    progress, data, device = state.progress, state.data, state.device
    assert progress is not None

    def loss_of(part: Tensor) -> tuple[Tensor, AuxiliaryRecord]:
        policy, auxiliary_value, value = state.network.auxiliary(take(data.flat_obs, part, device))
        frozen = make_distribution(
            take(progress.frozen_location, part, device), progress.frozen_log_std, state.network.action_counts
        )
        target = take(data.flat_value_target, part, device)
        clone = policy.kl_from(frozen)
        auxiliary_error = objectives.value_loss(auxiliary_value, target)
        error = objectives.value_loss(value, target)
        loss = config.phase.clone_coefficient * clone + AUXILIARY_VALUE_COEFFICIENT * (
            auxiliary_error + error
        )
        return loss, AuxiliaryRecord(clone.detach(), auxiliary_error.detach(), error.detach())

    records = state.auxiliary_steps.gradient(batch.own, by_autograd(loss_of), batch.count)
    state.auxiliary_steps.apply(lambda: VALUE_CULPRIT)
    progress.add(records, batch.count)


def auxiliary_metrics(progress: AuxiliaryProgress) -> dict[str, float]:
    names = (f"auxiliary/{name}" for name in AuxiliaryRecord._fields)
    return dict(zip(names, progress.means(), strict=True))
