"""rejax, whose training is one compiled JAX program with the environments inside, as a trainer of `peers.py`.

Its own `train` cannot be stopped before its end. Here the same iterations are compiled as one loop too, which
returns now and then: long enough for what happens between two calls not to be seen in the rate.
"""

from collections import deque
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from peer_process import RETURN_EPISODES, Rate, Reached, Request, answer, process_seconds, rate_of, versions
from rejax import PPO, PQN
from rejax.algos.algorithm import register_init
from rejax.networks import EpsilonGreedyPolicy
from stopwatch import Stopwatch
from work import Work

PACKAGES = ("rejax", "gymnax", "jax", "jaxlib", "flax")
ENV_IDS = {"CartPole-v1": "CartPole-v1", "minatar:Breakout": "Breakout-MinAtar"}
UNREACHED = 10**9
CALL_SECONDS = 0.25
"""A call of the compiled loop takes about so long, or one iteration."""
PUBLISHED = {
    "env": "CartPole-v1",
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 5,
    "num_steps": 100,
    "num_epochs": 5,
    "num_minibatches": 5,
    "learning_rate": 0.00075,
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}
"""PPO in configs/gymnax/cartpole.yaml of rejax. Nothing in it depends on the length of the training."""
PUBLISHED_ITERATIONS_PER_CALL = 10
LONGEST_ENV_STEPS = 500_000
"""Five times the published length."""


class MinAtarQNetwork(nn.Module):
    """The layers of our MinAtar network; rejax has dense ones only."""

    action_dim: int
    channels: int
    hidden_sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        everything_but_the_batch = (-3, -2, -1)
        x = nn.Conv(self.channels, (3, 3), padding="VALID")(obs)
        x = nn.LayerNorm(reduction_axes=everything_but_the_batch, feature_axes=everything_but_the_batch)(x)
        x = nn.relu(x).reshape((x.shape[0], -1))
        for size in self.hidden_sizes:
            x = nn.relu(nn.LayerNorm()(nn.Dense(size)(x)))
        return nn.Dense(self.action_dim)(x)

    def take(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)


class PPOWithEpisodeEnds(PPO):
    """Keeps where episodes ended in the latest rollout; rejax itself looks at evaluations only."""

    @register_init
    def initialize_episode_ends(self, rng: jax.Array) -> dict[str, jax.Array]:
        del rng
        return {"episode_ends": jnp.zeros((self.num_steps, self.num_envs), bool)}

    def collect_trajectories(self, ts: Any) -> Any:
        ts, trajectories = super().collect_trajectories(ts)
        return ts.replace(episode_ends=trajectories.done), trajectories


def make_algorithm(work: Work) -> Any:
    """With our numbers, as far as there are settings for them; Adam where ours has RAdam."""
    numbers: dict[str, Any] = {
        "env": ENV_IDS[work.env],
        "num_envs": work.num_envs,
        "num_steps": work.num_steps,
        "num_epochs": work.epochs,
        "num_minibatches": work.minibatches_per_epoch,
        "learning_rate": work.learning_rate,
        "max_grad_norm": work.max_grad_norm,
        "gamma": work.discount,
        "total_timesteps": UNREACHED,
    }
    if work.algorithm == "ppo":
        return PPO.create(
            **numbers,
            agent_kwargs={"activation": "tanh", "hidden_layer_sizes": work.hidden_sizes},
            gae_lambda=work.trace_lambda,
            clip_eps=work.clip,
            ent_coef=work.entropy_coefficient,
            vf_coef=2 * work.value_coefficient,  # of half the squared error
        )
    algorithm = PQN.create(**numbers, td_lambda=work.trace_lambda)
    network = EpsilonGreedyPolicy(MinAtarQNetwork)(
        action_dim=algorithm.agent.action_dim, channels=work.channels, hidden_sizes=work.hidden_sizes
    )
    return algorithm.replace(agent=network)


def first_state(algorithm: Any, seed: int) -> Any:
    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(seed))
    # Types as after an iteration: else the second call would compile everything again.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)


def rate(request: Request) -> Rate:
    work = request.work
    assert work is not None
    algorithm = make_algorithm(work)

    @partial(jax.jit, donate_argnums=0)
    def advance(state: Any, iterations: int) -> Any:
        return jax.lax.fori_loop(0, iterations, lambda _, state: algorithm.train_iteration(state), state)

    state = first_state(algorithm, seed=1)
    stopwatch = Stopwatch(request.seconds)
    stopwatch.tick(0)
    iterations, done = 1, 0
    while not stopwatch.is_done:
        began = perf_counter()
        state = jax.block_until_ready(advance(state, iterations))
        done += iterations
        stopwatch.tick(done * work.iteration_batch)
        if stopwatch.iterations == 0:  # warm now: nothing compiles any more
            iterations = max(1, round(CALL_SECONDS / (perf_counter() - began)))
    return rate_of(stopwatch, work, PACKAGES)


def reached(request: Request) -> Reached:
    algorithm = PPOWithEpisodeEnds.create(**PUBLISHED, total_timesteps=LONGEST_ENV_STEPS)

    @partial(jax.jit, donate_argnums=0)
    def advance(state: Any) -> tuple[Any, jax.Array]:
        def iteration(state: Any, _: None) -> tuple[Any, jax.Array]:
            state = algorithm.train_iteration(state)
            return state, state.episode_ends

        return jax.lax.scan(iteration, state, None, PUBLISHED_ITERATIONS_PER_CALL)

    state = first_state(algorithm, request.seed)
    lengths = np.zeros(algorithm.num_envs, int)
    returns: deque[int] = deque(maxlen=RETURN_EPISODES)
    for env_steps in range(0, LONGEST_ENV_STEPS, PUBLISHED_ITERATIONS_PER_CALL * algorithm.iteration_size):
        state, ends = advance(state)
        for ended in np.asarray(ends).reshape(-1, algorithm.num_envs):
            lengths += 1
            returns.extend(lengths[ended].tolist())  # a step of CartPole gives 1
            lengths[ended] = 0
        if len(returns) == RETURN_EPISODES and np.mean(returns) >= request.wanted_return:
            done = env_steps + PUBLISHED_ITERATIONS_PER_CALL * algorithm.iteration_size
            return Reached(process_seconds(), done, versions(PACKAGES))
    return Reached(None, LONGEST_ENV_STEPS, versions(PACKAGES))


if __name__ == "__main__":
    answer(rate, reached)
