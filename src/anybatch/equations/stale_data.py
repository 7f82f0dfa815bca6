"""Numbers for data collected some iterations ago: newer ideas, each optional.

The importance weights are w = π/π_behavior, of the current policy at the start of an iteration.
"""

import math

import torch
from torch import Tensor


def capped_weight_sums(log_weights: Tensor, max_importance: float) -> Tensor:
    """Σw, Σw² and n of importance weights capped as the objective caps them, in float64. [B] → [3].

    Sums of several ranks can be added before `effective_share` is taken.
    """
    weights = log_weights.double().clamp(max=math.log(max_importance)).exp()
    count = weights.new_tensor(float(len(weights)))
    return torch.stack([weights.sum(), weights.square().sum(), count])


def effective_share(weight_sum: float, square_sum: float, count: float) -> float:
    """(Σw)² / (n Σw²): effective samples ÷ samples. 1 for equal weights, 1/n if one outweighs all.

    Kong 1992, "A note on importance sampling using standardized weights".
    """
    return weight_sum**2 / (count * square_sum)


def learning_rate_factor(share: float) -> float:
    """√(effective samples ÷ samples): Adam's square-root rule for the effective batch.

    Huang et al. 2026 (arXiv:2602.17616), whose weights are of whole responses of a language model.
    """
    return math.sqrt(share)
