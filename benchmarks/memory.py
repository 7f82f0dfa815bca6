"""Peak memory of a short Breakout run, of PPO and of PQN-XL, by minibatch and microbatch.

    python benchmarks/memory.py

The peak grows with the microbatch, which is free to choose, and not with the minibatch. All runs collect the
same iteration batch; a larger minibatch is fewer of them. One epoch shows the peak of several. Each run has a
process of its own.
"""

import argparse
import math
import resource
from dataclasses import fields, replace
from typing import NamedTuple

import our_loop
from cases import BREAKOUT, PQN_XL
from fresh_process import alone
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.config import AnyConfig

MIB = 2**20
RUNS = (
    ("PPO", BREAKOUT, 1024, 64),
    ("PPO", BREAKOUT, 1024, 256),
    ("PPO", BREAKOUT, 1024, 1024),
    ("PPO", BREAKOUT, 4096, 64),
    ("PQN-XL", PQN_XL, 512, 128),
    ("PQN-XL", PQN_XL, 4096, 128),
    ("PQN-XL", PQN_XL, 4096, 1024),
)
"""Name, config, minibatch, microbatch."""


class Peak(NamedTuple):
    """Bytes."""

    before_training: int
    """Python, torch, the engine with its envs, the networks."""
    training: int
    rollout: int
    """All tensors of one iteration batch."""
    rollout_obs: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--algorithm", choices=("PPO", "PQN-XL"), help="only its runs")
    options = parser.parse_args()

    table = Table(title="Peak memory in MiB", title_justify="left")
    table.add_column("algorithm")
    for heading in ("minibatch", "microbatch", "before training", "peak", "rollout", "of it observations"):
        table.add_column(heading, justify="right")
    for name, config, minibatch, microbatch in RUNS:
        if options.algorithm not in (None, name):
            continue
        peak = alone(measure, with_batches(config, minibatch, microbatch, options.iterations))
        table.add_row(name, f"{minibatch:,}", f"{microbatch:,}", *(f"{size / MIB:,.0f}" for size in peak))
    Console(width=110).print(table)


def with_batches(config: AnyConfig, minibatch: int, microbatch: int, iterations: int) -> AnyConfig:
    iteration_batch = config.num_envs * config.num_steps
    # Reset steps are no data, so that an iteration brings somewhat less than its nominal batch.
    total_env_steps = iteration_batch * (iterations - 1) + 1
    update = replace(config.update, minibatches_per_epoch=iteration_batch // minibatch, epochs=1)
    return replace(config, microbatch=microbatch, total_env_steps=total_env_steps, update=update, threads=1)


def measure(config: AnyConfig) -> Peak:
    state = our_loop.start(config)
    before_training = peak_bytes()
    our_loop.train(config, state, Stopwatch(math.inf))
    training = peak_bytes()
    rollout = state.source.collector.collect(state.network, config.num_steps)
    return Peak(before_training, training, all_bytes(rollout), rollout.obs.nbytes)


def peak_bytes() -> int:
    """Of this process so far; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def all_bytes(rollout: Rollout) -> int:
    values = (getattr(rollout, field.name) for field in fields(rollout))
    return sum(value.nbytes for value in values if isinstance(value, Tensor))


if __name__ == "__main__":
    main()
