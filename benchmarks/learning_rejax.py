"""rejax on gymnax's MinAtar, as a trainer of `learning.py`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from learning_process import Curve, Request, answer
from peer_rejax import MinAtarQNetwork, first_state
from rejax import PPO, PQN
from rejax.algos.algorithm import register_init
from rejax.networks import DiscretePolicy, EpsilonGreedyPolicy

CHANNELS, HIDDEN_SIZES = 16, (128,)
"""Of our MinAtar presets."""


class MinAtarFeatures(nn.Module):
    """The layers of our MinAtar network without normalization, as our PPO-EWMA preset has them."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(CHANNELS, (3, 3), padding="VALID")(obs)).reshape((obs.shape[0], -1))
        for size in HIDDEN_SIZES:
            x = nn.relu(nn.Dense(size)(x))
        return x


class MinAtarPolicy(DiscretePolicy):
    def setup(self) -> None:
        self.features = MinAtarFeatures()
        self.action_logits = nn.Dense(self.action_dim)


class MinAtarValue(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        return nn.Dense(1)(MinAtarFeatures()(obs)).squeeze(1)


class KeepsEpisodes:
    """Keeps rewards and ends of the latest rollout; rejax itself looks at evaluations only."""

    @register_init
    def initialize_rollout(self: Any, rng: jax.Array) -> dict[str, jax.Array]:
        del rng
        shape = (self.num_steps, self.num_envs)
        return {"rewards": jnp.zeros(shape), "ends": jnp.zeros(shape, bool)}

    def collect_trajectories(self: Any, *arguments: Any) -> Any:
        state, trajectories = super().collect_trajectories(*arguments)  # pyright: ignore
        return state.replace(rewards=trajectories.reward, ends=trajectories.done), trajectories


class RecordedPPO(KeepsEpisodes, PPO):
    pass


class RecordedPQN(KeepsEpisodes, PQN):
    pass


def make_algorithm(request: Request) -> Any:
    settings = dict(request.settings)
    kind, network = settings.pop("algorithm"), settings.pop("network")
    game = f"{request.task.removeprefix('minatar:')}-MinAtar"
    made = {"ppo": RecordedPPO, "pqn": RecordedPQN}[kind].create(
        env=game, total_timesteps=request.env_steps, **settings
    )
    if network == "dense":
        return made
    if kind == "pqn":
        q_network = EpsilonGreedyPolicy(MinAtarQNetwork)(
            action_dim=made.agent.action_dim, channels=CHANNELS, hidden_sizes=HIDDEN_SIZES
        )
        return made.replace(agent=q_network)
    policy = MinAtarPolicy(made.actor.action_dim, hidden_layer_sizes=HIDDEN_SIZES, activation=nn.relu)
    return made.replace(actor=policy, critic=MinAtarValue())


def run(request: Request, curve: Curve) -> dict[str, Any]:
    algorithm = make_algorithm(request)

    @partial(jax.jit, donate_argnums=0)
    def advance(state: Any) -> Any:
        return algorithm.train_iteration(state)

    state = first_state(algorithm, request.seed)
    returns = np.zeros(algorithm.num_envs)
    for first in range(0, request.env_steps, algorithm.iteration_size):
        state = advance(state)
        rollout = zip(np.asarray(state.rewards), np.asarray(state.ends), strict=True)
        for step, (rewards, ends) in enumerate(rollout, 1):
            returns += rewards
            for ended in returns[ends]:
                curve.add(first + step * algorithm.num_envs, float(ended))
            returns[ends] = 0.0
        curve.reached(first + algorithm.iteration_size)
    return {}


if __name__ == "__main__":
    answer(run, ("rejax", "gymnax", "jax", "jaxlib", "flax"))
