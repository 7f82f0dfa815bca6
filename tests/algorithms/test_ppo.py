"""PPO against a straight-line version of itself, and PPO-EWMA too on problems they must solve."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from phase_runs import phase_config, rows
from torch import Tensor
from toy_runs import (
    changed,
    collect,
    in_float64,
    learned,
    moved_policy_and_samples,
    one_iteration,
    prepare,
    start,
    start_in_float64,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch.acting.rollout import Rollout
from anybatch.algorithms import ppo
from anybatch.algorithms.ppo import PolicyRecord, Samples
from anybatch.algorithms.ppo_state import PPOState
from anybatch.backends import NativeBackend, TorchBackend
from anybatch.networks.actor_critic import ActorCritic

Weights = dict[str, Tensor]
LEARNING_RATE, CLIP, GAMMA, LAMBDA, ENTROPY, VALUE = 2e-2, 0.2, 0.97, 0.9, 0.01, 0.25
EPOCHS, MINIBATCHES, MAX_GRAD_NORM, DECAY = 3, 4, 0.5, 8 / 9

CLEANRL = toy_config(
    num_steps=23,
    env_config={"max_episode_steps": 5},
    update={"epochs": EPOCHS, "minibatches_per_epoch": MINIBATCHES},
    objective={
        "discount": GAMMA,
        "gae_lambda": LAMBDA,
        "clip": CLIP,
        "entropy_coefficient": ENTROPY,
        "value_coefficient": VALUE,
        "value_clip": 0.05,
        "advantage_normalization": "minibatch",
    },
    optimizer={"learning_rate": LEARNING_RATE, "eps": 1e-5, "max_grad_norm": MAX_GRAD_NORM},
)
EWMA = changed(
    CLEANRL,
    proximal={"policy": "ewma", "ewma_decay": DECAY},
    objective={"value_clip": None, "advantage_normalization": "iteration"},
)


class PlainBatch(NamedTuple):
    """The valid samples of an iteration, [B]."""

    obs: Tensor
    action: Tensor
    logp: Tensor
    advantage: Tensor
    value: Tensor
    target: Tensor


def plain_network(weights: Weights, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits or means, and values, of two tanh layers."""
    hidden = torch.tanh(
        obs @ weights["policy.encoder.layers.0.weight"].T + weights["policy.encoder.layers.0.bias"]
    )
    params = hidden @ weights["policy.head.weight"].T + weights["policy.head.bias"]
    if "value_encoder.layers.0.weight" not in weights:
        return params, torch.zeros(len(obs), dtype=obs.dtype)
    hidden = torch.tanh(
        obs @ weights["value_encoder.layers.0.weight"].T + weights["value_encoder.layers.0.bias"]
    )
    return params, (hidden @ weights["value_head.weight"].T + weights["value_head.bias"])[:, 0]


def plain_logp_and_entropy(weights: Weights, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    if "policy.log_std" in weights:
        normal = torch.distributions.Normal(params, weights["policy.log_std"].exp())
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)
    categorical = torch.distributions.Categorical(logits=params)
    return categorical.log_prob(action), categorical.entropy()


def plain_batch(data: Rollout) -> PlainBatch:
    """Advantages by a loop over time, backwards."""
    num_steps, num_envs = data.reward.shape
    advantage = torch.zeros(num_steps, num_envs, dtype=torch.float64)
    for env in range(num_envs):
        trace = 0.0
        for t in reversed(range(num_steps)):
            bootstrap = 0.0 if data.terminated[t, env] else GAMMA * data.next_value[t, env]
            if data.terminated[t, env] or data.truncated[t, env]:
                trace = 0.0
            trace = data.reward[t, env] + bootstrap - data.value[t, env] + GAMMA * LAMBDA * trace
            advantage[t, env] = trace
    valid = data.valid
    return PlainBatch(
        obs=data.obs[:-1][valid],
        action=data.action[valid],
        logp=data.behavior_logp[valid],
        advantage=advantage[valid],
        value=data.value[valid],
        target=(advantage + data.value)[valid],
    )


def plain_minibatches(batch: PlainBatch, generator: torch.Generator) -> Iterator[PlainBatch]:
    for _ in range(EPOCHS):
        order = torch.randperm(len(batch.logp), generator=generator)
        for chosen in order.tensor_split(MINIBATCHES):
            yield PlainBatch(*(column[chosen] for column in batch))


def plain_ppo(weights: Weights, batch: PlainBatch, generator: torch.Generator) -> list[float]:
    """PPO as usual: clipped ratios to the behavior policy, clipped values, advantages per minibatch."""
    optimizer = torch.optim.Adam(weights.values(), lr=LEARNING_RATE, eps=1e-5, foreach=False, fused=False)
    norms = []
    for part in plain_minibatches(batch, generator):
        params, value = plain_network(weights, part.obs)
        logp, entropy = plain_logp_and_entropy(weights, params, part.action)
        ratio = (logp - part.logp).exp()
        advantage = (part.advantage - part.advantage.mean()) / (part.advantage.std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        held = part.value + (value - part.value).clamp(-0.05, 0.05)
        value_loss = 0.5 * torch.max((value - part.target) ** 2, (held - part.target) ** 2).mean()
        optimizer.zero_grad()
        (policy_loss - ENTROPY * entropy.mean() + 2 * VALUE * value_loss).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights.values(), MAX_GRAD_NORM)))
        optimizer.step()
    return norms


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
def test_one_iteration_equals_a_straight_line_ppo(env: str):
    config = changed(CLEANRL, env=env)
    state, data = start_in_float64(config), in_float64(collect(config))
    assert (~data.valid).any() and data.terminated.any() and data.truncated.any()
    weights = {name: weight.clone().requires_grad_() for name, weight in state.network.state_dict().items()}
    shuffler = torch.Generator()
    shuffler.set_state(state.rank.minibatch_generator.get_state())

    metrics = ppo.update_policy(prepare(data, state, config), state, config, LEARNING_RATE)
    norms = plain_ppo(weights, plain_batch(data), shuffler)
    assert metrics["losses/clipfrac"] > 0.02 and min(norms) < MAX_GRAD_NORM < max(norms)
    assert state.steps.counts.norms == pytest.approx(norms, rel=1e-9)
    for name, weight in state.network.state_dict().items():
        torch.testing.assert_close(weight, weights[name].detach(), rtol=1e-9, atol=1e-9)


def test_decoupled_from_the_start_of_the_iteration_is_ppo_on_fresh_data():
    states = []
    for policy in ("behavior", "iteration_start"):
        config = changed(CLEANRL, proximal={"policy": policy})
        state = start(config)
        one_iteration(config, state)
        states.append(state.backend.flat.values)
    assert torch.equal(*states)


@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma"])
def test_the_first_minibatch_of_a_run_is_at_the_proximal_policy(policy: str):
    config = toy_config(
        num_steps=31, proximal={"policy": policy}, update={"epochs": 1, "minibatches_per_epoch": 1}
    )
    metrics = one_iteration(config, start(config))
    assert metrics["losses/clipfrac"] == 0
    assert metrics["proximal/kl"] < 1e-10
    assert metrics["losses/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["importance/effective_samples"] == pytest.approx(1, abs=1e-5)


def test_the_average_is_not_reset_between_iterations():
    config = toy_config(
        num_steps=31,
        proximal={"policy": "ewma"},
        update={"epochs": 1, "minibatches_per_epoch": 1},
        optimizer={"learning_rate": 3e-2},
    )
    state = start(config)
    kl = [one_iteration(config, state)["proximal/kl"] for _ in range(7)]
    assert kl[0] < 1e-10 and min(kl[2:]) > 1e-5
    assert state.backend.average.total_weight == pytest.approx(sum(DECAY**k for k in range(8)))


@pytest.mark.parametrize(
    ("check", "epochs_done", "steps"), [("epoch", 1, 5), ("minibatch", 0, 1), (None, 7, 35)]
)
def test_target_kl_stops_an_iteration(check: str | None, epochs_done: int, steps: int):
    update = {"epochs": 7, "minibatches_per_epoch": 5}
    if check is not None:
        update |= {"target_kl": 1e-4, "target_kl_check": check}
    config = toy_config(num_steps=31, update=update, optimizer={"learning_rate": 3e-2})
    state = start(config)
    metrics = one_iteration(config, state)
    # By epoch: a whole one first. By minibatch: the first step is at the behavior policy, the second is not.
    assert metrics["losses/epochs_done"] == epochs_done
    assert state.steps.counts.taken == steps
    assert (metrics["losses/approx_kl"] > 1e-4) or check == "minibatch"


@pytest.mark.parametrize(("ratio", "used"), [(0.5, 0.5), (99.0, 99.0), (101.0, 100.0), (1e4, 100.0)])
def test_importance_is_capped_at_100_unless_told_otherwise(ratio: float, used: float):
    """The cap of the code of arXiv:2110.00641."""
    config = toy_config(objective={"clip": None, "advantage_normalization": "none"})
    state = start_in_float64(config)
    samples = prepare(in_float64(collect(config)), state, config)
    samples.behavior_logp -= math.log(ratio)
    samples.advantage.fill_(1.0)
    metrics = ppo.update_policy(samples, state, config, learning_rate=0.0)
    assert metrics["losses/policy_loss"] == pytest.approx(-used, rel=1e-4)
    assert metrics["importance/capped_fraction"] == (ratio > 100)


def test_target_kl_limits_the_mean_divergence_from_the_behavior_policy():
    config = toy_config(update={"target_kl": 0.01})
    at, near, far = torch.zeros(4), torch.full((4,), 0.01), torch.full((4,), 0.5)

    def seen(behavior_logp: torch.Tensor, proximal_logp: torch.Tensor) -> PolicyRecord:
        return PolicyRecord(at, at, at, at, behavior_logp, proximal_logp)

    assert ppo.moved_too_far([seen(far, near)], config)
    assert not ppo.moved_too_far([seen(near, far)], config)
    assert ppo.moved_too_far([seen(near, near), seen(far, near)], config)  # microbatches of one minibatch


def test_an_epoch_is_judged_by_its_last_minibatch():
    config = toy_config(num_steps=31, update={"minibatches_per_epoch": 5, "target_kl": 1.0})
    for compiled in ("on", "off"):
        state = start(changed(config, native=compiled))
        samples = prepare(collect(config), state, config)
        state.backend.begin_iteration(1e-2, state.plan)
        minibatches = state.minibatches(samples, config)
        seen = state.backend.take_steps(samples, minibatches)
        assert len(torch.cat([record.logp for record in seen.records])) == int(samples.valid.sum())
        (last,) = seen.last
        assert len(last.logp) == int(minibatches[-1].count)
        assert torch.equal(last.logp, seen.records[-1].logp[-len(last.logp) :])


def test_target_kl_that_is_not_reached_stops_nothing():
    config = toy_config(num_steps=31, update={"target_kl": 10.0})
    assert one_iteration(config, start(config))["losses/epochs_done"] == 2


def test_the_learning_rate_falls_to_zero_with_env_steps():
    config = toy_config(total_env_steps=1000, optimizer={"learning_rate": 1.0, "anneal": "linear"})
    state = start(config)
    rates = []
    for state.learner.env_steps in (0, 250, 999, 1000):
        rates.append(state.learner.learning_rate)
    assert rates == pytest.approx([1.0, 0.75, 0.001, 0.0])
    state = start(changed(config, optimizer={"anneal": "none"}))
    state.learner.env_steps = 999
    assert state.learner.learning_rate == 1.0


@pytest.mark.parametrize("algorithm", [toy_config, toy_pqn_config, phase_config])
def test_every_algorithm_takes_its_steps_at_the_annealed_learning_rate(
    algorithm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Of PPG one phase that does not end: auxiliary steps have a learning rate of their own.
    phase = {"phase": {"policy_iterations": 99, "value_epochs": 2}} if algorithm is phase_config else {}
    config = algorithm(total_env_steps=150, optimizer={"learning_rate": 0.01, "anneal": "linear"}, **phase)
    taken: list[float] = []

    def remember(step: Callable[..., Any]) -> Callable[..., Any]:
        def remembering(backend: TorchBackend[Any], *arguments: Any, **named: Any) -> Any:
            taken.append(backend.main.learning_rate)
            return step(backend, *arguments, **named)

        return remembering

    monkeypatch.setattr(TorchBackend, "apply", remember(TorchBackend.apply))  # one by one,
    # and several in native code
    monkeypatch.setattr(NativeBackend, "_take_together", remember(NativeBackend._take_together))
    shown = rows(train(config, tmp_path).folder)
    done = [0, *(row["env_steps"] for row in shown[:-1])]
    expected = [0.01 * (1 - env_steps / 150) for env_steps in done]
    assert [row["charts/learning_rate"] for row in shown] == pytest.approx(expected)
    assert sorted(set(taken), reverse=True) == pytest.approx(expected) and len(expected) > 5


def by_hand(state: PPOState, batch: Samples) -> dict[str, Tensor]:
    """What the metrics are means of, for the samples of a microbatch as the policies are at its time."""
    with torch.no_grad():
        policy, value = state.network(batch.obs)
        logp = policy.log_prob(batch.action)
        proximal_logp = state.backend.average.policy_at(batch.obs).log_prob(batch.action)
    ratio, moved = (logp - batch.behavior_logp).exp(), (logp - proximal_logp).exp()
    capped_logp = torch.maximum(batch.behavior_logp, logp - math.log(1.2))
    free = (logp - capped_logp).exp()
    held = moved.clamp(0.95, 1.05) * (proximal_logp - capped_logp).exp()
    return {
        "ratio": ratio,
        "losses/policy_loss": -torch.minimum(free * batch.advantage, held * batch.advantage),
        "losses/value_loss": (value - batch.value_target).square(),
        "losses/entropy": policy.entropy(),
        "losses/approx_kl": ratio - 1 - ratio.log(),
        "losses/clipfrac": ((moved - 1).abs() > 0.05).double(),
        "proximal/kl": 0.5 * (logp - proximal_logp).square(),
        "importance/capped_fraction": (ratio > 1.2).double(),
    }


def test_metrics_are_means_over_all_samples_of_the_iteration():
    config = changed(
        EWMA,
        update={"epochs": 2, "minibatches_per_epoch": 3},
        objective={"clip": 0.05, "max_importance": 1.2},
        native="off",
    )
    state, samples = moved_policy_and_samples(config)
    state.backend.microbatch = 5
    seen: list[dict[str, Tensor]] = []
    policy_loss = ppo.policy_loss

    def watched(network: ActorCritic, batch: Samples, *rest: Any, **named: Any) -> Any:
        seen.append(by_hand(state, batch))
        return policy_loss(network, batch, *rest, **named)

    state.steps.loss = replace(state.steps.loss, function=watched)
    metrics = ppo.update_policy(samples, state, config, LEARNING_RATE)

    columns = {name: torch.cat([part[name] for part in seen]) for name in seen[0]}
    ratio = columns.pop("ratio")
    expected = {name: column.mean() for name, column in columns.items()} | {
        "importance/effective_samples": ratio.sum() ** 2 / ratio.square().sum() / len(ratio),
        "batch/valid_fraction": samples.valid.double().mean(),
    }
    assert len(ratio) == 2 * int(samples.valid.sum())
    assert 0 < float(expected["losses/clipfrac"]) < 1
    assert 0 < float(expected["importance/capped_fraction"]) < 1
    for name, number in expected.items():
        assert metrics[name] == pytest.approx(float(number), rel=1e-5), name
    # The mean of the means of uneven parts is another number.
    sizes = {len(part["ratio"]) for part in seen}
    assert len(sizes) > 1
    for name in columns:
        of_means = sum(float(part[name].mean()) for part in seen) / len(seen)
        assert metrics[name] != pytest.approx(of_means, rel=1e-5), name


def test_an_iteration_of_reset_steps_only_changes_nothing():
    config = toy_config(
        env="toy:Constant",
        num_envs=1,
        num_steps=1,
        env_config={"max_episode_steps": 1},
        update={"minibatches_per_epoch": 1, "target_kl": 0.1},
        objective={"advantage_normalization": "none"},
    )
    state = start(config)
    first = one_iteration(config, state)
    before = state.backend.flat.values.clone()
    second = one_iteration(config, state)
    assert (first["batch/valid_fraction"], second["batch/valid_fraction"]) == (1.0, 0.0)
    assert torch.equal(state.backend.flat.values, before) and state.steps.counts.taken == 2


@pytest.mark.parametrize("proximal", ["behavior", "ewma"])
@pytest.mark.parametrize("heads", ["dual", "shared"])
def test_the_action_that_is_shown_is_learned(proximal: str, heads: str):
    config = toy_config(
        num_envs=8,
        num_steps=32,
        total_env_steps=8_000,
        update={"epochs": 4, "minibatches_per_epoch": 4},
        proximal={"policy": proximal},
        objective={"discount": 0.5},
        optimizer={"learning_rate": 1e-2},
        network={"heads": heads},
    )
    assert learned(config) > 0.9  # chance is 0.2


def test_images_are_learned_from():
    config = toy_config(
        env="toy:Pixels",
        num_envs=8,
        num_steps=16,
        total_env_steps=2_500,
        update={"epochs": 2, "minibatches_per_epoch": 4},
        objective={"discount": 0.5},
        optimizer={"learning_rate": 3e-3},
        network={"heads": "shared", "impala_channels": [3], "impala_features": 7},
    )
    assert learned(config) > 0.9  # chance is 0.25


def test_the_point_that_is_shown_is_reached(tmp_path):
    config = toy_config(
        env="toy:Target",
        num_envs=8,
        num_steps=32,
        total_env_steps=15_000,
        update={"epochs": 4, "minibatches_per_epoch": 4},
        proximal={"policy": "ewma"},
        objective={"discount": 0.5},
        optimizer={"learning_rate": 3e-3},
        network={"log_std": -0.5},
        evaluation={"num_envs": 30, "greedy": True},
    )
    outcome = train(config, tmp_path)
    per_step = outcome.evaluation.mean_return / outcome.evaluation.mean_length
    # A point at random is 4/3 away, squared; the middle 2/3.
    assert per_step > -2 / 3 * 0.1
    assert math.isfinite(outcome.training_return)
