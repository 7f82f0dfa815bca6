"""Action distributions, with as few operations as their gradients need.

torch.distributions checks and broadcasts at every call, which costs more than the networks of small problems.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from anybatch.equations import divergence

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """One of A actions, by unnormalized log-probabilities [..., A]. Actions are integers [...]."""

    log_std: None = None

    def __init__(self, logits: Tensor):
        self.location = logits

    @cached_property
    def log_probs(self) -> Tensor:
        """Log-probabilities of all actions, [..., A]."""
        return self.location.log_softmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The action that `noise` [..., A] chooses: Gumbel-max, no normalization needed."""
        return (self.location + noise).argmax(-1)

    def mode(self) -> Tensor:
        return self.location.argmax(-1)

    def kl_from(self, other: "Distribution") -> Tensor:
        """KL(other ‖ self), exact."""
        assert isinstance(other, Categorical)
        return divergence.categorical_kl(other.location, self.location)


class DiagonalGaussian:
    """Independent Gaussians with means [..., A] and log standard deviations [A], the same for all states."""

    def __init__(self, mean: Tensor, log_std: Tensor):
        self.location = mean
        self.log_std = log_std

    def log_prob(self, action: Tensor) -> Tensor:
        # Scaling each squared distance and summing over dimensions are one matrix-vector product.
        half_precision = (-2 * self.log_std).exp() * 0.5
        log_normalizer = self.log_std.sum() + HALF_LOG_TWO_PI * len(self.log_std)
        return -((action - self.location).square() @ half_precision) - log_normalizer

    def entropy(self) -> Tensor:
        one = self.log_std.sum() + (HALF_LOG_TWO_PI + 0.5) * len(self.log_std)
        return one.expand(self.location.shape[:-1])

    def sample(self, noise: Tensor) -> Tensor:
        """The action that standard normal `noise` [..., A] chooses."""
        return torch.addcmul(self.location, self.log_std.exp(), noise)

    def mode(self) -> Tensor:
        return self.location

    def kl_from(self, other: "Distribution") -> Tensor:
        """KL(other ‖ self), exact."""
        assert isinstance(other, DiagonalGaussian)
        return divergence.gaussian_kl(other.location, other.log_std, self.location, self.log_std)


class EpsilonGreedy:
    """The action of highest value [..., A], but for a share `epsilon` of uniformly random ones."""

    log_std: None = None

    def __init__(self, action_values: Tensor, epsilon: float):
        self.location = action_values
        self.epsilon = epsilon

    def log_prob(self, action: Tensor) -> Tensor:
        greedy = (action == self.mode()).to(self.location.dtype)
        return (self.epsilon / self.location.shape[-1] + (1 - self.epsilon) * greedy).log()

    def sample(self, noise: Tensor) -> Tensor:
        """The action that Gumbel `noise` [..., A] chooses.

        Its largest entry is at a uniformly random place, and is as large whatever that place is: with
        P(largest ≤ x) = exp(-A e⁻ˣ), it gives an independent uniform number that decides between the two.
        """
        largest, random_action = noise.max(-1)
        chance = (-self.location.shape[-1] * (-largest).exp()).exp()
        return torch.where(chance < self.epsilon, random_action, self.mode())

    def mode(self) -> Tensor:
        return self.location.argmax(-1)


Distribution = Categorical | DiagonalGaussian
"""Policies with a density that can be trained by their probabilities."""


def make_distribution(location: Tensor, log_std: Tensor | None) -> Distribution:
    """Continuous where there is a log standard deviation, which is moved to where the location is."""
    if log_std is None:
        return Categorical(location)
    return DiagonalGaussian(location, log_std.to(location.device))


def kept_log_std(log_std: Tensor | None) -> Tensor | None:
    """A copy on the CPU, without its gradient."""
    return None if log_std is None else log_std.detach().cpu().clone()


def draw_noise(shape: Sequence[int], generator: torch.Generator, *, continuous: bool) -> Tensor:
    """Noise for `sample`, on the generator's device: standard normal, or Gumbel for discrete actions."""
    noise = torch.empty(tuple(shape), device=generator.device)
    if continuous:
        return noise.normal_(generator=generator)
    return noise.exponential_(generator=generator).log_().neg_()
