"""Configuration of PPG and PPG-EWMA."""

from dataclasses import dataclass, field
from typing import ClassVar

from anybatch.config.ppo import PPOConfig
from anybatch.config.require import require


@dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """Policy iterations, then an auxiliary phase on all their data. Numbers refer to the tuned batch."""

    policy_iterations: int = 32
    """Iterations before each auxiliary phase (N_π)."""
    value_epochs: int = 1
    """Epochs of the value function in the policy phase (E_V); update.epochs is the policy's (E_π). If they
    differ, each has its own optimizer."""
    auxiliary_epochs: int = 6
    """Passes over the phase's data in the auxiliary phase (E_aux)."""
    auxiliary_minibatch: int = 4096
    """Samples per gradient step of the auxiliary phase, over all ranks."""
    auxiliary_learning_rate: float = 5e-4
    """Learning rate of the auxiliary phase's own Adam."""
    clone_coefficient: float = 1.0
    """Weight of the divergence from the policy before the auxiliary phase (β_clone)."""
    save_data: bool = True
    """Keep the phase's data in checkpoints; otherwise checkpoints are saved only at the ends of phases."""

    def __post_init__(self) -> None:
        counts = {
            "policy-iterations": self.policy_iterations,
            "value-epochs": self.value_epochs,
            "auxiliary-epochs": self.auxiliary_epochs,
            "auxiliary-minibatch": self.auxiliary_minibatch,
        }
        for name, count in counts.items():
            require(count >= 1, f"phase.{name} = {count}: must be at least 1")
        require(
            self.auxiliary_learning_rate > 0,
            f"phase.auxiliary-learning-rate = {self.auxiliary_learning_rate}: must be positive",
        )
        require(
            self.clone_coefficient >= 0,
            f"phase.clone-coefficient = {self.clone_coefficient}: must not be negative",
        )


@dataclass(frozen=True, kw_only=True)
class PPGConfig(PPOConfig):
    """PPG and PPG-EWMA."""

    algorithm: ClassVar[str] = "ppg"

    phase: PhaseConfig = field(default_factory=PhaseConfig)

    def __post_init__(self) -> None:
        require(
            self.controller.kind == "fixed",
            f"controller.kind = {self.controller.kind} changes the batch within a run, but all iterations of "
            "a PPG phase must have the same size",
        )
        super().__post_init__()
