"""One whole phase of PPG against a straight-line computation in float64, from pixels to parameters.

What is taken from the library here: the environment, and the streams of random numbers. The rest is written
out: rollout, reward and advantage normalization, losses, Adam, the average of weights, both phases.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from phase_runs import phase_config, rows, with_changes
from safetensors.torch import load_file
from torch import Tensor
from toy_runs import newest_state, train

from anybatch import envs, seeding
from anybatch.algorithms import ppg
from anybatch.algorithms.state import make_env
from anybatch.config import PPGConfig
from anybatch.storage import state_tree

ENVS, STEPS, ACTIONS, ITERATIONS, AUXILIARY_EPOCHS, AUXILIARY_MINIBATCHES = 3, 5, 4, 2, 2, 4
DISCOUNT, LAMBDA, ENTROPY, VALUE, KL, CLIP = 0.97, 0.9, 0.01, 0.5, 1.0, 0.2
VALUE_CLIP = 3e-4  # small enough to bite in so few steps
RATE, AUXILIARY_RATE, EPSILON, DECAY, ADVANTAGE_DECAY, CLONE = 3e-3, 7e-3, 1e-8, 8 / 9, 0.5, 1.5


def config_of(
    heads: str, value_epochs: int, clip: float | None, value_clip: float | None, env: str = "toy:Pixels"
) -> PPGConfig:
    return phase_config(
        env=env,
        num_envs=ENVS,
        num_steps=STEPS,
        threads=1,
        precision="float64",
        env_config={"max_episode_steps": 4, "time_limit": "terminal"},
        network={"encoder": "impala", "impala_channels": [2, 3], "impala_features": 7, "heads": heads},
        proximal={"policy": "ewma", "ewma_decay": DECAY},
        objective={
            "discount": DISCOUNT,
            "gae_lambda": LAMBDA,
            "clip": clip,
            "kl_penalty": KL,
            "entropy_coefficient": ENTROPY,
            "value_coefficient": VALUE,
            "value_clip": value_clip,
            "advantage_decay": ADVANTAGE_DECAY,
        },
        optimizer={"learning_rate": RATE, "eps": EPSILON},
        normalize={"rewards": "iteration"},
        phase={
            "policy_iterations": ITERATIONS,
            "value_epochs": value_epochs,
            "auxiliary_epochs": AUXILIARY_EPOCHS,
            "auxiliary_minibatch": 7,  # of 30 samples: 4 minibatches
            "auxiliary_learning_rate": AUXILIARY_RATE,
            "clone_coefficient": CLONE,
        },
    )


pytestmark = pytest.mark.usefixtures("float64")


Weights = dict[str, Tensor]


def convolve(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1)


def encode(weights: Weights, name: str, obs: Tensor) -> Tensor:
    if obs.ndim == 4:
        return encode_image(weights, name, obs)
    # toy:Mixed: two numbers of four bytes, an image, and a mask that no encoder sees.
    vector = torch.from_numpy(np.frombuffer(obs[:, :8].numpy().tobytes(), np.float32).copy()).view(-1, 2)
    image = encode_image(weights, f"{name}.encoder", obs[:, 8:-ACTIONS].reshape(-1, 3, 16, 16))
    both = torch.cat([image, apply_head(weights, f"{name}.branch", vector.double()).relu()], 1)
    return apply_head(weights, f"{name}.joint", both).relu()


def encode_image(weights: Weights, name: str, obs: Tensor) -> Tensor:
    x = obs.double() / 255
    for stack in (f"{name}.stacks.0", f"{name}.stacks.1"):
        x = F.max_pool2d(convolve(weights, f"{stack}.convolution", x), 3, stride=2, padding=1)
        for block in (f"{stack}.blocks.0", f"{stack}.blocks.1"):
            x = x + convolve(weights, f"{block}.second", convolve(weights, f"{block}.first", x.relu()).relu())
    return (x.relu().flatten(1) @ weights[f"{name}.dense.weight"].T + weights[f"{name}.dense.bias"]).relu()


def apply_head(weights: Weights, name: str, features: Tensor) -> Tensor:
    return features @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def log_probs(weights: Weights, obs: Tensor) -> Tensor:
    """-∞ for forbidden actions."""
    logits = apply_head(weights, "policy.head", encode(weights, "policy.encoder", obs))
    if obs.ndim == 2:
        logits = logits.masked_fill(obs[:, -ACTIONS:] == 0, -math.inf)
    return logits - logits.exp().sum(1, keepdim=True).log()


def finite(logs: Tensor) -> Tensor:
    """Logarithms that are multiplied by a probability, which is 0 where they are -∞."""
    return logs.masked_fill(logs.isinf(), 0.0)


class Adam:
    def __init__(self, weights: Weights, rate: float):
        self.rate, self.step = rate, 0
        self.mean = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.square = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def descend(self, weights: Weights, loss: Tensor) -> None:
        names = list(weights)
        slopes = torch.autograd.grad(loss, [weights[name] for name in names], allow_unused=True)
        self.step += 1
        for name, slope in zip(names, slopes, strict=True):
            slope = torch.zeros_like(weights[name]) if slope is None else slope
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * slope
            self.square[name] = 0.999 * self.square[name] + 0.001 * slope**2
            mean = self.mean[name] / (1 - 0.9**self.step)
            square = self.square[name] / (1 - 0.999**self.step)
            with torch.no_grad():
                weights[name] -= self.rate * mean / (square.sqrt() + EPSILON)


@dataclass
class Segment:
    """[T, N] but for the observations, [T + 1, N, C, H, W]."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    done: Tensor
    valid: Tensor
    behavior: Tensor
    value: Tensor
    target: Tensor = field(default_factory=lambda: torch.zeros(0))
    advantage: Tensor = field(default_factory=lambda: torch.zeros(0))


@dataclass
class ByHand:
    config: PPGConfig
    weights: Weights
    heads: str
    clip: float | None
    value_clip: float | None

    def __post_init__(self) -> None:
        seed = self.config.seed
        seeds = seeding.env_seeds(seed, role="train", num_envs=ENVS)
        self.env = envs.make(self.config.env, self.config.env_config, seeds=seeds)
        self.seen = torch.from_numpy(self.env.reset())
        self.noise = seeding.torch_generator(seed, role="actions")
        self.order = seeding.torch_generator(seed, role="minibatches")
        self.adam, self.value_adam = Adam(self.weights, RATE), Adam(self.weights, RATE)
        self.auxiliary_adam = Adam(self.weights, AUXILIARY_RATE)
        self.carried = torch.zeros(ENVS)
        self.returns = [1e-4, 0.0, 1e-4]  # count, sum, sum of squares
        self.moments = [0.0, 0.0, 0.0]
        self.phases, self.env_steps = 0, 0
        self.segments: list[Segment] = []
        self.begin_phase()

    def begin_phase(self) -> None:
        self.history = [self.snapshot()]
        self.segments.clear()

    def snapshot(self) -> Weights:
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    def average(self) -> Weights:
        """Of all weights since the phase began, each counting 8/9 of the one after it."""
        powers = [DECAY ** (len(self.history) - 1 - i) for i in range(len(self.history))]
        return {
            name: sum(power * past[name] for power, past in zip(powers, self.history, strict=True))
            / sum(powers)
            for name in self.weights
        }

    def value(self, obs: Tensor, *, attached: bool = False) -> Tensor:
        features = encode(self.weights, "value_encoder" if self.heads == "dual" else "policy.encoder", obs)
        if self.heads == "detached" and not attached:
            features = features.detach()
        return apply_head(self.weights, "value_head", features)[:, 0]

    @torch.no_grad()
    def collect(self) -> Segment:
        gumbel = -torch.empty(STEPS, ENVS, ACTIONS).exponential_(generator=self.noise).log()
        table: dict[str, list[Tensor]] = {name: [] for name in ("action", "reward", "done", "valid", "logp")}
        seen = [self.seen]
        for t in range(STEPS):
            logp = log_probs(self.weights, self.seen)
            action = (logp + gumbel[t]).argmax(1)
            step = self.env.step(action.numpy())
            self.seen = torch.from_numpy(step.obs)
            seen.append(self.seen)
            table["action"].append(action)
            table["logp"].append(logp[range(ENVS), action])
            table["reward"].append(torch.from_numpy(step.reward).double())
            table["done"].append(torch.from_numpy(step.terminated | step.truncated))
            table["valid"].append(torch.from_numpy(step.valid))
        action, reward, done, valid, logp = (torch.stack(column) for column in table.values())
        obs = torch.stack(seen)
        value = torch.stack([self.value(row) for row in obs])
        self.env_steps += int(valid.sum())
        return Segment(obs, action, reward, done, valid, logp, value)

    def prepare(self, data: Segment) -> None:
        total = torch.zeros(STEPS, ENVS)
        for t in range(STEPS):
            total[t] = self.carried = data.reward[t] * data.valid[t] + 0.99 * self.carried
            self.carried = self.carried * ~data.done[t]
        counted = total[data.valid]
        added = (len(counted), counted.sum().item(), (counted**2).sum().item())
        self.returns = [known + new for known, new in zip(self.returns, added, strict=True)]
        count, mean, square = self.returns[0], self.returns[1] / self.returns[0], self.returns[2]
        reward = (data.reward / math.sqrt(square / count - mean**2 + 1e-8)).clamp(-10, 10)

        advantage, trace = torch.zeros(STEPS, ENVS), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            goes_on = (~data.done[t]).double()
            error = reward[t] + DISCOUNT * goes_on * data.value[t + 1] - data.value[t]
            advantage[t] = trace = error + DISCOUNT * LAMBDA * goes_on * trace
        data.target = advantage + data.value[:-1]
        counted = advantage[data.valid]
        added = (len(counted), counted.sum().item(), (counted**2).sum().item())
        self.moments = [ADVANTAGE_DECAY * known + new for known, new in zip(self.moments, added, strict=True)]
        mean = self.moments[1] / self.moments[0]
        std = math.sqrt(self.moments[2] / self.moments[0] - mean**2)
        data.advantage = (advantage - mean) / (std + 1e-8)

    def minibatches(self) -> list[list[int]]:
        order = torch.randperm(ENVS, generator=self.order).tolist()
        return [order[:2], order[2:]]

    def policy_losses(self, data: Segment, chosen: list[int]) -> dict[str, Tensor]:
        """Of the valid samples of some envs, one number each."""
        valid = data.valid[:, chosen].T.flatten()

        def pick(tensor: Tensor) -> Tensor:
            return tensor[:, chosen].transpose(0, 1).flatten(0, 1)[valid]

        obs, action, advantage = pick(data.obs[:-1]), pick(data.action), pick(data.advantage)
        every = log_probs(self.weights, obs)
        logp = every[range(len(obs)), action]
        with torch.no_grad():
            anchor = log_probs(self.average(), obs)[range(len(obs)), action]
        behavior = pick(data.behavior)
        gain = (logp - behavior).exp() * advantage
        if self.clip is not None:
            held = (logp - anchor).exp().clamp(1 - self.clip, 1 + self.clip)
            gain = torch.minimum(gain, held * (anchor - behavior).exp() * advantage)
        return {
            "policy": -gain + KL * 0.5 * (logp - anchor) ** 2,
            "value": self.value_error(self.value(obs), pick(data.value[:-1]), pick(data.target)),
            "entropy": -(every.exp() * finite(every)).sum(1),
            "proximal": 0.5 * (logp - anchor) ** 2,
            "log_ratio": logp - anchor,
        }

    def value_error(self, value: Tensor, collected: Tensor, target: Tensor) -> Tensor:
        error = (value - target) ** 2
        if self.value_clip is None:
            return error
        held = collected + (value - collected).clamp(-self.value_clip, self.value_clip)
        return torch.maximum(error, (held - target) ** 2)

    def iterate(self, value_epochs: int) -> dict[str, Tensor]:
        """One policy iteration; the losses of all samples of all of its gradient steps."""
        data = self.collect()
        self.prepare(data)
        told: list[dict[str, Tensor]] = []
        for chosen in self.minibatches():
            losses = self.policy_losses(data, chosen)
            told.append({name: loss.detach() for name, loss in losses.items()})
            loss = losses["policy"] - ENTROPY * losses["entropy"]
            if value_epochs == 1:
                loss = loss + VALUE * losses["value"]
            self.adam.descend(self.weights, loss.mean())
            self.history.append(self.snapshot())
        joined = {name: torch.cat([step[name] for step in told]) for name in told[0]}
        if value_epochs > 1:
            errors: list[Tensor] = []
            for _ in range(value_epochs):
                for chosen in self.minibatches():
                    error = self.policy_losses(data, chosen)["value"]
                    errors.append(error.detach())
                    self.value_adam.descend(self.weights, VALUE * error.mean())
            joined["value"] = torch.cat(errors)
        self.segments.append(data)
        return joined

    def auxiliary_phase(self) -> dict[str, Tensor]:
        with torch.no_grad():
            frozen = [[log_probs(self.weights, row) for row in data.obs[:-1]] for data in self.segments]
        told: list[dict[str, Tensor]] = []
        for epoch in range(AUXILIARY_EPOCHS):
            generator = seeding.torch_generator(self.config.seed, role="auxiliary", draw=(self.phases, epoch))
            order = torch.randperm(ITERATIONS * ENVS, generator=generator).tolist()
            for chosen in (order[:2], order[2:4], order[4:5], order[5:]):
                samples = [
                    (*divmod(sequence, ENVS), t)
                    for sequence in chosen
                    for t in range(STEPS)
                    if self.segments[sequence // ENVS].valid[t, sequence % ENVS]
                ]
                obs = torch.stack([self.segments[s].obs[t, n] for s, n, t in samples])
                target = torch.stack([self.segments[s].target[t, n] for s, n, t in samples])
                before = torch.stack([frozen[s][t][n] for s, n, t in samples])
                features = encode(self.weights, "policy.encoder", obs)
                own = apply_head(self.weights, "auxiliary_head", features)[:, 0]
                losses = {
                    "clone": (before.exp() * (finite(before) - finite(log_probs(self.weights, obs)))).sum(1),
                    "auxiliary": (own - target) ** 2,
                    "value": (self.value(obs, attached=True) - target) ** 2,
                }
                told.append({name: loss.detach() for name, loss in losses.items()})
                loss = CLONE * losses["clone"] + 0.5 * losses["auxiliary"] + 0.5 * losses["value"]
                self.auxiliary_adam.descend(self.weights, loss.mean())
        self.phases += 1
        self.begin_phase()
        return {name: torch.cat([step[name] for step in told]) for name in told[0]}


def close(here: Weights, there: Weights) -> None:
    assert here.keys() == there.keys()
    for name in here:
        assert torch.allclose(here[name], there[name], rtol=0, atol=1e-9), name


def policy_of(weights: Weights) -> Weights:
    return {
        name.removeprefix("policy."): weight for name, weight in weights.items() if name.startswith("policy.")
    }


def state_at(folder: Path, env_steps: int) -> state_tree.StateTree:
    path = folder / "checkpoints" / f"step_{env_steps:012d}"
    state = json.loads((path / "state.json").read_text())["state"]
    return state_tree.join(load_file(path / "tensors.safetensors"), state)


def compare_row(row: dict[str, float], losses: dict[str, Tensor]) -> None:
    means = {name: loss.mean().item() for name, loss in losses.items()}
    assert row["losses/policy_loss"] == pytest.approx(means["policy"], abs=1e-9)
    assert row["losses/value_loss"] == pytest.approx(means["value"], abs=1e-9)
    assert row["losses/entropy"] == pytest.approx(means["entropy"], abs=1e-9)
    assert row["proximal/kl"] == pytest.approx(means["proximal"], abs=1e-9)


@pytest.mark.parametrize(
    ("heads", "value_epochs", "clip", "value_clip", "env"),
    [
        ("dual", 1, None, None, "toy:Pixels"),
        ("dual", 3, None, None, "toy:Pixels"),
        ("detached", 1, None, None, "toy:Pixels"),
        ("shared", 1, None, None, "toy:Pixels"),
        ("shared", 2, None, VALUE_CLIP, "toy:Pixels"),
        ("dual", 1, CLIP, VALUE_CLIP, "toy:Pixels"),
        ("dual", 1, CLIP, VALUE_CLIP, "toy:Mixed"),
        ("shared", 1, None, None, "toy:Mixed"),
    ],
)
def test_a_whole_phase_by_hand(
    heads: str, value_epochs: int, clip: float | None, value_clip: float | None, env: str, tmp_path: Path
):
    config = config_of(heads, value_epochs, clip, value_clip, env)
    state = ppg.start(config, make_env(config, env_steps=0))
    weights = {
        name: weight.detach().clone().requires_grad_() for name, weight in state.network.state_dict().items()
    }
    hand = ByHand(config, weights, heads, clip, value_clip)
    policy_phase = [hand.iterate(value_epochs) for _ in range(ITERATIONS)]
    after_policy, average, average_weight = hand.snapshot(), hand.average(), len(hand.history)
    phase_end = hand.env_steps
    auxiliary = hand.auxiliary_phase()
    after_auxiliary = hand.snapshot()
    next_iteration = hand.iterate(value_epochs)

    # A run that ends with the policy phase, and one that goes on and saves at the ends of phases only.
    policy_run = train(with_changes(config, total_env_steps=phase_end), tmp_path / "policy")
    ended = newest_state(policy_run.folder)["shared"]
    close(ended["learner"]["network"], after_policy)
    close(ended["ewma"]["policy"], policy_of(average))
    assert ended["ewma"]["total_weight"] == pytest.approx(sum(DECAY**i for i in range(average_weight)))
    going_on = with_changes(
        config,
        total_env_steps=phase_end + 1,
        phase={"save_data": False},
        record={"checkpoint_every_iterations": 1},
    )
    folder = train(going_on, tmp_path / "whole").folder
    tree = state_at(folder, phase_end)
    assert tree["local"]["phase_iterations"] == []
    at_end = tree["shared"]
    assert at_end["phase"]["phases"] == 1
    close(at_end["learner"]["network"], after_auxiliary)
    close(at_end["ewma"]["policy"], policy_of(after_auxiliary))
    assert at_end["ewma"]["total_weight"] == 1.0
    newest = newest_state(folder)["shared"]
    close(newest["learner"]["network"], hand.snapshot())
    close(newest["ewma"]["policy"], policy_of(hand.average()))

    first, second, third = rows(folder)
    for row, losses in zip((first, second, third), (*policy_phase, next_iteration), strict=True):
        compare_row(row, losses)
    means = {name: loss.mean().item() for name, loss in auxiliary.items()}
    assert third["auxiliary/clone_kl"] == pytest.approx(means["clone"], abs=1e-9)
    assert third["auxiliary/auxiliary_value_loss"] == pytest.approx(means["auxiliary"], abs=1e-9)
    assert third["auxiliary/value_loss"] == pytest.approx(means["value"], abs=1e-9)
    assert [row["auxiliary/phases"] for row in (first, second, third)] == [0, 0, 1]


@pytest.mark.parametrize("env", ["toy:Pixels", "toy:Mixed"])
def test_the_problem_by_hand_is_not_a_trivial_one(env: str):
    """Ratios leave 1, episodes end, reset steps occur, and each loss moves the weights."""
    config = config_of("dual", 1, None, None, env)
    state = ppg.start(config, make_env(config, env_steps=0))
    weights = {
        name: weight.detach().clone().requires_grad_() for name, weight in state.network.state_dict().items()
    }
    hand = ByHand(config, weights, "dual", None, None)
    start = hand.snapshot()
    losses = [hand.iterate(1) for _ in range(ITERATIONS)]
    assert losses[0]["log_ratio"].abs().max() > 1e-3
    assert all(data.done.any() for data in hand.segments)
    assert all((data.reward >= 0).all() for data in hand.segments)  # a forbidden action would cost 1
    assert 0 < sum(int((~data.valid).sum()) for data in hand.segments) < ITERATIONS * STEPS * ENVS / 2
    moved = hand.snapshot()
    still = [name for name in moved if torch.equal(moved[name], start[name])]
    assert still == ["auxiliary_head.weight", "auxiliary_head.bias"]
    auxiliary = hand.auxiliary_phase()
    assert auxiliary["clone"].abs().max() > 1e-6
    assert not [name for name in moved if torch.equal(moved[name], hand.weights[name])]
