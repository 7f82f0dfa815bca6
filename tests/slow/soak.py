"""What a day of bad luck does: kills, fuzzed command lines and damaged folders, by the hundred.

    export PYTHONPATH=tests/support
    python tests/slow/soak.py kills     --count 300  --out results/soak
    python tests/slow/soak.py plans     --count 3000 --out results/soak
    python tests/slow/soak.py trainings --count 300  --out results/soak
    python tests/slow/soak.py folders   --count 300  --out results/soak
    python tests/slow/soak.py report --out results/soak

Each appends to a file of JSON lines, and continues where the file ends. What went wrong is in its lines,
with what is needed to repeat it: the random numbers of a case depend on its number alone.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_commands
import soak_folders
import soak_fuzz
import soak_kills
import soak_report

from anybatch.runs import folder as run_folder

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def records(kind: str, count: int, done: list[Record], work: Path, seed: int) -> Iterator[Record]:
    """The records that are missing of `count`."""
    if kind == "plans":
        yield from soak_fuzz.plans(count, done, work, seed)
        return
    (work / "commands").mkdir(exist_ok=True)
    with forked_commands.opened(work / "commands") as commands:
        parts = {"kills": soak_kills.kills, "trainings": soak_fuzz.trainings, "folders": soak_folders.folders}
        yield from parts[kind](commands, count, done, work, seed)


def soak(kind: str, count: int, out: Path, work: Path, seed: int) -> list[Record]:
    """Append what is missing to the file of a kind. Returns all of it."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{kind}.jsonl"
    commit = run_folder.facts(engine="", device="cpu", native_code=False, threads=0)["git_commit"]
    for record in records(kind, count, read(path), work, seed):
        with path.open("a") as file:
            load = round(os.getloadavg()[0], 1)
            file.write(json.dumps(record | {"git_commit": commit, "load": load}) + "\n")
        if record.get("bad"):
            print(json.dumps(record), flush=True)
    return read(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["kills", "plans", "trainings", "folders", "report"])
    parser.add_argument("--count", type=int, default=20, help="how many the file is to have at the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder of the records")
    parser.add_argument("--work", type=Path, help="folder for the runs; default: a temporary one")
    chosen = parser.parse_args()
    if chosen.kind == "report":
        print(soak_report.report({path.stem: read(path) for path in sorted(chosen.out.glob("*.jsonl"))}))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # no process stays behind
    out = chosen.out.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        work = (chosen.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        soak(chosen.kind, chosen.count, out, work, chosen.seed)


if __name__ == "__main__":
    main()
