"""The scale on which a benchmark's results are published, whatever the benchmark."""

from anybatch.envs import atari, procgen


def on_published_scale(env_id: str, episode_return: float) -> float | None:
    """Procgen's normalized return, Atari's human-normalized score; None for all other environments."""
    normalized = procgen.normalized_return(env_id, episode_return)
    return atari.human_normalized(env_id, episode_return) if normalized is None else normalized
