"""What is wrong with an environment, or makes it hard to learn, in sentences that `check-env` prints.

An environment of Gymnasium is first used by itself, because vector envs turn mistakes into obscure errors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs import custom
from anybatch.envs.gymnasium_adapter import misfit
from anybatch.envs.ids import named_engine, validate_id
from anybatch.envs.protocol import EnvSpec, VectorEnv, bounds_hint
from anybatch.envs.settings import parse_options
from anybatch.errors import EnvError, UserError

STEPS = 300
"""Random steps that are taken."""
SEED = 1
REWARD_RANGE = (1e-2, 1e2)
"""Largest rewards of random actions outside this range make learning rates depend on the environment."""


def check_env(env: Any, config: EnvConfig | None = None) -> list[str]:
    """The problems of an environment, one sentence each; empty if none was found.

    `env` is an id, a Gymnasium env or vector env, a function that makes a single env, or a `VectorEnv`.
    Raises EnvError if there is no environment of that id.
    """
    config = config or EnvConfig()
    if isinstance(env, str):
        envs.import_as_named(env)
        validate_id(env, config)
    try:
        single = _single_env(env, config)
        if single is not None and (problems := single_env_problems(single)):
            return problems
        make = _maker(env, config)
        problems, ended = vector_env_problems(make)
    except UserError as error:
        return [f"{error}."]
    except Exception as error:  # of the environment itself
        return [f"It raised {type(error).__name__}: {' '.join(str(error).split())}."]
    registered = single is not None and single.spec is not None and single.spec.max_episode_steps is not None
    if single is not None and not ended and not registered and config.max_episode_steps is None:
        problems.append(
            f"No episode ended within {STEPS} random steps, and there is no time limit: register the "
            "environment with max_episode_steps, or set env-config.max-episode-steps."
        )
    return problems


def single_env_problems(env: "gymnasium.Env[Any, Any]") -> list[str]:
    """What is wrong with the values that `reset` and `step` of a Gymnasium env return."""
    first: Any = env.reset(seed=SEED)
    if not isinstance(first, tuple) or len(first) != 2:
        return [f"reset() must return an observation and an info, but it returned {_shown(first)}."]
    problems = _observation_problems(env, first[0], "reset")
    env.action_space.seed(SEED)
    stepped: Any = env.step(env.action_space.sample())
    if not isinstance(stepped, tuple) or len(stepped) != 5:
        return [
            *problems,
            "step() must return five values, observation, reward, terminated, truncated and info, but it "
            f"returned {_shown(stepped)}.",
        ]
    obs, reward, terminated, truncated, _ = stepped
    problems += [problem for problem in _observation_problems(env, obs, "step") if problem not in problems]
    if np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf":
        problems.append(f"The reward must be one number, but it is {_shown(reward)}.")
    problems += [
        f"{name} must be True or False, but it is {_shown(value)}."
        for name, value in (("terminated", terminated), ("truncated", truncated))
        if not isinstance(value, bool | np.bool_)
    ]
    return problems


def _observation_problems(env: "gymnasium.Env[Any, Any]", obs: Any, method: str) -> list[str]:
    space = env.observation_space
    if found := misfit(space, obs):
        return [f"{method}() returned {found}."]
    if not isinstance(space, Box):
        return []
    array = np.asarray(obs)
    if array.dtype != space.dtype:
        return [f"{method}() returned an observation of type {array.dtype}, but its space has {space.dtype}."]
    if not np.isfinite(array).all():
        return [f"{method}() returned an observation that is not finite: {array[~np.isfinite(array)][0]}."]
    outside = (array < space.low) | (array > space.high)
    if outside.any():
        value, low, high = (part[outside][0] for part in (array, space.low, space.high))
        return [f"{method}() returned an observation with {value:g} where its space is [{low:g}, {high:g}]."]
    return []


def vector_env_problems(make: Callable[[Sequence[int]], VectorEnv]) -> tuple[list[str], bool]:
    """Problems of many random steps, taken twice with the same seed, and whether an episode ended."""
    env = make([SEED])
    obs, rewards, ended = _taken(env)
    again = make([SEED])
    repeated = None
    if again is not env:  # else it is an object of the caller, which cannot be started again
        repeated = _taken(again)
        env.close()
        again.close()
    hint = bounds_hint(env.spec.actions)
    problems = [] if hint is None else [hint]
    if not np.isfinite(rewards).all():
        problems.append(f"A reward is not finite: {rewards[~np.isfinite(rewards)][0]}.")
    if np.issubdtype(obs.dtype, np.floating) and not np.isfinite(obs).all():
        problems.append(f"An observation is not finite: it has {obs[~np.isfinite(obs)][0]}.")
    if repeated is not None and not (same(obs, repeated[0]) and same(rewards, repeated[1])):
        problems.append(
            "The same seed and actions gave other observations or rewards: draw random numbers from "
            "self.np_random only."
        )
    largest = float(np.abs(rewards[np.isfinite(rewards)]).max(initial=0.0))
    low, high = REWARD_RANGE
    if largest != 0 and not low <= largest <= high:
        size = "large" if largest > high else "small"
        problems.append(
            f"The largest reward of {STEPS} random steps has size {largest:.3g}, which is {size}: "
            "normalize.rewards scales rewards to about 1."
        )
    return problems, ended


def same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are equal, where NaN equals NaN."""
    return np.array_equal(first, second, equal_nan=np.issubdtype(first.dtype, np.floating))


def _taken(env: VectorEnv) -> tuple[np.ndarray, np.ndarray, bool]:
    """Observations [T + 1, N, …] and rewards [T, N] of random steps, and whether an episode ended."""
    rng = np.random.default_rng(SEED)
    seen, rewards, ended = [np.array(env.reset())], list[np.ndarray](), False
    expected = (env.spec.num_envs, *env.spec.obs_shape)
    for _ in range(STEPS):
        if seen[-1].shape != expected:
            raise EnvError(f"observations have shape {seen[-1].shape}; expected was {expected}")
        step = env.step(_random_actions(env.spec, seen[-1], rng))
        seen.append(np.array(step.obs))
        rewards.append(np.array(step.reward))
        ended |= bool(step.episode_end.any())
    return np.array(seen), np.array(rewards), ended


def _random_actions(spec: EnvSpec, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Actions for all envs as a new policy chooses them, among those that masks allow."""
    noise = rng.normal(size=(spec.num_envs, spec.action_width))
    if spec.is_continuous:
        return noise.astype(np.float32)
    if spec.obs_layout.mask_width:
        noise[~spec.obs_layout.mask_of(obs)] = -np.inf
    if spec.action_counts is None:
        return noise.argmax(1)
    choices = np.split(noise, np.cumsum(spec.action_counts)[:-1], axis=1)
    return np.stack([choice.argmax(1) for choice in choices], axis=1)


def _maker(env: Any, config: EnvConfig) -> Callable[[Sequence[int]], VectorEnv]:
    if isinstance(env, str):
        return lambda seeds: envs.make(env, config, seeds=seeds)
    given = custom.custom_env(env)
    return lambda seeds: given.make(config, [*seeds] * (given.num_envs or 1))


def _single_env(env: Any, config: EnvConfig) -> "gymnasium.Env[Any, Any] | None":
    """A Gymnasium env by itself, without Gymnasium's own checks; None for other engines."""
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, str):
        made = envs.make(env, config, seeds=[SEED])
        made.close()
        name = named_engine(env, config)[1].rpartition(":")[2]
        if not made.spec.engine.startswith("gymnasium") or gymnasium.registry[name].entry_point is None:
            return None
        options: dict[str, Any] = parse_options(config.options)
        of_ours = ("reset", "vectorization_mode")
        options = {key: value for key, value in options.items() if key not in of_ours}
        return gymnasium.make(name, disable_env_checker=True, **options)
    if isinstance(env, gymnasium.vector.VectorEnv) or isinstance(getattr(env, "spec", None), EnvSpec):
        return None
    made = env() if callable(env) else None
    return made if isinstance(made, gymnasium.Env) else None


def _shown(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
