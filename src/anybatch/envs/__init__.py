"""Environments: one adapter per engine behind one small protocol. `make` finds the engine for an id."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anybatch import user_modules
from anybatch.config import EnvConfig
from anybatch.envs import published
from anybatch.envs.ids import (
    CLASSIC_CONTROL,
    ENGINE_PREFIXES,
    GAMES,
    named_engine,
    unknown,
    unknown_to_gymnasium,
    validate_game,
)
from anybatch.envs.settings import validate_no_atari_settings
from anybatch.errors import EnvError, UserError
from anybatch.machine import available_bytes
from anybatch.text import readable

if TYPE_CHECKING:
    from anybatch.envs.protocol import EnvSpec, VectorEnv

# numpy and the engines are imported by the functions that build environments: a plan must not wait for them.

MANY_ENVS = 1024
"""From this number of envs, one env is built first to see whether all fit into memory."""
PROCGEN_OBSERVATION_BYTES = 64 * 64 * 3
"""Known without the engine, which needs Qt."""


def make(env_id: str, config: EnvConfig, *, seeds: Sequence[int], first_env: int = 0) -> "VectorEnv":
    """One environment `env_id` for each seed, which alone determines its random stream.

    Errors name an environment by its number in the whole run, where these begin with `first_env`.

    CartPole-v1: our native code if it has the id, else EnvPool, else Gymnasium. gym:…, envpool:…, native:…,
    toy:… name the engine; procgen:coinrun, procgen-easy:coinrun and ALE/Breakout-v5 are EnvPool's games;
    minatar:Breakout is our native code; my_package:MyEnv-v0 is Gymnasium's, after importing my_package.
    """
    if env_id.startswith(user_modules.OBJECT_PREFIX):
        raise EnvError(
            f"this run has an environment object, {env_id.removeprefix(user_modules.OBJECT_PREFIX)}, which "
            "only a Python program can provide: pass it as env=… to anybatch.resume or anybatch.load"
        )
    if len(seeds) >= MANY_ENVS:
        _validate_memory(env_id, config, len(seeds))
    engine, name = _resolve(env_id, config)
    if engine != "gymnasium" and config.vectorization != "sync":
        raise EnvError(
            f"env-config.vectorization = {config.vectorization} needs a Gymnasium environment; {env_id} "
            f"runs on {engine}, which steps all envs together"
        )
    if engine != "gymnasium" and config.log_infos:
        raise EnvError(
            f"env-config.log-infos = {' '.join(config.log_infos)} needs a Gymnasium environment; {env_id} "
            f"runs on {engine}"
        )
    if engine in GAMES:
        validate_game(engine, name)
        full_name = name if engine == "native" else f"{engine}:{name}"
        validate_no_atari_settings(full_name, config, takes_sticky=engine == "minatar")
    match engine:
        case "minatar":
            from anybatch.envs.minatar import MinAtarEnv

            return MinAtarEnv(name, config, seeds=seeds)
        case "native":
            from anybatch.envs.classic_control import ClassicControlEnv

            return ClassicControlEnv(name, config, seeds=seeds)
        case "toy":
            from anybatch.envs.toy import ToyEnv

            return ToyEnv(name, config, seeds=seeds)
        case _:
            engine_named = env_id != name or config.engine != "auto" or ":" in name
            return _make_elsewhere(engine, name, config, seeds, first_env, engine_named=engine_named)


def spec_of_one(env_id: str, config: EnvConfig) -> "EnvSpec | None":
    """The spec of an environment, from a single env built for it; None if that fails."""
    try:
        env = make(env_id, config, seeds=[0])
    except EnvError:
        return None
    env.close()
    return env.spec


def observation_bytes(env_id: str, config: EnvConfig) -> int | None:
    """The size of one observation; None if it cannot be known here."""
    if published.procgen_scale(env_id) is not None:
        return PROCGEN_OBSERVATION_BYTES
    spec = spec_of_one(env_id, config)
    return None if spec is None else spec.obs_bytes


def is_atari(env_id: str, config: EnvConfig) -> bool:
    """Whether it is one of EnvPool's Atari games, which have lives and clipped rewards."""
    engine, name = _resolve(env_id, config)
    if engine != "envpool":
        return False
    from anybatch.envs import envpool_adapter

    return name in envpool_adapter.known_ids() and envpool_adapter.is_atari(name)


def _validate_memory(env_id: str, config: EnvConfig, number: int) -> None:
    """Refuse too many envs before they are built: an engine without memory ends the process silently."""
    spec = spec_of_one(env_id, config)
    needed, there = 2 * number * (spec.obs_bytes if spec else 0), available_bytes()
    if needed > there:
        raise EnvError(
            f"{number:,} envs of {env_id} need {readable(needed)} for their observations alone; "
            f"{readable(there)} are available"
        )


def user_module(env_id: str) -> str | None:
    """The user's module that registers an environment; None for the engines' own environments."""
    prefix, _, rest = env_id.partition(":")
    if (
        env_id.startswith(user_modules.OBJECT_PREFIX)
        or prefix in published.PROCGEN_MODES
        or (prefix in ENGINE_PREFIXES and prefix != "gym")
    ):
        return None
    return (rest if prefix == "gym" else env_id).rpartition(":")[0] or None


def import_as_named(env_id: str) -> None:
    """Import the module of an environment that a person names directly, also from the working folder."""
    module = user_module(env_id)
    if module is None:
        return
    try:
        user_modules.import_named(module, naming=user_modules.how_to_name("env", env_id), trusted=True)
    except UserError as error:
        raise EnvError(f"{env_id}: {error}") from error


def _resolve(env_id: str, config: EnvConfig) -> tuple[str, str]:
    """The engine and its own name for the environment."""
    engine, name = named_engine(env_id, config)
    if engine != "auto":
        return engine, name
    from anybatch import native
    from anybatch.envs import envpool_adapter

    if env_id in CLASSIC_CONTROL and not config.options and native.available():
        return "native", env_id
    # A colon means a user's module: EnvPool need not be loaded for it.
    if ":" not in env_id and envpool_adapter.installed() and env_id in envpool_adapter.known_ids():
        return "envpool", env_id
    return "gymnasium", env_id


def _make_elsewhere(
    engine: str, name: str, config: EnvConfig, seeds: Sequence[int], first_env: int, *, engine_named: bool
) -> "VectorEnv":
    """An environment of EnvPool or Gymnasium."""
    if engine == "envpool":
        from anybatch.envs import envpool_adapter

        if name not in (known := envpool_adapter.known_ids()):
            raise unknown(name, known)
        if not envpool_adapter.is_atari(name):
            validate_no_atari_settings(name, config)
        return envpool_adapter.EnvPoolEnv(name, config, seeds=seeds, first_env=first_env)
    from anybatch.envs import gymnasium_adapter

    if not gymnasium_adapter.registered(name):
        raise unknown_to_gymnasium(name, engine_named=engine_named)
    validate_no_atari_settings(name, config)
    return gymnasium_adapter.GymnasiumEnv.make(name, config, seeds=seeds, first_env=first_env)
