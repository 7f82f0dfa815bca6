"""The table of README.md: mean return of the training episodes of a stretch, by rules, envs and seed."""

import json
from pathlib import Path

HERE = Path(__file__).parent
STRETCHES = {"first half": (0, 500_000), "last tenth": (900_000, 1_000_000)}


def mean_return(curve: list[list[float]], first: int, last: int) -> float:
    rows = [(episodes, mean) for env_steps, episodes, mean in curve if first < env_steps <= last]
    return sum(episodes * mean for episodes, mean in rows) / sum(episodes for episodes, _ in rows)


def main() -> None:
    print("| rules | envs | " + " | ".join(f"{name}, by seed | mean" for name in STRETCHES) + " |")
    print("|---" * (2 + 2 * len(STRETCHES)) + "|")
    for folder in sorted(HERE.glob("*/*/"), key=lambda path: (path.parent.name, -int(path.name))):
        curves = [json.loads(path.read_text())["curve"] for path in sorted(folder.glob("*.json"))]
        cells: list[str] = []
        for first, last in STRETCHES.values():
            means = [mean_return(curve, first, last) for curve in curves]
            cells += [", ".join(f"{mean:.1f}" for mean in means), f"{sum(means) / len(means):.1f}"]
        print(f"| {folder.parent.name} | {folder.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
