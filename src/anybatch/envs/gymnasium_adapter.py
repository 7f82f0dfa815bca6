"""Any Gymnasium environment, including custom ones."""

from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Space, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from anybatch import user_modules
from anybatch.config import EnvConfig
from anybatch.envs import settings as env_settings
from anybatch.envs import spaces
from anybatch.envs.interface import SpaceInterface
from anybatch.envs.observation_reader import ObservationReader
from anybatch.envs.protocol import EnvSpec, EnvStep
from anybatch.errors import EnvError, UserError, note_own_line

RESET_MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}
VECTORIZATION_MODES = ("sync", "async", "vector_entry_point")


def registered(env_id: str) -> bool:
    """Whether Gymnasium knows `env_id`; for `module:Env-v0`, after importing the module."""
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            user_modules.import_named(module, naming=user_modules.how_to_name("env", env_id), trusted=False)
        except UserError as error:
            raise EnvError(f"{env_id}: {error}") from error
    return name in gymnasium.registry


def known_ids() -> list[str]:
    return list(gymnasium.registry)


def ids_of_module(module: str) -> list[str]:
    """The ids that a module registers, with its name; all ids if it registers none."""
    found: list[str] = []
    for name, spec in gymnasium.registry.items():
        entry = spec.entry_point or spec.vector_entry_point
        place = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
        if f"{place}.".startswith(f"{module}."):
            found.append(f"{module}:{name}")
    return found or known_ids()


class GymnasiumEnv:
    """A Gymnasium vector env, with next-step or same-step reset by its metadata.

    Two options are ours: reset (next_step, same_step) and vectorization_mode, which is for
    vector_entry_point: the environment's own vector form. The others go to the environment's constructor.
    """

    def __init__(
        self,
        env_id: str,
        engine: VectorEnv,
        config: EnvConfig,
        *,
        seeds: Sequence[int],
        first_env: int = 0,
        closes_engine: bool = True,
    ) -> None:
        """`closes_engine` is False for an engine that belongs to the user's program."""
        self._infos: dict[str, list[float]] = {name: [] for name in config.log_infos}
        self._engine = engine
        self._first_env = first_env
        self._closes_engine = closes_engine
        self._same_step = _resets_in_same_step(self._engine, env_id)
        observations = spaces.read_observations(self._engine.single_observation_space, env_id)
        read, self._to_engine = spaces.read_actions(self._engine.single_action_space, env_id, config.actions)
        self._done = np.zeros(len(seeds), dtype=np.bool_)
        # Envs that Gymnasium steps one by one are compared with their spaces there.
        single_envs = isinstance(self._engine, SyncVectorEnv | AsyncVectorEnv)
        self._batch_space = (
            None if single_envs else batch_space(self._engine.single_observation_space, len(seeds))
        )
        # Only the info of a reset shows whether there are masks; `reset` returns this first one.
        # A vector env of another kind gets one seed, which depends on all of them.
        first = int(np.random.SeedSequence(list(seeds)).generate_state(1)[0])
        seed = [int(seed) for seed in seeds] if single_envs else first
        self._first_reset = self._reset_engine(env_id, seed=seed)
        self._reader = ObservationReader(
            observations,
            read,
            env_id=env_id,
            num_envs=len(seeds),
            first_info=self._first_reset[1],
            first_env=first_env,
        )
        self.spec = EnvSpec(
            env_id=env_id,
            engine=f"gymnasium {gymnasium.__version__}",
            num_envs=len(seeds),
            obs_shape=self._reader.layout.shape,
            obs_dtype=self._reader.layout.dtype,
            actions=read,
            obs_layout=self._reader.layout,
        )

    @classmethod
    def make(
        cls, env_id: str, config: EnvConfig, *, seeds: Sequence[int], first_env: int = 0
    ) -> "GymnasiumEnv":
        """The environment that Gymnasium knows by that id."""
        with spaces.without_engine_warnings():
            engine = _make_engine(env_id, config, len(seeds))
        return cls(env_id, engine, config, seeds=seeds, first_env=first_env)

    @property
    def render_modes(self) -> Sequence[str]:
        return self._engine.metadata.get("render_modes", ())

    @property
    def interface(self) -> SpaceInterface:
        spaces = self._engine.single_observation_space, self._engine.single_action_space
        return SpaceInterface(self.spec.env_id, *spaces, self._reader, self._to_engine)

    def reset(self) -> np.ndarray:
        """Start new episodes. The seeds are used once; later resets continue their random streams."""
        obs, info = self._reset_engine(self.spec.env_id) if self._first_reset is None else self._first_reset
        self._first_reset = None
        self._done = np.zeros_like(self._done)
        return self._reader.reset(obs, info)

    def _reset_engine(self, env_id: str, **seed: Any) -> tuple[Any, dict[str, Any]]:
        try:
            obs, info = self._engine.reset(**seed)
        except Exception as error:
            self._explain(error, env_id)
            raise
        self._validate_shape_of_all(env_id, obs)
        return obs, info

    def _explain(self, error: Exception, env_id: str) -> None:
        """Say which env failed; an observation that does not fit its space is refused in one sentence."""
        # What each env of a SyncVectorEnv returned last. It has no public name, and may be absent.
        returned = getattr(self._engine, "_env_obs", ())
        self._validate_shapes(env_id, returned, range(len(returned)), error)
        note_stepping(error, env_id, self._engine, first_env=self._first_env)

    def _validate_shape_of_all(self, env_id: str, obs: Any) -> None:
        """Refuse observations of wrong shape from a vector env that is neither sync nor async."""
        if self._batch_space is not None and (found := misfit(self._batch_space, obs, of_any_type=True)):
            raise EnvError(f"{env_id} returned {found}")

    def _validate_shapes(
        self, env_id: str, returned: Sequence[Any], envs: Sequence[int], error: Exception
    ) -> None:
        for env, obs in zip(envs, returned, strict=True):
            found = None if obs is None else misfit(self._engine.single_observation_space, obs)
            if found:
                whose = f"environment {self._first_env + env} of {env_id}"
                raise EnvError(f"{whose} returned {found}") from error

    def step(self, action: np.ndarray) -> EnvStep:
        try:
            stepped = self._engine.step(self._to_engine(action))
        except SystemExit as stop:
            raise EnvError(f"{self.spec.env_id} ended the program: it called exit({stop.code})") from stop
        except Exception as error:
            self._explain(error, self.spec.env_id)
            raise
        engine_obs, engine_reward, terminated, truncated, info = stepped
        for name in self._infos.keys() & info.keys():
            self._add_info(name, info[name], info.get(f"_{name}", True))
        self._validate_shape_of_all(self.spec.env_id, engine_obs)
        done = terminated | truncated
        obs = self._reader.step(engine_obs, info, decides=None if self._same_step else ~done)
        reward = engine_reward.astype(np.float32)
        final_obs = None
        valid = ~self._done
        if not self._same_step:
            self._done = done
        elif not done.any():
            final_obs = obs
        else:
            final_obs, envs = obs.copy(), np.flatnonzero(done)
            ended = self._batch(info["final_obs"][envs], envs)
            final_obs[envs] = self._reader.final(ended, info.get("final_info", {}), envs)
        return EnvStep(obs, reward, terminated, truncated, valid, reward, done, final_obs)

    def _batch(self, single: Sequence[Any], envs: np.ndarray) -> Any:
        """Observations of single envs as one batch, whatever they are nested in."""
        space = self._engine.single_observation_space
        try:
            return concatenate(space, tuple(single), create_empty_array(space, len(single)))
        except Exception as error:
            self._validate_shapes(self.spec.env_id, single, envs.tolist(), error)
            raise

    def _add_info(self, name: str, values: Any, is_present: Any) -> None:
        """Note a number of the infos, for the envs that gave it."""
        present = np.broadcast_to(is_present, len(values))
        try:
            self._infos[name] += np.asarray(values)[present].astype(np.float64).tolist()
        except (TypeError, ValueError):
            raise EnvError(f"{self.spec.env_id}: {name} in its infos is not a number") from None

    def take_info_means(self) -> dict[str, float]:
        means = {name: float(np.mean(values)) for name, values in self._infos.items() if values}
        self._infos = {name: [] for name in self._infos}
        return means

    def render(self) -> np.ndarray:
        """A picture of the first env, [H, W, 3], if it was made with the option render_mode = rgb_array."""
        try:
            frames = self._engine.render()
        except Exception as error:  # each renderer has its own for a missing display, driver or library
            raise EnvError(f"{self.spec.env_id} cannot be drawn: {_one_line(error)}") from error
        return np.asarray(frames[0] if isinstance(frames, tuple) else frames, dtype=np.uint8)

    def close(self) -> None:
        if self._closes_engine:
            self._engine.close()


def _make_engine(env_id: str, config: EnvConfig, num_envs: int) -> VectorEnv:
    name = env_id.rpartition(":")[2]
    settings: dict[str, Any] = dict(env_settings.parse_options(config.options))
    reset = env_settings.take_choice(env_id, settings, "reset", RESET_MODES)
    mode = env_settings.take_choice(env_id, settings, "vectorization_mode", VECTORIZATION_MODES)
    if mode is None:
        # Not the environment's own vector form even where it has one: CartPole's takes neither a reset mode
        # nor one seed per env.
        single = gymnasium.registry[name].entry_point
        mode = "vector_entry_point" if single is None else config.vectorization
    if config.max_episode_steps is not None:
        settings["max_episode_steps"] = config.max_episode_steps
    vector_settings: dict[str, Any] = {"autoreset_mode": RESET_MODES[reset]} if reset else {}
    wrappers: list[Any] = []
    if mode == "async":
        wrappers.append(partial(CheckedObservations, env_id=env_id))
    try:
        return gymnasium.make_vec(
            name,
            num_envs=num_envs,
            vectorization_mode=mode,
            vector_kwargs=vector_settings or None,
            wrappers=wrappers or None,
            **settings,
        )
    except (gymnasium.error.Error, ImportError) as error:
        raise EnvError(f"Gymnasium cannot make {env_id}: {_one_line(error)}") from error
    except Exception as error:
        if not config.options:  # an error of the environment itself: its author needs the traceback
            note_making(error, env_id)
            raise
        raise EnvError(f"{env_id} refuses its options: {type(error).__name__}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _resets_in_same_step(engine: VectorEnv, env_id: str) -> bool:
    mode = engine.metadata.get("autoreset_mode")
    if mode not in RESET_MODES.values():
        found = "does not say" if mode is None else f"says {mode}"
        raise EnvError(
            f"{env_id} must reset ended episodes by itself, on the next or in the same step, but its "
            f"metadata['autoreset_mode'] {found}"
        )
    return mode == AutoresetMode.SAME_STEP


def note_making(error: Exception, env_id: str) -> None:
    """Add a note to an error of an environment's constructor."""
    if not isinstance(error, UserError):
        error.add_note(f"This error was raised while {env_id} was being made.")
        note_own_line(error)


def note_stepping(error: Exception, env_id: str, engine: Any, *, first_env: int) -> None:
    """Add a note to an error of a step or a reset; `engine` is a vector env of Gymnasium.

    `first_env` is the run-wide number of its first env.
    """
    if isinstance(error, UserError):
        return
    found = env_in_traceback(error, list(getattr(engine, "envs", ())))
    whose = env_id if found is None else f"environment {first_env + found[0]} of {env_id}, in its {found[1]}"
    error.add_note(f"This error was raised by {whose}.")
    note_own_line(error)


def env_in_traceback(error: Exception, envs: list[Any]) -> tuple[int, str] | None:
    """Which of the envs was called, and the method; None if it was called in another process."""
    trace = error.__traceback__
    while trace is not None:
        frame: FrameType = trace.tb_frame
        called = frame.f_locals.get("self")
        for number, env in enumerate(envs):
            if called is env:
                return number, frame.f_code.co_name
        trace = trace.tb_next
    return None


def misfit(space: Space[Any], obs: Any, part: str = "", *, of_any_type: bool = False) -> str | None:
    """What is wrong with an observation, got and expected; None if it can be stored as one of its space.

    `of_any_type` compares shapes only.
    """
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, inner in parts:
            name = f"{part}.{key}" if part else str(key)
            try:
                value = obs[key]
            except (TypeError, LookupError):
                return f"an observation without the part {name} of its space"
            if found := misfit(inner, value, name, of_any_type=of_any_type):
                return found
        return None
    of_part = f" in its part {part}" if part else ""
    try:
        array = np.asarray(obs)
    except ValueError:
        return (
            f"an observation with rows of different lengths{of_part}, but its space has shape {space.shape}"
        )
    if array.shape != space.shape:
        return f"an observation of shape {array.shape}{of_part}, but its space has shape {space.shape}"
    if not of_any_type and space.dtype and not np.can_cast(array.dtype, space.dtype, "same_kind"):
        return f"an observation of type {array.dtype}{of_part}, but its space has type {space.dtype}"
    return None


class CheckedObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Refuses observations that do not fit, for envs in separate processes.

    Shared memory would take them in part, or repeat a single number, without an error.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._env_id = env_id

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**how)
        return self._checked(obs, "reset"), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return self._checked(obs, "step"), reward, terminated, truncated, info

    def _checked(self, obs: Any, method: str) -> Any:
        if found := misfit(self.observation_space, obs):
            raise EnvError(f"an environment of {self._env_id} returned {found}, from its {method}")
        return obs
