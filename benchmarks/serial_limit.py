"""How fast a training loop could be if nothing but the engine, the networks and the optimizer took time.

Straight-line torch and EnvPool. Of ours, only the network classes and the numbers of the plan are used.
"""

import math
import os
from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple

import envpool
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stopwatch import calls_per_second
from torch import Tensor

from anybatch import networks, session
from anybatch.config import PPOConfig
from anybatch.networks.actor_critic import ActorCritic

DIFFERENT_ACTIONS = 64
"""Random ones drawn beforehand, so that episodes are as long as those of an untrained policy."""


class SerialLimit(NamedTuple):
    """Env steps per second of each part alone."""

    env: float
    act: float
    train: float

    @property
    def together(self) -> float:
        """One part after the other."""
        return 1 / (1 / self.env + 1 / self.act + 1 / self.train)


class Minibatch(NamedTuple):
    """A part of a minibatch, on which one forward and backward pass is run."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    advantage: Tensor
    value_target: Tensor


def measure(config: PPOConfig, seconds: float) -> SerialLimit:
    """Each part for a third of the seconds."""
    session.set_threads(config)
    torch.manual_seed(0)
    engine = make_engine(config)
    obs_space, action_space = engine.observation_space, engine.action_space
    env_rate = config.num_envs * calls_per_second(engine_step(engine, config.num_envs), seconds / 3)
    engine.close()

    network = make_network(config, obs_space, action_space)
    obs = random_obs(obs_space, config.num_envs)
    act_rate = config.num_envs * calls_per_second(acting_pass(network, obs), seconds / 3)

    plan = session.plan(config).plan
    size = int(plan.minibatch)
    sizes = [len(part) for part in torch.arange(size).split(plan.microbatch)]
    parts = [random_minibatch(obs_space, action_space, part) for part in sizes]
    gradient_steps = calls_per_second(gradient_step(network, parts, config), seconds / 3)
    return SerialLimit(env_rate, act_rate, gradient_steps * size / plan.epochs)


def make_engine(config: PPOConfig) -> Any:
    """EnvPool itself, with as many threads as there are cores to run envs on."""
    options: dict[str, Any] = {}
    if config.env_config.episodic_life:
        options = {"episodic_life": True, "reward_clip": config.env_config.reward_clip}
    threads = min(len(os.sched_getaffinity(0)), config.num_envs)
    return envpool.make(
        config.env, env_type="gymnasium", num_envs=config.num_envs, num_threads=threads, seed=1, **options
    )


def engine_step(engine: Any, num_envs: int) -> Callable[[], object]:
    space = engine.action_space
    space.seed(0)
    drawn = [np.stack([space.sample() for _ in range(num_envs)]) for _ in range(DIFFERENT_ACTIONS)]
    actions = cycle(drawn)
    engine.reset()
    return lambda: engine.step(next(actions))


def make_network(config: PPOConfig, obs_space: Box, action_space: Box | Discrete) -> ActorCritic:
    continuous = isinstance(action_space, Box)
    return networks.make(
        config.network,
        obs_shape=obs_space.shape,
        obs_is_image=obs_space.dtype == np.uint8,
        num_actions=action_space.shape[0] if isinstance(action_space, Box) else int(action_space.n),
        continuous=continuous,
        generator_seed=0,
    )


def random_obs(space: Box, size: int) -> Tensor:
    if space.dtype == np.uint8:
        return torch.randint(256, (size, *space.shape), dtype=torch.uint8)
    return torch.randn(size, *space.shape)


def outputs(network: ActorCritic, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits or means [B, A] and values [B], by the bare layers."""
    features = network.policy.encoder(obs)
    value_features = features if network.value_encoder is None else network.value_encoder(obs)
    return network.policy.head(features), network.value_head(value_features).squeeze(-1)


def acting_pass(network: ActorCritic, obs: Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode():
            outputs(network, obs)

    return run


def random_minibatch(obs_space: Box, action_space: Box | Discrete, size: int) -> Minibatch:
    if isinstance(action_space, Box):
        action = torch.randn(size, *action_space.shape)
        logp = -0.5 * (action.square() + math.log(2 * math.pi)).sum(-1)
    else:
        action = torch.randint(int(action_space.n), (size,))
        logp = torch.full((size,), -math.log(int(action_space.n)))
    return Minibatch(
        random_obs(obs_space, size), action, logp, advantage=torch.randn(size), value_target=torch.randn(size)
    )


def gradient_step(network: ActorCritic, parts: list[Minibatch], config: PPOConfig) -> Callable[[], None]:
    """One step on a minibatch that comes in `parts`, as torch's own tutorial would write it."""
    parameters = list(network.parameters())
    # The same samples again and again: with a learning rate of 0 the numbers stay those of the first step.
    optimizer = torch.optim.Adam(parameters, lr=0.0, fused=True)
    size = sum(len(part.obs) for part in parts)

    def run() -> None:
        optimizer.zero_grad()
        for part in parts:
            (ppo_loss(network, part, config) / size).backward()
        assert config.optimizer.max_grad_norm is not None
        torch.nn.utils.clip_grad_norm_(parameters, config.optimizer.max_grad_norm)
        optimizer.step()

    return run


def ppo_loss(network: ActorCritic, part: Minibatch, config: PPOConfig) -> Tensor:
    """Sum over the samples of -clipped surrogate + value error - entropy."""
    objective = config.objective
    assert objective.clip is not None
    location, value = outputs(network, part.obs)
    log_std = network.policy.log_std
    if log_std is None:
        log_probs = location.log_softmax(-1)
        logp = log_probs.gather(-1, part.action.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum()
    else:
        distance = (part.action - location) * (-log_std).exp()
        logp = (-0.5 * distance.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        entropy = (log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum() * len(value)
    ratio = (logp - part.behavior_logp).exp()
    clipped = ratio.clamp(1 - objective.clip, 1 + objective.clip)
    surrogate = torch.minimum(ratio * part.advantage, clipped * part.advantage).sum()
    value_error = (value - part.value_target).square().sum()
    return objective.value_coefficient * value_error - surrogate - objective.entropy_coefficient * entropy
