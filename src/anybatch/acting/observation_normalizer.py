"""Running statistics of vector observations, kept while acting."""

import numpy as np

from anybatch.equations.moments import EPSILON, PRIOR_COUNT, RunningMoments, merge_moments
from anybatch.errors import EnvError
from anybatch.runs.state_fit import refuse_unlike


class ObservationNormalizer:
    """Shifts and scales vector observations by the running moments of those that were decided upon.

    The last `mask_width` entries of an observation are its action mask, and stay as they are.
    """

    def __init__(self, obs_shape: tuple[int, ...], *, clip: float, mask_width: int = 0):
        self.clip = clip
        self.mask_width = mask_width
        self.count = PRIOR_COUNT
        if mask_width:
            (width,) = obs_shape
            obs_shape = (width - mask_width,)
        self.mean = np.zeros(obs_shape)
        self.square_sum = np.full(obs_shape, PRIOR_COUNT)  # Σ (x - mean)²: variance 1
        self._refresh()

    def _refresh(self) -> None:
        self.inverse_std = 1.0 / np.sqrt(self.square_sum / self.count + EPSILON)

    def update(self, obs: np.ndarray, envs: np.ndarray | None = None) -> None:
        """Count `obs` [M, …]; `envs` [M] are whose they are."""
        obs = self._without_mask(obs)
        finite = np.isfinite(obs)
        if not finite.all():
            row, *index = np.argwhere(~finite)[0]
            env = row if envs is None else envs[row]
            value = obs[row, *index]
            raise EnvError(f"environment {env} returned a non-finite observation, {value}")
        if len(obs) > 1:
            mean = obs.mean(axis=0, dtype=np.float64)
            square_sum = np.square(obs - mean).sum(axis=0)
        else:
            mean, square_sum = obs[0].astype(np.float64), np.zeros_like(self.mean)
        so_far = RunningMoments(self.count, self.mean, self.square_sum)
        self.count, self.mean, self.square_sum = merge_moments(
            so_far, RunningMoments(len(obs), mean, square_sum)
        )
        self._refresh()

    def normalize(self, obs: np.ndarray) -> np.ndarray:
        scaled = (self._without_mask(obs) - self.mean) * self.inverse_std
        scaled = np.minimum(np.maximum(scaled, -self.clip, out=scaled), self.clip, out=scaled)
        return np.concatenate([scaled, obs[:, -self.mask_width :]], axis=1) if self.mask_width else scaled

    def _without_mask(self, obs: np.ndarray) -> np.ndarray:
        return obs[:, : -self.mask_width] if self.mask_width else obs

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count, "mean": self.mean, "square_sum": self.square_sum}

    def load_state_dict(self, state: dict) -> None:
        refuse_unlike(state, self.state_dict(), "the observation normalizer")
        self.count = state["count"]
        self.mean, self.square_sum = state["mean"].copy(), state["square_sum"].copy()
        self._refresh()
