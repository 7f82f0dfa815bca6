"""Copy what a result needs from run folders: the learning curve, the facts and the outcome.

One small file a run.

python results/collect.py RUNS_FOLDER RESULTS_FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

EPISODES, RETURN, PHASES = "charts/episodes", "charts/episodic_return", "auxiliary/phases"
BATCH, DIVERGENCE = "batch/iteration", "batch/behavioral_divergence"


def collect(run: Path) -> dict[str, object]:
    """Rows of the curve are [env steps, episodes that ended in the iteration, their mean return].

    Of runs with a controller, `divergence` has [env steps, iteration batch, divergence] where that was
    measured; of runs with phases, `phases` is their number.
    """
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    collected: dict[str, Any] = {
        "facts": json.loads((run / "facts.json").read_text()),
        "result": json.loads((run / "result.json").read_text()),
        "wall_seconds": rows[-1]["wall_seconds"],
        "curve": [[row["env_steps"], row[EPISODES], row[RETURN]] for row in rows if EPISODES in row],
    }
    measured = [[row["env_steps"], row[BATCH], row[DIVERGENCE]] for row in rows if DIVERGENCE in row]
    if measured:
        collected["divergence"] = measured
    if PHASES in rows[-1]:
        collected["phases"] = rows[-1][PHASES]
    return collected


def main() -> None:
    runs, results = map(Path, sys.argv[1:])
    results.mkdir(parents=True, exist_ok=True)
    for run in sorted(path.parent for path in runs.glob("*/result.json")):
        if not (run / "metrics.jsonl").read_text():  # stopped before its first iteration
            print(f"{run} has no iterations: left out")
            continue
        name = run.name.rsplit("__", 1)[0]  # without the time
        text = json.dumps(collect(run), separators=(",", ":"))
        (results / f"{name}.json").write_text(text + "\n")
        print(f"{results / name}.json")


if __name__ == "__main__":
    main()
