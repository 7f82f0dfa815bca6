"""Two ranks of one thread against one process, the faster of one and two threads.

`python benchmarks/ranks.py` prints env steps per second of each and their ratio, for MinAtar PQN, Breakout
PQN and a PPG phase with the paper's network, and the share of the time that ranks spend in exchanges. Each
number is the median over the iterations of a run after its first ones; runs of a case follow each other.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES: dict[str, list[str]] = {
    "MinAtar PQN": ["--preset", "minatar-pqn", "--total-env-steps", "400_000"],
    "Breakout PQN": ["--preset", "atari-pqn", "--env", "Breakout-v5", "--total-env-steps", "60_000"],
    "PPG phase": [
        *("--preset", "procgen-ppg", "--num-envs", "16", "--num-steps", "64"),
        *("--total-env-steps", "6_144", "--phase.policy-iterations", "1", "--phase.auxiliary-epochs", "1"),
    ],
}
HARDWARE = {
    "1 process, 1 thread": ["--threads", "1"],
    "1 process, 2 threads": ["--threads", "2"],
    "2 ranks, 1 thread each": ["--ranks", "2", "--threads", "1"],
}
WARMUP_ROWS = 2


def measured(words: list[str], base: Path) -> dict[str, float]:
    """Env steps per second over whole iterations, auxiliary phases included, and the share of exchanges."""
    command = [sys.executable, "-m", "anybatch", "train", *words, "--run-dir", str(base), "--name", "run"]
    quiet = ["--evaluation.num-envs", "2", "--evaluation.max-episode-steps", "10", "--record.no-tensorboard"]
    subprocess.run([*command, *quiet], check=True, stdout=subprocess.DEVNULL)
    folder = max(base.iterdir(), key=lambda path: path.stat().st_mtime)
    rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    pairs = list(zip(rows[WARMUP_ROWS:-1], rows[WARMUP_ROWS + 1 :], strict=True))
    seconds = [after["wall_seconds"] - before["wall_seconds"] for before, after in pairs]
    steps = [after["env_steps"] - before["env_steps"] for before, after in pairs]
    waits = [
        after.get("time/collectives", 0.0) / max(second, 1e-9)
        for (_, after), second in zip(pairs, seconds, strict=True)
    ]
    rates = [step / second for step, second in zip(steps, seconds, strict=True) if second > 0]
    return {"rate": statistics.median(rates), "exchanges": statistics.median(waits)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, action="append", help="one of the cases; all by default")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    for case in chosen.case or CASES:
        with tempfile.TemporaryDirectory() as base:
            results = {
                name: measured([*CASES[case], *words], Path(base) / name.replace(" ", "-"))
                for name, words in HARDWARE.items()
            }
        *alone, ranks = results.values()
        ratio = ranks["rate"] / max(result["rate"] for result in alone)
        found[case] = {"results": results, "ratio": ratio}
        rates = ", ".join(f"{name}: {result['rate']:,.0f}" for name, result in results.items())
        print(f"{case}: {ratio:.2f} × (env steps/s {rates}; {ranks['exchanges']:.0%} of it in exchanges)")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
