"""The speed table: every case with native code and without, beside other trainers, in one file.

    python benchmarks/table.py --json results/speed/table.json --markdown results/speed/table.md

About ten minutes a round on an idle machine. Per case and round, native code and torch take turns with the
other trainers; then come the cost of small batches and the first seconds. The first run installs the others.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import our_loop
import small_batches
from cases import CASES, work_of
from fresh_process import alone
from machine_facts import machine_facts
from peer_process import Request
from peer_venvs import PEERS, python_of
from peers import Launcher

from anybatch.config import PPGConfig

OWN_CASES = (
    "cartpole-64",
    "cartpole-8",
    "cartpole-1",
    "halfcheetah",
    "minatar-pqn",
    "breakout",
    "procgen-small-ppo",
)
TRAINERS = ("sb3", "sbx", "rejax")
SMALL_RATIOS = ("1", "1/4", "1/16", "1/64")
TO_FIRST_STEP = """
import os, sys
from anybatch.backends.native_backend import NativeBackend
take = NativeBackend._take_together
def first(*arguments):
    take(*arguments)
    os._exit(0)
NativeBackend._take_together = first
from anybatch.cli.main import main
sys.argv = ["anybatch", "train", "--run-dir", sys.argv[1]]
main()
"""


def rate(case: str, native: str, seconds: float) -> float:
    return our_loop.measure(replace(CASES[case], native=native), seconds)


def small_cost(ratio: str, native: str, seconds: float) -> float:
    config = small_batches.at_ratio("minatar:Asterix", Fraction(ratio))
    return 1e6 / our_loop.measure(replace(config, native=native), seconds)


def rates(case: str, options: argparse.Namespace, launcher: Launcher) -> list[dict[str, float]]:
    """Env steps per second of every round, by who trains."""
    config = CASES[case]
    work = None if isinstance(config, PPGConfig) or case == "procgen-small-ppo" else work_of(config)
    others = [name for name in options.peers if work is not None and PEERS[name].cannot(work) is None]
    rounds: list[dict[str, float]] = []
    for _ in range(options.repeats):
        measured = {
            kind: alone(rate, case, native, options.seconds)
            for kind, native in (("native", "auto"), ("torch", "off"))
        }
        for name in others:
            request = Request(name, case=case, seconds=options.seconds, work=work)
            measured[name] = launcher.rate(request).env_steps_per_second
        rounds.append(measured)
        print(case, {name: round(number) for name, number in measured.items()}, flush=True)
    return rounds


def first_seconds() -> dict[str, float]:
    """Seconds to `import torch`, and to the first gradient step of `anybatch train`."""

    def seconds(words: list[str], cache: str | None = None) -> float:
        environment = os.environ | ({"XDG_CACHE_HOME": cache} if cache else {})
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
        return time.perf_counter() - start

    with TemporaryDirectory() as runs, TemporaryDirectory() as cache:
        train = ["-c", TO_FIRST_STEP, runs]
        not_compiled = seconds(train, cache)
        return {
            "import torch": seconds(["-c", "import torch"]),
            "first step, not compiled before": not_compiled,
            "first step, compiled before": seconds(train, cache),
        }


def middle(rounds: list[dict[str, float]], name: str) -> float:
    return median(one[name] for one in rounds)


def ratio(rounds: list[dict[str, float]], name: str, base: str) -> float:
    """The median of the ratios, each within a round."""
    return median(one[name] / one[base] for one in rounds)


def lines(measured: dict[str, Any]) -> list[str]:
    """The table in Markdown."""
    facts = measured["facts"]
    names = [name for name in TRAINERS if any(name in one[0] for one in measured["rates"].values())]
    titles = [PEERS[name].title for name in names]
    heads = ["case", "native", "torch", "native ÷ torch", *(f"÷ {title}" for title in titles)]
    rows = [
        f"{facts['cpu']}, {facts['vector_instructions']}, {facts['cores']} cores; "
        f"commit {facts['git_commit']}; medians of {measured['repeats']} rounds. Env steps per second.",
        "",
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
    ]
    for case, rounds in measured["rates"].items():
        cells = [case, f"{middle(rounds, 'native'):,.0f}", f"{middle(rounds, 'torch'):,.0f}"]
        cells.append(f"{ratio(rounds, 'native', 'torch'):.2f}")
        cells += [f"{ratio(rounds, 'native', name):.2f}" if name in rounds[0] else "" for name in names]
        rows.append(f"| {' | '.join(cells)} |")
    rows += [
        "",
        "| batch | µs per env step, native | ÷ ratio 1 | torch | torch ÷ native |",
        "|---|---|---|---|---|",
    ]
    small = measured["small_batches"]
    for name in SMALL_RATIOS:
        native, torch_ = middle(small, f"{name} native"), middle(small, f"{name} torch")
        relative = ratio(small, f"{name} native", "1 native")
        rows.append(f"| {name} | {native:.0f} | {relative:.2f} | {torch_:.0f} | {torch_ / native:.2f} |")
    rows += ["", "| first seconds | seconds | ÷ import torch |", "|---|---|---|"]
    seconds = measured["first_seconds"]
    for name in seconds[0]:
        rows.append(f"| {name} | {middle(seconds, name):.2f} | {ratio(seconds, name, 'import torch'):.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=OWN_CASES, default=OWN_CASES)
    parser.add_argument("--peers", nargs="*", choices=TRAINERS, default=TRAINERS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, whose medians are shown")
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    options = parser.parse_args()
    launcher = Launcher({name: python_of(name) for name in options.peers}, ())
    measured: dict[str, Any] = {"facts": machine_facts(), "repeats": options.repeats}
    measured["rates"] = {case: rates(case, options, launcher) for case in options.cases}
    measured["small_batches"] = [
        {
            f"{name} {kind}": alone(small_cost, name, native, options.seconds)
            for name in SMALL_RATIOS
            for kind, native in (("native", "auto"), ("torch", "off"))
        }
        for _ in range(options.repeats)
    ]
    measured["first_seconds"] = [first_seconds() for _ in range(options.repeats)]
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2) + "\n")
    table = "\n".join(lines(measured)) + "\n"
    print(table)
    if options.markdown:
        options.markdown.write_text(table)


if __name__ == "__main__":
    main()
