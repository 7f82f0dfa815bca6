"""What a controller sees of an iteration, and what follows from its decision."""

import torch

from anybatch import seeding
from anybatch.acting.rollout import Rollout
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.pqn.state import PQNState
from anybatch.batch import controllers
from anybatch.batch.controllers import Signals
from anybatch.batch.table import change_of_batch
from anybatch.config import RunConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence
from anybatch.networks.distributions import make_distribution
from anybatch.runs.run import Run


def control_batch(
    config: RunConfig, state: PPOState | PQNState, collected: Rollout, run: Run, *, trained: bool = True
) -> dict[str, float]:
    """Let the controller decide on the next batch. Call after an iteration has been counted.

    `collected` is by the policy as it was before this iteration's updates. Where there were none, because
    delayed data are still on their way, not `trained`: a divergence of 0 would say nothing.
    """
    if config.controller.kind == "fixed" and config.minibatch_limit != "noise-scale":
        return {}
    moved = None
    if trained and controllers.measures_at(config.complete_controller, state.iterations):
        moved = behavioral_divergence(config, state, collected)
    acting = next(iter(state.steps.noise.values()))
    before = state.batch
    signals = Signals(
        iteration=state.iterations,
        env_steps=state.env_steps,
        samples_per_step=before.num_envs * before.ranks,
        minibatches=config.update.minibatches_per_epoch,
        divergence=moved,
        noise_trace=acting.trace if acting.weight else None,
        noise_signal=acting.signal if acting.weight else None,
        noise_weight=acting.weight,
    )
    if state.learner.control.decide(signals):
        run.say(change_of_batch(before, state.plan, state.env_steps))
    name = "batch/behavioral_divergence" if config.controller.kind == "divergence" else "batch/policy_kl"
    return {} if moved is None else {name: moved}


@torch.no_grad()
def behavioral_divergence(config: RunConfig, state: PPOState | PQNState, collected: Rollout) -> float:
    """How far one iteration moved the policy, measured on some of the states in its rollout.

    The rollout has the outputs of the policy before it: no copy of its weights is needed.
    """
    states = collected.valid.flatten().nonzero().squeeze(1)
    generator = seeding.torch_generator(
        config.seed, role="probe", rank=collectives.rank(), draw=(state.iterations,)
    )
    share = -(-config.controller.states // state.batch.ranks)
    chosen = states[torch.randperm(len(states), generator=generator)[:share]]
    before = collected.location.flatten(0, 1)[chosen]
    after = state.learner.over(state.network.locate, collected.obs[:-1].flatten(0, 1)[chosen])
    if config.controller.kind == "divergence":
        moved = divergence.greedy_action_churn(before, after)
    else:
        moved = policy_kl(state, collected, before, after)
    # A rank of reset steps only has no mean, and adds nothing to that of the others.
    total = moved * len(chosen) if len(chosen) else torch.zeros_like(moved)
    sums = collectives.sum_over_ranks(torch.stack([total, torch.tensor(float(len(chosen)))]))
    return float(sums[0] / sums[1])


def policy_kl(
    state: PPOState | PQNState, collected: Rollout, before: torch.Tensor, after: torch.Tensor
) -> torch.Tensor:
    """KL(current ‖ behavior), exact, its mean over the states."""
    counts = state.network.action_counts
    current = make_distribution(after, state.network.distribution(after).log_std, counts)
    return make_distribution(before, collected.log_std, counts).kl_from(current).mean()
