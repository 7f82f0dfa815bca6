"""Controllers change the batch within a run: `(state, signals) -> state` on plain data.

A controller sets the rollout length, and so both the iteration batch and the minibatch; epochs follow if the
config says so. The same signals give the same decisions, and a state survives a round trip through JSON
unchanged, so that a controller can be tested on recorded signals and stored in a checkpoint:

    state = controllers.start(config)
    for each iteration, counted from 1:
        decision = controllers.in_force(config, state)
        # where controllers.measures_at(config, iteration): measure how far the policy moves in it
        # collect decision.num_steps, optimize
        state = controllers.decide(config, state, signals)
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from anybatch import rules
from anybatch.config import CompleteController, schedule_points

RELEASED_LEAST_SIGNAL = 1e-8
"""At or below it, the released code of arXiv:2605.21557 takes the noise scale as 0."""


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Measurements at the end of an iteration. None: not measured, which changes nothing."""

    iteration: int
    """The iteration just finished, counted from 1."""
    env_steps: int
    """Env steps done so far, over all ranks."""
    samples_per_step: int
    """Samples that one more step adds to the iteration batch: the number of envs."""
    minibatches: int
    """Gradient steps per epoch while the minibatch is below its limit."""
    divergence: float | None = None
    """Divergence from the policy before the iteration, as the controller measures it."""
    noise_trace: float | None = None
    """tr(Σ) of the gradient noise scale; if averaged, separately from the signal."""
    noise_signal: float | None = None
    """|G|² of the gradient noise scale; it may be negative."""
    noise_measurements: int = 0
    """Measurements that both are averaged over."""


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """The state of a controller."""

    length: float
    """Rollout length before rounding."""
    measurements: tuple[float, ...] = ()
    """The recent divergences, all finite, the newest last."""
    has_changed: bool = False
    """Whether the length in use has ever changed in this run."""

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values, which keep every float exactly."""
        return asdict(self) | {"measurements": list(self.measurements)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "ControllerState":
        return cls(
            length=state["length"],
            measurements=tuple(float(measured) for measured in state["measurements"]),
            has_changed=state["has_changed"],
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The rollout of the next iteration."""

    num_steps: int | None
    """Rollout length; None: the length in the run's config (kind = fixed)."""
    has_changed: bool
    """Whether the length has ever changed in this run; epochs = proportional applies from then on."""


def start(config: CompleteController) -> ControllerState:
    """The state before the first iteration."""
    if config.kind == "schedule":
        return ControllerState(length=scheduled_length(config, 0))
    length = config.start_steps or config.min_steps
    return ControllerState(length=float(in_use(config, length) if config.rounding == "released" else length))


def resumed(config: CompleteController, state: ControllerState, env_steps: int) -> ControllerState:
    """The state of a resumed run. For a schedule, it follows from the env steps alone."""
    if config.kind != "schedule":
        return state
    length = scheduled_length(config, env_steps)
    return replace(state, length=length, has_changed=state.has_changed or length != state.length)


def measures_at(config: CompleteController, iteration: int) -> bool:
    """Whether the controller measures how far this iteration, counted from 1, moves the policy."""
    return config.kind in ("divergence", "kl") and iteration % config.every == 0


def decide(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """The state for the next iteration, after the signals of the last one."""
    before = in_force(config, state)
    state = advanced(config, state, signals)
    if in_force(config, state).num_steps != before.num_steps:
        return replace(state, has_changed=True)
    return state


def advanced(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """The state after the signals of an iteration."""
    match config.kind:
        case "fixed":
            return state
        case "divergence" | "kl":
            return by_divergence(config, state, signals)
        case "noise_scale":
            return by_noise_scale(config, state, signals)
        case "schedule":
            return replace(state, length=scheduled_length(config, signals.env_steps))


def in_force(config: CompleteController, state: ControllerState) -> Decision:
    """The decision that follows from a state, also at the start and after a resume."""
    match config.kind:
        case "fixed":
            num_steps = None
        case "schedule":
            num_steps = int(state.length)
        case _:
            num_steps = in_use(config, state.length)
    return Decision(num_steps=num_steps, has_changed=state.has_changed)


def epochs(config: CompleteController, base_epochs: int, base_steps: int, decision: Decision) -> int:
    """Passes over the next iteration batch; `base_epochs` were tuned at rollouts of `base_steps`."""
    num_steps = decision.num_steps
    if num_steps is None or config.epochs == "constant":
        return base_epochs
    if config.epochs == "at_least":
        return rules.growing_epochs(base_epochs, num_steps, base_steps)
    # Before the first change, the released PPO code uses the epochs of its baseline.
    return (
        rules.proportional_epochs(base_epochs, num_steps, base_steps) if decision.has_changed else base_epochs
    )


def by_divergence(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """Adaptive Batch Scaling (arXiv:2605.21557): short rollouts while the policy changes a lot.

    One rule for both measures: the share of changed greedy actions (PQN) and the KL divergence (PPO). The
    length moves at each measurement after the warm-up. Non-finite measurements are ignored.
    """
    divergence = signals.divergence
    if signals.iteration % config.every or divergence is None or not math.isfinite(divergence):
        return state
    measurements = (*state.measurements, float(divergence))[-config.window :]
    if len(measurements) < config.warmup:
        return replace(state, measurements=measurements)
    mean = sum(measurements) / len(measurements)
    position = rules.divergence_position(mean, config.low, config.high, config.map)
    target = rules.steps_at_position(position, config.min_steps, config.max_steps)
    return replace(state, measurements=measurements, length=adapted(config, state.length, target))


def by_noise_scale(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """A batch as large as the gradient noise scale (arXiv:1812.06162), beyond which more samples hardly help.

    The length moves at each measurement; non-finite ones are ignored. If noise hides the signal, the target
    is the longest rollout, but the shortest in the baseline of arXiv:2605.21557, which clips a ratio below 0.
    """
    trace, signal = signals.noise_trace, signals.noise_signal
    if signals.iteration % config.every or trace is None or signal is None:
        return state
    if not (math.isfinite(trace) and math.isfinite(signal)):
        return state
    parts = signals.minibatches if config.noise_sets == "minibatch" else 1
    target = rules.noise_scale_steps(trace, signal, samples_per_step=signals.samples_per_step, parts=parts)
    smallest = RELEASED_LEAST_SIGNAL if config.rounding == "released" else 0.0
    if config.noise_estimator == "paper" and signal <= smallest:
        target = float(config.min_steps)
    return replace(state, length=adapted(config, state.length, target))


def scheduled_length(config: CompleteController, env_steps: int) -> float:
    """The length of the last pair whose env steps have been reached."""
    return float([steps for since, steps in schedule_points(config.schedule) if since <= env_steps][-1])


def adapted(config: CompleteController, length: float, target: float) -> float:
    """The length after one adaptation. A target beyond the range, even an infinite one, means its end."""
    target = clamped(config, target)
    if config.rounding == "released":
        cut = rules.released_smoothed_steps(length, target, config.smoothing)
        return float(in_use(config, cut))
    return clamped(config, rules.smoothed_steps(length, target, config.smoothing))


def clamped(config: CompleteController, length: float) -> float:
    """The length within the range that is nearest to `length`."""
    return min(max(length, float(config.min_steps)), float(config.max_steps))


def in_use(config: CompleteController, length: float) -> int:
    """The multiple of `multiple_of` used for a length: the nearest within the range, or the one below."""
    multiple = config.multiple_of
    number = math.floor(length / multiple + (0.0 if config.rounding == "released" else 0.5))
    shortest, longest = config.step_range
    return min(max(number * multiple, shortest), longest)
