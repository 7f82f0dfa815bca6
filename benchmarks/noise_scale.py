"""What measuring the gradient noise scale costs, as a share of the time of a run.

    python benchmarks/noise_scale.py [PRESET …]

Updates of an iteration with and without the measurement take turns, on one rollout of the preset.
"""

import argparse
from statistics import median
from time import perf_counter

from anybatch import presets
from anybatch.algorithms import pqn
from anybatch.algorithms.state import make_env
from anybatch.backends.threads import set_threads
from anybatch.config import PQNConfig
from anybatch.planning import expected_encoder

PAIRS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", default=["atari-pqn", "atari-pqn-gallici", "minatar-pqn"])
    for name in parser.parse_args().presets:
        rollout, update, measurement, every = measure(name)
        share = measurement / every / (rollout + update)
        print(
            f"{name}: an iteration takes {rollout + update:.2f} s, a measurement {measurement:.2f} s; one "
            f"every {every} iterations: {share:.2%} of the run"
        )


def measure(name: str) -> tuple[float, float, float, int]:
    """Seconds of a rollout, of the updates on it, of a measurement; iterations between measurements."""
    config = presets.load(name).config
    assert isinstance(config, PQNConfig)
    set_threads(config, expected_encoder(config))
    state = pqn.start(config, make_env(config, env_steps=0))
    state.source.collector.collect(state.network, state.batch.num_steps)
    began = perf_counter()
    rollout = state.source.collector.collect(state.network, state.batch.num_steps)
    rollout_seconds = perf_counter() - began
    samples = pqn.prepare(rollout, config)
    updates: list[float] = []
    measurements: list[float] = []
    for _ in range(PAIRS):
        began = perf_counter()
        state.measure_noise(config, samples, samples.all_valid)  # it does at iteration 0
        measurements.append(perf_counter() - began)
        began = perf_counter()
        for _ in range(state.batch.epochs):
            state.backend.take_steps(samples, state.minibatches(samples, config))
        updates.append(perf_counter() - began)
    return rollout_seconds, median(updates), median(measurements), config.update.noise_scale_every


if __name__ == "__main__":
    main()
