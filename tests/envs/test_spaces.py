"""Whole runs with action masks, several choices at once, and observations of several parts."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gif_frames import frames_of
from phase_runs import phase_config, rows
from toy_runs import (
    cut_back,
    differences,
    evaluate,
    learned,
    newest_state,
    one_iteration,
    prepare,
    resume,
    sample_losses,
    start,
    start_pqn,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch.acting.rollout import Rollout
from anybatch.algorithms import ppg, ppo, pqn
from anybatch.algorithms.batch_control import Probe, policy_change
from anybatch.algorithms.state import make_env
from anybatch.cli import main
from anybatch.config import AnyConfig
from anybatch.envs.layout import ObsLayout
from anybatch.errors import ConfigError
from anybatch.export import video
from anybatch.networks import packed
from anybatch.networks.distributions import FORBIDDEN, Categorical, MultiCategorical

MASKED = ["toy:Masked", "toy:MaskedMulti", "toy:Mixed"]
SMALL_IMAGES = {"impala_channels": [2], "impala_features": 7, "impala_fold": 4}
KEEP_ALL = {"record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 99}}
GUARDED = "guarded_envs:Guarded-v0"
DICT_OF_THREE = {"options": {"entry": "true", "image": "true"}}


def masked_config(env: str = "toy:Masked", **changes: Any) -> Any:
    images = {"network": SMALL_IMAGES | {"encoder": "auto"}} if env == "toy:Mixed" else {}
    settings = {"env": env, "env_config": {"max_episode_steps": 5}, "threads": 1}
    return toy_config(**(settings | images | changes))


def allowed_in(layout: ObsLayout, obs: torch.Tensor) -> torch.Tensor:
    """bool [..., A] of packed observations [..., W]."""
    flat = obs.flatten(0, -2)
    return ~packed.forbidden_actions(layout, flat).view(*obs.shape[:-1], layout.mask_width)


def taken_in_mask(action: torch.Tensor, counts: tuple[int, ...] | None) -> torch.Tensor:
    """Where in a mask the taken actions [..., K] are."""
    if counts is None:
        return action[..., None]
    return action + torch.tensor([0, *np.cumsum(counts)[:-1]])


def refuse_forbidden(data: Rollout, layout: ObsLayout, counts: tuple[int, ...] | None) -> torch.Tensor:
    """All taken actions were allowed, reset steps included; returns the masks [T, N, A]."""
    allowed = allowed_in(layout, data.obs[:-1])
    assert allowed.gather(-1, taken_in_mask(data.action, counts)).all()
    assert (data.reward >= 0).all()  # a forbidden action costs 1
    assert torch.equal(data.policy_params == FORBIDDEN, ~allowed) and not allowed.all()
    assert data.behavior_logp.isfinite().all() and (data.behavior_logp <= 1e-6).all()
    return allowed


@pytest.mark.parametrize("env", MASKED)
@pytest.mark.parametrize("reset", ["next_step", "same_step"])
@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma"])
def test_ppo_takes_allowed_actions_only_and_stays_finite(env: str, reset: str, policy: str):
    config = masked_config(
        env,
        env_config={"max_episode_steps": 5, "options": {"reset": reset}},
        proximal={"policy": policy},
        objective={"entropy_coefficient": 0.01, "kl": "exact", "kl_penalty": 0.1},
        optimizer={"learning_rate": 3e-2},
    )
    state = start(config)
    spec = state.source.collector.env.spec
    for _ in range(4):
        data = state.source.collector.collect(state.network, config.num_steps)
        allowed = refuse_forbidden(data, spec.obs_layout, spec.action_counts)
        metrics = ppo.update_policy(prepare(data, state, config), state, config, 3e-2)
        assert all(value is None or math.isfinite(value) for value in metrics.values())
        counts = spec.action_counts or (spec.action_width,)
        most = sum(part.sum(-1).log() for part in allowed[data.valid].split(counts, -1)).mean()
        assert 0 < metrics["losses/entropy"] <= float(most) + 1e-6
    assert state.backend.flat.values.isfinite().all()
    params = state.network.policy_params(data.obs[0])
    assert torch.equal(params == FORBIDDEN, ~allowed[0])
    if state.backend.average is not None:
        averaged = state.backend.average.policy_at(data.obs[0])
        assert torch.equal(averaged.params == FORBIDDEN, ~allowed[0])
        assert not torch.equal(averaged.params, params)


def test_a_masked_update_is_that_of_the_policies_of_the_allowed_actions():
    """Ratio, entropy and KL of one minibatch, from torch's distributions over the allowed logits alone."""
    config = masked_config(objective={"kl": "exact", "kl_penalty": 0.3}, proximal={"policy": "ewma"})
    state = start(config)
    one_iteration(config, state)
    data = state.source.collector.collect(state.network, config.num_steps)
    samples = prepare(data, state, config)
    one_iteration(config, state)
    part = samples.valid.flatten().nonzero().squeeze(1)
    _, record = sample_losses(samples, part, state, config)
    layout = state.source.collector.env.spec.obs_layout
    assert state.backend.average is not None
    for row, index in enumerate(part.tolist()):
        obs, action = samples.obs[index : index + 1], int(samples.action[index])
        allowed = allowed_in(layout, obs)[0]
        place = int(allowed[:action].sum())

        def few(policy: Any, obs: torch.Tensor = obs, allowed: torch.Tensor = allowed) -> Any:
            logits = policy.head(policy.encoder(obs))[0][allowed].detach()
            return torch.distributions.Categorical(logits=logits)

        now, anchor = few(state.network.policy), few(state.backend.average.policy)
        torch.testing.assert_close(record.logp[row], now.log_prob(torch.tensor(place)))
        torch.testing.assert_close(record.proximal_logp[row], anchor.log_prob(torch.tensor(place)))
        torch.testing.assert_close(record.entropy[row], now.entropy())
        gain = (record.logp[row] - samples.behavior_logp[index]).exp() * samples.advantage[index]
        penalty = 0.3 * torch.distributions.kl_divergence(anchor, now)
        torch.testing.assert_close(record.objective[row], gain - penalty, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("env", MASKED)
@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma"])
def test_masks_wait_with_their_observations(
    env: str, policy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    config = masked_config(
        env,
        total_env_steps=150,
        staleness={"iterations": 2},
        proximal={"policy": policy, "importance": "behavior"},
        optimizer={"learning_rate": 3e-2},
    )
    spec = start(config).source.collector.env.spec
    seen: list[Any] = []
    original = ppo.prepare

    def prepare_and_look(due: Any, state: Any, config: Any) -> Any:
        samples = original(due, state, config)
        allowed = refuse_forbidden(due, spec.obs_layout, spec.action_counts).flatten(0, 1)
        assert torch.equal(samples.proximal_params == FORBIDDEN, ~allowed)
        assert samples.proximal_logp.isfinite().all()
        seen.append(samples)
        return samples

    monkeypatch.setattr(ppo, "prepare", prepare_and_look)
    train(config, tmp_path)
    assert [samples.age_iterations for samples in seen] == [2] * len(seen) and len(seen) > 4


def test_the_auxiliary_phase_clones_the_masked_policy():
    config = phase_config(
        env="toy:Masked", env_config={"max_episode_steps": 5}, optimizer={"learning_rate": 3e-2}
    )
    state = ppg.start(config, make_env(config, env_steps=0))
    layout = state.source.collector.env.spec.obs_layout
    for _ in range(config.phase.policy_iterations):
        data = state.source.collector.collect(state.network, config.num_steps)
        samples = prepare(data, state, config)
        ppo.update_policy(samples, state, config, 3e-2)
        state.data.add(
            state.iterations, obs=samples.obs, value_target=samples.value_target, valid=samples.valid
        )
        state.learner.iterations += 1
    allowed = allowed_in(layout, state.data.flat_obs)
    frozen = ppg.frozen_policy(state)
    assert torch.equal(frozen == FORBIDDEN, ~allowed) and not allowed.all()
    state.progress = ppg.AuxiliaryProgress(frozen_params=frozen, frozen_log_std=None)
    for part in ppg.auxiliary_minibatches(state, config):
        ppg.auxiliary_step(part, state)
        policy, _, _ = state.network.auxiliary(state.data.flat_obs)
        assert torch.equal(policy.params == FORBIDDEN, ~allowed)
    clone = policy.kl_from(Categorical(frozen))
    assert clone.isfinite().all() and (clone >= -1e-6).all() and clone.max() > 1e-6
    assert state.backend.flat.values.isfinite().all()


@pytest.mark.parametrize("env", ["toy:Masked", "toy:MaskedMulti", "toy:Mixed"])
def test_ppg_runs_through_a_phase_with_masks(env: str, tmp_path: Path):
    network = SMALL_IMAGES | {"encoder": "auto"} if env == "toy:Mixed" else {}
    config = phase_config(
        env=env, network=network, env_config={"max_episode_steps": 5}, total_env_steps=130, threads=1
    )
    told = rows(train(config, tmp_path).folder)
    assert told[-1]["auxiliary/phases"] >= 1
    clones = [row["auxiliary/clone_kl"] for row in told if row.get("auxiliary/clone_kl") is not None]
    assert clones and all(0 <= clone < 10 for clone in clones)


def pqn_config(env: str = "toy:Masked", **changes: Any) -> Any:
    return toy_pqn_config(
        **({"env": env, "env_config": {"max_episode_steps": 5}, "network": {"encoder": "mlp"}} | changes)
    )


@pytest.mark.parametrize("env", ["toy:Masked", "toy:Mixed"])
@pytest.mark.parametrize("reset", ["next_step", "same_step"])
def test_pqn_explores_bootstraps_and_acts_among_the_allowed_actions(env: str, reset: str):
    config = pqn_config(env, env_config={"max_episode_steps": 5, "options": {"reset": reset}})
    state = start_pqn(config)
    layout = state.source.collector.env.spec.obs_layout
    network = state.network
    explored = False
    for epsilon in (1.0, 0.5, 0.0):
        network.epsilon = epsilon
        data = state.source.collector.collect(network, 20)
        allowed = refuse_forbidden(data, layout, None)
        raw = network.head(network.trunk(network.encoder(data.obs.flatten(0, 1)))).view(21, 3, -1)
        everywhere = allowed_in(layout, data.obs)
        best = raw.masked_fill(~everywhere, -math.inf).amax(-1)
        torch.testing.assert_close(data.value, best[:-1])
        unended = ~data.episode_end if reset == "same_step" else torch.ones_like(data.valid)
        torch.testing.assert_close(data.next_value[unended], best[1:][unended])
        greedy = raw[:-1].masked_fill(~allowed, -math.inf).argmax(-1)
        assert (raw[:-1].argmax(-1) != greedy).any()  # the mask matters
        explored |= bool((data.action != greedy).any())
        assert epsilon > 0 or torch.equal(data.action, greedy)
        share = epsilon / allowed.sum(-1) + (1 - epsilon) * (data.action == greedy)
        torch.testing.assert_close(data.behavior_logp, share.log())
        metrics = pqn.update_values(pqn.prepare(data, config), state, config, 3e-2)
        assert all(value is None or math.isfinite(value) for value in metrics.values())
        assert abs(metrics["losses/q_values"]) < 100
    assert explored


def test_action_churn_counts_allowed_actions_only():
    config = pqn_config(controller={"kind": "divergence", "min_steps": 9, "max_steps": 9, "states": 10_000})
    state = start_pqn(config)
    data = state.source.collector.collect(state.network, 30)
    allowed = allowed_in(state.source.collector.env.spec.obs_layout, data.obs[:-1])[data.valid]
    before = data.policy_params[data.valid].argmax(-1)
    probe = Probe(data.obs[:-1][data.valid], data.policy_params[data.valid], data.log_std)
    with torch.no_grad():
        state.network.head.bias[3] += 1e3  # the best wherever it is allowed
    expected = (allowed[:, 3] & (before != 3)).float().mean()
    assert 0 < expected < 0.7
    measured = policy_change(config, state, probe)
    assert measured == pytest.approx(float(expected), abs=1e-6)


def test_the_kl_of_several_choices_is_measured_by_the_controller():
    config = masked_config(
        "toy:MaskedMulti",
        controller={"kind": "kl", "low": 1e-6, "high": 1.0, "min_steps": 9, "max_steps": 9, "states": 10_000},
    )
    state = start(config)
    data = state.source.collector.collect(state.network, 30)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        values = state.backend.flat.values
        values += 0.3 * torch.randn(values.shape, generator=noise)
        current = MultiCategorical(state.network.policy_params(data.obs[:-1][data.valid]), (2, 3, 5))
    probe = Probe(data.obs[:-1][data.valid], data.policy_params[data.valid], data.log_std)
    behavior = MultiCategorical(probe.policy_params, (2, 3, 5))
    expected = float(behavior.kl_from(current).mean())  # KL(current ‖ behavior)
    assert expected > 1e-4
    assert policy_change(config, state, probe) == pytest.approx(expected, rel=1e-4)


RESUMED = [
    ("toy:Masked", "ppo", {"proximal": {"policy": "ewma"}, "staleness": {"iterations": 2}}),
    ("toy:Masked", "ppo", {"normalize": {"observations": "step"}}),
    ("toy:MultiMatch", "ppo", {}),
    ("toy:MaskedMulti", "ppo", {"staleness": {"iterations": 2}}),
    ("toy:Mixed", "ppo", {"proximal": {"policy": "ewma"}, "staleness": {"iterations": 1}}),
    ("toy:Masked", "ppg", {}),
    ("toy:Mixed", "ppg", {}),
    ("toy:Masked", "pqn", {}),
    ("toy:Mixed", "pqn", {}),
]


@pytest.mark.parametrize(("env", "algorithm", "changes"), RESUMED)
def test_a_run_with_masks_continues_to_the_bit(
    env: str, algorithm: str, changes: dict[str, Any], tmp_path: Path
):
    settings: dict[str, Any] = {
        "env": env,
        "env_config": {"max_episode_steps": 5},
        "total_env_steps": 150,
        "threads": 1,
        "optimizer": {"learning_rate": 1e-2},
        **KEEP_ALL,
        **changes,
    }
    if env == "toy:Mixed":
        settings["network"] = {"encoder": "mlp"} if algorithm == "pqn" else SMALL_IMAGES | {"encoder": "auto"}
    builders: dict[str, Any] = {"ppo": toy_config, "ppg": phase_config, "pqn": toy_pqn_config}
    config: AnyConfig = builders[algorithm](**settings)
    whole = train(config, tmp_path / "whole")
    saved = sorted(int(path.name.removeprefix("step_")) for path in (whole.folder / "checkpoints").iterdir())
    cut = cut_back(whole.folder, tmp_path / "cut", saved[len(saved) // 2])
    resumed = resume(cut, config)
    assert differences(newest_state(whole.folder), newest_state(resumed.folder)) == []
    assert rows(whole.folder) == rows(resumed.folder)
    assert whole.evaluation is not None and resumed.evaluation is not None
    assert whole.evaluation.episodes == resumed.evaluation.episodes


def test_normalized_observations_keep_their_masks():
    config = masked_config(normalize={"observations": "step"})
    state = start(config)
    data = state.source.collector.collect(state.network, 20)
    refuse_forbidden(data, state.source.collector.env.spec.obs_layout, None)
    mask, numbers = data.obs[..., 5:], data.obs[..., :5]
    assert set(mask.flatten().tolist()) == {0.0, 1.0}
    assert not set(numbers.flatten().tolist()) <= {0.0, 1.0}
    assert state.source.collector.normalizer is not None and state.source.collector.normalizer.mean.shape == (
        5,
    )


def test_images_with_numbers_are_not_normalized():
    with pytest.raises(ConfigError, match=r"normalize.observations = step needs vectors, but toy:Mixed has "):
        start(masked_config("toy:Mixed", normalize={"observations": "step"}))


@pytest.fixture
def custom_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support"))


@pytest.mark.usefixtures("custom_envs")
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_mask_that_allows_everything_trains_the_same_policy_to_the_bit(staleness: int, tmp_path: Path):
    states: list[Any] = []
    for name, options in (("masked", {}), ("plain", {"fault": "none"})):
        config = toy_config(
            env=GUARDED,
            env_config={"options": {"free": "true"} | options},
            total_env_steps=200,
            staleness={"iterations": staleness},
            proximal={"policy": "ewma"},
            optimizer={"learning_rate": 1e-2},
            native="off",
        )
        outcome = train(config, tmp_path / name)
        assert outcome.evaluation is not None
        learner = newest_state(outcome.folder)["shared"]["learner"]
        states.append((learner, outcome.evaluation.episodes))
    (masked, episodes), (plain, same_episodes) = states
    weights = [list(state["network"].values()) for state in (masked, plain)]
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
    assert episodes == same_episodes


@pytest.mark.usefixtures("custom_envs")
@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", {}),
        ("ppo", {"actions": "multi", "form": "tuple"}),
        ("ppo", {"entry": "true", "image": "true", "reset": "same_step"}),
        ("ppg", {"entry": "true", "image": "true"}),
        ("pqn", {"entry": "true"}),
        ("pqn", {"entry": "true", "image": "true"}),
    ],
)
def test_engines_that_refuse_forbidden_actions_are_trained_on_and_evaluated(
    algorithm: str, options: dict[str, str], greedy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    builders: dict[str, Any] = {"ppo": toy_config, "ppg": phase_config, "pqn": toy_pqn_config}
    with_image = "image" in options
    if algorithm == "pqn":
        network: dict[str, Any] = {"encoder": "mlp"}
    else:
        network = SMALL_IMAGES | {"encoder": "auto"} if with_image else {}
    config = builders[algorithm](
        env=GUARDED,
        env_config={"options": options},
        network=network,
        threads=1,
        total_env_steps=130,
        evaluation={"greedy": greedy, "num_envs": 2},
    )
    outcome = train(config, tmp_path)  # the engine asserts that every action is allowed
    assert outcome.evaluation is not None and outcome.evaluation.mean_length == 4
    again = evaluate(outcome.folder, config).evaluation
    assert again.episodes == outcome.evaluation.episodes
    capsys.readouterr()
    main(["evaluate", str(outcome.folder)])
    assert "mean return over 2 episodes" in capsys.readouterr().out


@pytest.mark.usefixtures("custom_envs")
@pytest.mark.parametrize(("image", "size"), [("true", (320, 320, 3)), ("false", (330, 550, 3))])
def test_masked_environments_can_be_watched(image: str, size: tuple[int, ...], tmp_path: Path):
    """By the image in their observations, else as Gymnasium draws them."""
    config = toy_config(
        env=GUARDED,
        env_config={"options": {"entry": "true", "image": image}},
        network=SMALL_IMAGES | {"encoder": "auto"},
        threads=1,
        total_env_steps=30,
    )
    folder = train(config, tmp_path / "runs").folder
    main(["watch", str(folder), f"--out={tmp_path / 'play.gif'}", "--steps=13"])
    shown = frames_of(tmp_path / "play.gif")
    assert len(shown) > 5 and all(picture.shape == size for picture, _ in shown)


def test_a_packed_image_is_drawn(tmp_path: Path):
    folder = train(masked_config("toy:Mixed", total_env_steps=14), tmp_path / "runs").folder
    main(["watch", str(folder), f"--out={tmp_path / 'play.gif'}", "--steps=13"])
    shown = frames_of(tmp_path / "play.gif")
    assert all(picture.shape == (320, 320, 3) for picture, _ in shown)
    assert all(picture[::160, ::160, 0].sum() == 255 for picture, _ in shown)  # one bright quadrant


def test_float_images_are_drawn_by_their_range():
    shares = np.array([[[0.0, 1.0], [0.5, 0.2]]], dtype=np.float32)
    picture = video.picture(shares)
    assert picture.dtype == np.uint8 and picture[::160, ::160, 0].tolist() == [[0, 255], [128, 51]]
    picture = video.picture(np.array([[[-1.0, 3.0], [1.0, 0.0]]], dtype=np.float32))
    assert picture[::160, ::160, 0].tolist() == [[0, 255], [128, 64]]


def test_several_choices_are_refused_by_pqn_with_their_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--preset=cartpole-pqn", "--env=toy:MultiMatch", f"--run-dir={tmp_path}"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "PQN needs one Discrete action, but toy:MultiMatch has actions MultiDiscrete([2, 3, 5])" in said


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_masks_of_a_real_engine(algorithm: str, tmp_path: Path):
    """2048 forbids moves that change nothing, and allows none at its end."""
    builder: Any = {"ppo": toy_config, "pqn": toy_pqn_config}[algorithm]
    config = builder(env="Game2048-v1", total_env_steps=3_000, num_steps=50, evaluation={"greedy": True})
    state: Any = start(config) if algorithm == "ppo" else start_pqn(config)
    layout = state.source.collector.env.spec.obs_layout
    assert (layout.vector_width, layout.mask_width) == (16, 4)
    data = state.source.collector.collect(state.network, 400)
    allowed = allowed_in(layout, data.obs[:-1])
    assert allowed.gather(-1, data.action[..., None]).all() and not allowed.all()
    assert data.terminated.any() and allowed[1:][data.terminated[:-1]].all()
    outcome = train(config, tmp_path)
    assert outcome.evaluation is not None and outcome.evaluation.mean_return > 0


@pytest.mark.parametrize("env", ["CartpoleBalance-v1", "Maze-v0"])
def test_nested_observations_of_a_real_engine(env: str, tmp_path: Path):
    config = toy_config(env=env, total_env_steps=60, env_config={"max_episode_steps": 20})
    spec = start(config).source.collector.env.spec
    assert spec.obs_layout.vector_width == {"CartpoleBalance-v1": 3 + 2, "Maze-v0": 4 * 10 + 100 + 101}[env]
    assert train(config, tmp_path).finished


@pytest.mark.parametrize(
    ("env", "env_steps", "chance"),
    [("toy:Masked", 12_000, 0.4), ("toy:MultiMatch", 8_000, 0.34), ("toy:MaskedMulti", 12_000, 0.5)],
)
def test_right_actions_under_masks_are_learned(env: str, env_steps: int, chance: float):
    config = toy_config(
        env=env,
        num_envs=8,
        num_steps=32,
        total_env_steps=env_steps,
        update={"epochs": 4, "minibatches_per_epoch": 4},
        objective={"discount": 0.5},
        optimizer={"learning_rate": 1e-2},
        network={"hidden_sizes": [32]},
    )
    assert chance < 0.9 < learned(config)


def test_an_image_and_a_vector_are_learned_from():
    config = toy_config(
        env="toy:Mixed",
        num_envs=8,
        num_steps=16,
        total_env_steps=4_000,
        update={"epochs": 4, "minibatches_per_epoch": 4},
        objective={"discount": 0.5},
        optimizer={"learning_rate": 3e-3},
        network={"heads": "shared", "impala_channels": [4], "impala_features": 32, "impala_fold": 4},
    )
    assert learned(config) > 0.9  # a sum of what each part says comes to 0.72


def test_pqn_learns_the_values_of_allowed_actions(tmp_path: Path):
    discount = 0.5
    config = toy_pqn_config(
        env="toy:Masked",
        num_envs=8,
        num_steps=16,
        total_env_steps=16_000,
        env_config={"max_episode_steps": 1_000},
        update={"epochs": 2, "minibatches_per_epoch": 4},
        objective={"discount": discount},
        exploration={"fraction": 0.5, "end": 0.05},
        optimizer={"learning_rate": 3e-3, "anneal": "linear"},
        network={"hidden_sizes": [64]},
        evaluation={"num_envs": 30, "greedy": True},
    )
    outcome = train(config, tmp_path)
    assert outcome.evaluation is not None
    assert outcome.evaluation.mean_return / outcome.evaluation.mean_length > 0.9
