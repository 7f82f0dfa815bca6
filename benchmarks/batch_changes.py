"""What changing the batch costs: the same iterations with the rollout length changed after each, and sorted.

    python benchmarks/batch_changes.py [--rounds 5]

A round is 25 iterations of 24 steps and 26 of 40 of PQN on MinAtar's Breakout (128 envs, minibatches that
follow the length), twice: with 50 changes of the batch and with 1. Both do the same work on the same state,
and a controller decides after every iteration; the difference is what changes cost: other sizes of buffers
and cold memory. Nothing is compiled for a size, so there is nothing else.
"""

import argparse
from dataclasses import replace
from statistics import median
from time import perf_counter

from cases import CASES

from anybatch.algorithms import pqn
from anybatch.algorithms.pqn import PQNState
from anybatch.algorithms.state import make_env
from anybatch.backends.threads import set_threads
from anybatch.config import ControllerConfig, PQNConfig
from anybatch.dial.controllers import Signals
from anybatch.planning import expected_encoder

SHORT, LONG, CHANGES = 24, 40, 50
ALTERNATING = [SHORT if number % 2 else LONG for number in range(CHANGES + 1)]
SORTED = sorted(ALTERNATING)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="medians of their numbers are shown")
    options = parser.parse_args()
    config = scheduled_config()
    set_threads(config, expected_encoder(config))
    state = pqn.start(config, make_env(config, env_steps=0))
    iterate(state, config, SORTED)  # warm up
    with_changes: list[float] = []
    without: list[float] = []
    for number in range(1, options.rounds + 1):
        without.append(iterate(state, config, SORTED))
        with_changes.append(iterate(state, config, ALTERNATING))
        print(
            f"{number}: {without[-1]:.3f} s with 1 change, {with_changes[-1]:.3f} s with {CHANGES}",
            flush=True,
        )
    once, often = median(without), median(with_changes)
    print(
        f"{CHANGES - 1} more changes take {often - once:+.3f} s, "
        f"{(often - once) / once:+.2%} of {CHANGES + 1} iterations"
    )


def scheduled_config() -> PQNConfig:
    """A schedule whose clock is the length itself, so that the loop below can ask for either."""
    config = CASES["minatar-pqn"]
    assert isinstance(config, PQNConfig)
    schedule = (f"0:{SHORT}", f"{SHORT}:{SHORT}", f"{LONG}:{LONG}")
    return replace(config, controller=ControllerConfig(kind="schedule", schedule=schedule))


def iterate(state: PQNState, config: PQNConfig, lengths: list[int]) -> float:
    """Seconds for iterations of these lengths."""
    began = perf_counter()
    for length in lengths:
        state.learner.control.decide(asking_for(length, state))
        assert state.batch.num_steps == length
        rollout = state.source.collector.collect(state.network, length)
        pqn.update_values(pqn.prepare(rollout, config), state, config, learning_rate=1e-4)
    return perf_counter() - began


def asking_for(length: int, state: PQNState) -> Signals:
    return Signals(
        iteration=state.iterations,
        env_steps=length,
        samples_per_step=state.batch.num_envs,
        minibatches=state.batch.minibatches_per_epoch,
        divergence=None,
        noise_trace=None,
        noise_signal=None,
        noise_weight=0.0,
    )


if __name__ == "__main__":
    main()
