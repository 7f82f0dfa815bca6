"""What a second thread of native code gives: env steps per second of whole runs, by number of threads.

    python benchmarks/threads.py [--threads 1 2] [--cases minatar-pqn cartpole-64] [--rounds 5] [--json FILE]

In a round the numbers of threads take turns, each in a process of its own. The results of the runs are the
same; only the time differs.
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

NATIVE = ("minatar-pqn", "cartpole-64", "cartpole-8", "cartpole-1", "halfcheetah")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cases", nargs="+", choices=NATIVE, default=NATIVE)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="the medians are shown")
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    options = parser.parse_args()
    facts = machine_facts()
    rates = {
        case: [
            {threads: alone(rate, case, threads, options.seconds) for threads in options.threads}
            for _ in range(options.rounds)
        ]
        for case in options.cases
    }
    first = options.threads[0]
    for case, rounds in rates.items():
        for threads in options.threads:
            typical = median(one[threads] for one in rounds)
            relative = median(one[threads] / one[first] for one in rounds)
            print(f"{case}, {threads} threads: {typical:,.0f} env steps/s, {relative:.2f} × {first}")
    if options.json:
        options.json.write_text(json.dumps(facts | {"env_steps_per_second": rates}, indent=2) + "\n")


def rate(case: str, threads: int, seconds: float) -> float:
    return our_loop.measure(replace(CASES[case], threads=threads), seconds)


if __name__ == "__main__":
    main()
