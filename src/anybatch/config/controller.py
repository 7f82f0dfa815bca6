"""Configuration of the controller, which changes the batch within a run."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from anybatch.config.require import Group, Part, PositiveInt, require, whole_number

Kind = Literal["fixed", "divergence", "kl", "noise_scale", "schedule"]


def defaults_of(kind: Kind, num_steps: int) -> dict[str, Any]:
    """The numbers of a controller where its config has None, around rollouts of `num_steps`."""
    half = max(1, round(0.5 * num_steps))
    match kind:
        case "kl":  # the PPO code: 1,024 to 8,192 steps around a baseline of 2,048
            longest, numbers = 4 * num_steps, {"every": 10, "smoothing": 0.1, "low": 0.01, "high": 0.1}
        case "noise_scale":  # the PQN code with the noise scale, without smoothing
            longest, numbers = 2 * num_steps, {"every": 50, "smoothing": 1.0}
        case _:  # the PQN code: 16 to 64 steps around a baseline of 32
            longest, numbers = 2 * num_steps, {"every": 50, "smoothing": 0.1, "low": 0.05, "high": 0.95}
    return {"min_steps": half, "max_steps": longest} | numbers


@dataclass(frozen=True, kw_only=True)
class ControllerConfig(Group, group="controller"):
    """Controller of the rollout length within a run, and so of the iteration batch and the minibatch."""

    kind: Kind = "fixed"
    """What sets the rollout length. fixed: num-steps. divergence: the share of states whose best action an
    iteration changed (Adaptive Batch Scaling). kl: the KL divergence from the policy before the iteration.
    noise_scale: the gradient noise scale. schedule: the env steps done."""
    min_steps: PositiveInt | None = None
    """Shortest rollout (L_min): steps of each environment between two optimizations. None: half of
    tuned-at.num-steps."""
    max_steps: PositiveInt | None = None
    """Longest rollout (L_max). None: twice tuned-at.num-steps; four times for kl."""
    start_steps: int = 0
    """Rollout length at the start; 0: min-steps."""
    every: PositiveInt | None = None
    """Iterations between two measurements (K). None: 50; 10 for kl."""
    low: float | None = None
    """Divergence at or below which the target is the longest rollout. None: 0.05 for divergence, 0.01 for
    kl."""
    high: float | None = None
    """Divergence at or above which the target is the shortest rollout. None: 0.95 for divergence, 0.1 for
    kl."""
    map: Literal["log", "linear", "exponential"] = "log"
    """How the length depends on the divergence between the two thresholds. log: as in Adaptive Batch Scaling.
    exponential: the mirror image of log, so that only large divergences shorten the rollout a lot."""
    window: PositiveInt = 20
    """Number of recent divergences whose mean is used."""
    warmup: PositiveInt = 10
    """Divergences measured before the first change of the length."""
    smoothing: Part | None = None
    """Share of the way to its target that the length moves at each adaptation; 1: the whole way. None: 0.1; 1
    for noise_scale, as in the released code."""
    states: PositiveInt = 2048
    """Largest number of states of an iteration on which a divergence is measured."""
    rounding: Literal["float", "released"] = "float"
    """float: keep the length as a real number and use the nearest whole number. released: truncate it at each
    adaptation like the released code, which stalls below its target, at 55 of 64 and 119 of 128."""
    multiple_of: PositiveInt = 1
    """The length in use is a multiple of this; 32 in the released PPO code. With rounding = released, an
    increase smaller than this is lost."""
    noise_estimator: Literal["paper", "sequences"] = "paper"
    """How noise_scale measures. paper: the baseline of Adaptive Batch Scaling, one measurement from random
    microbatches of the iteration batch, in which a signal below 0 selects the shortest rollout. It is biased:
    noise that the samples of an environment have in common counts as signal, so that the noise scale comes
    out too small. sequences: the pooled estimate that update.noise-scale-every measures from whole sequences
    of environments."""
    noise_sets: Literal["minibatch", "iteration_batch"] = "iteration_batch"
    """Batch that is set to the noise scale: the iteration batch as in the paper, or the minibatch."""
    schedule: tuple[str, ...] = ()
    """For kind = schedule: ENV_STEPS:NUM_STEPS pairs such as 0:16 1M:32, each in force from its env steps on.
    These lengths are used exactly as given."""
    epochs: Literal["constant", "at_least", "proportional"] = "constant"
    """How epochs follow the length. constant: update.epochs. at_least: more for rollouts longer than tuned,
    never fewer (released PQN code). proportional: in proportion to the length, after the first change
    (released PPO code)."""
    compensate: Literal["none", "all"] = "none"
    """all: learning rate, proximal decay and advantage moments follow the batch as it changes within the run,
    by the rules of rescale. none: they stay the same, as in Adaptive Batch Scaling."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.warmup <= self.window,
            f"controller.warmup = {self.warmup} is more than the controller.window = {self.window} "
            "divergences that are kept",
        )
        self._require_lengths()
        require(
            self.compensate == "none" or self.epochs == "constant",
            f"controller.compensate = {self.compensate} and controller.epochs = {self.epochs} both "
            "compensate for a change of the batch: use one of them",
        )
        if self.kind in ("divergence", "kl"):
            self._require_thresholds()
        if self.kind == "schedule":
            schedule_points(self.schedule)
        require(
            self.kind == "schedule" or not self.schedule,
            f"controller.schedule = {' '.join(self.schedule)} needs controller.kind = schedule, "
            f"not {self.kind}",
        )

    def with_defaults(self, num_steps: int) -> "ControllerConfig":
        """The same config with the defaults of its kind, if it has any, around rollouts of `num_steps`."""
        if self.kind in ("fixed", "schedule"):
            return self
        return replace(self, **(defaults_of(self.kind, num_steps) | self._given()))

    def completed(self, num_steps: int) -> "CompleteController":
        """The controller of a run whose numbers were tuned at rollouts of `num_steps`."""
        # This kind of controller does not read fields that are still None here.
        known = defaults_of("divergence", num_steps) | defaults_of(self.kind, num_steps) | self._given()
        return CompleteController(**known)

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def _require_lengths(self) -> None:
        if self.min_steps is None or self.max_steps is None:
            return
        require(
            self.min_steps <= self.max_steps,
            f"controller.min-steps = {self.min_steps} is more than controller.max-steps = {self.max_steps}",
        )
        require(
            self.start_steps == 0 or self.min_steps <= self.start_steps <= self.max_steps,
            f"controller.start-steps = {self.start_steps}: must be 0 or from controller.min-steps = "
            f"{self.min_steps} to controller.max-steps = {self.max_steps}",
        )
        require(
            self.max_steps // self.multiple_of * self.multiple_of >= self.min_steps,
            f"controller.multiple-of = {self.multiple_of}: must have a multiple from controller.min-steps = "
            f"{self.min_steps} to controller.max-steps = {self.max_steps}",
        )

    def _require_thresholds(self) -> None:
        known = defaults_of(self.kind, 1) | self._given()
        low, high = known["low"], known["high"]
        # A share of states is below 1; a KL divergence has no largest value.
        limit = 1.0 if self.kind == "divergence" else math.inf
        order = "0 < low < high < 1" if self.kind == "divergence" else "0 < low < high, both finite,"
        require(
            0 < low < high < limit,
            f"controller.low = {low}, controller.high = {high}: must be {order} for "
            f"controller.kind = {self.kind}",
        )


@dataclass(frozen=True, kw_only=True)
class CompleteController(ControllerConfig):
    """A controller with every number known: the defaults of its kind where its config has None."""

    min_steps: int = field()
    max_steps: int = field()
    every: int = field()
    low: float = field()
    high: float = field()
    smoothing: float = field()

    @property
    def step_range(self) -> tuple[int, int]:
        """Shortest and longest rollout that can be in use, if the length is not fixed."""
        if self.kind == "schedule":
            lengths = [num_steps for _, num_steps in schedule_points(self.schedule)]
            return min(lengths), max(lengths)
        multiple = self.multiple_of
        return -(-self.min_steps // multiple) * multiple, self.max_steps // multiple * multiple


def schedule_points(schedule: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """The pairs of a schedule: env steps, and the rollout length from there on."""
    points = tuple(point for text in schedule if (point := _schedule_point(text)) is not None)
    env_steps = [point[0] for point in points]
    shown = f"controller.schedule = {' '.join(schedule) or 'empty'}"
    require(
        0 < len(points) == len(schedule)
        and all(start >= 0 and num_steps >= 1 for start, num_steps in points),
        f"{shown}: must be pairs ENV_STEPS:NUM_STEPS such as 0:16 1000000:32",
    )
    require(env_steps[0] == 0, f"{shown}: the first pair must be at 0 env steps")
    require(
        all(before < after for before, after in pairwise(env_steps)),
        f"{shown}: each pair must be at more env steps than the one before",
    )
    return points


def _schedule_point(text: str) -> tuple[int, int] | None:
    env_steps, _, num_steps = text.partition(":")
    try:
        return whole_number(env_steps), whole_number(num_steps)
    except ValueError:
        return None
