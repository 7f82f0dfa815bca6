"""Does a run survive what happens to its processes, and is it the run that nothing happened to?

    python benchmarks/faults.py --faults 100 --out faults.jsonl
    python benchmarks/faults.py --report faults.jsonl

Trains on CartPole, whose native engine restores episodes exactly, with local actors, with two ranks that have
an actor each, and with actors of Ray, in turn: a leg is a fresh run with some faults at random moments, of
the kinds in `fault_kinds.py`. A run that ends by itself is resumed, as an operator would. Every finished
fault is appended to the file, and so is every finished leg: started again with the same file, the soak
continues until the file has so many faults.

At the end of a leg its metrics are compared with those of the same run in one process with a queue, and its
return with that of undisturbed runs of other seeds. Those are kept in `--work`, and continued where a leg is
longer.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import fault_kinds
from fault_kinds import SETUPS

from anybatch.runs import folder as run_folder
from anybatch.runs import log
from anybatch.storage.checkpoint import Checkpoints

HANG_SECONDS = 60.0
GIVE_UP_SECONDS = 600.0
FAULTS_OF_A_LEG = 10
ITERATIONS = 8
"""A run has recovered when it is so many iterations further: more than its lag lets it do alone."""
SEEDS = (1, 2, 3, 4, 5)
"""Of undisturbed runs. Legs have the first."""
RETURN_ROWS = 20
"""The return of a run is the mean over so many rows."""
COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
ENVS, STEPS = 32, 16
TRAIN = [
    "train",
    "--preset=cartpole-ppo-ewma",
    "--env=native:CartPole-v1",
    f"--num-envs={ENVS}",
    f"--num-steps={STEPS}",
    "--staleness.iterations=2",
    "--optimizer.anneal=none",
    "--record.checkpoint-every-iterations=5",
    "--record.no-tensorboard",
    "--evaluation.num-envs=1",
]
FOREVER = 10**9
NOT_COMPARED = (
    *("wall_seconds", "charts/SPS", "time/", "actors/"),
    *("charts/ranks", "batch/rank_imbalance"),
)


class DisturbedRun:
    """A run that is resumed whenever it has ended."""

    def __init__(self, base: Path, flags: list[str]) -> None:
        self.base = base
        self._ranks = [flag for flag in flags if flag.startswith("--ranks")]
        self._train = [*TRAIN, f"--total-env-steps={FOREVER}", f"--run-dir={base}", *flags]
        self._output = (base.parent / f"{base.name}.log").open("w")
        self._start(self._train)

    def _start(self, words: list[str]) -> None:
        self.process = subprocess.Popen([*COMMAND, *words], stdout=self._output, stderr=subprocess.STDOUT)

    @property
    def folder(self) -> Path | None:
        return next((path for path in self.base.glob("*") if path.is_dir()), None)

    def env_steps(self) -> int:
        rows = log.read(self.folder) if self.folder is not None else []
        return rows[-1]["env_steps"] if rows else 0

    def counted_twice(self) -> int:
        assert self.folder is not None
        steps = [row["env_steps"] for row in log.read(self.folder)]
        return sum(late <= early for early, late in pairwise(steps))

    def resume(self) -> int:
        """Continue from the newest checkpoint. Returns how many had to be passed over for it."""
        self.process.wait()
        complaints: list[str] = []
        if self.folder is None:
            self._start(self._train)
            return 0
        try:
            Checkpoints(self.folder, keep=1).load_latest()
        except ValueError as error:
            complaints.append(str(error))
        self._start(["resume", str(self.folder), *self._ranks])
        return len(complaints)

    def wait_for_start(self) -> None:
        """However long that takes on a busy machine."""
        while self.env_steps() == 0:
            if self.process.poll() is not None:
                self.resume()
            time.sleep(0.1)

    def recovery(self, env_steps: int) -> dict[str, Any]:
        """Wait until the run is beyond `env_steps`, resuming it where it has ended."""
        found: dict[str, Any] = {"seconds": None, "exit_codes": [], "unloadable_checkpoints": 0}
        started = time.monotonic()
        while time.monotonic() - started < GIVE_UP_SECONDS:
            if self.env_steps() > env_steps:
                return found | {"seconds": round(time.monotonic() - started, 1)}
            if (code := self.process.poll()) is not None:
                found["exit_codes"].append(code)
                found["unloadable_checkpoints"] += self.resume()
            time.sleep(0.1)
        self.process.kill()
        found["unloadable_checkpoints"] += self.resume()
        return found

    def stop(self) -> int:
        """Ask it to end, as an operator does. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(GIVE_UP_SECONDS)

    def close(self) -> None:
        fault_kinds.send([self.process.pid, *fault_kinds.descendants(self.process.pid)], signal.SIGKILL)
        self.process.wait()
        self._output.close()


def one_fault(run: DisturbedRun, kind: str, inject: fault_kinds.Fault, rng: random.Random) -> dict[str, Any]:
    time.sleep(rng.uniform(0.0, 1.0))
    before = run.env_steps()
    inject(run.process.pid, rng)
    found = run.recovery(before + ITERATIONS * ENVS * STEPS)
    seconds = found["seconds"]
    return {
        "kind": kind,
        **found,
        "hang_over_60_seconds": seconds is None or seconds > HANG_SECONDS,
        "env_steps_counted_twice": run.counted_twice(),
        "load": round(os.getloadavg()[0], 1),
    }


class Soak:
    """Legs in turn, until the file has enough faults or the time is over."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.out, self.work, self.faults, self.seed = chosen.out, chosen.work, chosen.faults, chosen.seed
        self.setups, self.timeout = chosen.setups, chosen.actor_timeout
        self.until = time.monotonic() + 60 * chosen.minutes
        self.commit = run_folder.facts(engine="", device="cpu", native_code=False, threads=0)["git_commit"]

    def done(self) -> list[dict[str, Any]]:
        return read(self.out)

    def is_over(self) -> bool:
        enough = sum(record["record"] == "fault" for record in self.done()) >= self.faults
        return enough or time.monotonic() > self.until

    def append(self, record: dict[str, Any]) -> None:
        with self.out.open("a") as file:
            file.write(json.dumps(record | {"git_commit": self.commit}) + "\n")
        print(json.dumps(record), flush=True)

    def run(self) -> None:
        while not self.is_over():
            leg = 1 + max((record["leg"] for record in self.done()), default=0)
            self.one_leg(leg, self.setups[leg % len(self.setups)])

    def one_leg(self, leg: int, setup: str) -> None:
        rng = random.Random(f"{self.seed} {leg}")
        flags, kinds = SETUPS[setup]
        base = self.work / f"leg-{leg}"
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        about = {"leg": leg, "setup": setup}
        run = DisturbedRun(base, [*flags, f"--seed={SEEDS[0]}", f"--actor-timeout={self.timeout}"])
        order: list[str] = []
        faults = 0
        try:
            run.wait_for_start()
            while faults < FAULTS_OF_A_LEG and not self.is_over():
                order = order or rng.sample(list(kinds), len(kinds))
                kind = order.pop()
                self.append({"record": "fault"} | about | one_fault(run, kind, kinds[kind], rng))
                faults += 1
            code = run.stop()
        finally:
            run.close()
        assert run.folder is not None
        self.append({"record": "leg"} | about | {"faults": faults} | self.compared(run.folder, code))
        shutil.rmtree(base)

    def compared(self, folder: Path, code: int) -> dict[str, Any]:
        rows = log.read(folder)
        end = rows[-1]["env_steps"]
        undisturbed = {seed: self.undisturbed(seed, end) for seed in SEEDS}
        returns = [return_of(plain) for plain in undisturbed.values()]
        own = return_of(rows)
        pairs = zip(rows, undisturbed[SEEDS[0]], strict=False)
        return {
            "exit_code_after_sigterm": code,
            "env_steps": end,
            "rows": len(rows),
            "rows_unlike": sum(comparable(a) != comparable(b) for a, b in pairs)
            + abs(len(rows) - len(undisturbed[SEEDS[0]])),
            "return": own,
            "undisturbed_returns": returns,
            "within_spread": min(returns) <= own <= max(returns),
        }

    def undisturbed(self, seed: int, env_steps: int) -> list[dict[str, Any]]:
        """The rows, up to `env_steps`, of the run of a seed in one process, continued where it is shorter."""
        base = self.work / f"undisturbed-{seed}"
        folder = next(base.glob("*"), None) if base.is_dir() else None
        flags = [f"--total-env-steps={env_steps}"]
        if folder is None:
            words = [*TRAIN, *flags, f"--seed={seed}", f"--run-dir={base}"]
        else:
            words = ["resume", str(folder), *flags]
        if folder is None or log.read(folder)[-1]["env_steps"] < env_steps:
            subprocess.run([*COMMAND, *words], stdout=subprocess.DEVNULL, check=True)
            folder = next(base.glob("*"))
        return [row for row in log.read(folder) if row["env_steps"] <= env_steps]


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(NOT_COMPARED)}


def return_of(rows: list[dict[str, Any]]) -> float:
    known = [row["charts/episodic_return"] for row in rows if row.get("charts/episodic_return") is not None]
    return round(statistics.mean(known[-RETURN_ROWS:]), 2)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(records: list[dict[str, Any]]) -> str:
    """Tables of what happened, in Markdown."""
    faults: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["record"] == "fault":
            faults[record["setup"], record["kind"]].append(record)
    lines = [
        "| setup | fault | faults | seconds to recover, median (longest) | resumed by hand | over 60 s "
        "| never | unloadable checkpoints | env steps counted twice |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (setup, kind), ones in sorted(faults.items()):
        seconds = [one["seconds"] for one in ones if one["seconds"] is not None]
        recovered = f"{statistics.median(seconds):.0f} ({max(seconds):.0f})" if seconds else "never"
        counts = [
            sum(bool(one["exit_codes"]) for one in ones),
            sum(one["hang_over_60_seconds"] for one in ones),
            sum(one["seconds"] is None for one in ones),
            sum(one["unloadable_checkpoints"] for one in ones),
            sum(one["env_steps_counted_twice"] for one in ones),
        ]
        lines.append(f"| {setup} | {kind} | {len(ones)} | {recovered} | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        "| leg | setup | faults | env steps | rows | rows differing | return | undisturbed seeds | within |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for leg in (record for record in records if record["record"] == "leg"):
        spread = f"{min(leg['undisturbed_returns'])} to {max(leg['undisturbed_returns'])}"
        within = "yes" if leg["within_spread"] else "no"
        lines.append(
            f"| {leg['leg']} | {leg['setup']} | {leg['faults']} | {leg['env_steps']:,} | {leg['rows']} "
            f"| {leg['rows_unlike']} | {leg['return']} | {spread} | {within} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=20, help="how many the file is to have at the end")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no fault after so many minutes")
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--actor-timeout", type=float, default=5.0, help="seconds; more on a busy machine")
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"), help="JSON lines, appended to")
    parser.add_argument("--work", type=Path, default=Path("build/faults"), help="folder for the runs")
    parser.add_argument("--report", type=Path, help="print tables of such a file, and do nothing else")
    chosen = parser.parse_args()
    if chosen.report:
        print(report(read(chosen.report)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the run must not stay behind
    Soak(chosen).run()


if __name__ == "__main__":
    main()
