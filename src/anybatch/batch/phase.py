"""PPG: what a phase amounts to, in env steps, gradient steps, memory and disk."""

from dataclasses import asdict, dataclass

from anybatch.machine import readable


@dataclass(frozen=True, kw_only=True)
class PhaseSize:
    """A phase, over all ranks. Reset steps are included, as in every nominal batch."""

    iterations: int
    iteration_batch: int
    auxiliary_epochs: int
    auxiliary_minibatches: int
    """Gradient steps of an auxiliary epoch."""
    obs_bytes: int | None
    """Of one observation; None where the environment could not be asked."""
    is_saved: bool
    """Whether checkpoints keep the data of the phase under way."""
    keeps_env_steps: bool
    """Whether the rule made it as many env steps as at the batch tuned at."""

    @property
    def env_steps(self) -> int:
        return self.iterations * self.iteration_batch

    @property
    def memory_bytes(self) -> int | None:
        """Of the observations, nearly all of a phase's data."""
        return None if self.obs_bytes is None else self.env_steps * self.obs_bytes

    def lines(self) -> list[str]:
        """The phase as products, and what its data take, for a person."""
        lines = [
            f"phase            {self.iterations:,} iterations × {self.iteration_batch:,}"
            f" = {self.env_steps:,} env steps, then {self.auxiliary_epochs} auxiliary epochs of"
            f" {self.auxiliary_minibatches:,} gradient steps"
        ]
        if self.memory_bytes is not None:
            lines += self._memory_lines(readable(self.memory_bytes), readable(2 * self.memory_bytes))
        return lines

    def _memory_lines(self, once: str, twice: str) -> list[str]:
        at_any_batch = "; as much at any batch, since the rule keeps a phase's env steps"
        on_disk = (
            f"{once} in checkpoints, up to {twice} while they need two phases (--phase.no-save-data: none)"
            if self.is_saved
            else "none: checkpoints are saved between two phases only"
        )
        return [
            f"phase memory     {self.env_steps:,} × {self.obs_bytes:,} bytes = {once} of observations"
            + at_any_batch * self.keeps_env_steps,
            f"phase disk       {on_disk}",
        ]

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "env_steps": self.env_steps, "memory_bytes": self.memory_bytes}
