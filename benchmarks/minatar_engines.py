"""Env steps per second of MinAtar's games in native code and through pgx, with random actions."""

import argparse
from itertools import cycle
from statistics import median

import numpy as np
from stopwatch import calls_per_second

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs import MINATAR_ENGINES
from anybatch.envs.minatar import GAMES

NUM_ENVS = (1, 64, 128)
STICKY = 0.1
DIFFERENT_ACTIONS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("games", nargs="*", default=list(GAMES))
    parser.add_argument("--engine", choices=MINATAR_ENGINES, action="append")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements, of which the median is shown")
    words = parser.parse_args()
    for name in words.games:
        for engine in words.engine or MINATAR_ENGINES:
            for num_envs in NUM_ENVS:
                calls = calls_of(name, engine, num_envs, words.seconds, words.repeats)
                rate = f"{num_envs * calls:12,.0f} env steps/s"
                print(f"{name:14}{engine:8}{num_envs:4} envs {rate}", flush=True)


def calls_of(name: str, engine: str, num_envs: int, seconds: float, repeats: int) -> float:
    """Calls of `step` per second."""
    config = EnvConfig(engine=engine, sticky=STICKY)  # type: ignore[arg-type]
    env = envs.make(f"minatar:{name}", config, seeds=range(num_envs))
    env.reset()
    shape = (DIFFERENT_ACTIONS, num_envs)
    actions = cycle(np.random.default_rng(0).integers(env.spec.action_width, size=shape))
    return median(calls_per_second(lambda: env.step(next(actions)), seconds) for _ in range(repeats))


if __name__ == "__main__":
    main()
