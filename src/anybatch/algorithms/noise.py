"""How noisy the gradients of a run are: what is measured, and over which groups of samples."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.backends import Backend, Columns, Minibatch
from anybatch.config import RunConfig
from anybatch.equations.noise_scale import GroupSums
from anybatch.rules import NoiseEstimate, pooled_noise_scale
from anybatch.storage.state_fit import validate_fit

MOST_GROUPS, LEAST_GROUPS = 16, 4
"""Groups of whole env sequences in a measurement. An iteration of fewer than four envs has too few of them:
then the next measured iterations add theirs."""
WINDOW = 20
"""Newest measurements that the noise scale is pooled over."""
SCALE = "batch/noise_scale"
PAPER_PARTS = 8
"""Microbatches that Park's estimator splits an iteration batch into."""


class NoiseMeter:
    """The newest measurements of tr(Σ) and |G|², of each network or part of the loss."""

    def __init__(self, parts: Sequence[str]):
        self._sums = {name: GroupSums() for name in parts}
        self._window: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
        self.of_batch: tuple[float, float] | None = None
        """What Park's estimator measured in this iteration."""

    def add(self, gradients: Iterable[tuple[Mapping[str, Tensor], float]]) -> dict[str, float | None]:
        """Add the groups of an iteration: mean gradients and counts. Returns the iteration's metrics."""
        for by_part, count in gradients:
            for name, gradient in by_part.items():
                self._sums[name].add(gradient, count)
        metrics: dict[str, float | None] = {}
        for number, (name, sums) in enumerate(self._sums.items()):
            if sums.groups < LEAST_GROUPS:
                continue
            trace, signal = sums.measurement()
            self._sums[name] = GroupSums()
            if not (math.isfinite(trace) and math.isfinite(signal)):
                continue  # the steps on such gradients are skipped, too
            self._window[name] = [*self._window[name], (trace, signal)][-WINDOW:]
            found = pooled_noise_scale(self._window[name])
            prefix, scale = ("noise/value_", f"{SCALE}_value") if number else ("noise/", SCALE)
            metrics |= {f"{prefix}trace": trace, f"{prefix}signal": signal}
            metrics |= {scale: found.scale, f"{scale}_error": found.error, f"{scale}_above": found.above}
        return metrics

    @property
    def measurements(self) -> int:
        """How many measurements the estimate is pooled over."""
        return len(next(iter(self._window.values())))

    @property
    def estimate(self) -> NoiseEstimate | None:
        """The pooled estimate for the policy; None before the first measurement."""
        return pooled_noise_scale(next(iter(self._window.values()))) if self.measurements else None

    def state_dict(self) -> dict[str, Any]:
        return {
            "sums": {name: vars(sums).copy() for name, sums in self._sums.items()},
            "window": {name: [list(pair) for pair in pairs] for name, pairs in self._window.items()},
        }

    def load_state_dict(self, state: dict[str, Any], like: Mapping[str, Tensor]) -> None:
        """Continue from `state`; `like` are gradients of the shapes and types of this run's."""
        for name, saved in state["sums"].items():
            gradient = saved["gradient"]
            if gradient is not None:
                validate_fit(gradient, like[name], f"the gradient of the {name}", finite=False)
                gradient = gradient.to(like[name].device, copy=True)
            self._sums[name] = GroupSums(**saved | {"gradient": gradient})
        self._window = {
            name: [(float(trace), float(signal)) for trace, signal in pairs]
            for name, pairs in state["window"].items()
        }


def is_measured(config: RunConfig, iterations: int) -> bool:
    """Whether the iteration after `iterations` measures the noise by whole env sequences."""
    every = config.update.noise_scale_every
    return every > 0 and iterations % every == 0


def is_measured_for_controller(config: RunConfig, iterations: int) -> bool:
    """Whether the iteration after `iterations` measures the noise by Park's estimator."""
    controller = config.complete_controller
    is_paper = controller.kind == "noise_scale" and controller.noise_estimator == "paper"
    return is_paper and (iterations + 1) % controller.every == 0


def env_groups(all_valid: Tensor) -> list[Tensor]:
    """Up to 16 groups of whole env sequences, as indices into [T · N]; `all_valid` is [T, N] of all ranks.

    Samples of different envs are independent of each other, those of one env are not.
    """
    envs = all_valid.shape[1]
    number = min(MOST_GROUPS, envs)
    samples = all_valid.flatten().nonzero().squeeze(1)
    group_of_each = samples % envs * number // envs
    groups = [samples[group_of_each == group] for group in range(number)]
    return [group for group in groups if group.numel()]


def random_parts(all_valid: Tensor, seed: int, iteration: int) -> list[Tensor]:
    """Park's microbatches of an iteration batch, as indices into [T · N].

    Drawn from a separate stream, so that a run that measures draws the same minibatches.
    """
    samples = all_valid.flatten().nonzero().squeeze(1)
    generator = seeding.torch_generator(seed, role="noise_scale", draw=(iteration,))
    order = torch.randperm(len(samples), generator=generator)
    return [part for part in samples[order].tensor_split(PAPER_PARTS) if part.numel()]


def mean_gradients(
    backend: Backend[Any], samples: Columns, groups: Iterable[Minibatch]
) -> Iterable[tuple[Mapping[str, Tensor], float]]:
    """The mean gradients of groups of samples, over all ranks, and their counts."""
    return ((backend.mean_gradients(samples, group), group.count) for group in groups)


def measured_by_paper(backend: Backend[Any], samples: Columns, parts: Sequence[Minibatch]) -> Any:
    """tr(Σ) and |G|² of the policy's gradient from microbatches of one batch; None from fewer than two."""
    sums = GroupSums()
    for by_part, count in mean_gradients(backend, samples, parts):
        sums.add(next(iter(by_part.values())), count)
    return sums.measurement() if sums.groups >= 2 else None
