"""An engine's observations as the one array that rollouts keep: parts packed, action masks checked."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from anybatch.envs.protocol import Actions, MultiDiscreteActions, action_width, validate_mask
from anybatch.envs.spaces import Observations
from anybatch.errors import EnvError

INFO_KEY = "action_mask"
PRESENCE_KEY = "_action_mask"
"""Entry in which Gymnasium's vector envs say which infos had a mask."""


class ActionMasks:
    """The masks of N envs, [N, A]: each choice of a decision must have an allowed action.

    `decides` [N] is False where no decision follows, since an episode has just ended, and None if all envs
    decide. A mask without a decision may allow nothing, or be missing: then it allows everything.
    """

    def __init__(
        self, env_id: str, actions: Actions, width: int | None = None, *, first_env: int = 0
    ) -> None:
        """`width` is the number of entries, if a space gives it; `first_env` numbers envs in errors."""
        self.width = action_width(actions)
        validate_mask(env_id, actions, self.width if width is None else width)
        self._env_id, self._first_env = env_id, first_env
        counts = actions.counts if isinstance(actions, MultiDiscreteActions) else (self.width,)
        self._starts = [0, *accumulate(counts[:-1])]

    def checked(self, mask: np.ndarray, *, decides: np.ndarray | None, step: int) -> np.ndarray:
        """bool [N, A], from the entries [N, A] that an engine gave after `step` steps."""
        allowed = mask.astype(np.bool_)
        if mask.dtype != np.bool_ and (allowed != mask).any():
            env, index = np.argwhere(allowed != mask)[0]
            raise self._error(env, step, f"with {mask[env, index]} in it: entries must be 0 or 1")
        possible = np.logical_and.reduce(np.logical_or.reduceat(allowed, self._starts, axis=1), axis=1)
        if possible.all():
            return allowed
        stuck = ~possible if decides is None else ~possible & decides
        if stuck.any():
            of = "" if len(self._starts) == 1 else " in one of its choices"
            raise self._error(stuck.argmax(), step, f"that allows no action{of}")
        return allowed | ~possible[:, None]

    def from_info(
        self, info: Mapping[str, Any], num_envs: int, *, decides: np.ndarray | None, step: int
    ) -> np.ndarray:
        """bool [N, A], from the info of a vector env after `step` steps."""
        given = info.get(INFO_KEY)
        present = np.broadcast_to(info.get(PRESENCE_KEY, given is not None), num_envs)
        missing = ~present if decides is None else ~present & decides
        if missing.any():
            raise EnvError(
                f"{self._named(missing.argmax())} gave no action_mask at step {step}, but the first reset "
                "gave one: every decision needs a mask"
            )
        rows = np.zeros((num_envs, self.width))
        for env in np.flatnonzero(present):
            entries = _flat(info[INFO_KEY][env])
            if len(entries) != self.width:
                raise self._error(env, step, f"of {len(entries)} entries: its actions need {self.width}")
            rows[env] = entries
        return self.checked(rows, decides=decides, step=step)

    def _error(self, env: Any, step: int, reason: str) -> EnvError:
        return EnvError(f"{self._named(env)} gave an action_mask at step {step} {reason}")

    def _named(self, env: Any) -> str:
        return f"environment {self._first_env + env} of {self._env_id}"


def _flat(mask: Any) -> np.ndarray:
    """The entries of one env's mask: an array, a list, or the masks of several choices one after another."""
    return mask.ravel() if isinstance(mask, np.ndarray) else np.hstack(mask)


class ObservationReader:
    """Reads the observations of N envs and their action masks, which are in the observations or in infos.

    Whether there are masks is known from the space, or from the info of the first reset, and does not change.
    """

    def __init__(
        self,
        observations: Observations,
        actions: Actions,
        *,
        env_id: str,
        num_envs: int,
        first_info: Mapping[str, Any],
        first_env: int = 0,
    ) -> None:
        """`first_env` is the run-wide number of the first of the envs, for errors."""
        self._parts = observations
        self._env_id = env_id
        self._num_envs, self._first_env = num_envs, first_env
        self._step = 0
        self._masks_in_info = observations.read_mask is None and INFO_KEY in first_info
        self._masks = None
        if observations.read_mask is not None:
            self._masks = ActionMasks(env_id, actions, observations.mask_width, first_env=first_env)
        elif self._masks_in_info:
            self._masks = ActionMasks(env_id, actions, first_env=first_env)
        self.layout = observations.layout(0 if self._masks is None else self._masks.width)

    def reset(self, obs: Any, info: Mapping[str, Any]) -> np.ndarray:
        """The observations [N, …] of a reset, each of which precedes a decision."""
        self._step = 0
        return self._read(obs, self._mask(obs, info, decides=None))

    def step(self, obs: Any, info: Mapping[str, Any], *, decides: np.ndarray | None) -> np.ndarray:
        """The observations [N, …] of a step; no decision follows where `decides` [N] is False."""
        self._step += 1
        return self._read(obs, self._mask(obs, info, decides=decides))

    def final(self, obs: Any, info: Mapping[str, Any], envs: np.ndarray) -> np.ndarray:
        """Final observations of `envs` [M] under same-step reset, with the info of all envs."""
        if self._masks is None:
            return self._read(obs, None)
        nobody = np.zeros(self._num_envs, dtype=np.bool_)
        if self._masks_in_info:
            mask = self._masks.from_info(info, self._num_envs, decides=nobody, step=self._step)[envs]
        else:
            assert self._parts.read_mask is not None
            mask = self._masks.checked(self._parts.read_mask(obs), decides=nobody[envs], step=self._step)
        return self._read(obs, mask)

    def outside(self, obs: Any, count: int, action_mask: Any | None) -> np.ndarray:
        """A batch of `count` observations that was not stepped here, each of which precedes a decision.

        `action_mask` holds their masks, unless masks are part of observations.
        """
        if self._masks_in_info and action_mask is None:
            raise EnvError(f"{self._env_id} has action masks: every decision needs one")
        if not self._masks_in_info and action_mask is not None:
            raise EnvError(
                f"{self._env_id} takes no action_mask: its observations contain the masks, or it has none"
            )
        if not self._masks_in_info or self._masks is None:
            return self._read(obs, self._mask(obs, {}, decides=None))
        masks = self._given_masks(action_mask, count, self._masks.width)
        return self._read(obs, self._masks.from_info({INFO_KEY: masks}, count, decides=None, step=self._step))

    def _given_masks(self, action_mask: Any, count: int, width: int) -> np.ndarray:
        """The masks [count, width] that a program gave beside its observations.

        The mask of one observation may be a tuple of the masks of several choices.
        """
        try:
            entries = np.hstack(action_mask) if count == 1 and isinstance(action_mask, tuple) else action_mask
            return np.asarray(entries, dtype=np.float64).reshape(count, width)
        except (ValueError, TypeError):
            raise EnvError(
                f"the action_mask does not fit {self._env_id}, which needs {width} entries of 0 or 1 for "
                "each observation"
            ) from None

    def _mask(self, obs: Any, info: Mapping[str, Any], *, decides: np.ndarray | None) -> np.ndarray | None:
        if self._masks is None:
            if INFO_KEY in info:
                raise EnvError(
                    f"{self._env_id} gave an action_mask at step {self._step}, but none at its first reset: "
                    "every decision needs a mask, or none has one"
                )
            return None
        if self._masks_in_info:
            return self._masks.from_info(info, self._num_envs, decides=decides, step=self._step)
        assert self._parts.read_mask is not None
        return self._masks.checked(self._parts.read_mask(obs), decides=decides, step=self._step)

    def _read(self, obs: Any, mask: np.ndarray | None) -> np.ndarray:
        image = None if self._parts.image is None else self._parts.image.read(obs)
        vector = None if self._parts.read_vector is None else self._parts.read_vector(obs)
        if not self.layout.is_packed:
            single = vector if image is None else image
            assert single is not None
            return single
        if vector is not None and self.layout.dtype == np.uint8:
            self._validate_finite(vector)
        return self.layout.pack(image=image, vector=vector, mask=mask)

    def _validate_finite(self, vector: np.ndarray) -> None:
        """Refuse non-finite numbers before they are packed as bytes; among floats a rollout checks for
        them."""
        finite = np.isfinite(vector)
        if not finite.all():
            env, index = np.argwhere(~finite)[0]
            raise EnvError(
                f"environment {self._first_env + env} of {self._env_id} returned a non-finite observation, "
                f"{vector[env, index]}, at step {self._step}"
            )
