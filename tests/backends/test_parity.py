"""The native backend against the torch backend: every configuration through both."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_runs import (
    changed,
    differences,
    moved_policy_and_samples,
    newest_learner,
    resume,
    start,
    start_from,
    start_pqn,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch import backends, native
from anybatch.algorithms import ppo, pqn
from anybatch.backends import Minibatch, acting, native_backend
from anybatch.backends.acting import NativeActing, TorchActing
from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.config import PPOConfig
from anybatch.envs.episodes import EpisodeTracker
from anybatch.errors import ConfigError, TrainingError

UPDATES = 20
OBJECTIVES = {
    "clip": {"clip": 0.2, "entropy_coefficient": 0.01},
    "tight clip": {"clip": 0.02, "max_importance": 1.05},
    "minibatch advantages and value clip": {
        "clip": 0.2,
        "advantage_normalization": "minibatch",
        "value_clip": 0.1,
    },
    "sampled KL": {"clip": None, "kl_penalty": 1.0, "kl": "sampled"},
    "exact KL": {"clip": None, "kl_penalty": 1.0, "kl": "exact", "entropy_coefficient": 0.02},
}


def problem(env: str, proximal: str, objective: str, **changes: object) -> PPOConfig:
    config = toy_config(
        env=env,
        num_steps=31,
        env_config={"max_episode_steps": 5},
        update={
            "epochs": 2,
            "minibatches_per_epoch": 3,
            "noise_scale_every": 4,
        },  # steps one by one and together
        proximal={"policy": proximal, "copy_every": 5},
        objective=OBJECTIVES[objective],
        optimizer={"max_grad_norm": 0.2},
        network={"hidden_sizes": [35, 9]},
    )
    return changed(config, **changes)


def improved(
    config: PPOConfig, compiled: str, microbatch: int = 10**6, added_to_logits: float = 0.0
) -> dict[str, object]:
    """What some updates on one batch leave behind."""
    config = changed(config, native=compiled)
    state, _ = moved_policy_and_samples(config)
    _, samples = moved_policy_and_samples(changed(config, native="off"))  # the same data for both
    assert state.backend.is_native == (compiled == "on")
    state.backend.microbatch = microbatch
    with torch.no_grad():
        state.network.policy.head.bias += added_to_logits
    metrics: dict[str, float | None] = {}
    for _ in range(UPDATES // (config.update.epochs * 3) + 1):
        metrics = ppo.update_policy(samples, state, config, 1e-2)
    return {
        "parameters": state.backend.flat.values,
        "moments": list(state.steps.state_dict()["optimizer"].values()),
        "norms": torch.tensor(state.steps.counts.norms),
        # Not their ratio: where the signal is 0 up to rounding, that may be anything.
        "noise": state.learner.noise.state_dict()["window"],
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "proximal": None
        if state.backend.average is None
        else list(state.backend.average.policy.state_dict().values()),
    }


def close(here: dict[str, object], there: dict[str, object]) -> None:
    torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("proximal", ["behavior", "iteration_start", "ewma", "periodic"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_updates_in_native_code_equal_torch(env: str, proximal: str, objective: str):
    config = problem(env, proximal, objective)
    close(improved(config, "on"), improved(config, "off"))


@pytest.mark.parametrize("added", [1000.0, -1000.0])
def test_logits_whose_exponentials_no_number_can_hold(added: float):
    config = problem("toy:Match", "iteration_start", "exact KL")
    close(improved(config, "on", added_to_logits=added), improved(config, "off", added_to_logits=added))


@pytest.mark.parametrize("heads", ["shared", "detached", "dual"])
@pytest.mark.parametrize("optimizer", ["adam", "radam", "sgd"])
def test_every_kind_of_heads_and_optimizer(heads: str, optimizer: str):
    config = problem("toy:Target", "ewma", "exact KL")
    config = changed(config, network={"heads": heads}, optimizer={"name": optimizer})
    close(improved(config, "on"), improved(config, "off"))


@pytest.mark.parametrize("heads", ["shared", "dual"])
@pytest.mark.parametrize("game", ["Breakout", "Seaquest"])
def test_planes_of_minatar(game: str, heads: str):
    config = problem(f"minatar:{game}", "ewma", "sampled KL", network={"heads": heads})
    close(improved(config, "on"), improved(config, "off"))


@pytest.mark.parametrize("env", ["toy:Match", "minatar:Breakout", "minatar:Seaquest"])
@pytest.mark.parametrize("microbatch", [1, 10**6])
def test_action_values_in_native_code_equal_torch(env: str, microbatch: int):
    config = toy_pqn_config(
        env=env,
        num_steps=31,
        precision="float64",
        network={"hidden_sizes": [35, 9]},
        update={"epochs": 2, "minibatches_per_epoch": 3, "noise_scale_every": 4},
    )
    left: list[dict[str, object]] = []
    for compiled in ("on", "off"):
        state = start_pqn(changed(config, native=compiled))
        assert state.backend.is_native == (compiled == "on")
        state.backend.microbatch, state.network.epsilon = microbatch, 0.3
        for _ in range(UPDATES // 6 + 1):
            data = state.source.collector.collect(state.network, config.num_steps)
            metrics = pqn.update_values(pqn.prepare(data, config), state, config, 1e-2)
        left.append(
            {
                "parameters": state.backend.flat.values,
                "moments": list(state.steps.state_dict()["optimizer"].values()),
                "rollout": data.tensors(),
                "metrics": {name: value for name, value in metrics.items() if value is not None},
            }
        )
    close(*left)


@pytest.mark.parametrize("microbatch", [1, 7, 8, 20])
def test_microbatches_in_native_code_equal_torch(microbatch: int):
    config = problem("toy:Match", "ewma", "clip")
    close(improved(config, "on", microbatch), improved(config, "off", microbatch))


@pytest.mark.parametrize("sizes", [[1], [16], [64, 64], [33, 70], [3, 5, 8, 13]])
def test_layers_of_every_width(sizes: list[int]):
    config = problem("toy:Match", "ewma", "sampled KL", network={"hidden_sizes": sizes})
    close(improved(config, "on"), improved(config, "off"))


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("heads", ["shared", "dual"])
@pytest.mark.parametrize("num_envs", [1, 3, 8, 21])
def test_native_code_acts_as_torch_does(env: str, heads: str, num_envs: int):
    config = toy_config(env=env, num_envs=num_envs, precision="float64", network={"heads": heads})
    rollouts = []
    for compiled in ("on", "off"):
        state = start(changed(config, native=compiled))
        rollouts.append(state.source.collector.collect(state.network, 9))
    for name, tensor in rollouts[0].tensors().items():
        torch.testing.assert_close(tensor, rollouts[1].tensors()[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("heads", ["shared", "dual"])
@pytest.mark.parametrize(
    "env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "minatar:Breakout", "minatar:SpaceInvaders"]
)
@pytest.mark.parametrize("num_envs", [1, 5])
def test_a_rollout_in_one_native_call_is_the_one_collected_step_by_step(
    env: str, heads: str, num_envs: int, monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(
        env=env,
        num_envs=num_envs,
        env_config={"max_episode_steps": 9},
        network={"heads": heads},
        normalize={"observations": "none"},
        native="on",
        precision="float32",
    )
    assert_same_rollouts(lambda: start(config), monkeypatch)


@pytest.mark.parametrize("env", ["CartPole-v1", "minatar:Asterix"])
def test_so_is_a_rollout_by_action_values(env: str, monkeypatch: pytest.MonkeyPatch):
    config = toy_pqn_config(env=env, env_config={"max_episode_steps": 9}, native="on", precision="float32")

    def exploring() -> Any:
        state = start_pqn(config)
        state.network.epsilon = 0.3
        return state

    assert_same_rollouts(exploring, monkeypatch)


def assert_same_rollouts(begin: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    states = [begin(), begin()]
    assert all(state.backend.is_native for state in states)
    one_call, step_by_step = (state.source.collector for state in states)
    one, other = (state.network for state in states)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(EpisodeTracker, "update", None)  # which steps in Python would call
            here = one_call.collect(one, 31)
        with monkeypatch.context() as patch:
            patch.setattr(acting, "rollout_is_possible", lambda *_: False)
            there = step_by_step.collect(other, 31)
        assert here.episodes == there.episodes and len(here.episodes) >= 2
        torch.testing.assert_close(here.tensors(), there.tensors(), rtol=0, atol=0)
    torch.testing.assert_close(one_call.state_dict(), step_by_step.state_dict(), rtol=0, atol=0)


def test_native_code_acts_for_its_own_network_only():
    one, other = start(toy_config(seed=1)), start(toy_config(seed=2))
    data = one.source.collector.collect(other.network, 9)
    params = other.network.policy_params(data.obs[:-1].flatten(0, 1))
    torch.testing.assert_close(data.policy_params.flatten(0, 1), params)


def test_float32_has_the_accuracy_of_float32():
    config = problem("toy:Match", "ewma", "clip")
    gradients = []
    for precision, compiled in itertools.product(("float32", "float64"), ("on", "off")):
        state, samples = moved_policy_and_samples(changed(config, native="off"))
        exact = start(changed(config, precision=precision, native=compiled))
        exact.backend.flat.values.copy_(state.backend.flat.values)
        if precision == "float32":
            samples = type(samples)(
                **{
                    name: value.float()
                    if isinstance(value, torch.Tensor) and value.is_floating_point()
                    else value
                    for name, value in vars(samples).items()
                }
            )
        indices = samples.valid.flatten().nonzero().flatten()
        exact.backend.gradient(exact.steps, samples, Minibatch.of(indices, exact.shard, exact.device))
        gradients.append(exact.backend.flat.grads.double())
    native_error = (gradients[0] - gradients[3]).norm() / gradients[3].norm()
    torch_error = (gradients[1] - gradients[3]).norm() / gradients[3].norm()
    assert native_error < 4 * torch_error + 1e-7


def test_a_non_finite_sample_is_seen():
    config = problem("toy:Match", "behavior", "clip", native="on")
    state, samples = moved_policy_and_samples(config)
    samples.value_target[3] = float("nan")
    before = state.backend.flat.values.clone()
    state.steps.counts.skipped_in_a_row = -100
    ppo.update_policy(samples, state, config, 1e-2)
    assert state.steps.counts.skipped == 2 and torch.isfinite(state.backend.flat.values).all()
    assert not torch.equal(before, state.backend.flat.values)


def test_steps_around_a_non_finite_one_are_taken_as_in_torch():
    config = problem("toy:Match", "ewma", "clip", update={"minibatches_per_epoch": 5, "noise_scale_every": 0})
    left: list[dict[str, object]] = []
    for compiled in ("on", "off"):
        state, _ = moved_policy_and_samples(changed(config, native=compiled))
        _, samples = moved_policy_and_samples(changed(config, native="off"))
        samples.value_target[3] = float("nan")
        ppo.update_policy(samples, state, config, 1e-2)
        ewma = state.backend.average
        assert ewma is not None and (state.steps.counts.taken, state.steps.counts.skipped) == (8, 2)
        left.append(
            {
                "parameters": state.backend.flat.values,
                "moments": list(state.steps.state_dict()["optimizer"].values()),
                "proximal": ewma.values,
                "ages": [ewma.total_weight, ewma.age_env_steps, ewma.age_gradient_steps],
                "norms": state.steps.counts.norms,
            }
        )
    close(*left)


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_calls_take_as_many_steps_as_their_time_allows_and_always_the_same(
    seconds: float, monkeypatch: pytest.MonkeyPatch
):
    config = problem("toy:Match", "ewma", "clip", update={"minibatches_per_epoch": 5, "noise_scale_every": 0})
    expected = improved(config, "on")
    monkeypatch.setattr(native_backend, "LONGEST_CALL_SECONDS", seconds)
    take, sizes = PolicyKernel.take_steps, list[int]()

    def counted(self: PolicyKernel, *arguments: Any) -> Any:
        sizes.append(len(arguments[-1]))
        return take(self, *arguments)

    monkeypatch.setattr(PolicyKernel, "take_steps", counted)
    torch.testing.assert_close(improved(config, "on"), expected, rtol=0, atol=0)
    # The first call finds out how long a step takes.
    assert set(sizes) == ({1} if seconds == 0 else {1, 4, 5}) and sizes[0] == 1


def test_a_non_finite_advantage_is_found_in_a_normalized_minibatch():
    config = problem(
        "toy:Match",
        "ewma",
        "minibatch advantages and value clip",
        update={"epochs": 9, "minibatches_per_epoch": 1},
    )
    for compiled in ("on", "off"):
        state, _ = moved_policy_and_samples(changed(config, native=compiled))
        _, samples = moved_policy_and_samples(changed(config, native="off"))
        step, env = next((t, n) for t, n in samples.valid.nonzero().tolist() if t == 4)
        samples.advantage[step * 3 + env] = float("nan")
        with pytest.raises(TrainingError, match=f"advantage of environment {env} at step {step} "):
            ppo.update_policy(samples, state, config, 1e-2)


def test_a_backend_says_why_it_was_chosen():
    assert start(toy_config(native="on")).backend.reason.startswith("native code: ")
    assert start(toy_config(native="off")).backend.reason == "torch: native = off"
    assert "float32 and float64" in start(toy_config(precision="bf16")).backend.reason
    assert "several choices" in start(toy_config(env="toy:MultiMatch")).backend.reason


def test_a_run_in_native_code_repeats_and_resumes_bit_for_bit(tmp_path: Path):
    config = toy_config(proximal={"policy": "ewma"}, native="on", record={"checkpoint_every_iterations": 1})
    whole = newest_learner(train(config, tmp_path / "a").folder)
    again = newest_learner(train(config, tmp_path / "b").folder)
    half = train(changed(config, total_env_steps=50), tmp_path / "c").folder
    resumed = newest_learner(resume(half, config).folder)
    assert not differences(whole, again) and not differences(whole["network"], resumed["network"])


def test_a_resumed_run_keeps_its_arithmetic_unless_told_otherwise(logged: list[str]):
    config = toy_config()
    for was, now, native_after in [
        ("off", "auto", False),
        ("on", "auto", True),
        ("off", "on", True),
        ("on", "off", False),
    ]:
        saved = start(changed(config, native=was)).snapshot()
        state = start_from(changed(config, native=now), saved)
        assert state.backend.is_native == native_after
        assert isinstance(state.source.collector.acting, NativeActing) == native_after
    assert any("continues with it; --native on is faster" in sentence for sentence in logged)


def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    monkeypatch.setenv("CC", command)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.attempt.cache_clear()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-compiler", "the C compiler no-such-compiler, which CC names, is not installed"),
        ("false", "false failed"),
    ],
)
def test_without_a_compiler_torch_is_used_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, reason: str, logged: list[str]
):
    without_compiler(monkeypatch, tmp_path, command)
    try:
        state = start(toy_config())
        assert not state.backend.is_native and any(reason in sentence for sentence in logged)
        with pytest.raises(ConfigError, match=f"native = on: .*{reason}"):
            start(toy_config(native="on"))
    finally:
        native.attempt.cache_clear()


def test_without_a_compiler_actors_do_not_repeat_what_the_learner_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], logged: list[str]
):
    without_compiler(monkeypatch, tmp_path, "no-such-compiler")
    try:
        for state, config in (
            (start(toy_config()), toy_config()),
            (start_pqn(toy_pqn_config()), toy_pqn_config()),
        ):
            acting = backends.acting_for(config, state.network, state.source.spec, state.device)
            assert type(acting) is TorchActing
    finally:
        native.attempt.cache_clear()
    assert len(logged) == 2 and capsys.readouterr() == ("", "")


def test_what_cannot_be_compiled_is_refused_only_if_it_is_asked_for():
    config = toy_config(env="toy:Pixels", network={"impala_channels": [4], "impala_features": 8})
    assert not start(config).backend.is_native
    with pytest.raises(ConfigError, match=r"native = on: .*encoders mlp"):
        start(changed(config, native="on"))
    with pytest.raises(ConfigError, match="several choices"):
        start(toy_config(env="toy:MultiMatch", native="on"))


@pytest.mark.parametrize("heads", ["shared", "dual"])
def test_linear_networks_are_left_to_torch(heads: str):
    network: dict[str, Any] = {"hidden_sizes": []}
    config, q_config = toy_config(network=network | {"heads": heads}), toy_pqn_config(network=network)
    assert not start(config).backend.is_native and not start_pqn(q_config).backend.is_native
    with pytest.raises(ConfigError, match=r"native = on: .*at least one layer"):
        start(changed(config, native="on"))
    with pytest.raises(ConfigError, match=r"native = on: .*at least one layer"):
        start_pqn(changed(q_config, native="on"))


def test_the_convolution_of_planes_needs_no_layer_behind_it():
    config = toy_pqn_config(env="minatar:Breakout", precision="float64", network={"hidden_sizes": []})
    left = []
    for compiled in ("on", "off"):
        state = start_pqn(changed(config, native=compiled))
        data = state.source.collector.collect(state.network, config.num_steps)
        pqn.update_values(pqn.prepare(data, config), state, config, 1e-2)
        left.append({"parameters": state.backend.flat.values, "rollout": data.tensors()})
    close(*left)


def test_a_second_process_does_not_compile_again(tmp_path: Path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    program = "from anybatch import native; print(native.library('float32')._name)"
    command = [sys.executable, "-c", program]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    compiled = Path(first.strip())
    written = compiled.stat().st_mtime_ns
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert second == first and compiled.stat().st_mtime_ns == written
    assert [path.name for path in compiled.parent.iterdir()] == [compiled.name]


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_a_run_records_whether_it_used_native_code(compiled: str, tmp_path: Path):
    folder = train(toy_config(native=compiled), tmp_path).folder
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["native_code"] == (compiled == "on")


def test_native_code_compiles_whatever_the_encoding_of_the_locale(tmp_path: Path):
    plain = {"XDG_CACHE_HOME": str(tmp_path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = "from anybatch import native; print(native.available())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"
