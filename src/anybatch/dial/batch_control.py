"""The controller of a run and the plan resulting from its decisions."""

from typing import Any

from anybatch.config import RunConfig
from anybatch.config.planned import Plan
from anybatch.dial import controllers
from anybatch.dial.controllers import ControllerState, Signals
from anybatch.dial.plan import make_plan, moved_limit, usable_limit
from anybatch.errors import ConfigError


class BatchControl:
    """The plan in force. It is replaced when the controller decides on another batch."""

    def __init__(self, config: RunConfig, *, encoder: str, obs_bytes: int | None = None):
        validate_rollout_length(config)
        self._config = config
        self._encoder = encoder
        self._obs_bytes = obs_bytes
        self._settings = config.complete_controller
        self.controller = controllers.start(self._settings)
        self._measured_limit: float | None = None
        self.plan = self._plan()

    @property
    def minibatches(self) -> int:
        """Minibatches per epoch as long as no limit adds to them within the run."""
        limit = self.plan.minibatch_limit
        is_auto = limit is not None and limit.choice == "auto"
        return self.plan.batch.minibatches_per_epoch if is_auto else self._config.update.minibatches_per_epoch

    def decide(self, signals: Signals) -> bool:
        """Let the controller decide the batch of the next iteration. Returns whether it changed."""
        self.controller = controllers.decide(self._settings, self.controller, signals)
        limit = self.plan.minibatch_limit
        if limit is not None and limit.choice == "noise-scale":
            self._measured_limit = moved_limit(
                limit,
                signals,
                tuned=self.plan.tuned_at.minibatch,
                unlimited=self.plan.batch.iteration_batch / self.minibatches,
            )
        before, self.plan = self.plan, self._plan()
        return before.batch != self.plan.batch

    def _plan(self) -> Plan:
        config = self._config
        decision = controllers.in_force(self._settings, self.controller)
        epochs = controllers.epochs(
            self._settings, config.update.epochs, config.tuned_batch().num_steps, decision
        )
        return make_plan(
            config,
            encoder=self._encoder,
            obs_bytes=self._obs_bytes,
            num_steps=decision.num_steps,
            epochs=epochs,
            measured_limit=self._measured_limit,
        )

    def state_dict(self) -> dict[str, Any]:
        """The controller's state, the measured limit of the minibatch, and the clock of the proximal policy.

        The first is None for a fixed batch, the second if nothing was measured.
        """
        return {
            "controller": None if self.plan.step_range is None else self.controller.to_dict(),
            "minibatch_limit": self._measured_limit,
            "env_steps_per_gradient_step": self.plan.batch.env_steps_per_gradient_step,
        }

    def load_state_dict(self, state: dict[str, Any], *, env_steps: int) -> None:
        """Continue from `state`; a controller that the saved run did not have starts now."""
        if state["controller"] is not None:
            self.controller = ControllerState.from_dict(state["controller"])
        if self._config.minibatch == "noise-scale":
            self._measured_limit = usable_limit(state["minibatch_limit"])
        self.controller = controllers.resumed(self._settings, self.controller, env_steps)
        self.plan = self._plan()


def validate_rollout_length(config: RunConfig) -> None:
    """Refuse a rollout length next to the controller's: it would change the learning rate and nothing else.

    The config itself does not check this, so that a run trained this way can still be evaluated.
    """
    kind, tuned_steps = config.controller.kind, config.tuned_batch().num_steps
    if kind == "fixed" or config.num_steps == tuned_steps:
        return
    lengths = (
        "--controller.schedule"
        if kind == "schedule"
        else "--controller.min-steps, --controller.max-steps and --controller.start-steps"
    )
    raise ConfigError(
        f"num-steps = {config.num_steps} does not fit controller.kind = {kind}, which sets the rollout "
        f"length itself: keep the tuned {tuned_steps} and use {lengths}, or add "
        f"--tuned-at.num-steps {config.num_steps} if they were tuned there"
    )
