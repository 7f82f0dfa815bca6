"""What measuring the gradient noise scale costs, as a share of the time of an iteration.

    python benchmarks/noise_scale.py [PRESET …]

Gradient steps with and without the measurement take turns, on one rollout of the preset.
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

PAIRS = 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", default=["atari-pqn", "atari-pqn-gallici", "minatar-pqn"])
    for name in parser.parse_args().presets:
        plain, measured, rollout, steps, every = measure(name)
        share = (measured - plain) / every * steps / (rollout + steps * plain)
        print(
            f"{name}: a gradient step takes {1e3 * plain:.2f} ms, measured {1e3 * measured:.2f} ms; every "
            f"{every}th is measured: {share:.2%} of an iteration of {rollout + steps * plain:.2f} s"
        )


def measure(name: str) -> tuple[float, float, float, int, int]:
    """Seconds of a plain and of a measured step, of a rollout; steps an iteration; steps a measurement."""
    config = presets.load(name).config
    assert isinstance(config, PQNConfig)
    set_threads(config, expected_encoder(config))
    state = pqn.start(config, make_env(config, env_steps=0))
    state.source.collector.collect(state.network, state.batch.num_steps)
    began = perf_counter()
    rollout = state.source.collector.collect(state.network, state.batch.num_steps)
    rollout_seconds = perf_counter() - began
    samples = pqn.prepare(rollout, config)
    parts, backend = state.minibatches(samples, config), state.backend
    times: dict[str, list[float]] = {"plain": [], "measured": []}
    for number in range(PAIRS):
        part = parts[number % len(parts)]
        for kind, seconds in times.items():
            began = perf_counter()
            if kind == "plain":
                backend.gradient(backend.main, samples, part)
            else:
                backend.measured_gradient(backend.main, samples, part, part.of_all)
            backend.apply(backend.main)
            seconds.append(perf_counter() - began)
    plain, measured = (median(seconds) for seconds in times.values())
    steps = state.batch.gradient_steps_per_iteration
    return plain, measured, rollout_seconds, steps, config.update.noise_scale_every


if __name__ == "__main__":
    main()
