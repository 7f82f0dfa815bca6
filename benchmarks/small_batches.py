"""The cost of an env step at small batches: what the small end of the dial costs.

    python benchmarks/small_batches.py [--ratios 1 1/4 1/16 1/64] [--seconds 5] [--rounds 5] [--json FILE]

The base is PPO-EWMA on MinAtar with one epoch: 64 envs × 64 steps, minibatches of 128, one thread. At 1/64,
that is 1 env and minibatches of 2. In a round the ratios take turns, each in a process of its own.
"""

import argparse
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median

import our_loop
from cases import UNREACHED
from fresh_process import alone
from machine_facts import machine_facts

from anybatch import presets
from anybatch.config import PPOConfig, TunedAt

NUM_ENVS, NUM_STEPS = 64, 64
MINIBATCHES = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ratios", type=Fraction, nargs="+", default=list(map(Fraction, ("1", "1/4", "1/16", "1/64")))
    )
    parser.add_argument("--env", default="minatar:Asterix")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="the medians are shown")
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    options = parser.parse_args()
    facts = machine_facts()
    rounds: list[dict[str, float]] = []
    for number in range(1, options.rounds + 1):
        measured = {
            str(ratio): alone(microseconds, options.env, str(ratio), options.seconds)
            for ratio in options.ratios
        }
        rounds.append(measured)
        print(
            f"{number}: " + ", ".join(f"{ratio} {cost:.0f} µs" for ratio, cost in measured.items()),
            flush=True,
        )
    base = str(options.ratios[0])
    for ratio in rounds[0]:
        cost = median(one[ratio] for one in rounds)
        relative = median(one[ratio] / one[base] for one in rounds)
        print(f"ratio {ratio}: {cost:.0f} µs an env step, {relative:.2f} × that of ratio {base}")
    if options.json:
        options.json.write_text(
            json.dumps(facts | {"env": options.env, "microseconds": rounds}, indent=2) + "\n"
        )


def microseconds(env: str, ratio: str, seconds: float) -> float:
    """The time of an env step with all rules at a ratio of the base's batch."""
    return 1e6 / our_loop.measure(at_ratio(env, Fraction(ratio)), seconds)


def at_ratio(env: str, ratio: Fraction) -> PPOConfig:
    preset = presets.load("minatar-ppo-ewma").config
    assert isinstance(preset, PPOConfig)
    return replace(
        preset,
        env=env,
        num_envs=int(NUM_ENVS * ratio),
        num_steps=NUM_STEPS,
        total_env_steps=UNREACHED,
        threads=1,
        tuned_at=TunedAt(num_envs=NUM_ENVS, num_steps=NUM_STEPS, minibatches_per_epoch=MINIBATCHES, epochs=1),
        update=replace(preset.update, epochs=1, minibatches_per_epoch=MINIBATCHES),
    )


if __name__ == "__main__":
    main()
