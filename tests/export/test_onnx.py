"""ONNX files of every encoder against the networks that they were made from."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import anybatch
from anybatch import networks
from anybatch.acting import evaluation
from anybatch.acting.evaluation import InferencePolicy
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.cli import main
from anybatch.config import NetworkConfig, QNetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions
from anybatch.evaluating import evaluation_env, trained_policy
from anybatch.export import onnx_file
from anybatch.export.onnx_file import OnnxPolicy
from anybatch.runs.record import RunRecord

ACTIONS, VECTOR = 5, 3
SMALL_IMAGE, ATARI = (3, 40, 36), (4, 84, 84)
FLOAT32, PLANES = np.dtype(np.float32), np.dtype(np.bool_)
LAYOUTS = {
    "vector": ObsLayout(vector_width=VECTOR),
    "planes": ObsLayout.single((4, 10, 10), "planes"),
    "Atari": ObsLayout.single(ATARI, "image"),
    "image": ObsLayout.single(SMALL_IMAGE, "image"),
    "masked vector": ObsLayout(vector_width=VECTOR, mask_width=ACTIONS),
    "masked image": ObsLayout(image_shape=SMALL_IMAGE, mask_width=ACTIONS),
    "image and vector": ObsLayout(image_shape=SMALL_IMAGE, vector_width=VECTOR),
    "masked image and vector": ObsLayout(image_shape=SMALL_IMAGE, vector_width=VECTOR, mask_width=ACTIONS),
    "masked planes and vector": ObsLayout(
        image_shape=(4, 10, 10), image_dtype=PLANES, vector_width=VECTOR, mask_width=ACTIONS
    ),
    "masked floats and vector": ObsLayout(
        image_shape=SMALL_IMAGE, image_dtype=FLOAT32, vector_width=VECTOR, mask_width=ACTIONS
    ),
}
SMALL: dict[str, Any] = {"hidden_sizes": (11,), "impala_channels": (2, 3), "impala_features": 13}


def spec_of(layout: ObsLayout, actions: Any = DiscreteActions(ACTIONS)) -> EnvSpec:  # noqa: B008
    return EnvSpec(
        env_id="test",
        engine="test",
        num_envs=1,
        obs_shape=layout.shape,
        obs_dtype=layout.dtype,
        actions=actions,
        obs_layout=layout,
    )


def random_observations(layout: ObsLayout, count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Observations as they travel, and the inputs of the graph written out by hand."""
    rng = np.random.default_rng(7)
    vector = rng.normal(size=(count, layout.vector_width)).astype(np.float32)
    image = rng.integers(0, 256, (count, *(layout.image_shape or (1,))))
    image = image % 2 == 1 if layout.image_dtype == PLANES else (image / 3).astype(layout.image_dtype)
    mask = rng.random((count, layout.mask_width)) < 0.5
    mask[np.arange(count), rng.integers(0, ACTIONS, count) if layout.mask_width else slice(0)] = True
    parts: dict[str, Any] = {}
    if layout.vector_width and layout.image_shape:
        parts = {"vector": vector, "image": image}
    else:
        parts = {"observation": image if layout.image_shape else vector}
    if layout.mask_width:
        parts["action_mask"] = mask
    if not layout.is_packed:
        return parts["observation"], parts
    packed = layout.pack(
        image=image if layout.image_shape else None, vector=vector, mask=mask if layout.mask_width else None
    )
    return packed, parts


def policy_of(network: Any, normalizer: ObservationNormalizer | None = None) -> InferencePolicy:
    return InferencePolicy(network, normalizer, torch.device("cpu"), torch.Generator(), greedy=True)


def make(layout: ObsLayout, **settings: Any) -> Any:
    counts = settings.pop("counts", None)
    return networks.make(
        NetworkConfig(**SMALL | settings),
        layout=layout,
        num_actions=ACTIONS,
        continuous=False,
        generator_seed=1,
        action_counts=counts,
    )


def make_q(layout: ObsLayout, **settings: Any) -> Any:
    config = QNetworkConfig(**{"hidden_sizes": (11,), "channels": (3, 5, 7)} | settings)
    return networks.make_q_network(config, layout=layout, num_actions=ACTIONS, generator_seed=1)


@torch.no_grad()
def spread_out(network: nn.Module) -> None:
    """Heads start nearly at 0, which would hide differences."""
    for parameter in network.parameters():
        parameter.mul_(1.5).add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator()))


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "mlp": (make, "vector", {}),
    "mlp of an image": (make, "image", {"encoder": "mlp"}),
    "minatar": (make, "planes", {}),
    "impala": (make, "image", {}),
    "several choices": (make, "masked vector", {"counts": (2, 3)}),
    "masked image": (make, "masked image", {}),
    "image and vector": (make, "image and vector", {"impala_fold": 2}),
    "masked image and vector": (make, "masked image and vector", {"encoder": "nature"}),
    "masked planes and vector": (make, "masked planes and vector", {"encoder": "mlp"}),
    "masked floats and vector": (make, "masked floats and vector", {}),
    "Q mlp": (make_q, "vector", {}),
    "Q minatar": (make_q, "planes", {}),
    "Q nature": (make_q, "Atari", {}),
    "Q blocks": (make_q, "image", {"blocks": 2}),
    "Q blocks, castanyer": (make_q, "image", {"blocks": 2, "block_form": "castanyer"}),
    "Q masked image and vector": (make_q, "masked image and vector", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_encoder_gives_what_torch_gives_for_any_number_of_observations(case: str, tmp_path: Path):
    kind, name, settings = CASES[case]
    layout = LAYOUTS[name]
    counts = settings.get("counts")
    network = kind(layout, **settings)
    spread_out(network)
    actions = DiscreteActions(ACTIONS) if counts is None else MultiDiscreteActions(counts)
    path = tmp_path / "policy.onnx"
    onnx_file.write(policy_of(network), spec_of(layout, actions), path, {"env": "test"})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["env"] == "test"
    for count in (1, 2, 13):
        obs, inputs = random_observations(layout, count)
        action, params = session.run(None, inputs)
        with torch.no_grad():
            wanted = network.policy_params(torch.from_numpy(obs))
            best = network.distribution(wanted).mode()
        largest = float(wanted.abs().max())
        np.testing.assert_allclose(params, wanted.numpy(), rtol=0, atol=1e-5 * max(1.0, largest))
        assert action.dtype == np.int64 and np.array_equal(action, best.numpy())


def test_continuous_actions_are_clipped_and_means_and_deviations_are_not(tmp_path: Path):
    layout = LAYOUTS["vector"]
    network = networks.make(
        NetworkConfig(**SMALL, log_std=-0.5),
        layout=layout,
        num_actions=2,
        continuous=True,
        generator_seed=1,
    )
    spread_out(network)
    normalizer = ObservationNormalizer((VECTOR,), clip=1.5)
    normalizer.update(np.random.default_rng(1).normal(3, 5, (100, VECTOR)).astype(np.float32))
    bounds = BoxActions(np.array([-0.01, -np.inf], np.float32), np.array([0.02, 0.03], np.float32))
    path = tmp_path / "policy.onnx"
    onnx_file.write(policy_of(network, normalizer), spec_of(layout, bounds), path, {})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    obs = np.random.default_rng(2).normal(3, 20, (64, VECTOR)).astype(np.float32)
    seen = normalizer.normalize(obs)
    assert (np.abs(seen) == 1.5).any() and (np.abs(seen) < 1.5).any()
    action, mean, std = session.run(None, {"observation": obs})
    with torch.no_grad():
        wanted = network.policy_params(torch.from_numpy(seen).float()).numpy()
    np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(action, np.clip(mean, bounds.low, bounds.high))
    assert (action != mean).any() and (action == mean).any()
    assert network.policy.log_std is not None and std.shape == mean.shape
    np.testing.assert_allclose(std[5], network.policy.log_std.detach().exp().numpy(), rtol=1e-6)


SETTINGS: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 300,
    "evaluation": {"num_envs": 3, "greedy": True},
    "record": {"tensorboard": False},
}


def trained(tmp_path: Path, preset: str = "cartpole-ppo-ewma", **changes: Any) -> anybatch.TrainedRun:
    return anybatch.train(preset, run_dir=tmp_path / "runs", **SETTINGS | changes)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("cartpole-ppo-ewma", {}),
        ("cartpole-ppo-ewma", {"env": "toy:MaskedMulti", "precision": "float64"}),
        ("cartpole-ppo-ewma", {"env": "toy:Mixed"}),
        ("cartpole-pqn", {"env": "toy:Masked"}),
        ("mujoco-ppo", {"env": "toy:Target"}),
    ],
)
def test_an_agent_plays_the_same_episodes_through_onnxruntime(
    preset: str, changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = trained(tmp_path, preset, **changes)
    path = tmp_path / "new folder" / "agent.onnx"
    main(["export", str(run.folder), "--onnx", str(path)])
    said = capsys.readouterr().out
    assert f"{path}: " in said and "equal to torch within" in said and "on 256 observations" in said
    assert [file.name for file in path.parent.iterdir()] == ["agent.onnx"]

    continuous = changes.get("env") == "toy:Target"
    record = RunRecord(run.folder)
    returns: list[list[float]] = []
    for exported in (False, True):
        env = evaluation_env(run.config)
        by_torch = trained_policy(record.load_checkpoint(), run.config, env.spec)
        policy: Any = OnnxPolicy(path, env.spec) if exported else by_torch
        played = evaluation.evaluate(policy, env, episodes_per_env=4)
        returns.append([episode.episode_return for episode in played.episodes])
        env.close()
    assert len(returns[0]) == 12 and returns[1] == pytest.approx(returns[0], abs=1e-6 if continuous else 0.0)


class Disagrees(nn.Module):
    """An encoder that computes something else when it is exported."""

    def __init__(self, _spec: anybatch.EnvSpec):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, obs: Tensor) -> Tensor:
        features = self.layer(obs)
        return features + 1 if torch.compiler.is_exporting() else features


class ReadsBits(Disagrees):
    """An encoder with an operation that ONNX does not have."""

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs.view(torch.int32).float().clamp(-1, 1))


def test_a_program_exports_objects_of_its_own(tmp_path: Path):
    class Plain(Disagrees):
        def forward(self, obs: Tensor) -> Tensor:
            return self.layer(obs)

    run = trained(tmp_path, network=Plain)
    written = run.export_onnx(tmp_path / "own.onnx")
    assert written.inputs == ("observation",) and written.outputs == ("action", "logits")
    assert written.agreement.largest_difference < 1e-6 and written.env_steps == run.env_steps


@pytest.mark.parametrize(
    ("network", "words"), [(Disagrees, "onnxruntime differs from torch by"), (ReadsBits, "aten.view")]
)
def test_a_network_that_onnx_cannot_express_is_one_sentence_and_changes_no_file(
    network: Any, words: str, tmp_path: Path
):
    run = trained(tmp_path, network=network)
    path = tmp_path / "agent.onnx"
    path.write_text("the one before")
    with pytest.raises(anybatch.UserError, match=f"cannot be expressed in ONNX: .*{words}"):
        run.export_onnx(path)
    assert path.read_text() == "the one before"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["agent.onnx", "runs"]


def test_other_actions_are_refused_unless_they_are_near_ties():
    network = make(LAYOUTS["vector"])
    params = np.array([[0.0, 1.0, 1.0 - 1e-6, -1.0, 0.5]], np.float32)
    wanted, near, other = np.array([1]), np.array([2]), np.array([4])
    assert onnx_file.differing_actions(network, params, wanted, wanted) == 0
    assert onnx_file.differing_actions(network, params, near, wanted) == 1
    with pytest.raises(anybatch.UserError, match="other actions"):
        onnx_file.differing_actions(network, params, other, wanted)


def failing(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["export", *words])
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_what_cannot_be_exported_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    run = str(trained(tmp_path, env="toy:Match").folder)
    onnx = str(tmp_path / "agent.onnx")
    assert "choose what to write" in failing(capsys, run)
    assert "must end in .onnx" in failing(capsys, run, "--onnx", "agent.pt")
    assert "has no checkpoint at 7 env steps" in failing(capsys, run, "--onnx", onnx, "--checkpoint", "7")
    (file := tmp_path / "file").write_text("")
    said = failing(capsys, run, "--onnx", str(file / "agent.onnx"))
    assert said == f"anybatch export: {file / 'agent.onnx'} could not be written: {file} is not a folder\n"
    (empty := tmp_path / "empty").mkdir()
    (empty / "config.json").write_text((Path(run) / "config.json").read_text())
    assert "has no checkpoint yet" in failing(capsys, str(empty), "--onnx", onnx)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    assert "pip install 'anybatch[onnx]'" in failing(capsys, run, "--onnx", onnx)
    assert not Path(onnx).exists()
