"""Ours beside Stable-Baselines3, sbx and rejax: the same work in one run, each trainer in a venv of its own.

    python benchmarks/peers.py                                        # everything, about an hour
    python benchmarks/peers.py --cases cartpole-8 cartpole-to-475 --peers rejax --repeats 5 --json peers.json

Every measurement has a process of its own. In a round the trainers take turns, since the speed of a machine
drifts. Needs Linux.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cases import CASES, work_of
from machine_facts import machine_facts
from peer_process import Rate, Reached, Request
from peer_report import (
    OURS,
    Round,
    case_json,
    print_rates,
    print_returns,
    rate_summary,
    return_summary,
)
from peer_venvs import HERE, PEERS, python_of
from processor_time import OthersTime

from anybatch.config import PPGConfig

RATE_CASES = (
    "cartpole-64",
    "cartpole-8",
    "cartpole-1",
    "halfcheetah",
    "breakout",
    "minatar-pqn",
    "atari-pqn",
)
WANTED_RETURN = 475
RETURN_CASE = f"cartpole-to-{WANTED_RETURN}"
OURS_COMPILED_BEFORE = "ours, compiled before"
"""The second start on a machine: our native code is kept."""


class MeasurementError(Exception):
    """A trainer's process ended without an answer."""


@dataclass(frozen=True)
class Launcher:
    """Starts the processes of all trainers."""

    pythons: dict[str, Path]
    under: tuple[str, ...]
    """A command that is put before theirs."""

    def rate(self, request: Request) -> Rate:
        return Rate(**self._run(request))

    def reached(self, request: Request) -> Reached:
        return Reached(**self._run(request))

    def _run(self, request: Request) -> dict[str, Any]:
        peer = PEERS.get(request.trainer)
        python = self.pythons[request.trainer] if peer else sys.executable
        script = HERE / (peer.script if peer else "peer_ours.py")
        command = [*self.under, str(python), "-W", "ignore", str(script), *request.arguments()]
        with TemporaryDirectory() as empty_cache:
            environment = dict(os.environ)
            if request.trainer == OURS:  # as JAX does, compile in every process
                environment["XDG_CACHE_HOME"] = empty_cache
            others = OthersTime()
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            raise MeasurementError(f"{shlex.join(command)}\n{done.stderr.strip()[-2000:]}")
        return json.loads(lines[-1]) | {"others_share": others.share()}


def main() -> None:
    options = parse_options()
    facts = machine_facts() | {"seconds": options.seconds, "repeats": options.repeats}
    launcher = Launcher({name: python_of(name) for name in options.peers}, tuple(shlex.split(options.under)))
    summaries: dict[str, dict[str, dict[str, float]]] = {}
    cases: dict[str, Any] = {}
    for case in options.cases:
        if case == RETURN_CASE:
            cases[case] = measure_return(launcher, options.peers, options.repeats)
            print_returns(case, cases[case]["medians"])
        else:
            cases[case] = measure_rates(launcher, case, options)
            summaries[case] = cases[case]["medians"]
        if options.json:  # after every case: what was measured stays, whatever happens to the next
            options.json.write_text(json.dumps(facts | {"cases": cases}, indent=2) + "\n")
    if summaries:
        print_rates(summaries)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every_case = (*RATE_CASES, RETURN_CASE)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=every_case,
        default=every_case,
        metavar="CASE",
        help=f"any of {', '.join(every_case)}",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of a rate, one iteration at least")
    parser.add_argument(
        "--repeats", type=int, default=3, help="rounds of a case, or seeds; medians are shown"
    )
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    parser.add_argument(
        "--under", default="", help="put this before every measured command, such as 'taskset --cpu-list 0,1'"
    )
    options = parser.parse_args()
    if options.repeats < 1 or options.seconds <= 0:
        parser.error("--repeats and --seconds must be positive")
    return options


def measure_rates(launcher: Launcher, case: str, options: argparse.Namespace) -> dict[str, Any]:
    config = CASES[case]
    assert not isinstance(config, PPGConfig)
    work = work_of(config)
    reasons = {name: PEERS[name].cannot(work) for name in options.peers}
    cannot = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in cannot.items():
        print(f"{case}: {PEERS[name].title} cannot do this: {reason}", flush=True)
    trainers = [OURS, *(name for name in options.peers if name not in cannot)]
    rounds: list[Round] = []
    for number in range(1, options.repeats + 1):
        measured = {
            name: launcher.rate(Request(name, case=case, seconds=options.seconds, work=work))
            for name in trainers
        }
        rounds.append(measured)
        shown = ", ".join(f"{name} {rate.env_steps_per_second:,.0f}" for name, rate in measured.items())
        print(f"{case} {number}/{options.repeats}: {shown}; {others_busy(measured)}", flush=True)
    return case_json(rate_summary(rounds), rounds, cannot) | {"work": asdict(work)}


def measure_return(launcher: Launcher, peers: Sequence[str], seeds: int) -> dict[str, Any]:
    rounds: list[dict[str, Reached]] = []
    for seed in range(1, seeds + 1):
        measured = {
            name: launcher.reached(Request(name, wanted_return=WANTED_RETURN, seed=seed))
            for name in (OURS, OURS_COMPILED_BEFORE, *peers)
        }
        rounds.append(measured)
        shown = ", ".join(
            f"{name} {'not reached' if result.seconds is None else f'{result.seconds:.1f} s'}"
            for name, result in measured.items()
        )
        print(f"{RETURN_CASE} seed {seed}: {shown}; {others_busy(measured)}", flush=True)
    return case_json(return_summary(rounds), rounds, {})


def others_busy(measured: Mapping[str, Rate | Reached]) -> str:
    most = max(result.others_share for result in measured.values())
    return f"other processes took up to {most:.0%} of the processor time"


if __name__ == "__main__":
    try:
        main()
    except MeasurementError as error:
        print(f"A measurement failed: {error}", file=sys.stderr)
        sys.exit(2)
