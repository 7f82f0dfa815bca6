"""Environments that a program passes as objects or factories instead of ids."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from anybatch.config import EnvConfig
from anybatch.envs import settings as env_settings
from anybatch.envs.gymnasium_adapter import CheckedObservations, GymnasiumEnv, note_making
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import EnvError
from anybatch.user_modules import OBJECT_PREFIX

VECTORIZERS = ("sync", "async")


class MakeEnvs(Protocol):
    """Makes as many envs as there are seeds, or returns the object itself.

    `first_env` is the run-wide number of the first of them, for errors.
    """

    def __call__(self, config: EnvConfig, seeds: Sequence[int], first_env: int = 0, /) -> VectorEnv: ...


@dataclass(frozen=True)
class CustomEnv:
    """An environment of the user's program."""

    env_id: str
    num_envs: int | None
    """The number of envs, if an object fixes it; None for a factory of single envs."""
    make: MakeEnvs
    is_object: bool
    """Whether it is one object, which training and evaluation share and which is never closed here."""
    factory: Callable[[], Any] | None = None
    """The function that makes it, unless it is an object."""


def custom_env(env: Any) -> CustomEnv:
    """The environment from the argument `env=`.

    A vector env of Gymnasium, or an object with the four methods of `VectorEnv`; a single Gymnasium env, for
    runs with one env; a function without arguments that makes a single Gymnasium env.
    """
    name = f"{OBJECT_PREFIX}{_name(env)}"
    if isinstance(env, gymnasium.vector.VectorEnv):
        return CustomEnv(name, env.num_envs, partial(_wrapped, name, env), is_object=True)
    if isinstance(env, gymnasium.Env):
        return CustomEnv(name, 1, partial(_wrapped, name, env), is_object=True)
    if isinstance(getattr(env, "spec", None), EnvSpec):
        return CustomEnv(name, env.spec.num_envs, partial(_as_it_is, env), is_object=True)
    if callable(env):
        return CustomEnv(name, None, partial(_manufactured, name, env), is_object=False, factory=env)
    raise EnvError(
        f"env must be a Gymnasium env or vector env, a function that makes a single env, or an object with "
        f"spec, reset, step and close; got {type(env).__name__}"
    )


def _wrapped(name: str, env: Any, config: EnvConfig, seeds: Sequence[int], first_env: int = 0) -> VectorEnv:
    _validate_no_settings(name, config)
    env = SyncVectorEnv([lambda single=env: single]) if isinstance(env, gymnasium.Env) else env
    return GymnasiumEnv(name, env, config, seeds=seeds, first_env=first_env, closes_engine=False)


def _as_it_is(env: VectorEnv, config: EnvConfig, _seeds: Sequence[int], _first_env: int = 0) -> VectorEnv:
    _validate_no_settings(env.spec.env_id, config)
    if config.actions == "scaled" and env.spec.is_continuous:
        raise EnvError(
            f"env-config.actions = scaled cannot change {env.spec.env_id}, which is an object: its own step "
            "must map actions from [-1, 1]"
        )
    return env


def _manufactured(
    name: str, factory: Callable[[], Any], config: EnvConfig, seeds: Sequence[int], first_env: int = 0
) -> VectorEnv:
    settings = dict(env_settings.parse_options(config.options))
    mode = env_settings.take_choice(name, settings, "vectorization_mode", VECTORIZERS) or config.vectorization
    if settings:
        raise EnvError(f"{name} has no option {next(iter(settings))}; its only option is vectorization_mode")

    def make_one() -> gymnasium.Env[Any, Any]:
        env = factory()
        if not isinstance(env, gymnasium.Env):
            raise EnvError(f"{name} must make a Gymnasium env, but it made {type(env).__name__}")
        limit = config.max_episode_steps
        env = env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)
        return CheckedObservations(env, name) if mode == "async" else env

    makers = [make_one] * len(seeds)
    try:
        engine = AsyncVectorEnv(makers) if mode == "async" else SyncVectorEnv(makers)
    except Exception as error:
        note_making(error, name)
        raise
    return GymnasiumEnv(name, engine, config, seeds=seeds, first_env=first_env)


def _validate_no_settings(name: str, config: EnvConfig) -> None:
    if config.max_episode_steps is not None or config.options or config.vectorization != "sync":
        raise EnvError(
            "env-config.max-episode-steps, env-config.vectorization and env-config.options cannot change "
            f"{name}, which is an object: pass a function that makes it"
        )


def _name(env: Any) -> str:
    inner = env.unwrapped if isinstance(env, gymnasium.Env) else env
    named = inner if inspect.isfunction(inner) or inspect.isclass(inner) else type(inner)
    return named.__name__
