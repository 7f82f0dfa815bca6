"""The batch inside a run: what a controller sees of an iteration, and what follows from its decision."""

import torch

from anybatch import controllers
from anybatch.config import RunConfig
from anybatch.controllers import Signals
from anybatch.distributed import collectives
from anybatch.equations import divergence
from anybatch.networks.distributions import make_distribution
from anybatch.ppo_state import PPOState
from anybatch.pqn_state import PQNState
from anybatch.rollout import Rollout
from anybatch.runs import seeding
from anybatch.runs.run import Run


def control_batch(
    config: RunConfig, state: PPOState | PQNState, fresh: Rollout, run: Run, *, trained: bool = True
) -> dict[str, float]:
    """Let the controller decide on the next batch. Call after an iteration has been counted.

    `fresh` was collected by the policy as it was before this iteration's updates. Where there were none,
    because a queue of stale data is still filling, not `trained`: a divergence of 0 would say nothing.
    """
    if config.controller.kind == "fixed":
        return {}
    moved = None
    if trained and controllers.measures_at(config.controller, state.iterations):
        moved = behavioral_divergence(config, state, fresh)
    acting = next(iter(state.steps.noise.values()))
    signals = Signals(
        iteration=state.iterations,
        env_steps=state.env_steps,
        samples_per_step=state.plan.num_envs * state.plan.ranks,
        minibatches=state.plan.minibatches_per_epoch,
        divergence=moved,
        noise_trace=acting.trace if acting.weight else None,
        noise_signal=acting.signal if acting.weight else None,
    )
    controller, _ = controllers.decide(config.controller, state.controller, signals)
    sentence = state.follow(controller)
    if sentence is not None:
        run.progress.say(sentence)
    name = "batch/behavioral_divergence" if config.controller.kind == "divergence" else "batch/policy_kl"
    return {} if moved is None else {name: moved}


@torch.no_grad()
def behavioral_divergence(config: RunConfig, state: PPOState | PQNState, fresh: Rollout) -> float:
    """How far one iteration moved the policy, on some of the states that it was collected from.

    What the policy before it did there is in the rollout: no copy of its weights is needed.
    """
    states = fresh.valid.flatten().nonzero().squeeze(1)
    generator = seeding.torch_generator(
        config.seed, role="probe", rank=collectives.rank(), draw=(state.iterations,)
    )
    share = -(-config.controller.states // state.plan.ranks)
    chosen = states[torch.randperm(len(states), generator=generator)[:share]]
    before = fresh.location.flatten(0, 1)[chosen]
    after = state.collector.in_chunks(state.network.locate, fresh.obs[:-1].flatten(0, 1)[chosen])
    if config.controller.kind == "divergence":
        moved = divergence.greedy_action_churn(before, after)
    else:
        moved = policy_kl(state, fresh, before, after)
    # A rank of reset steps only has no mean, and adds nothing to that of the others.
    total = moved * len(chosen) if len(chosen) else torch.zeros_like(moved)
    sums = collectives.sum_over_ranks(torch.stack([total, torch.tensor(float(len(chosen)))]))
    return float(sums[0] / sums[1])


def policy_kl(
    state: PPOState | PQNState, fresh: Rollout, before: torch.Tensor, after: torch.Tensor
) -> torch.Tensor:
    """KL(current ‖ behavior), exact, its mean over the states."""
    counts = state.network.action_counts
    current = make_distribution(after, state.network.distribution(after).log_std, counts)
    return make_distribution(before, fresh.log_std, counts).kl_from(current).mean()
