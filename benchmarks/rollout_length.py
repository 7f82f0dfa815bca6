"""Whether the cost of a sample depends on the rollout length: short and long rollouts in turns, one process.

    python benchmarks/rollout_length.py [--rounds 3]

A round is one iteration of 128 steps and eight of 16, as many samples, of PQN on Breakout with 2 epochs.
"""

import argparse
from dataclasses import replace
from statistics import median
from time import perf_counter

from cases import ATARI_PQN

from anybatch.algorithms import pqn
from anybatch.algorithms.pqn import PQNState
from anybatch.algorithms.state import make_env
from anybatch.backends.threads import set_threads
from anybatch.config import PQNConfig
from anybatch.planning import expected_encoder

SHORT, LONG = 16, 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="the median of their ratios is shown")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: as a run would choose")
    options = parser.parse_args()
    config = replace(ATARI_PQN, threads=options.threads)
    set_threads(config, expected_encoder(config))
    states = {steps: start(replace(config, num_steps=steps)) for steps in (SHORT, LONG)}
    iterate(states[SHORT], 1)  # warm up
    ratios: list[float] = []
    for number in range(1, options.rounds + 1):
        short = iterate(states[SHORT], LONG // SHORT)
        long = iterate(states[LONG], 1)
        ratios.append(long / short)
        print(
            f"{number}: {1e3 * short:.3f} and {1e3 * long:.3f} ms a sample, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"time of a sample at {LONG} steps ÷ at {SHORT}, median: {median(ratios):.3f}")


def start(config: PQNConfig) -> PQNState:
    return pqn.start(config, make_env(config, env_steps=0))


def iterate(state: PQNState, iterations: int) -> float:
    """Seconds for each sample."""
    began, samples = perf_counter(), 0
    for _ in range(iterations):
        rollout = state.source.collector.collect(state.network, state.batch.num_steps)
        pqn.update_values(pqn.prepare(rollout, ATARI_PQN), state, ATARI_PQN, learning_rate=1e-4)
        samples += rollout.num_valid
    return (perf_counter() - began) / samples


if __name__ == "__main__":
    main()
