"""How each number follows the batch it depends on: the rules behind the dial.

`ratio` is always ρ = batch of this run ÷ batch the number was tuned at; the c of Hilton et al. 2021
(arXiv:2110.00641) is its inverse. The rules are unrounded: identity at ρ = 1, ρ₁ then ρ₂ is ρ₁ρ₂.
"""

import math
from typing import Literal

LEARNING_RATE_RULE = {"adam": "square-root", "radam": "square-root", "sgd": "linear"}
"""How the learning rate of each optimizer follows the minibatch."""


def center_of_mass(decay: float) -> float:
    """1/(1-β) - 1: the mean age of what an EWMA averages, in its updates (arXiv:2110.00641, §4)."""
    return decay / (1.0 - decay)


def decay_from_center_of_mass(center: float) -> float:
    """The β whose center of mass is `center` (arXiv:2110.00641, §4)."""
    return center / (1.0 + center)


def effective_sample_size(decay: float) -> float:
    """2/(1-β) - 1: how many equal samples are as good as this EWMA (arXiv:2110.00641, §4, note 1)."""
    return (1.0 + decay) / (1.0 - decay)


def rescaled_learning_rate(
    learning_rate: float,
    ratio: float,
    optimizer: Literal["adam", "radam", "sgd"],
    rule: Literal["square-root", "linear"] | None = None,
) -> float:
    """Adam and RAdam: × √ρ. SGD: × ρ. ρ of the minibatch (arXiv:2110.00641, §3).

    `rule` replaces the optimizer's: × ρ with Adam is the ablation of App. C of the paper.
    """
    is_linear = (rule or LEARNING_RATE_RULE[optimizer]) == "linear"
    return learning_rate * (ratio if is_linear else math.sqrt(ratio))


def minibatches_within(
    limit: float, *, iteration_batch: float, minibatches: float, rounded: bool = False
) -> float:
    """max(n, B/limit): minibatches per epoch such that a minibatch B/n does not exceed `limit`.

    While the limit is not reached the number n stays and the minibatch grows with the iteration batch B.
    Beyond it the minibatch stays and the number grows, so that gradient steps per env step no longer fall;
    with the tuned minibatch as the limit, this is the recipe of arXiv:2603.06009.
    `rounded`: the next whole number, which keeps the minibatch within the limit.
    """
    unrounded = max(minibatches, iteration_batch / limit)
    # A quotient of floats that should be whole must not be rounded up because of float error.
    return float(math.ceil(round(unrounded, 9))) if rounded else unrounded


def rescaled_proximal_decay(decay: float, ratio: float) -> float:
    """Center of mass ÷ ρ, so that the proximal policy's age in env steps stays the same (arXiv:2110.00641,
    §4).

    ρ of the env steps per gradient step. Solved for β, so that ρ = 1 gives the very same float.
    """
    return decay / (ratio + decay * (1.0 - ratio))


def mean_copy_age(copy_every: float) -> float:
    """(n-1)/2: the mean age of a copy that is taken every n gradient steps, in gradient steps.

    Its age is 0 in the first gradient step after it and n-1 in the last. The counterpart of an EWMA's center
    of mass: a copy every 17 gradient steps is as old, on average, as an EWMA of decay 8/9.
    """
    return (copy_every - 1.0) / 2.0


def copy_every_from_mean_age(age: float) -> float:
    """The n whose mean age is `age`: 2 · age + 1."""
    return 2.0 * age + 1.0


def rescaled_copy_every(copy_every: float, ratio: float, *, rounded: bool = False) -> float:
    """1 + (n-1)/ρ: mean age ÷ ρ, so that the copy's age in env steps stays the same, as for an EWMA.

    ρ of the env steps per gradient step. `rounded`: a whole number of at least 1.
    """
    unrounded = 1.0 + (copy_every - 1.0) / ratio
    return float(max(round(unrounded), 1)) if rounded else unrounded


def rescaled_advantage_decay(decay: float, ratio: float, *, floor: bool = False) -> float:
    """Effective sample size ÷ ρ, so that moments cover the same number of samples (arXiv:2110.00641, §4).

    ρ of the iteration batch. Below an effective size of 1 the unrounded decay is negative; `floor`
    stops at 1, which is decay 0. Solved for β, so that ρ = 1 gives the very same float.
    """
    unrounded = (decay * (1.0 + ratio) + (1.0 - ratio)) / ((1.0 + ratio) + decay * (1.0 - ratio))
    return max(unrounded, 0.0) if floor else unrounded


def rescaled_phase_iterations(iterations: float, ratio: float, *, rounded: bool = False) -> float:
    """Iterations per phase ÷ ρ of the iteration batch: the same number of env steps per phase
    (arXiv:2110.00641, §4).

    `rounded`: a whole number of at least 1.
    """
    unrounded = iterations / ratio
    return float(max(round(unrounded), 1)) if rounded else unrounded


def rescaled_adam_beta(beta: float, ratio: float) -> float:
    """β^ρ, ρ of the minibatch: averages span equally many samples (arXiv:2110.00641, §3.2, optional)."""
    return beta**ratio
