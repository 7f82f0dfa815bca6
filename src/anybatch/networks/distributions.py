"""Action distributions, with as few operations as their gradients need.

torch.distributions checks and broadcasts at every call, which costs more than the networks of small problems.
"""

import math
from collections.abc import Sequence
from functools import cache, cached_property

import torch
from torch import Tensor

from anybatch.equations import divergence

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
FORBIDDEN = -1e9
"""Logit or action value of an action that a mask forbids. Its probability is exactly 0, and it is finite: so
are entropies, divergences and their gradients, in float32 too."""


def forbid(params: Tensor, forbidden: Tensor) -> Tensor:
    """Logits or action values [..., A] without the `forbidden` actions, bool [..., A]."""
    return params.masked_fill(forbidden, FORBIDDEN)


class Categorical:
    """One of A actions, by unnormalized log-probabilities [..., A]. Actions are integers [...]."""

    log_std: None = None

    def __init__(self, logits: Tensor):
        self.params = logits

    @cached_property
    def log_probs(self) -> Tensor:
        """Log-probabilities of all actions, [..., A]."""
        return self.params.log_softmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The action that `noise` [..., A] chooses: Gumbel-max, no normalization needed."""
        return (self.params + noise).argmax(-1)

    def mode(self) -> Tensor:
        return self.params.argmax(-1)

    def kl_from(self, other: "Distribution") -> Tensor:
        """KL(other ‖ self), exact."""
        assert isinstance(other, Categorical)
        return divergence.categorical_kl(other.params, self.params)


class MultiCategorical:
    """Several independent choices: of counts[k] actions each, by logits [..., Σ counts], one after another.

    Actions are integers [..., number of choices]. Log-probabilities, entropies and divergences are sums over
    the choices, which are computed as the rows of one table.
    """

    log_std: None = None

    def __init__(self, logits: Tensor, counts: tuple[int, ...]):
        self.params = logits
        self.counts = counts
        self._choices = Categorical(in_rows(logits, counts, FORBIDDEN))

    def log_prob(self, action: Tensor) -> Tensor:
        return self._choices.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        return self._choices.entropy().sum(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The actions that Gumbel `noise` [..., Σ counts] chooses."""
        return self._choices.sample(in_rows(noise, self.counts, 0.0))

    def mode(self) -> Tensor:
        return self._choices.mode()

    def kl_from(self, other: "Distribution") -> Tensor:
        """KL(other ‖ self), exact."""
        assert isinstance(other, MultiCategorical) and other.counts == self.counts
        return self._choices.kl_from(other._choices).sum(-1)


def in_rows(flat: Tensor, counts: tuple[int, ...], fill: float) -> Tensor:
    """[..., Σ counts] as a table [..., len(counts), max(counts)], with short rows padded by `fill`."""
    if min(counts) == max(counts):
        return flat.unflatten(-1, (len(counts), counts[0]))
    filler = flat.new_full((*flat.shape[:-1], 1), fill)
    table = torch.cat([flat, filler], -1).index_select(-1, _places(counts, flat.device))
    return table.unflatten(-1, (len(counts), max(counts)))


@cache
def _places(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """The source index of each entry of the table; the padding comes after the last entry."""
    with torch.inference_mode(False):  # kept, since gradients need it too
        places = torch.full((len(counts), max(counts)), sum(counts))
        for row, entries in zip(places, torch.arange(sum(counts)).split(counts), strict=True):
            row[: len(entries)] = entries
        return places.flatten().to(device)


class DiagonalGaussian:
    """Independent Gaussians with means [..., A] and log standard deviations [A], the same for all states."""

    def __init__(self, mean: Tensor, log_std: Tensor):
        self.params = mean
        self.log_std = log_std

    def log_prob(self, action: Tensor) -> Tensor:
        # Scaling each squared distance and summing over dimensions are one matrix-vector product.
        half_precision = (-2 * self.log_std).exp() * 0.5
        log_normalizer = self.log_std.sum() + HALF_LOG_TWO_PI * len(self.log_std)
        return -((action - self.params).square() @ half_precision) - log_normalizer

    def entropy(self) -> Tensor:
        one = self.log_std.sum() + (HALF_LOG_TWO_PI + 0.5) * len(self.log_std)
        return one.expand(self.params.shape[:-1])

    def sample(self, noise: Tensor) -> Tensor:
        """The action that standard normal `noise` [..., A] chooses."""
        return torch.addcmul(self.params, self.log_std.exp(), noise)

    def mode(self) -> Tensor:
        return self.params

    def kl_from(self, other: "Distribution") -> Tensor:
        """KL(other ‖ self), exact."""
        assert isinstance(other, DiagonalGaussian)
        return divergence.gaussian_kl(other.params, other.log_std, self.params, self.log_std)


class EpsilonGreedy:
    """The action of highest value [..., A], except for a share `epsilon` of uniformly random ones.

    If the values are `masked`, those at FORBIDDEN are never taken: random actions are among the others.
    """

    log_std: None = None

    def __init__(self, action_values: Tensor, epsilon: float, *, masked: bool = False):
        self.params = action_values
        self.epsilon = epsilon
        self.forbidden = action_values == FORBIDDEN if masked else None

    def log_prob(self, action: Tensor) -> Tensor:
        greedy = (action == self.mode()).to(self.params.dtype)
        if self.forbidden is None:
            return (self.epsilon / self.params.shape[-1] + (1 - self.epsilon) * greedy).log()
        share = (self.epsilon / self._num_allowed(self.forbidden).double()).to(self.params.dtype)
        share = share.masked_fill(self.forbidden.gather(-1, action.unsqueeze(-1)).squeeze(-1), 0.0)
        return (share + (1 - self.epsilon) * greedy).log()

    def sample(self, noise: Tensor) -> Tensor:
        """The action that Gumbel `noise` [..., A] chooses.

        The place of its largest entry is uniformly random and independent of its size: with
        P(largest ≤ x) = exp(-A e⁻ˣ), it gives an independent uniform number that decides between the two.
        """
        num_allowed: int | Tensor = self.params.shape[-1]
        if self.forbidden is not None:
            noise = noise.masked_fill(self.forbidden, -math.inf)
            num_allowed = self._num_allowed(self.forbidden)
        largest, random_action = noise.max(-1)
        chance = (-num_allowed * (-largest).exp()).exp()
        return torch.where(chance < self.epsilon, random_action, self.mode())

    @staticmethod
    def _num_allowed(forbidden: Tensor) -> Tensor:
        return (~forbidden).sum(-1)

    def mode(self) -> Tensor:
        return self.params.argmax(-1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian
"""Policies with a density that can be trained by their probabilities."""


def make_distribution(params: Tensor, log_std: Tensor | None, counts: tuple[int, ...] | None) -> Distribution:
    """The policy at a params; continuous if there is a log standard deviation, moved to the same device.

    `counts` are those of the choices, if an action makes several, else None.
    """
    if log_std is not None:
        return DiagonalGaussian(params, log_std.to(params.device))
    return Categorical(params) if counts is None else MultiCategorical(params, counts)


def kept_log_std(log_std: Tensor | None) -> Tensor | None:
    """A copy on the CPU, without its gradient."""
    return None if log_std is None else log_std.detach().cpu().clone()


def draw_noise(
    shape: Sequence[int],
    generator: torch.Generator,
    *,
    continuous: bool,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Noise for `sample`, on the generator's device: standard normal, or Gumbel for discrete actions."""
    noise = torch.empty(tuple(shape), device=generator.device, dtype=dtype)
    if continuous:
        return noise.normal_(generator=generator)
    # An exponential number may be 0 on some machines: infinite noise would choose forbidden actions too.
    exponential = noise.exponential_(generator=generator).clamp_(min=torch.finfo(noise.dtype).tiny)
    return exponential.log_().neg_()
