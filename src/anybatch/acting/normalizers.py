"""Running statistics of observations, returns and advantages, summed over ranks before they change."""

import numpy as np
import torch
from torch import Tensor

from anybatch.distributed import collectives
from anybatch.equations import moments
from anybatch.equations.moments import EPSILON, PRIOR_COUNT, RunningMoments, merge_moments
from anybatch.errors import EnvError
from anybatch.storage.state_fit import validate_fit


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
        local = np.concatenate([[count], mean.ravel(), square_sum.ravel()])
        for samples, *numbers in collectives.of_all_ranks(torch.from_numpy(local)).tolist():
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
        validate_fit(state, self.state_dict(), "the observation normalizer")
        self.count = state["count"]
        self.mean, self.square_sum = state["mean"].copy(), state["square_sum"].copy()
        self._refresh()


class RewardNormalizer:
    """Divides rewards by the running standard deviation of each env's discounted return.

        R_t = r_t + γ R_{t-1},  R = 0 before each episode;   r_t ← clip(r_t / std(R), ±c)

    The mean is not subtracted: that would change which policy is best. γ here is the normalizer's own.
    """

    def __init__(self, num_envs: int, *, discount: float, clip: float, per_step: bool):
        self.discount = discount
        self.clip = clip
        self.per_step = per_step
        self.running_return = np.zeros(num_envs)
        self.count, self.total, self.total_squares = PRIOR_COUNT, 0.0, PRIOR_COUNT

    def __call__(self, reward: Tensor, valid: Tensor, episode_end: Tensor) -> Tensor:
        """Scaled rewards; all arguments and the result are [T, N]. Updates the statistics first."""
        returns = self._discounted_returns(np.where(valid.numpy(), reward.numpy(), 0.0), episode_end.numpy())
        std = self._update(np.where(valid.numpy(), returns, 0.0), valid.numpy())
        return (reward / torch.from_numpy(std).to(reward.dtype)).clamp_(-self.clip, self.clip)

    def _discounted_returns(self, reward: np.ndarray, episode_end: np.ndarray) -> np.ndarray:
        returns = np.empty(reward.shape)
        discount_after = self.discount * ~episode_end
        carried = self.discount * self.running_return
        for t in range(len(reward)):
            np.add(reward[t], carried, out=returns[t])
            carried = returns[t] * discount_after[t]
        self.running_return = np.where(episode_end[-1], 0.0, returns[-1])
        return returns

    def _update(self, returns: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Standard deviations [T, 1] with each row counted in turn, or [1, 1] with all of them counted."""
        sums = np.stack([valid.sum(axis=1), returns.sum(axis=1), np.square(returns).sum(axis=1)])
        sums = collectives.sum_over_ranks(torch.from_numpy(sums.astype(np.float64))).numpy()
        known = np.array([[self.count], [self.total], [self.total_squares]]) + np.cumsum(sums, axis=1)
        self.count, self.total, self.total_squares = (float(x) for x in known[:, -1])
        count, total, total_squares = known if self.per_step else known[:, -1:]
        variance = total_squares / count - np.square(total / count)
        return np.sqrt(np.maximum(variance, 0.0) + EPSILON)[:, None]

    def continue_returns(self, running_return: np.ndarray) -> None:
        """Restore the returns of episodes in progress, if the number of envs is the same."""
        if len(running_return) == len(self.running_return):
            self.running_return = running_return.copy()

    def state_dict(self) -> dict[str, object]:
        """The statistics. `running_return` belongs to the envs of one rank and is kept with them."""
        return {"count": self.count, "total": self.total, "total_squares": self.total_squares}

    def load_state_dict(self, state: dict) -> None:
        self.count, self.total = state["count"], state["total"]
        self.total_squares = state["total_squares"]


class AdvantageNormalizer:
    """Normalizes advantages once per iteration by moments that decay from iteration to iteration."""

    def __init__(self) -> None:
        self.moments = moments.Moments(0.0, 0.0, 0.0)

    def update(self, advantage: Tensor, valid: Tensor, *, decay: float) -> None:
        """Count an iteration batch, [T, N]; with decay 0 the moments are those of this batch alone."""
        counted = torch.where(valid, advantage, 0.0).double()
        sums = torch.stack([valid.sum().double(), counted.sum(), counted.square().sum()])
        count, total, total_squares = collectives.sum_over_ranks(sums).tolist()
        if count > 0:
            self.moments = moments.ewma_moments(
                self.moments, count, total / count, total_squares / count, decay=decay
            )

    def normalize(self, advantage: Tensor) -> Tensor:
        mean, std = self.mean_std
        return (advantage - mean) / (std + EPSILON)

    @property
    def mean_std(self) -> tuple[float, float]:
        """(0, 0) before anything was counted."""
        return moments.moments_mean_std(self.moments) if self.moments.weight else (0.0, 0.0)

    def state_dict(self) -> dict[str, object]:
        return {"moments": list(self.moments)}

    def load_state_dict(self, state: dict) -> None:
        self.moments = moments.Moments(*state["moments"])
