"""What a setting does to the speed: env steps per second of whole runs, by its value.

    python benchmarks/settings.py threads 1 2 --cases minatar-pqn cartpole-64
    python benchmarks/settings.py precision float32 bf16 --cases breakout atari-pqn procgen-small-ppo

In a round the values take turns, each in a process of its own. Shown are the medians over the rounds, and of
the ratio to the first value within a round.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import our_loop
from cases import CASES
from fresh_process import alone
from machine_facts import machine_facts

KINDS = {"threads": int, "precision": str}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("setting", choices=KINDS)
    parser.add_argument("values", nargs="+")
    parser.add_argument("--cases", nargs="+", choices=CASES, required=True)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="the medians are shown")
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    options = parser.parse_args()
    facts = machine_facts()
    rates: dict[str, list[dict[str, float]]] = {}
    for case in options.cases:
        rates[case] = [
            {value: alone(rate, case, options.setting, value, options.seconds) for value in options.values}
            for _ in range(options.rounds)
        ]
        show(case, options.setting, rates[case])
    if options.json:
        options.json.write_text(json.dumps(facts | {"env_steps_per_second": rates}, indent=2) + "\n")


def rate(case: str, setting: str, value: str, seconds: float) -> float:
    return our_loop.measure(replace(CASES[case], **{setting: KINDS[setting](value)}), seconds)


def show(case: str, setting: str, rounds: list[dict[str, float]]) -> None:
    first, *_ = rounds[0]
    for value in rounds[0]:
        typical = median(one[value] for one in rounds)
        relative = median(one[value] / one[first] for one in rounds)
        print(f"{case}, {setting} {value}: {typical:,.0f} env steps/s, {relative:.2f} × {first}", flush=True)


if __name__ == "__main__":
    main()
