"""The table of README.md, from the files beside this one."""

import json
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
ENVS = ("HalfCheetah-v4", "Hopper-v4")
SEEDS = (1, 2, 3)


def ours(env: str, seed: int, after: int, until: int) -> float:
    """Mean return of the training episodes that ended within (after, until] env steps."""
    curve = json.loads((HERE / f"{env}__mujoco-ppo__s{seed}.json").read_text())["curve"]
    window = [(number, value) for steps, number, value in curve if after < steps <= until]
    return sum(number * value for number, value in window) / sum(number for number, _ in window)


def stable_baselines(env: str, seed: int, after: int, until: int) -> float:
    lines = (HERE / f"sb3__{env}__s{seed}.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    return mean(float(row["return"]) for row in episodes if after < row["env_steps"] <= until)


def cell(values: list[float]) -> str:
    each = ", ".join(f"{value:.0f}" for value in values)
    return f"{mean(values):.0f} ± {stdev(values):.0f} ({each})"


def main() -> None:
    print("| env | ours at 300k | Stable-Baselines3 at 300k | ours at 1M |")
    print("|---|---|---|---|")
    for env in ENVS:
        early = [ours(env, seed, 250_000, 300_000) for seed in SEEDS]
        theirs = [stable_baselines(env, seed, 250_000, 300_000) for seed in SEEDS]
        # An iteration's row carries the step count at its end: the last one may lie just beyond 1M.
        late = [ours(env, seed, 900_000, 1_002_048) for seed in SEEDS]
        print(f"| {env} | {cell(early)} | {cell(theirs)} | {cell(late)} |")


if __name__ == "__main__":
    main()
