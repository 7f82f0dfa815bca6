"""Running statistics of vector observations, kept while acting."""

import numpy as np
import torch

from anybatch.distributed import collectives
from anybatch.equations.moments import EPSILON, PRIOR_COUNT, RunningMoments, merge_moments
from anybatch.errors import EnvError
from anybatch.storage.state_fit import refuse_unlike


class ObservationNormalizer:
    """Shifts and scales vector observations by the running moments of those that decisions are based on.

    With `per_step`, the moments change with every step. Otherwise they change only between iterations, by the
    observations that the steps of all ranks returned, so that they do not depend on the number of ranks. The
    last `mask_width` entries of an observation are its action mask, and are unchanged.
    """

    def __init__(
        self, obs_shape: tuple[int, ...], *, clip: float, mask_width: int = 0, per_step: bool = True
    ):
        self.clip = clip
        self.per_step = per_step
        self.mask_width = mask_width
        self.count = PRIOR_COUNT
        if mask_width:
            (width,) = obs_shape
            obs_shape = (width - mask_width,)
        self.mean = np.zeros(obs_shape)
        self.square_sum = np.full(obs_shape, PRIOR_COUNT)  # Σ (x - mean)²: variance 1
        self._waiting = self._nothing()
        """Moments of this iteration's observations on this rank, unless they change with every step."""
        self._refresh()

    def _nothing(self) -> RunningMoments[np.ndarray]:
        return RunningMoments(0.0, np.zeros_like(self.mean), np.zeros_like(self.mean))

    def _refresh(self) -> None:
        self.inverse_std = 1.0 / np.sqrt(self.square_sum / self.count + EPSILON)

    def update(self, obs: np.ndarray, envs: np.ndarray | None = None) -> None:
        """Count `obs` [M, …]; `envs` [M] are the run-wide numbers of their environments, for errors."""
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
        counted = RunningMoments(len(obs), mean, square_sum)
        if self.per_step:
            self._add(counted)
        else:
            self._waiting = merge_moments(self._waiting, counted)

    def _add(self, moments: RunningMoments[np.ndarray]) -> None:
        so_far = RunningMoments(self.count, self.mean, self.square_sum)
        self.count, self.mean, self.square_sum = merge_moments(so_far, moments)
        self._refresh()

    def end_iteration(self) -> None:
        """Count the observations of this iteration on all ranks, unless that happens at every step."""
        if self.per_step:
            return
        count, mean, square_sum = self._waiting
        own = np.concatenate([[count], mean.ravel(), square_sum.ravel()])
        for samples, *numbers in collectives.of_all_ranks(torch.from_numpy(own)).tolist():
            means, square_sums = np.array(numbers).reshape(2, *self.mean.shape)
            self._add(RunningMoments(samples, means, square_sums))
        self._waiting = self._nothing()

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
