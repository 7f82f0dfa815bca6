"""Two ranks of one thread against one process, the faster of one and two threads.

    python benchmarks/ranks.py [--cases minatar-pqn breakout-pqn ppg-phase] [--rounds 3] [--json FILE]

In a round, the three take turns, each in processes of its own. Shown are the medians over rounds of the env
steps per second, of the ratio within a round, and of the share of the time that ranks spend in exchanges.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine_facts import machine_facts

CASES: dict[str, list[str]] = {
    "minatar-pqn": ["--preset", "minatar-pqn", "--total-env-steps", "400_000"],
    "breakout-pqn": ["--preset", "atari-pqn", "--env", "Breakout-v5", "--total-env-steps", "36_864"],
    "ppg-phase": [  # the paper's network; a minibatch is the sequences of 8 of the 64 envs
        *("--preset", "procgen-ppg", "--num-envs", "64", "--num-steps", "16"),
        *("--total-env-steps", "6_144", "--phase.policy-iterations", "1", "--phase.auxiliary-epochs", "1"),
    ],
}
RANKS = "2 ranks, 1 thread each"
HARDWARE = {
    "1 process, 1 thread": ["--threads", "1"],
    "1 process, 2 threads": ["--threads", "2"],
    RANKS: ["--ranks", "2", "--threads", "1"],
}
WARMUP_ROWS = 2


def measured(words: list[str]) -> dict[str, float]:
    """Of one run: env steps per second, auxiliary phases included, and the share of exchanges.

    Each is the median over its iterations after the first ones.
    """
    with tempfile.TemporaryDirectory() as base:
        command = [sys.executable, "-m", "anybatch", "train", *words, "--run-dir", base, "--name", "run"]
        quiet = ["--evaluation.num-envs", "2", "--evaluation.max-episode-steps", "10"]
        quiet += ["--record.no-tensorboard"]
        subprocess.run([*command, *quiet], check=True, stdout=subprocess.DEVNULL)
        (metrics,) = Path(base).glob("*/metrics.jsonl")
        rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.open()]
    pairs = list(zip(rows[WARMUP_ROWS:-1], rows[WARMUP_ROWS + 1 :], strict=True))
    seconds = [max(after["wall_seconds"] - before["wall_seconds"], 1e-9) for before, after in pairs]
    rates = [
        (after["env_steps"] - before["env_steps"]) / second
        for (before, after), second in zip(pairs, seconds, strict=True)
    ]
    waits = [
        after.get("time/collectives", 0.0) / second for (_, after), second in zip(pairs, seconds, strict=True)
    ]
    return {"rate": statistics.median(rates), "exchanges": statistics.median(waits)}


def ratio(results: dict[str, dict[str, float]]) -> float:
    """Speed of the ranks ÷ that of the faster process, within one round."""
    return results[RANKS]["rate"] / max(result["rate"] for name, result in results.items() if name != RANKS)


def summary(case: str, rounds: list[dict[str, dict[str, float]]]) -> str:
    def typical(of: Callable[[dict[str, dict[str, float]]], float]) -> float:
        return statistics.median(map(of, rounds))

    rates = ", ".join(f"{name}: {typical(lambda one, n=name: one[n]['rate']):,.0f}" for name in HARDWARE)
    ratios = sorted(map(ratio, rounds))
    return (
        f"{case}: {statistics.median(ratios):.2f} × ({ratios[0]:.2f} to {ratios[-1]:.2f}; "
        f"env steps/s {rates}; "
        f"{typical(lambda one: one[RANKS]['exchanges']):.0%} of the time in exchanges)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    options = parser.parse_args()
    facts = machine_facts()
    found: dict[str, list[dict[str, dict[str, float]]]] = {}
    for case in options.cases:
        found[case] = [
            {name: measured([*CASES[case], *words]) for name, words in HARDWARE.items()}
            for _ in range(options.rounds)
        ]
        print(summary(case, found[case]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(facts | {"rounds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
