"""Independent random streams for every role and env, all from the one seed of a run.

No stream depends on the process that draws from it: environments are numbered over the whole run, and every
process draws the numbers of all of them and keeps its own part.

Engines give env i the seed s + i, so that runs with neighboring seeds share most of their episodes. Here each
env has a child of one numpy SeedSequence instead, and neighboring seeds share nothing.
"""

from typing import Literal

import numpy as np
import torch

EnvRole = Literal["train", "evaluation"]
GeneratorRole = Literal[
    "network", "actions", "minibatches", "evaluation", "noise_scale", "auxiliary", "probe"
]

# A role's number must never change: changing it changes every run.
_ENV_STREAMS: dict[EnvRole, int] = {"train": 0, "evaluation": 1}
_GENERATOR_STREAMS: dict[GeneratorRole, int] = {
    "network": 2,
    "actions": 3,
    "minibatches": 4,
    "evaluation": 5,
    "noise_scale": 6,
    "auxiliary": 7,
    "probe": 8,
}
_KEY_0 = 0  # a constant part of every stream's key: without it, every run would change
_LARGEST_SEED = 2**31 - 1  # engines take a C int


def env_seeds(seed: int, *, role: EnvRole, num_envs: int, env_steps: int = 0) -> list[int]:
    """One seed per env of the whole run, all distinct, each in [0, 2³¹).

    The seeds of the first envs do not depend on how many there are. `env_steps` is 0 at the start of a run; a
    resume whose engine cannot restore its episodes passes the env steps done, to get fresh episodes.
    """
    seeds: dict[int, None] = {}  # a dict keeps the order and finds duplicates
    for env in range(num_envs):
        stream = np.random.SeedSequence(seed, spawn_key=(_ENV_STREAMS[role], _KEY_0, env_steps, env))
        words = 1
        while len(seeds) == env:
            candidate = int(stream.generate_state(words)[-1]) & _LARGEST_SEED
            seeds[candidate] = None
            words += 1
    return list(seeds)


def torch_generator(seed: int, *, role: GeneratorRole, draw: tuple[int, ...] = ()) -> torch.Generator:
    """The generator of one role or, if given, of one numbered draw of it."""
    stream = np.random.SeedSequence(seed, spawn_key=(_GENERATOR_STREAMS[role], _KEY_0, *draw))
    generator = torch.Generator()
    generator.manual_seed(int(stream.generate_state(1, np.uint64)[0]))
    return generator
