"""Computing in bf16 with weights in float32."""

import time
from pathlib import Path

import pytest
import torch
from toy_runs import changed, newest_learner, prepare, start, start_pqn, toy_config, toy_pqn_config, train

from anybatch import machine
from anybatch.backends import Minibatch
from anybatch.config import PPOConfig
from anybatch.errors import ConfigError

IMPALA = {"impala_channels": [4, 4], "impala_features": 16}
NETWORKS: dict[str, dict[str, object]] = {
    "mlp": {"env": "toy:Match"},
    "impala": {"env": "toy:Pixels", "network": IMPALA},
    "nature": {"env": "toy:Pixels84"},
    "minatar": {"env": "minatar:Breakout"},
}


def gradient(config: PPOConfig, precision: str) -> torch.Tensor:
    config = changed(config, native="off", precision=precision)
    state = start(config)
    data = start(changed(config, precision="float32")).source.collector.collect(state.network, 40)
    samples = prepare(data, state, config)
    indices = samples.valid.flatten().nonzero().flatten()
    state.backend.gradient(state.steps, samples, Minibatch.of(indices, state.shard, state.device))
    return state.backend.flat.grads


@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_in_bf16_are_near_and_stay_float32(network: str):
    config = toy_config(**NETWORKS[network])
    exact, rounded = gradient(config, "float32"), gradient(config, "bf16")
    assert rounded.dtype == torch.float32 and not torch.equal(exact, rounded)
    assert (exact - rounded).norm() < 0.1 * exact.norm()


def test_heads_and_what_they_give_are_float32():
    state = start(toy_config(precision="bf16", proximal={"policy": "ewma"}))
    obs = torch.randn(5, *state.source.collector.env.spec.obs_shape)
    policy, value = state.network(obs)
    assert policy.params.dtype == value.dtype == torch.float32
    assert (
        state.backend.average is not None
        and state.backend.average.policy_at(obs).params.dtype == torch.float32
    )
    assert not torch.equal(policy.params, start(toy_config()).network(obs)[0].params)
    assert all(weight.dtype == torch.float32 for weight in state.network.parameters())


def test_action_values_compute_in_bf16_too():
    config = toy_pqn_config()
    obs = torch.randn(5, *start_pqn(config).source.collector.env.spec.obs_shape)
    exact, rounded = (
        start_pqn(changed(config, precision=precision)).network.policy_params(obs)
        for precision in ("float32", "bf16")
    )
    assert rounded.dtype == torch.float32 and not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)


def test_a_run_in_bf16_repeats_to_the_bit(tmp_path: Path):
    config = toy_config(precision="bf16", env="toy:Pixels", network=IMPALA)
    first, second = (newest_learner(train(config, tmp_path / name).folder)["network"] for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_processor_without_bf16_is_told(monkeypatch: pytest.MonkeyPatch, logged: list[str]):
    for fast in (False, True):
        logged.clear()
        monkeypatch.setattr(machine, "has_fast_bf16", lambda fast=fast: fast)
        start(toy_config(precision="bf16"))
        assert any("no instructions for bf16" in sentence for sentence in logged) == (not fast)


def test_a_machine_that_reports_amx_but_does_not_run_it_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(machine, "bf16_fails", lambda: True)
    start(toy_config())
    with pytest.raises(ConfigError, match=r"Use precision = float32.* ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        start(toy_config(precision="bf16"))


@pytest.mark.parametrize(
    ("reported", "program", "fails"),
    [("amx_bf16", "", False), ("amx_bf16", "import os; os.abort()", True), ("avx512_bf16", "1 / 0", False)],
)
def test_bf16_is_tried_in_another_process_if_the_processor_reports_amx(
    reported: str, program: str, fails: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machine, "vector_instructions", lambda: [reported])
    monkeypatch.setattr(machine, "MULTIPLY_IN_BF16", program)
    machine.bf16_fails.cache_clear()
    try:
        assert machine.bf16_fails() == fails
    finally:
        machine.bf16_fails.cache_clear()


def test_a_trial_of_bf16_that_hangs_is_ended_and_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "vector_instructions", lambda: ["amx_bf16"])
    monkeypatch.setattr(machine, "MULTIPLY_IN_BF16", "import time; time.sleep(60)")
    monkeypatch.setattr(machine, "BF16_TRIAL_SECONDS", 0.2)
    machine.bf16_fails.cache_clear()
    started = time.monotonic()
    try:
        assert machine.bf16_fails()
    finally:
        machine.bf16_fails.cache_clear()
    assert time.monotonic() - started < 30


def test_bf16_in_native_code_is_refused():
    with pytest.raises(ConfigError, match="precision = bf16"):
        toy_config(precision="bf16", native="on")
