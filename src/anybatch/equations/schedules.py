"""Numbers that change along a run."""


def linear(start: float, end: float, fraction: float) -> float:
    """From `start` at fraction 0 to `end` at 1, constant outside (annealing of arXiv:1707.06347, table 5)."""
    fraction = min(max(fraction, 0.0), 1.0)
    return start + (end - start) * fraction


def annealed_learning_rate(learning_rate: float, env_steps: float, total_env_steps: float) -> float:
    """The learning rate falling to 0 at the end of the run, by env steps (arXiv:1707.06347, table 5)."""
    return linear(learning_rate, 0.0, env_steps / total_env_steps)
