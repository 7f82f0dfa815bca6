"""The noise of a run's gradients: measured at each iteration's start, by groups of whole env sequences."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import plain_noise_scale
import pytest
import torch
from toy_runs import (
    changed,
    cut_back,
    differences,
    moved_policy_and_samples,
    newest_learner,
    newest_state,
    prepare,
    resume,
    start,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch import rules
from anybatch.algorithms import noise, ppo
from anybatch.backends import Minibatch
from anybatch.runs import log

EACH = {"noise_scale_every": 1}


def test_an_env_is_in_one_group_and_groups_without_samples_are_left_out():
    valid = torch.ones(3, 40, dtype=torch.bool)
    valid[1, 0] = valid[:, 10:13] = False
    groups = noise.env_groups(valid)
    envs = [{int(index) % 40 for index in group} for group in groups]
    assert len(groups) == 15  # envs 10, 11 and 12 would be the fifth of 16
    assert sorted(env for group in envs for env in group) == [env for env in range(40) if not 10 <= env < 13]
    assert sum(map(len, groups)) == int(valid.sum()) and envs[0] == {0, 1, 2}
    assert len(noise.env_groups(torch.ones(3, 5, dtype=torch.bool))) == 5


def test_an_estimate_is_pooled_over_the_newest_measurements_that_are_finite():
    meter, measured = noise.NoiseMeter(["policy"]), []
    for number in range(noise.WINDOW + 7):
        groups = [torch.tensor([1.0 + number, place]) for place in range(noise.LEAST_GROUPS)]
        if number == 3:
            groups[0] = torch.tensor([torch.inf, 0.0])
        metrics = meter.add(({"policy": gradient}, 2.0) for gradient in groups)
        assert ("noise/trace" in metrics) == (number != 3)
        if metrics:
            measured.append((metrics["noise/trace"], metrics["noise/signal"]))
    assert meter.measurements == noise.WINDOW
    assert meter.estimate == rules.pooled_noise_scale(measured[-noise.WINDOW :])
    assert meter.estimate != rules.pooled_noise_scale(measured[: noise.WINDOW])


def test_a_measurement_waits_for_enough_groups():
    meter = noise.NoiseMeter(["policy"])
    few = [({"policy": torch.randn(2)}, 1.0) for _ in range(noise.LEAST_GROUPS - 1)]
    assert meter.add(few) == {} and meter.estimate is None
    assert "noise/trace" in meter.add(few[:1]) and meter.measurements == 1


@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize("heads", ["dual", "shared"])
def test_the_measurement_is_that_of_the_equation_for_policy_and_value(heads: str, native: str):
    config = toy_config(num_envs=5, native=native, update=EACH, network={"heads": heads})
    state, samples = moved_policy_and_samples(config)
    alone = replace(config.objective, value_coefficient=0.0)
    gradients: dict[str, list[torch.Tensor]] = {"": [], "value_": []}
    counts: list[int] = []
    for group in noise.env_groups(samples.all_valid):
        both: list[torch.Tensor] = []
        for objective in (config.objective, alone):
            batch = samples.rows(group, state.device)
            state.backend.flat.grads.zero_()
            losses, _ = ppo.policy_loss(state.network, batch, objective, state.backend.average)
            losses.mean().backward()
            both.append(state.backend.flat.grads.clone())
        gradients[""].append(both[1])
        gradients["value_"].append(both[0] - both[1])
        counts.append(len(group))
    before = state.backend.flat.values.clone()
    metrics = state.measure_noise(config, samples, samples.all_valid)
    assert torch.equal(state.backend.flat.values, before)
    for kind, found in gradients.items():
        expected = plain_noise_scale.from_microbatches(torch.stack(found), torch.tensor(counts))
        measured = (metrics[f"noise/{kind}trace"], metrics[f"noise/{kind}signal"])
        assert measured == pytest.approx(expected, rel=1e-8)


def frozen(envs: int, iterations: int) -> Any:
    """The noise scale of a policy that does not learn."""
    config = toy_config(
        env="envpool:CartPole-v1",
        num_envs=envs,
        num_steps=16,
        update=EACH,
        objective={"advantage_normalization": "none"},
    )
    state = start(config)
    measured: list[tuple[float, float]] = []
    for _ in range(10):  # until the envs, which start together, are at different places of their episodes
        state.source.collector.collect(state.network, 16)
    for _ in range(iterations):
        samples = prepare(state.source.collector.collect(state.network, 16), state, config)
        found: Any = state.measure_noise(config, samples, samples.all_valid)
        measured.append((found["noise/trace"], found["noise/signal"]))
    return rules.pooled_noise_scale(measured)


def test_a_frozen_policy_has_one_noise_scale_whatever_the_number_of_envs():
    reference = frozen(256, 24)
    assert reference.error < reference.scale / 5
    for envs, iterations in ((4, 150), (16, 80), (64, 30)):
        found = frozen(envs, iterations)
        if found.scale is None:
            assert found.above < reference.scale + 2 * reference.error
        else:
            # Of the inverse, whose error is nearly symmetric also where the signal is small.
            error = sum((one.error / one.scale**2) ** 2 for one in (found, reference)) ** 0.5
            assert abs(1 / found.scale - 1 / reference.scale) < 3 * error


@pytest.mark.parametrize("make", [toy_config, toy_pqn_config])
def test_measuring_changes_nothing_else_of_a_run(make: Any, tmp_path: Path):
    plain = train(make(num_envs=5), tmp_path / "plain").folder
    measuring = train(make(num_envs=5, update=EACH), tmp_path / "measuring").folder
    found = differences(newest_state(plain), newest_state(measuring))
    assert found and all(path.startswith("/shared/learner/noise/") for path in found)
    assert all(row["noise/trace"] > 0 for row in log.read(measuring))
    assert not any("noise/trace" in row for row in log.read(plain))


def test_few_envs_are_measured_over_several_iterations_and_resumed_in_between(tmp_path: Path):
    config = toy_config(
        num_envs=1,
        update=EACH,
        total_env_steps=100,
        record={"checkpoint_every_iterations": 1, "keep_checkpoints": 99},
    )
    whole = train(config, tmp_path / "whole")
    shown = log.read(whole.folder)
    measured = [number for number, row in enumerate(shown, 1) if "noise/trace" in row]
    assert measured == [number for number in range(1, len(shown) + 1) if number % 4 == 0]
    copy = cut_back(whole.folder, tmp_path / "copy", shown[5]["env_steps"])
    assert newest_learner(copy)["noise"]["sums"]["policy"]["groups"] == 2
    resume(copy, config)
    assert not differences(newest_state(whole.folder), newest_state(copy))


def test_the_papers_parts_are_random_and_hold_every_sample_once():
    valid = torch.ones(9, 5, dtype=torch.bool)
    parts = noise.random_parts(valid, seed=1, iteration=3)
    assert len(parts) == 8 and sorted(torch.cat(parts).tolist()) == list(range(45))
    again, other = (noise.random_parts(valid, seed=1, iteration=number) for number in (3, 4))
    assert torch.equal(torch.cat(parts), torch.cat(again))
    assert not torch.equal(torch.cat(parts), torch.cat(other))


def test_the_controllers_estimate_is_that_of_random_parts_of_one_batch():
    config = toy_config(num_envs=5, controller={"kind": "noise_scale", "every": 2}, update={"epochs": 1})
    state, samples = moved_policy_and_samples(config)
    assert not state.measure_noise(config, samples, samples.all_valid)
    state.learner.iterations = 1  # the second is measured
    metrics = state.measure_noise(config, samples, samples.all_valid)
    parts = noise.random_parts(samples.all_valid, config.seed, 1)
    gradients = [
        state.backend.mean_gradients(samples, Minibatch.of(part, state.shard, state.device))["policy"]
        for part in parts
    ]
    counts = torch.tensor([len(part) for part in parts])
    expected = plain_noise_scale.from_microbatches(torch.stack(gradients), counts)
    assert (metrics["noise/batch_trace"], metrics["noise/batch_signal"]) == pytest.approx(expected, rel=1e-9)
    assert state.learner.noise.estimate is None  # ours is not measured: update.noise-scale-every is 0
    state.learner.iterations = 2
    state.measure_noise(changed(config, update=EACH), samples, samples.all_valid)
    assert state.learner.noise.of_batch is None and state.learner.noise.measurements == 1
