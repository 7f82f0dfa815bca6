"""Agents played through onnxruntime beside the same agents played through torch.

    python benchmarks/onnx_play.py --out results/export

Trains each preset for a short while, exports it, plays 20 greedy episodes each way with the same seeds, and
compares greedy actions and outputs on 10,000 observations that the agent met when it sampled its actions.
Prints the table of results/export/README.md.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import anybatch
from anybatch.acting import evaluation
from anybatch.acting.evaluation import InferencePolicy
from anybatch.config import AnyConfig
from anybatch.envs.protocol import BoxActions
from anybatch.evaluating import evaluation_env, trained_policy
from anybatch.export.onnx_file import NEAR_TIE, OnnxPolicy, apart, on_cpu, torch_policy_params
from anybatch.runs.record import RunRecord

ENV_STEPS = {
    "cartpole-ppo-ewma": 30_000,
    "mujoco-ppo": 20_000,
    "minatar-pqn": 100_000,
    "atari-pqn": 8_192,
    "procgen-small-ppg": 16_384,
}
EPISODES, OBSERVATIONS = 20, 10_000
PLAYED_SLOTS, CAP = 20, 1_000


def compare(preset: str, folder: Path) -> dict[str, Any]:
    run = anybatch.train(
        preset,
        run_dir=folder,
        total_env_steps=ENV_STEPS[preset],
        evaluation={"num_envs": PLAYED_SLOTS, "max_episode_steps": CAP, "greedy": True},
        record={"tensorboard": False},
    )
    written = run.export_onnx(folder / f"{preset}.onnx")
    returns = [played(run, written.path, exported) for exported in (False, True)]
    facts = {"preset": preset, "env": run.config.env, "env_steps": written.env_steps}
    return facts | {
        "returns_torch": returns[0],
        "returns_onnx": returns[1],
        **on_observations(run, written.path),
    }


def policy_of(run: anybatch.TrainedRun, config: AnyConfig, spec: Any) -> InferencePolicy:
    return on_cpu(trained_policy(RunRecord(run.folder).load_checkpoint(), config, spec))


def played(run: anybatch.TrainedRun, path: Path, exported: bool) -> list[float]:
    env = evaluation_env(run.config)
    policy: Any = OnnxPolicy(path, env.spec) if exported else policy_of(run, run.config, env.spec)
    result = evaluation.evaluate(
        policy, env, episodes_per_env=EPISODES // PLAYED_SLOTS, max_episode_steps=CAP
    )
    env.close()
    return [episode.episode_return for episode in result.episodes]


def on_observations(run: anybatch.TrainedRun, path: Path) -> dict[str, float]:
    env = evaluation_env(run.config)
    policy, exported = policy_of(run, run.config, env.spec), OnnxPolicy(path, env.spec)
    count = different = near = 0
    largest, obs = 0.0, env.reset()
    while count < OBSERVATIONS:
        params = torch_policy_params(policy, obs)
        action, given, *_ = exported.outputs(obs)
        wanted = policy.act(obs, greedy=True)
        largest = max(largest, apart(given, params))
        if not isinstance(env.spec.actions, BoxActions):
            best, taken = (np.take_along_axis(params, a[:, None], 1)[:, 0] for a in (wanted, action))
            close = np.abs(best - taken) <= NEAR_TIE * np.maximum(1.0, np.abs(best))
            different += int((action != wanted).sum())
            near += int(((action != wanted) & close).sum())
        count += len(obs)
        obs = env.step(policy.act(obs, greedy=False)).obs
    env.close()
    return {
        "observations": count,
        "largest_difference": largest,
        "different_actions": different,
        "near_ties": near,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=ENV_STEPS, action="append")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for preset in options.preset or ENV_STEPS:
        with tempfile.TemporaryDirectory() as folder:
            result = compare(preset, Path(folder))
        (options.out / f"{preset}.json").write_text(json.dumps(result, indent=1))
    print(
        "| preset | mean return of 20 episodes, torch / onnxruntime | largest difference of a return | "
        "largest difference of an output on 10,000 observations | other greedy actions |"
    )
    print("|---|---|---|---|---|")
    for path in sorted(options.out.glob("*.json")):
        result = json.loads(path.read_text())
        torch_returns, onnx_returns = (np.array(result[f"returns_{name}"]) for name in ("torch", "onnx"))
        apart_most = np.abs(torch_returns - onnx_returns).max()
        print(
            f"| {result['preset']} | {torch_returns.mean():.6g} / {onnx_returns.mean():.6g} "
            f"| {apart_most:.2g} | {result['largest_difference']:.1e} | {result['different_actions']} "
            f"({result['near_ties']} near-ties) |"
        )


if __name__ == "__main__":
    main()
