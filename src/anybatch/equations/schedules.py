"""Numbers that change along a run."""


def linear(start: float, end: float, fraction: float) -> float:
    """Line from `start` at fraction 0 to `end` at 1, constant outside (arXiv:1707.06347, table 5)."""
    fraction = min(max(fraction, 0.0), 1.0)
    return start + (end - start) * fraction


def progress(env_steps: float, *, until: float, since: float = 0.0, start: float = 0.0) -> float:
    """Share of a schedule that is done: linear from `start` at `since` to 1 at `until`, all in env steps.

    p(t) = p₀ + (1 - p₀) (t - t₀) / (T - t₀)
    """
    if env_steps >= until:
        return 1.0
    return start + (1.0 - start) * max((env_steps - since) / (until - since), 0.0)
