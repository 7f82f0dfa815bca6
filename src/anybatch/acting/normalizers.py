"""Running statistics of returns and advantages over valid samples, summed over ranks before they change."""

import numpy as np
import torch
from torch import Tensor

from anybatch.distributed import collectives
from anybatch.equations import moments
from anybatch.equations.moments import EPSILON, PRIOR_COUNT


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
