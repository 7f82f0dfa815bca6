"""Ids of environments: the engine that one names, and whether it exists."""

import difflib
import sys
from collections.abc import Sequence

from anybatch import user_modules
from anybatch.config import EnvConfig
from anybatch.envs import published
from anybatch.errors import EnvError

ENGINE_PREFIXES = {
    "gym": "gymnasium",
    "envpool": "envpool",
    "minatar": "minatar",
    "native": "native",
    "toy": "toy",
}
ALE = "ALE/"
"""Prefix of Atari games in Gymnasium's ids. EnvPool has the same games without it."""
CLASSIC_CONTROL = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
MUJOCO_TASKS = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
BOX2D_TASKS = ("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3")
OF_GYMNASIUM = frozenset(
    (*CLASSIC_CONTROL, *BOX2D_TASKS, *(f"{task}-v{n}" for task in MUJOCO_TASKS for n in (4, 5)))
)
"""Ids of Gymnasium that are known without importing it; it has more."""
GAMES = {
    "minatar": ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"),
    "native": CLASSIC_CONTROL,
    "toy": (
        "Constant",
        "Corridor",
        "Match",
        "Target",
        "Pixels",
        "Pixels84",
        "Masked",
        "MultiMatch",
        "MaskedMulti",
        "Mixed",
    ),
}
"""The environments of the engines in this package."""


def named_engine(env_id: str, config: EnvConfig) -> tuple[str, str]:
    """The engine that the id or the config names, or auto, and its own name for the environment."""
    prefix, _, rest = env_id.partition(":")
    if env_id.startswith(ALE) and config.engine in ("auto", "envpool"):
        return "envpool", env_id.removeprefix(ALE)
    game = procgen_id(env_id)
    named = "envpool" if game else ENGINE_PREFIXES.get(prefix) if rest else None
    if named is not None:
        # MinAtar's games are native code too.
        if config.engine not in ("auto", named, *(["native"] if named == "minatar" else [])):
            raise EnvError(f"{env_id} names the engine {named}, but env-config.engine = {config.engine}")
        return named, game or rest
    return config.engine, env_id


def procgen_id(env_id: str) -> str | None:
    """EnvPool's id for a plain name such as procgen:coinrun; None for any other id."""
    prefix, _, game = env_id.partition(":")
    mode = published.PROCGEN_MODES.get(prefix)
    if mode is None:
        return None
    if game not in published.PROCGEN[mode]:
        raise unknown(env_id, [f"{prefix}:{name}" for name in published.PROCGEN[mode]])
    return f"{game.capitalize()}{mode}-v0"


def validate_id(env_id: str, config: EnvConfig) -> None:
    """Refuse an id that does not exist, as far as this is known without building an environment.

    Nothing is imported for ids that are in a table. EnvPool, whose import takes seconds, is asked last.
    """
    if env_id.startswith(user_modules.OBJECT_PREFIX):
        return
    engine, name = named_engine(env_id, config)
    if engine in ("minatar", "native", "toy"):
        validate_game(engine, name)
        return
    if engine in ("auto", "gymnasium") and name in OF_GYMNASIUM:
        return
    is_game = published.atari_game(name) is not None or published.procgen_scale(name) is not None
    if (is_game and engine != "gymnasium") or (engine != "envpool" and _in_gymnasium(name)):
        return
    _validate_engine_id(name, engine)


def _in_gymnasium(name: str) -> bool:
    """Whether Gymnasium may have the environment: a user's module that is not imported is not known."""
    from anybatch.envs import gymnasium_adapter

    module, _, bare = name.rpartition(":")
    return bare in gymnasium_adapter.known_ids() or (module != "" and module not in sys.modules)


def _validate_engine_id(name: str, engine: str) -> None:
    """Refuse an id that is not Gymnasium's. Where EnvPool is not installed, only Gymnasium's names with
    another version are refused: EnvPool has many others."""
    from anybatch.envs import envpool_adapter, gymnasium_adapter

    if engine == "gymnasium" or ":" in name:
        raise unknown_to_gymnasium(name, engine_named=True)
    if envpool_adapter.installed():
        known = envpool_adapter.known_ids()
        if name not in known:
            raise unknown(name, known) if engine == "envpool" else unknown_to_gymnasium(name)
    elif engine == "auto":
        without_versions = {known.rpartition("-v")[0] for known in gymnasium_adapter.known_ids()}
        if name.rpartition("-v")[0] in without_versions:
            raise unknown_to_gymnasium(name)


def validate_game(engine: str, name: str) -> None:
    """Refuse a game that an engine in this package does not have."""
    if name not in GAMES[engine]:
        raise unknown(f"{engine}:{name}", [f"{engine}:{game}" for game in GAMES[engine]])


def unknown_to_gymnasium(name: str, *, engine_named: bool = False) -> EnvError:
    """The refusal of an id that Gymnasium does not have; `engine_named` leaves EnvPool's names out."""
    from anybatch.envs import envpool_adapter, gymnasium_adapter

    known = gymnasium_adapter.known_ids()
    if engine_named:
        module = name.rpartition(":")[0]
        return unknown(name, gymnasium_adapter.ids_of_module(module) if module else known)
    if envpool_adapter.installed():
        return unknown(name, known + envpool_adapter.known_ids())
    return unknown(name, known, f"; EnvPool has more ({envpool_adapter.INSTALL_COMMAND})")


def unknown(env_id: str, known: Sequence[str], hint: str = "") -> EnvError:
    """An error that names the three of `known` nearest to the part of `env_id` after its last colon."""
    by_lower_case = {candidate.rpartition(":")[2].lower(): candidate for candidate in known}
    bare = env_id.rpartition(":")[2].lower()
    nearest = difflib.get_close_matches(bare, by_lower_case, n=3, cutoff=0.0)
    names = ", ".join(by_lower_case[candidate] for candidate in nearest)
    return EnvError(f"there is no environment {env_id}; the nearest names are {names}{hint}")
