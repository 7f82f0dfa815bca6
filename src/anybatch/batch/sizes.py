"""The three batches of a run. The only arithmetic between envs, steps, minibatch and microbatch."""

from dataclasses import dataclass, replace

from anybatch.equations import rescale

# Samples per forward and backward pass. On a CPU, memory of large activations is mapped and unmapped at every
# step, so images are processed in small parts. A fixed rule instead of a timing keeps two runs on one machine
# bitwise equal.
AUTO_MICROBATCH = {
    ("mlp", "cpu"): 4096,
    ("nature", "cpu"): 128,
    ("impala", "cpu"): 64,
    ("minatar", "cpu"): 1024,
    ("mlp", "gpu"): 65536,
    ("nature", "gpu"): 8192,
    ("impala", "gpu"): 4096,
    ("minatar", "gpu"): 65536,
}


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """The three batches of a run. All but the microbatch are over all ranks."""

    num_envs: int
    num_steps: int
    minibatches_per_epoch: int
    epochs: int
    microbatch: int

    @property
    def iteration_batch(self) -> int:
        """Samples collected between two optimizations, reset steps included."""
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> float:
        """Samples behind one gradient step."""
        return self.iteration_batch / self.minibatches_per_epoch

    @property
    def gradient_steps_per_iteration(self) -> int:
        """Gradient steps between two rollouts."""
        return self.minibatches_per_epoch * self.epochs

    @property
    def env_steps_per_gradient_step(self) -> float:
        """Env steps for each gradient step: the clock of the proximal EWMA."""
        return self.iteration_batch / self.gradient_steps_per_iteration

    def within(self, minibatch_limit: float | None) -> "BatchSizes":
        """The same batch with enough minibatches per epoch to keep the minibatch within a limit."""
        if minibatch_limit is None:
            return self
        minibatches = rescale.minibatches_within(
            minibatch_limit,
            iteration_batch=self.iteration_batch,
            minibatches=self.minibatches_per_epoch,
            rounded=True,
        )
        return replace(self, minibatches_per_epoch=int(minibatches))


def automatic_microbatch(encoder: str, device: str) -> int:
    """The fixed rule behind `--microbatch 0`."""
    return AUTO_MICROBATCH[encoder, "cpu" if device == "cpu" else "gpu"]


def noise_part(encoder: str) -> int:
    """Most samples in each of the parts of a minibatch that its noise scale is measured by.

    Neither the microbatch nor the device decides it: they must not change what a run measures.
    """
    return AUTO_MICROBATCH[encoder, "cpu"]
