"""The work that is timed. A case is a config of ours; the others are told the same numbers from it."""

import os
from dataclasses import replace

from work import Work

from anybatch import presets
from anybatch.config import (
    AnyConfig,
    EnvConfig,
    NetworkConfig,
    NormalizeConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PPGConfig,
    PPOConfig,
    PQNConfig,
    UpdateConfig,
)
from anybatch.networks.encoders import MINATAR_CHANNELS

UNREACHED = 10**9
"""Runs are ended by the stopwatch, not by their length."""
OBJECTIVE = ObjectiveConfig(entropy_coefficient=0.01)
OPTIMIZER = OptimizerConfig(max_grad_norm=0.5)


def cartpole(num_envs: int, minibatch: int) -> PPOConfig:
    return PPOConfig(
        env="CartPole-v1",
        num_envs=num_envs,
        num_steps=128,
        total_env_steps=UNREACHED,
        rescale="none",
        update=UpdateConfig(epochs=4, minibatches_per_epoch=num_envs * 128 // minibatch),
        objective=OBJECTIVE,
        optimizer=OPTIMIZER,
        network=NetworkConfig(encoder="mlp", heads="dual", hidden_sizes=(64, 64)),
    )


BREAKOUT = PPOConfig(
    env="Breakout-v5",
    num_envs=128,
    num_steps=32,
    total_env_steps=UNREACHED,
    rescale="none",
    update=UpdateConfig(epochs=2, minibatches_per_epoch=4),
    objective=OBJECTIVE,
    optimizer=OPTIMIZER,
    network=NetworkConfig(encoder="nature", heads="shared"),
    env_config=EnvConfig(episodic_life=True, reward_clip=True),
)

HALFCHEETAH = PPOConfig(
    env="HalfCheetah-v4",
    num_envs=8,
    num_steps=256,
    total_env_steps=UNREACHED,
    rescale="none",
    update=UpdateConfig(epochs=10, minibatches_per_epoch=32),
    objective=OBJECTIVE,
    optimizer=OPTIMIZER,
    network=NetworkConfig(encoder="mlp", heads="dual", hidden_sizes=(64, 64)),
    normalize=NormalizeConfig(observations="step", rewards="step"),
)


def procgen() -> PPGConfig:
    """The paper's PPG-EWMA at a sixteenth of its batches. What goes with a batch follows, but for phases."""
    preset = presets.load("procgen-ppg-ewma").config
    assert isinstance(preset, PPGConfig)
    return replace(
        preset,
        env="CoinrunHard-v0",
        num_envs=64,
        num_steps=64,
        total_env_steps=UNREACHED,
        rescale="learning-rate,proximal-ewma,advantage-moments,auxiliary-phase",
    )


PROCGEN = procgen()
PROCGEN_POLICY = replace(
    PROCGEN, total_env_steps=(PROCGEN.phase.policy_iterations - 1) * PROCGEN.num_envs * PROCGEN.num_steps
)
"""Policy iterations only: however long it is timed, it ends before its first auxiliary phase."""
PROCGEN_PHASE = replace(PROCGEN, phase=replace(PROCGEN.phase, policy_iterations=1))
"""Whole phases of one iteration. A sample is seen as often as in the paper's phases of 32, once by the policy
phase and six times by the auxiliary one, so that both have the same shares of the computing."""


def pqn(preset: str) -> PQNConfig:
    config = presets.load(preset).config
    assert isinstance(config, PQNConfig)
    return replace(config, total_env_steps=UNREACHED)


ATARI_PQN = pqn("atari-pqn")
"""Breakout, 128 envs × 32 steps, 4 minibatches, 2 epochs."""


PQN_XL = pqn("atari-pqn-xl")


PROCGEN_SMALL = replace(
    presets.load("procgen-small-ppo").config, env="StarpilotEasy-v0", total_env_steps=UNREACHED
)


CASES: dict[str, AnyConfig] = {
    "cartpole-64": cartpole(64, minibatch=256),
    "cartpole-8": cartpole(8, minibatch=256),
    "cartpole-1": cartpole(1, minibatch=32),
    "breakout": BREAKOUT,
    "halfcheetah": HALFCHEETAH,
    "procgen-ppg-ewma": PROCGEN_POLICY,
    "procgen-ppg-ewma-phase": PROCGEN_PHASE,
    "atari-pqn": ATARI_PQN,
    # What a controller may come to: the cost of a sample must not depend on the length.
    "atari-pqn-16-steps": replace(ATARI_PQN, num_steps=16),
    "atari-pqn-128-steps": replace(ATARI_PQN, num_steps=128),
    "minatar-pqn": pqn("minatar-pqn"),
    "procgen-small-ppo": PROCGEN_SMALL,
}


def work_of(config: PPOConfig | PQNConfig) -> Work:
    """The numbers of a case whose encoder is named."""
    objective, update = config.objective, config.update
    assert config.optimizer.max_grad_norm is not None and not isinstance(update.epochs, str)
    every_core = os.cpu_count() or 1
    of_ppo = isinstance(config, PPOConfig)
    return Work(
        algorithm=config.algorithm,
        env=config.env,
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        minibatches_per_epoch=update.minibatches_per_epoch,
        epochs=update.epochs,
        encoder=config.network.encoder,
        hidden_sizes=tuple(config.network.hidden_sizes),
        channels=MINATAR_CHANNELS,
        threads=config.threads or (every_core if config.network.encoder == "nature" else 1),
        learning_rate=config.optimizer.learning_rate,
        max_grad_norm=config.optimizer.max_grad_norm,
        discount=objective.discount,
        trace_lambda=objective.gae_lambda if of_ppo else objective.q_lambda,
        clip=objective.clip if of_ppo else 0.0,
        entropy_coefficient=objective.entropy_coefficient if of_ppo else 0.0,
        value_coefficient=objective.value_coefficient if of_ppo else 0.0,
        normalizes=of_ppo and config.normalize.observations != "none",
        atari_training=config.env_config.episodic_life,
    )
