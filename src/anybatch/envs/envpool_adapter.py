"""EnvPool: Atari, Procgen, MuJoCo, classic control. The only module that imports envpool."""

import importlib.util
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from anybatch import machine
from anybatch.config import EnvConfig
from anybatch.envs import published
from anybatch.envs import settings as env_settings
from anybatch.envs.protocol import EnvSpec, EnvStep
from anybatch.errors import EnvError

if TYPE_CHECKING:
    from anybatch.envs.interface import SpaceInterface

INSTALL_COMMAND = "pip install 'anybatch[envpool]'"
QT_INSTALL_COMMAND = "apt-get install libqt5gui5"
SET_ELSEWHERE = {
    "num_envs": "num-envs",
    "seed": "seed",
    "env_seed": "seed",
    "batch_size": "num-envs",
    "num_threads": "env-config.engine-threads",
    "max_episode_steps": "env-config.max-episode-steps",
    "episodic_life": "env-config.episodic-life",
    "reward_clip": "env-config.reward-clip",
    "repeat_action_probability": "env-config.sticky",
}
NOT_OFFERED = ("gym_reset_return_info", "max_num_players")
RENDER_OPTIONS = ("from_pixels", "render_width", "render_height", "render_camera_id")


def installed() -> bool:
    return importlib.util.find_spec("envpool") is not None


def known_ids() -> list[str]:
    return _envpool().list_all_envs()


def is_atari(env_id: str) -> bool:
    return "reward_clip" in _default_options(env_id)._fields


def _envpool() -> ModuleType:
    if not installed():
        raise EnvError(f"EnvPool is not installed; {INSTALL_COMMAND} installs it")
    import envpool

    return envpool


class EnvPoolEnv:
    """An EnvPool environment, which resets on the step after an episode's end."""

    def __init__(self, env_id: str, config: EnvConfig, *, seeds: Sequence[int], first_env: int = 0) -> None:
        from anybatch.envs import spaces  # imports gymnasium
        from anybatch.envs.observation_reader import ObservationReader

        players = _default_options(env_id).max_num_players
        if players > 1:
            raise EnvError(
                f"{env_id} is a game of {players} players; only environments of one player are supported"
            )
        with spaces.without_engine_warnings():
            self._engine = _make_engine(env_id, config, seeds)
            # Spaces are made at first access, with their warnings.
            observations = spaces.read_observations(self._engine.observation_space, env_id)
            actions, self._to_engine = spaces.read_actions(self._engine.action_space, env_id, config.actions)
        # Its masks are entries of observations, never of infos.
        self._reader = ObservationReader(
            observations,
            actions,
            env_id=env_id,
            num_envs=len(seeds),
            first_info={},
            first_env=first_env,
        )
        self._is_atari = is_atari(env_id)
        self._done = np.zeros(len(seeds), dtype=np.bool_)
        self._ended = np.zeros(len(seeds), dtype=np.bool_)
        self._lives = np.zeros(len(seeds), dtype=np.int32)
        self.spec = EnvSpec(
            env_id=env_id,
            engine=f"envpool {_envpool().__version__}",
            num_envs=len(seeds),
            obs_shape=self._reader.layout.shape,
            obs_dtype=self._reader.layout.dtype,
            actions=actions,
            obs_layout=self._reader.layout,
        )

    @property
    def interface(self) -> "SpaceInterface":
        from anybatch.envs.interface import SpaceInterface

        spaces = self._engine.observation_space, self._engine.action_space
        return SpaceInterface(self.spec.env_id, *spaces, self._reader, self._to_engine)

    def reset(self) -> np.ndarray:
        obs, info = self._engine.reset()
        self._done = np.zeros_like(self._done)
        self._ended = np.zeros_like(self._ended)
        if self._is_atari:
            self._lives = info["lives"]
        return self._reader.reset(obs, {})

    def step(self, action: np.ndarray) -> EnvStep:
        obs, reward, terminated, truncated, info = self._engine.step(self._to_engine(action))
        valid = ~self._done
        done = terminated | truncated
        score, ended = reward, done
        if self._is_atari:
            score, ended = info["reward"], self._game_end(truncated, valid, info)
        self._done = done
        obs = self._reader.step(obs, {}, decides=~done)
        return EnvStep(obs, reward, terminated, truncated, valid, score, ended, None)

    def _game_end(self, truncated: np.ndarray, valid: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        """The envs whose game is over, as opposed to a life lost under episodic_life."""
        ended = (info["terminated"] != 0) | truncated
        # The no-ops that EnvPool plays after a lost life can also lose the last life: the game then restarts
        # within the reset step, which only shows as more lives. Bonus lives come on valid steps.
        ended |= ~valid & ~self._ended & (info["lives"] > self._lives)
        self._ended, self._lives = ended, info["lives"]
        return ended

    def close(self) -> None:
        self._engine.close()


def _make_engine(env_id: str, config: EnvConfig, seeds: Sequence[int]) -> Any:
    settings = _settings(env_id, config)
    try:
        return _envpool().make(
            env_id,
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=config.engine_threads or min(machine.available_cores(), len(seeds)),
            seed=[int(seed) for seed in seeds],
            **settings,
        )
    except Exception as error:  # its C++ layer raises many types
        wrong_type = isinstance(error, TypeError)  # the message lists C++ signatures over many lines
        reason = "a value has the wrong type" if wrong_type else " ".join(str(error).split())
        raise EnvError(f"EnvPool cannot make {env_id} with {settings}: {reason}") from error


def _settings(env_id: str, config: EnvConfig) -> dict[str, env_settings.OptionValue]:
    settings = env_settings.parse_options(config.options)
    offered = set(_default_options(env_id)._fields) - set(SET_ELSEWHERE) - set(NOT_OFFERED)
    for name in settings:
        if name in SET_ELSEWHERE:
            raise EnvError(f"{env_id}: the option {name} is set by {SET_ELSEWHERE[name]}")
        if name not in offered.union(RENDER_OPTIONS):
            listed = ", ".join(sorted(offered))
            raise EnvError(f"{env_id} has no option {name}; EnvPool's options for it are {listed}")
    if config.max_episode_steps is not None:
        if published.procgen_scale(env_id) is not None:
            # The engine would not stop there: it only reports ends after that many steps as truncations.
            raise EnvError(
                f"env-config.max-episode-steps = {config.max_episode_steps} cannot be enforced: "
                f"{env_id} has its own limit, like all Procgen games"
            )
        settings["max_episode_steps"] = config.max_episode_steps
    if is_atari(env_id):
        settings["episodic_life"] = config.episodic_life
        settings["reward_clip"] = config.reward_clip
        settings["repeat_action_probability"] = config.sticky
    return settings


@cache
def _default_options(env_id: str) -> Any:
    """EnvPool's named tuple of an environment's options."""
    try:
        return _envpool().make_spec(env_id).config
    except ImportError as error:
        if "Qt 5" not in str(error):
            raise
        raise EnvError(
            f"{env_id} needs the system library Qt 5, which is missing: {QT_INSTALL_COMMAND} installs it"
        ) from error
