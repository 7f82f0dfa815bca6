"""Rollout lengths given by the config as a step function of env steps."""

from dataclasses import replace

from anybatch.batch.controllers.state import ControllerState, Signals
from anybatch.config import CompleteController, schedule_points


def advanced(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """Use the length scheduled for the env steps done."""
    return replace(state, length=length_at(config, signals.env_steps))


def length_at(config: CompleteController, env_steps: int) -> float:
    """The length of the last pair whose env steps have been reached."""
    return float([steps for since, steps in schedule_points(config.schedule) if since <= env_steps][-1])
