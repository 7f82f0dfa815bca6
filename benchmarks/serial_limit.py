"""How fast a training loop could be if nothing but the engine, the networks and the optimizer took time.

Straight-line torch and EnvPool. Of ours, only the network classes and the numbers of the plan are used, and
of MinAtar the adapter, which is one compiled call a step.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from envpool_engine import make_envpool
from gymnasium.spaces import Box, Discrete
from stopwatch import calls_per_second
from torch import Tensor

from anybatch import envs, networks, planning
from anybatch.backends.threads import set_threads
from anybatch.config import AnyConfig, EnvConfig, PPOConfig, PQNConfig
from anybatch.dial import BatchSizes, PhasePlan, Plan
from anybatch.envs.layout import ObsKind, ObsLayout
from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.q_network import QNetwork
from anybatch.planning import expected_encoder

DIFFERENT_ACTIONS = 64
"""Random ones drawn beforehand, so that episodes are as long as those of an untrained policy."""


class SerialLimit(NamedTuple):
    """Env steps per second of each part alone."""

    env: float
    act: float
    train: float
    auxiliary: float | None
    """PPG's auxiliary phase; None if none is timed."""

    @property
    def together(self) -> float:
        """One part after the other."""
        return one_after_the_other(*(rate for rate in self if rate is not None))


def one_after_the_other(*rates: float) -> float:
    """The rate of doing all of several things, each of which has its own."""
    return 1 / sum(1 / rate for rate in rates)


class Spaces(NamedTuple):
    """What one env shows and takes."""

    obs_shape: tuple[int, ...]
    obs_kind: ObsKind
    action: Box | Discrete

    @property
    def layout(self) -> ObsLayout:
        return ObsLayout.single(self.obs_shape, self.obs_kind)


class Microbatch(NamedTuple):
    """A part of a minibatch, on which one forward and backward pass is run."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    advantage: Tensor
    value_target: Tensor


class AuxiliaryMicrobatch(NamedTuple):
    """A part of a minibatch of PPG's auxiliary phase."""

    obs: Tensor
    frozen_logits: Tensor
    value_target: Tensor


def measure(config: AnyConfig, seconds: float) -> SerialLimit:
    """Each part for the same share of the seconds."""
    set_threads(config, expected_encoder(config))
    torch.manual_seed(0)
    plan = planning.plan(config)
    batch, phase = plan.batch, timed_phase(config, plan)
    part_seconds = seconds / (3 if phase is None else 4)
    engine, spaces = make_engine(config)
    step = engine_step(engine, spaces.action, config.num_envs)
    env_rate = config.num_envs * calls_per_second(step, part_seconds)
    engine.close()
    if isinstance(config, PQNConfig):
        return q_limit(config, batch, spaces, env_rate, part_seconds)
    network = make_network(config, spaces)
    return SerialLimit(
        env=env_rate,
        act=acting_rate(network, spaces, config, batch, part_seconds),
        train=training_rate(network, spaces, config, batch, part_seconds),
        auxiliary=None
        if phase is None
        else auxiliary_rate(network, spaces, phase, batch.microbatch, part_seconds),
    )


def q_limit(
    config: PQNConfig, batch: BatchSizes, spaces: Spaces, env_rate: float, seconds: float
) -> SerialLimit:
    """Action values once for each step; forward and backward of the squared error in every epoch."""
    assert isinstance(spaces.action, Discrete)
    network = networks.make_q_network(
        config.network,
        layout=spaces.layout,
        num_actions=int(spaces.action.n),
        generator_seed=0,
    )
    size = int(batch.minibatch)
    losses = [
        partial(q_loss, network, random_microbatch(spaces, part))
        for part in microbatch_sizes(size, batch.microbatch)
    ]
    # As in `gradient_step`, the numbers stay those of the first step.
    optimizer = torch.optim.RAdam(network.parameters(), lr=0.0, foreach=True)
    step = gradient_step(network, losses, size, config.optimizer.max_grad_norm, optimizer)
    return SerialLimit(
        env=env_rate,
        act=forward_rate(network.policy_params, spaces, config.num_envs, seconds),
        train=calls_per_second(step, seconds) * size / batch.epochs,
        auxiliary=None,
    )


def q_loss(network: QNetwork, part: "Microbatch") -> Tensor:
    value = network.policy_params(part.obs).gather(1, part.action[:, None]).squeeze(1)
    return (value - part.value_target).square().sum()


def timed_phase(config: AnyConfig, plan: Plan) -> PhasePlan | None:
    """The phase, if the run is long enough for its auxiliary part."""
    phase = plan.phase
    return phase if phase is not None and config.total_env_steps >= phase.env_steps else None


def acting_rate(
    network: ActorCritic, spaces: Spaces, config: PPOConfig, batch: BatchSizes, seconds: float
) -> float:
    """Policy and value once for each step; of PPG, the values in microbatches after a rollout's steps."""
    if config.algorithm != "ppg":
        return forward_rate(partial(outputs, network), spaces, config.num_envs, seconds)
    return one_after_the_other(
        forward_rate(network.policy_params, spaces, config.num_envs, seconds / 2),
        forward_rate(network.value, spaces, batch.microbatch, seconds / 2),
    )


def training_rate(
    network: ActorCritic, spaces: Spaces, config: PPOConfig, batch: BatchSizes, seconds: float
) -> float:
    size = int(batch.minibatch)
    proximal = network.policy_only() if config.proximal.policy == "ewma" else None
    losses = [
        partial(ppo_loss, network, proximal, random_microbatch(spaces, part), config)
        for part in microbatch_sizes(size, batch.microbatch)
    ]
    step = gradient_step(network, losses, size, config.optimizer.max_grad_norm)
    return calls_per_second(step, seconds) * size / batch.epochs


def auxiliary_rate(
    network: ActorCritic, spaces: Spaces, phase: PhasePlan, microbatch: int, seconds: float
) -> float:
    """The outputs of the policy that is held, once, and gradient steps on all data in every epoch."""
    size = phase.env_steps // phase.auxiliary_minibatches
    losses = [
        partial(auxiliary_loss, network, random_auxiliary_microbatch(spaces, part))
        for part in microbatch_sizes(size, microbatch)
    ]
    step = gradient_step(network, losses, size, max_grad_norm=None)
    passes = 1 + phase.auxiliary_epochs
    return one_after_the_other(
        forward_rate(network.policy_params, spaces, microbatch, seconds / passes),
        calls_per_second(step, seconds * phase.auxiliary_epochs / passes) * size / phase.auxiliary_epochs,
    )


def microbatch_sizes(minibatch: int, microbatch: int) -> list[int]:
    return [len(part) for part in torch.arange(minibatch).split(microbatch)]


def make_engine(config: AnyConfig) -> tuple[Any, Spaces]:
    """EnvPool itself, or our adapter of MinAtar."""
    if config.env.startswith("minatar:"):
        return make_minatar(config)
    engine = make_envpool(config.env, config.num_envs, atari_training=config.env_config.episodic_life)
    obs = engine.observation_space
    kind: ObsKind = "image" if obs.dtype == np.uint8 else "vector"
    return engine, Spaces(obs.shape, kind, engine.action_space)


def make_minatar(config: AnyConfig) -> tuple[Any, Spaces]:
    sticky = EnvConfig(sticky=config.env_config.sticky)
    engine = envs.make(config.env, sticky, seeds=list(range(config.num_envs)))
    spec = engine.spec
    assert not hasattr(spec.actions, "low")
    return engine, Spaces(spec.obs_shape, spec.obs_kind, Discrete(spec.actions.count))


def engine_step(engine: Any, space: Box | Discrete, num_envs: int) -> Callable[[], object]:
    space.seed(0)
    drawn = [np.stack([space.sample() for _ in range(num_envs)]) for _ in range(DIFFERENT_ACTIONS)]
    actions = cycle(drawn)
    engine.reset()
    return lambda: engine.step(next(actions))


def make_network(config: PPOConfig, spaces: Spaces) -> ActorCritic:
    action = spaces.action
    continuous = isinstance(action, Box)
    return networks.make(
        config.network,
        layout=spaces.layout,
        num_actions=action.shape[0] if isinstance(action, Box) else int(action.n),
        continuous=continuous,
        generator_seed=0,
        auxiliary=config.algorithm == "ppg",
    )


def random_obs(spaces: Spaces, size: int) -> Tensor:
    shape = (size, *spaces.obs_shape)
    match spaces.obs_kind:
        case "image":
            return torch.randint(256, shape, dtype=torch.uint8)
        case "planes":
            return torch.rand(shape) < 0.1
        case "vector":
            return torch.randn(shape)


def outputs(network: ActorCritic, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits or means [B, A] and values [B], by the bare layers."""
    features = network.policy.encoder(obs)
    value_features = features if network.value_encoder is None else network.value_encoder(obs)
    return network.policy.head(features), network.value_head(value_features).squeeze(-1)


def forward_rate(layers: Callable[[Tensor], object], spaces: Spaces, batch: int, seconds: float) -> float:
    """Observations per second through `layers`, without gradients, so many at a time."""
    obs = random_obs(spaces, batch)

    def run() -> None:
        with torch.inference_mode():
            layers(obs)

    return batch * calls_per_second(run, seconds)


def random_microbatch(spaces: Spaces, size: int) -> Microbatch:
    if isinstance(spaces.action, Box):
        action = torch.randn(size, *spaces.action.shape)
        logp = -0.5 * (action.square() + math.log(2 * math.pi)).sum(-1)
    else:
        action = torch.randint(int(spaces.action.n), (size,))
        logp = torch.full((size,), -math.log(int(spaces.action.n)))
    obs, advantage, value_target = random_obs(spaces, size), torch.randn(size), torch.randn(size)
    return Microbatch(obs, action, logp, advantage, value_target)


def random_auxiliary_microbatch(spaces: Spaces, size: int) -> AuxiliaryMicrobatch:
    assert isinstance(spaces.action, Discrete)
    logits = torch.randn(size, int(spaces.action.n))
    return AuxiliaryMicrobatch(random_obs(spaces, size), logits, value_target=torch.randn(size))


def gradient_step(
    network: ActorCritic | QNetwork,
    losses: list[Callable[[], Tensor]],
    size: int,
    max_grad_norm: float | None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Callable[[], None]:
    """One step on a minibatch of `size` samples, from the sums of its parts' losses: plain torch."""
    parameters = list(network.parameters())
    # The same samples again and again: with a learning rate of 0 the numbers stay those of the first step.
    optimizer = optimizer or torch.optim.Adam(parameters, lr=0.0, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        for loss in losses:
            (loss() / size).backward()
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()

    return run


def ppo_loss(network: ActorCritic, proximal: Policy | None, part: Microbatch, config: PPOConfig) -> Tensor:
    """Sum over the samples of -surrogate + value error - entropy. With `proximal`, a KL penalty too."""
    objective = config.objective
    proximal_logp = None
    if proximal is not None:  # before the other pass, whose activations are kept: less memory is mapped
        with torch.no_grad():
            proximal_logp, _ = logp_and_entropy(
                proximal.policy_params(part.obs), proximal.log_std, part.action
            )
    params, value = outputs(network, part.obs)
    logp, entropy = logp_and_entropy(params, network.policy.log_std, part.action)
    ratio = (logp - part.behavior_logp).exp()
    gain = ratio * part.advantage
    if objective.clip is not None:
        clipped = ratio.clamp(1 - objective.clip, 1 + objective.clip)
        gain = torch.minimum(gain, clipped * part.advantage)
    if proximal_logp is not None:
        gain = gain - objective.kl_penalty * 0.5 * (logp - proximal_logp).square()
    value_error = (value - part.value_target).square().sum()
    return objective.value_coefficient * value_error - gain.sum() - objective.entropy_coefficient * entropy


def logp_and_entropy(params: Tensor, log_std: Tensor | None, action: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probabilities of the actions, and the sum of the entropies."""
    if log_std is None:
        log_probs = params.log_softmax(-1)
        logp = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return logp, -(log_probs.exp() * log_probs).sum()
    distance = (action - params) * (-log_std).exp()
    logp = (-0.5 * distance.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
    return logp, (log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum() * len(params)


def auxiliary_loss(network: ActorCritic, part: AuxiliaryMicrobatch) -> Tensor:
    """Sum over the samples of KL(frozen policy, policy) + half the squared errors of both values."""
    assert network.auxiliary_head is not None and network.value_encoder is not None
    features = network.policy.encoder(part.obs)
    frozen, log_probs = part.frozen_logits.log_softmax(-1), network.policy.head(features).log_softmax(-1)
    clone = (frozen.exp() * (frozen - log_probs)).sum()
    auxiliary_value = network.auxiliary_head(features).squeeze(-1)
    value = network.value_head(network.value_encoder(part.obs)).squeeze(-1)
    errors = (auxiliary_value - part.value_target).square() + (value - part.value_target).square()
    return clone + 0.5 * errors.sum()
