"""The work that is timed. A case is a config of ours; the others are told the same numbers from it."""

from anybatch.config import (
    EnvConfig,
    NetworkConfig,
    NormalizeConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PPOConfig,
    UpdateConfig,
)

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
        threads=1,
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
    threads=1,
    update=UpdateConfig(epochs=10, minibatches_per_epoch=32),
    objective=OBJECTIVE,
    optimizer=OPTIMIZER,
    network=NetworkConfig(encoder="mlp", heads="dual", hidden_sizes=(64, 64)),
    normalize=NormalizeConfig(observations=True, rewards="step"),
)

CASES = {
    "cartpole-64": cartpole(64, minibatch=256),
    "cartpole-8": cartpole(8, minibatch=256),
    "cartpole-1": cartpole(1, minibatch=32),
    "breakout": BREAKOUT,
    "halfcheetah": HALFCHEETAH,
}
