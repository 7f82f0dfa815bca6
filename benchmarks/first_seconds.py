"""How long commands take that compute nothing, beside Python alone and `import torch`.

    python benchmarks/first_seconds.py
    python benchmarks/first_seconds.py --repeats 5 --json results/speed/first-seconds.json

Each round starts every command once, each in a new process, so that all of them meet the same load and the
same caches. A row has the median seconds of the rounds, of the processor too, and the ratios of the medians.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from machine_facts import cpu_name

from anybatch import machine
from anybatch.cli.main import COMMANDS

PASS, TORCH = "python -c pass", 'python -c "import torch"'
LIMIT = 1 / 3
"""Largest ratio to `import torch` that a command may have."""


def commands() -> dict[str, list[str]]:
    """What is measured, by its name in the table."""
    words = [
        "plan",
        "plan --num-envs 64 --json",
        "plan --env Breakout-v5",
        "presets",
        "presets cartpole-ppo-ewma",
        "--help",
        *(f"{name} --help" for name in COMMANDS),
    ]
    ours = {f"anybatch {line}": ["-m", "anybatch", *line.split()] for line in words}
    return {PASS: ["-c", "pass"], TORCH: ["-c", "import torch"], **ours}


def seconds_of(arguments: list[str]) -> tuple[float, float]:
    """Seconds and processor seconds of a new Python process."""
    used, start = processor_seconds(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, processor_seconds() - used


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(repeats: int) -> list[dict[str, object]]:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands()}
    for arguments in commands().values():
        seconds_of(arguments)  # once before: bytecode is compiled and files are cached
    for _ in range(repeats):
        for name, arguments in commands().items():
            measured[name].append(seconds_of(arguments))
    medians = {
        name: tuple(median(values) for values in zip(*found, strict=True)) for name, found in measured.items()
    }
    return [
        {
            "command": name,
            "seconds": seconds,
            "processor_seconds": of_processor,
            "ratio_to_torch": seconds / medians[TORCH][0],
            "processor_ratio_to_torch": of_processor / medians[TORCH][1],
            "ratio_to_python": seconds / medians[PASS][0],
        }
        for name, (seconds, of_processor) in medians.items()
    ]


def show(rows: list[dict[str, object]]) -> None:
    print("| command | seconds | of the processor | ÷ import torch | of the processor | ÷ python |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        numbers = [f"{number:.2f}" for number in row.values() if isinstance(number, float)]
        print(f"| `{row['command']}` | {' | '.join(numbers)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    rows = measure(flags.repeats)
    show(rows)
    slow = [
        row["command"]
        for row in rows
        if row["command"] != TORCH and float(str(row["processor_ratio_to_torch"])) > LIMIT
    ]
    print(f"\nabove {LIMIT:.2f} of `import torch`: {', '.join(map(str, slow)) or 'none'}")
    if flags.json is not None:
        facts = {"cpu": cpu_name(), "cores": machine.available_cores(), "repeats": flags.repeats}
        flags.json.write_text(json.dumps({"machine": facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
