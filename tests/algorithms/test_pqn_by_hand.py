"""Whole iterations of PQN against a straight-line computation in float64, from pixels to parameters.

What is taken from the library here: the environment, and the streams of random numbers. The rest is written
out: ε-greedy acting, Q(λ) targets, the normalized network, its loss, the gradient clip, RAdam.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phase_runs import rows
from safetensors.torch import load_file
from torch import Tensor
from toy_runs import toy_pqn_config, train

from anybatch import envs, seeding
from anybatch.algorithms import pqn
from anybatch.algorithms.state import make_env
from anybatch.config import PQNConfig
from anybatch.storage import state_tree

ENVS, STEPS, ACTIONS, ITERATIONS, EPOCHS, MINIBATCHES = 3, 11, 4, 3, 2, 3
DISCOUNT, LAMBDA, COEFFICIENT, REWARD_SCALE, MAX_GRAD_NORM = 0.97, 0.65, 0.5, 0.7, 8.0
RATE, BETA1, BETA2, EPSILON = 3e-3, 0.9, 0.999, 1e-8
TOTAL, START, END, FRACTION = 70, 0.9, 0.1, 0.8


def config_of(reset: str, env: str) -> PQNConfig:
    of_pixels = {"encoder": "nature", "channels": [2, 3, 2]}
    return toy_pqn_config(
        env=env,
        num_envs=ENVS,
        num_steps=STEPS,
        total_env_steps=TOTAL,
        threads=1,
        precision="float64",
        microbatch=4,  # of 9 or so: uneven parts
        env_config={"max_episode_steps": 4, "options": {"reset": reset}},
        update={"epochs": EPOCHS, "minibatches_per_epoch": MINIBATCHES},
        network=of_pixels if env == "toy:Pixels84" else {"encoder": "mlp", "hidden_sizes": [11]},
        objective={
            "discount": DISCOUNT,
            "q_lambda": LAMBDA,
            "loss_coefficient": COEFFICIENT,
            "reward_scale": REWARD_SCALE,
        },
        exploration={"start": START, "end": END, "fraction": FRACTION},
        optimizer={"learning_rate": RATE, "anneal": "linear", "max_grad_norm": MAX_GRAD_NORM},
        record={"checkpoint_every_iterations": 1, "keep_checkpoints": 9},
    )


pytestmark = pytest.mark.usefixtures("float64")


Weights = dict[str, Tensor]


def normalized(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Mean 0 and variance 1 over everything but the batch, then scale and shift."""
    axes = tuple(range(1, x.ndim))
    mean = x.mean(axes, keepdim=True)
    variance = (x - mean).square().mean(axes, keepdim=True)
    scale, shift = weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"]
    return (x - mean) / (variance + 1e-5).sqrt() * scale + shift


def action_values(weights: Weights, obs: Tensor) -> Tensor:
    """-∞ for forbidden actions."""
    if obs.ndim == 4:
        return trunk_and_head(weights, convolved(weights, obs))
    # toy:Mixed: two numbers of four bytes, an image, and a mask that the network does not see.
    vector = torch.from_numpy(np.frombuffer(obs[:, :8].numpy().tobytes(), np.float32).copy()).view(-1, 2)
    numbers = torch.cat([vector.double(), obs[:, 8:-ACTIONS].double() / 255], 1)
    return trunk_and_head(weights, numbers).masked_fill(obs[:, -ACTIONS:] == 0, -math.inf)


def convolved(weights: Weights, obs: Tensor) -> Tensor:
    x = obs.double() / 255
    for layer, stride in enumerate((4, 2, 1)):
        name = f"encoder.layers.{layer}"
        kernel, bias = weights[f"{name}.convolution.weight"], weights[f"{name}.convolution.bias"]
        x = F.conv2d(x, kernel, bias, stride=stride).permute(0, 2, 3, 1)  # scale and shift are [H, W, C]
        x = normalized(weights, name, x).relu().permute(0, 3, 1, 2)
    return x.permute(0, 2, 3, 1).flatten(1)


def trunk_and_head(weights: Weights, x: Tensor) -> Tensor:
    x = x @ weights["trunk.layers.0.linear.weight"].T + weights["trunk.layers.0.linear.bias"]
    x = normalized(weights, "trunk.layers.0", x).relu()
    return x @ weights["head.weight"].T + weights["head.bias"]


class RAdam:
    """Liu et al. 2020 (arXiv:1908.03265), algorithm 2."""

    def __init__(self, weights: Weights):
        self.step = 0
        self.mean = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.square = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.rectified: list[bool] = []

    def descend(self, weights: Weights, slopes: Weights, rate: float) -> None:
        self.step += 1
        longest = 2 / (1 - BETA2) - 1
        length = longest - 2 * self.step * BETA2**self.step / (1 - BETA2**self.step)
        self.rectified.append(length > 5)
        for name, slope in slopes.items():
            self.mean[name] = BETA1 * self.mean[name] + (1 - BETA1) * slope
            self.square[name] = BETA2 * self.square[name] + (1 - BETA2) * slope**2
            move = self.mean[name] / (1 - BETA1**self.step)
            if length > 5:
                top, bottom = (length - 4) * (length - 2) * longest, (longest - 4) * (longest - 2) * length
                size = math.sqrt(1 - BETA2**self.step) / (self.square[name].sqrt() + EPSILON)
                move = move * math.sqrt(top / bottom) * size
            with torch.no_grad():
                weights[name] -= rate * move


@dataclass
class Told:
    """What an iteration shows of itself."""

    env_steps: int
    epsilon: float
    rate: float
    valid: Tensor
    target: Tensor
    """[T, N]; rows that are not valid are not computed."""
    errors: Tensor
    values: Tensor
    norms: list[float]
    weights: Weights


class ByHand:
    def __init__(self, config: PQNConfig, weights: Weights):
        self.weights = weights
        seeds = seeding.env_seeds(config.seed, role="train", num_envs=ENVS)
        self.env = envs.make(config.env, config.env_config, seeds=seeds)
        self.seen = torch.from_numpy(self.env.reset())
        self.noise = seeding.torch_generator(config.seed, role="actions")
        self.order = seeding.torch_generator(config.seed, role="minibatches")
        self.radam = RAdam(weights)
        self.env_steps = 0

    def iterate(self) -> Told:
        rate = RATE * (1 - self.env_steps / TOTAL)
        epsilon = START + (END - START) * min(1.0, self.env_steps / (FRACTION * TOTAL))
        rollout = self.collect(epsilon)
        target = self.targets(rollout)
        fitted = self.fit(rollout, target, rate)
        self.env_steps += int(rollout["valid"].sum())
        snapshot = {name: weight.detach().clone() for name, weight in self.weights.items()}
        return Told(self.env_steps, epsilon, rate, rollout["valid"], target, *fitted, snapshot)

    @torch.no_grad()
    def collect(self, epsilon: float) -> dict[str, Tensor]:
        exponential = torch.empty(STEPS, ENVS, ACTIONS).exponential_(generator=self.noise)
        table: dict[str, list[Tensor]] = {}

        def keep(**columns: Any) -> None:
            for name, column in columns.items():
                table.setdefault(name, []).append(torch.as_tensor(column))

        for t in range(STEPS):
            values = action_values(self.weights, self.seen)
            # The smallest of A exponentials is itself exponential, A times as fast, whichever it is.
            smallest, random_action = exponential[t].masked_fill(values.isinf(), math.inf).min(1)
            explores = (-values.isfinite().sum(1) * smallest).exp() < epsilon
            best = values.argmax(1)
            action = torch.where(explores, random_action, best)
            step = self.env.step(action.numpy())
            done = step.terminated | step.truncated
            returned = step.obs
            if step.final_obs is not None:
                returned = step.obs.copy()
                returned[done] = step.final_obs[done]
            keep(obs=self.seen, action=action, explores=explores, reward=step.reward.astype("float64"))
            keep(terminated=step.terminated, truncated=step.truncated, done=done, valid=step.valid)
            keep(next_value=action_values(self.weights, torch.from_numpy(returned)).max(1).values)
            self.seen = torch.from_numpy(step.obs)
        return {name: torch.stack(column) for name, column in table.items()}

    def targets(self, rollout: dict[str, Tensor]) -> Tensor:
        target = torch.full((STEPS, ENVS), torch.nan)
        for env in range(ENVS):
            for t in reversed(range(STEPS)):
                if not rollout["valid"][t, env]:
                    continue
                following = float(rollout["next_value"][t, env])
                if t < STEPS - 1 and not rollout["done"][t, env]:
                    following = LAMBDA * float(target[t + 1, env]) + (1 - LAMBDA) * following
                if rollout["terminated"][t, env]:
                    following = 0.0
                reward = REWARD_SCALE * float(rollout["reward"][t, env])
                target[t, env] = reward + DISCOUNT * following
        return target

    def fit(
        self, rollout: dict[str, Tensor], target: Tensor, rate: float
    ) -> tuple[Tensor, Tensor, list[float]]:
        valid = rollout["valid"]
        obs, action, wanted = rollout["obs"][valid], rollout["action"][valid], target[valid]
        errors: list[Tensor] = []
        values: list[Tensor] = []
        norms: list[float] = []
        for _ in range(EPOCHS):
            order = torch.randperm(len(obs), generator=self.order)
            for chosen in order.tensor_split(MINIBATCHES):
                value = action_values(self.weights, obs[chosen])[range(len(chosen)), action[chosen]]
                error = (value - wanted[chosen]) ** 2
                errors.append(error.detach())
                values.append(value.detach())
                loss = COEFFICIENT * error.sum() / len(chosen)
                slopes = dict(
                    zip(
                        self.weights,
                        torch.autograd.grad(loss, list(self.weights.values())),
                        strict=True,
                    )
                )
                norm = math.sqrt(sum(float((slope**2).sum()) for slope in slopes.values()))
                norms.append(norm)
                if norm > MAX_GRAD_NORM:
                    shrink = MAX_GRAD_NORM / (norm + 1e-6)
                    slopes = {name: slope * shrink for name, slope in slopes.items()}
                self.radam.descend(self.weights, slopes, rate)
        return torch.cat(errors), torch.cat(values), norms


def by_hand(config: PQNConfig) -> ByHand:
    network = pqn.start(config, make_env(config, env_steps=0)).network
    weights = {name: weight.clone().requires_grad_() for name, weight in network.state_dict().items()}
    return ByHand(config, weights)


def weights_at(folder: Path, env_steps: int) -> Weights:
    path = folder / "checkpoints" / f"step_{env_steps:012d}"
    state = json.loads((path / "state.json").read_text())["state"]
    tree = state_tree.join(load_file(path / "tensors.safetensors"), state)
    return tree["shared"]["learner"]["network"]


@pytest.mark.parametrize("env", ["toy:Pixels84", "toy:Mixed"])
@pytest.mark.parametrize("reset", ["next_step", "same_step"])
def test_whole_iterations_by_hand(reset: str, env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = config_of(reset, env)
    hand = by_hand(config)
    told = [hand.iterate() for _ in range(ITERATIONS)]

    prepared: list[pqn.QSamples] = []
    prepare = pqn.prepare

    def prepare_and_keep(*arguments: Any) -> pqn.QSamples:
        prepared.append(prepare(*arguments))
        return prepared[-1]

    monkeypatch.setattr(pqn, "prepare", prepare_and_keep)
    folder = train(config, tmp_path).folder
    shown = rows(folder)
    assert len(shown) == len(prepared) == ITERATIONS
    for iteration, row, samples in zip(told, shown, prepared, strict=True):
        valid = iteration.valid
        assert torch.equal(samples.valid, valid)
        torch.testing.assert_close(
            samples.target.view(STEPS, ENVS)[valid], iteration.target[valid], rtol=0, atol=1e-9
        )
        saved = weights_at(folder, iteration.env_steps)
        assert saved.keys() == iteration.weights.keys()
        for name, weight in iteration.weights.items():
            torch.testing.assert_close(saved[name], weight, rtol=0, atol=1e-9)
        clipped = sum(norm > MAX_GRAD_NORM for norm in iteration.norms) / len(iteration.norms)
        expected = {
            "env_steps": iteration.env_steps,
            "charts/epsilon": iteration.epsilon,
            "charts/learning_rate": iteration.rate,
            "losses/td_loss": float(iteration.errors.mean()),
            "losses/q_values": float(iteration.values.mean()),
            "losses/grad_norm": sum(iteration.norms) / len(iteration.norms),
            "losses/grad_clip_fraction": clipped,
            "losses/epochs_done": EPOCHS,
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=0, abs=1e-9)
        assert row["batch/valid_fraction"] == pytest.approx(int(valid.sum()) / (STEPS * ENVS), abs=1e-7)


@pytest.mark.parametrize("env", ["toy:Pixels84", "toy:Mixed"])
@pytest.mark.parametrize("reset", ["next_step", "same_step"])
def test_the_problem_by_hand_is_not_a_trivial_one(reset: str, env: str):
    """Episodes end in both ways, actions differ, the clip bites at times, RAdam is in both of its regimes."""
    hand = by_hand(config_of(reset, env))
    before = {name: weight.detach().clone() for name, weight in hand.weights.items()}
    rollouts: list[dict[str, Tensor]] = []
    collect = hand.collect
    hand.collect = lambda epsilon: rollouts.append(collect(epsilon)) or rollouts[-1]  # type: ignore
    told = [hand.iterate() for _ in range(ITERATIONS)]
    for flag in ("terminated", "truncated", "explores"):
        found = torch.stack([rollout[flag] for rollout in rollouts])
        assert found.any() and not found.all(), flag
    assert all(rollout["valid"].all() for rollout in rollouts) == (reset == "same_step")
    assert any(rollout["done"][-1].any() for rollout in rollouts) or reset == "same_step"
    norms = [norm for iteration in told for norm in iteration.norms]
    assert min(norms) < MAX_GRAD_NORM < max(norms)
    assert 0 < sum(hand.radam.rectified) < len(hand.radam.rectified)
    assert told[-1].epsilon < told[0].epsilon == START
    assert not [name for name, weight in hand.weights.items() if torch.equal(weight, before[name])]
