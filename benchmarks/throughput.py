"""Env steps per second: the serial limit of this machine, our training loop, and Stable-Baselines3's.

    python benchmarks/throughput.py                                          # all cases, most of an hour
    python benchmarks/throughput.py cartpole-1 --seconds 5 --json speed.json

Every measurement has a process of its own, and they take turns, since the speed of a machine drifts.
"""

import argparse
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import our_loop
import sb3_loop
import serial_limit
import torch
from cases import CASES
from fresh_process import alone
from machine_facts import machine_facts
from rich.console import Console
from rich.table import Table
from serial_limit import SerialLimit

from anybatch.backends.threads import set_threads
from anybatch.planning import expected_encoder


@dataclass(frozen=True)
class Round:
    """What ran side by side, in env steps per second."""

    limit: SerialLimit
    ours: float
    sb3: dict[sb3_loop.Engine, float]


@dataclass(frozen=True)
class Row:
    """Medians over the rounds. Ratios are taken within each round, where the machine drifts least."""

    env: float
    act: float
    train: float
    auxiliary: float | None
    limit: float
    ours: float
    ours_of_limit: float
    sb3: dict[sb3_loop.Engine, float]
    ours_of_sb3: dict[sb3_loop.Engine, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"any of {', '.join(CASES)}; all where none is named")
    parser.add_argument("--seconds", type=float, default=10.0, help="per measurement, one iteration at least")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of measurements; medians are shown")
    parser.add_argument("--json", type=Path, help="write every round and the facts of this machine there")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]}; there are {', '.join(CASES)}")

    sb3_version = importlib.metadata.version("stable-baselines3")
    facts = machine_facts() | {"stable_baselines3": sb3_version, "seconds": options.seconds}
    names: list[str] = options.cases or list(CASES)
    rounds = {name: measure_case(name, options.seconds, options.repeats) for name in names}
    rows = {name: summary(rounds[name]) for name in names}
    print_table(rows)
    if options.json:
        cases = {name: case_json(name, rows[name], rounds[name]) for name in names}
        options.json.write_text(json.dumps(facts | {"cases": cases}, indent=2) + "\n")


def measure_case(name: str, seconds: float, repeats: int) -> list[Round]:
    config = CASES[name]
    rounds: list[Round] = []
    for number in range(1, repeats + 1):
        limit = alone(serial_limit.measure, config, seconds)
        ours = alone(our_loop.measure, config, seconds)
        sb3: dict[sb3_loop.Engine, float] = {}
        for engine in sb3_loop.engines(config):
            sb3[engine] = alone(sb3_loop.measure, config, engine, seconds)
        rounds.append(Round(limit, ours, sb3))
        rates = {"limit": limit.together, "ours": ours} | {
            f"SB3 on {name}": rate for name, rate in sb3.items()
        }
        shown = ", ".join(f"{label} {rate:,.0f}" for label, rate in rates.items())
        print(f"{name} {number}/{repeats}: {shown}", flush=True)
    return rounds


def summary(rounds: list[Round]) -> Row:
    def middle(value: Callable[[Round], float]) -> float:
        return median(value(measured) for measured in rounds)

    engines = list(rounds[0].sb3)
    auxiliary = [r.limit.auxiliary for r in rounds if r.limit.auxiliary is not None]
    return Row(
        env=middle(lambda r: r.limit.env),
        act=middle(lambda r: r.limit.act),
        train=middle(lambda r: r.limit.train),
        auxiliary=median(auxiliary) if auxiliary else None,
        limit=middle(lambda r: r.limit.together),
        ours=middle(lambda r: r.ours),
        ours_of_limit=middle(lambda r: r.ours / r.limit.together),
        sb3={engine: median(r.sb3[engine] for r in rounds) for engine in engines},
        ours_of_sb3={engine: median(r.ours / r.sb3[engine] for r in rounds) for engine in engines},
    )


def print_table(rows: dict[str, Row]) -> None:
    table = Table(title="Env steps per second", title_justify="left")
    table.add_column("case", no_wrap=True)
    columns = ("env", "act", "train", "auxiliary", "serial limit", "ours", "ours ÷ limit")
    for heading in (*columns, "SB3", "ours ÷ SB3", "SB3 on EnvPool", "ours ÷ it"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        rates = (row.env, row.act, row.train, row.auxiliary, row.limit, row.ours)
        cells = ["" if rate is None else f"{rate:,.0f}" for rate in rates]
        cells.append(f"{row.ours_of_limit:.0%}")
        for engine in sb3_loop.ENGINES:
            if engine in row.sb3:
                cells += [f"{row.sb3[engine]:,.0f}", f"{row.ours_of_sb3[engine]:.2f}"]
            else:
                cells += ["", ""]
        table.add_row(name, *cells)
    # Wide enough for all columns, also into a file.
    Console(width=max(Console().width, 150)).print(table)


def case_json(name: str, row: Row, rounds: list[Round]) -> dict[str, object]:
    set_threads(CASES[name], expected_encoder(CASES[name]))
    return asdict(row) | {
        "threads": torch.get_num_threads(),
        "rounds": [
            {"limit": measured.limit._asdict(), "ours": measured.ours, "sb3": measured.sb3}
            for measured in rounds
        ],
    }


if __name__ == "__main__":
    main()
