"""Action masks from engines: which actions are allowed, checked at every step."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from anybatch.envs.protocol import Actions, MultiDiscreteActions, action_width, refuse_unfit_mask
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
        refuse_unfit_mask(env_id, actions, self.width if width is None else width)
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
