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

from dataclasses import replace

from anybatch.batch.controllers import by_divergence, by_noise_scale, scheduled
from anybatch.batch.controllers.rollout_length import in_use
from anybatch.batch.controllers.state import ControllerState, Decision, Signals
from anybatch.config import CompleteController
from anybatch.equations import batch_scaling

__all__ = [
    "ControllerState",
    "Decision",
    "Signals",
    "decide",
    "epochs",
    "in_force",
    "measures_at",
    "resumed",
    "start",
]


def start(config: CompleteController) -> ControllerState:
    """The state before the first iteration."""
    if config.kind == "schedule":
        return ControllerState(length=scheduled.length_at(config, 0))
    length = config.start_steps or config.min_steps
    return ControllerState(length=float(in_use(config, length) if config.rounding == "released" else length))


def resumed(config: CompleteController, state: ControllerState, env_steps: int) -> ControllerState:
    """The state of a resumed run. For a schedule, it follows from the env steps alone."""
    if config.kind != "schedule":
        return state
    length = scheduled.length_at(config, env_steps)
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
            return by_divergence.advanced(config, state, signals)
        case "noise_scale":
            return by_noise_scale.advanced(config, state, signals)
        case "schedule":
            return scheduled.advanced(config, state, signals)


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
        return batch_scaling.growing_epochs(base_epochs, num_steps, base_steps)
    # Before the first change, the released PPO code uses the epochs of its baseline.
    return (
        batch_scaling.proportional_epochs(base_epochs, num_steps, base_steps)
        if decision.has_changed
        else base_epochs
    )
