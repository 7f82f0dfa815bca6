"""The cost of an env step at small batches: what the small end of the dial costs.

    python benchmarks/small_batches.py [--ratios 1 1/4 1/16 1/64] [--seconds 5] [--rounds 5] [--json FILE]

The base is that of the study `invariance`: PPO-EWMA on MinAtar, 64 envs, minibatches of 128, one epoch, one
thread. In a round the ratios take turns, each in a process of its own.
"""

import argparse
import json
from fractions import Fraction
from pathlib import Path
from statistics import median

import our_loop
from cases import UNREACHED
from fresh_process import alone
from machine_facts import machine_facts

from anybatch.studies import files
from anybatch.studies.configs import config_of
from anybatch.studies.plan import Request, make_plan

STUDY = "invariance"


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
    plan = make_plan(files.load(STUDY), Request(study=STUDY, envs=(env,), seeds=1))
    cell = next(cell for cell in plan.cells if (cell.arm, cell.ratio) == ("all", ratio))
    config = config_of(dict(cell.config) | {"total_env_steps": UNREACHED}, cell.name)
    return 1e6 / our_loop.measure(config, seconds)


if __name__ == "__main__":
    main()
