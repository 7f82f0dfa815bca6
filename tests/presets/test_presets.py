"""Every preset parses, says where it is from, and has the numbers it claims."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from phase_runs import rows

from anybatch import envs, planning, presets
from anybatch.cli import main
from anybatch.config import PPOConfig
from anybatch.config.serialization import config_to_dict
from anybatch.dial import BatchControl, Plan, controllers, plan_table
from anybatch.dial.controllers import ControllerState
from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import DiscreteActions
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import encoder_name
from anybatch.rules import center_of_mass

# From CleanRL's scripts, in this library's words: their value loss has a factor of ½ that ours has not, their
# clip range for values is that of the policy, and "gae", "anneal_lr" and "norm_adv" are on.
CLEANRL_ALL = {
    "objective.gae_lambda": 0.95,
    "objective.discount": 0.99,
    "objective.value_coefficient": 0.5 / 2,
    "objective.advantage_normalization": "minibatch",
    "objective.kl_penalty": 0.0,
    "optimizer.name": "adam",
    "optimizer.anneal": "linear",
    "optimizer.eps": 1e-5,
    "optimizer.max_grad_norm": 0.5,
    "proximal.policy": "behavior",
    "update.minibatch_of": "samples",
    "update.target_kl": None,
}
CLEANRL = {
    # ppo.py
    "cartpole-ppo": CLEANRL_ALL
    | {
        "env": "CartPole-v1",
        "total_env_steps": 500_000,
        "num_envs": 4,
        "num_steps": 128,
        "update.minibatches_per_epoch": 4,
        "update.epochs": 4,
        "optimizer.learning_rate": 2.5e-4,
        "objective.clip": 0.2,
        "objective.value_clip": 0.2,
        "objective.entropy_coefficient": 0.01,
        "network.hidden_sizes": [64, 64],
        "network.heads": "dual",
        "normalize.observations": "none",
        "normalize.rewards": "none",
    },
    # ppo_continuous_action.py
    "mujoco-ppo": CLEANRL_ALL
    | {
        "total_env_steps": 1_000_000,
        "num_envs": 1,
        "num_steps": 2048,
        "update.minibatches_per_epoch": 32,
        "update.epochs": 10,
        "optimizer.learning_rate": 3e-4,
        "objective.clip": 0.2,
        "objective.value_clip": 0.2,
        "objective.entropy_coefficient": 0.0,
        "network.hidden_sizes": [64, 64],
        "network.heads": "dual",
        "network.log_std": 0.0,
        "normalize.observations": "step",
        "normalize.observation_clip": 10.0,
        "normalize.rewards": "step",
        "normalize.reward_clip": 10.0,
        "normalize.reward_discount": 0.99,
    },
    # ppo_atari_envpool.py
    "atari-ppo": CLEANRL_ALL
    | {
        "env": "Breakout-v5",
        "total_env_steps": 10_000_000,
        "num_envs": 8,
        "num_steps": 128,
        "update.minibatches_per_epoch": 4,
        "update.epochs": 4,
        "optimizer.learning_rate": 2.5e-4,
        "objective.clip": 0.1,
        "objective.value_clip": 0.1,
        "objective.entropy_coefficient": 0.01,
        "network.encoder": "nature",
        "network.heads": "shared",
        "env_config.episodic_life": True,
        "env_config.reward_clip": True,
        "env_config.sticky": 0.0,
        "normalize.observations": "none",
        "normalize.rewards": "none",
    },
}

# The hyperparameter tables and the released code of Adaptive Batch Scaling (arXiv:2605.21557).
ABS_PQN = {
    "env": "Breakout-v5",
    "total_env_steps": 20_000_000,
    "num_envs": 128,
    "num_steps": 32,
    "update.minibatches_per_epoch": 4,
    "update.epochs": 2,
    "update.minibatch_of": "samples",
    "objective.discount": 0.99,
    "objective.q_lambda": 0.65,
    "objective.loss_coefficient": 1.0,
    "objective.reward_scale": 1.0,
    "exploration.start": 1.0,
    "exploration.end": 0.001,
    "exploration.fraction": 0.1,
    "optimizer.name": "radam",
    "optimizer.learning_rate": 2.5e-4,
    "optimizer.anneal": "none",
    "optimizer.max_grad_norm": 10.0,
    "network.encoder": "nature",
    "network.channels": [32, 64, 64],
    "network.blocks": 0,
    "env_config.episodic_life": True,
    "env_config.reward_clip": True,
    "env_config.sticky": 0.0,
    "evaluation.num_envs": 100,
    "evaluation.greedy": True,
    "controller.kind": "fixed",
}
ABS_CONTROLLER = {
    "controller.kind": "divergence",
    "controller.min_steps": 16,
    "controller.max_steps": 64,
    "controller.start_steps": 0,  # at the shortest
    "controller.every": 50,
    "controller.low": 0.05,
    "controller.high": 0.95,
    "controller.map": "log",
    "controller.window": 20,
    "controller.warmup": 10,
    "controller.smoothing": 0.1,
    "controller.states": 2048,
    "controller.epochs": "at_least",
    "controller.compensate": "none",
}
LARGE = {"network.channels": [64, 128, 128], "network.block_form": "abs"}
# purejaxql's configurations (arXiv:2407.04811).
GALLICI = {
    "num_envs": 128,
    "num_steps": 32,
    "update.minibatches_per_epoch": 32,
    "update.epochs": 2,
    "objective.discount": 0.99,
    "objective.q_lambda": 0.65,
    "objective.loss_coefficient": 0.5,
    "objective.reward_scale": 1.0,
    "exploration.start": 1.0,
    "exploration.end": 0.001,
    "exploration.fraction": 0.1,
    "optimizer.name": "radam",
    "optimizer.learning_rate": 2.5e-4,
    "optimizer.anneal": "none",
    "optimizer.max_grad_norm": 10.0,
    "controller.kind": "fixed",
}
GALLICI_ATARI = GALLICI | {
    "env": "Breakout-v5",
    "total_env_steps": 50_000_000,
    "network.encoder": "nature",
    "network.channels": [32, 64, 64],
    "network.blocks": 0,
    "env_config.reward_clip": True,
}
GALLICI_MINATAR = GALLICI | {
    "env": "minatar:Breakout",
    "total_env_steps": 10_000_000,
    "exploration.end": 0.05,
    "optimizer.learning_rate": 5e-4,
    "optimizer.anneal": "linear",
    "network.encoder": "minatar",
    "network.hidden_sizes": [128],
}
PQN = {
    "atari-pqn": ABS_PQN,
    "atari-pqn-l": ABS_PQN | LARGE | {"network.blocks": 5},
    "atari-pqn-xl": ABS_PQN | LARGE | {"network.blocks": 10},
    "atari-pqn-abs": ABS_PQN | ABS_CONTROLLER,
    "atari-pqn-l-abs": ABS_PQN | LARGE | ABS_CONTROLLER | {"network.blocks": 5, "controller.max_steps": 128},
    "atari-pqn-xl-abs": ABS_PQN
    | LARGE
    | ABS_CONTROLLER
    | {"network.blocks": 10, "controller.max_steps": 128},
    "atari-pqn-gns": ABS_PQN
    | {
        "controller.kind": "noise_scale",
        "controller.min_steps": 16,
        "controller.max_steps": 64,
        "controller.start_steps": 32,
        "controller.every": 50,
        "controller.smoothing": 1.0,
        "controller.epochs": "constant",
        "optimizer.anneal": "linear",
    },
    "atari-pqn-gallici": GALLICI_ATARI | {"env_config.episodic_life": True, "env_config.sticky": 0.0},
    "atari-pqn-sticky": GALLICI_ATARI
    | {
        "env_config.episodic_life": False,
        "env_config.sticky": 0.25,
        "env_config.max_episode_steps": 27_000,
    },
    "minatar-pqn": GALLICI_MINATAR | {"env_config.sticky": 0.1},
    "minatar-pqn-gallici": GALLICI_MINATAR
    | {"env_config.sticky": 0.0, "env_config.max_episode_steps": 1_000},
    "minatar-pqn-abs": GALLICI_MINATAR | ABS_CONTROLLER | {"env_config.sticky": 0.1},
    "cartpole-pqn": GALLICI
    | {
        "env": "CartPole-v1",
        "total_env_steps": 500_000,
        "num_envs": 32,
        "num_steps": 64,
        "update.minibatches_per_epoch": 16,
        "update.epochs": 4,
        "objective.q_lambda": 0.95,
        "objective.reward_scale": 0.1,
        "exploration.end": 0.2,
        "exploration.fraction": 0.2,
        "optimizer.learning_rate": 1e-4,
        "optimizer.anneal": "linear",
        "network.encoder": "mlp",
        "network.hidden_sizes": [256, 256],
    },
}
# Its released PPO code: CleanRL's numbers for MuJoCo, five times as long, with the controller.
ABS_PPO = {
    "total_env_steps": 5_000_000,
    "controller.kind": "kl",
    "controller.min_steps": 1024,
    "controller.max_steps": 8192,
    "controller.start_steps": 0,
    "controller.every": 10,
    "controller.low": 0.01,
    "controller.high": 0.1,
    "controller.map": "log",
    "controller.window": 20,
    "controller.warmup": 10,
    "controller.smoothing": 0.1,
    "controller.states": 2048,
    "controller.multiple_of": 32,
    "controller.epochs": "proportional",
    "controller.compensate": "none",
}
# The proximal average of arXiv:2110.00641, with what the rescaling rule needs.
EWMA = {
    "proximal.policy": "ewma",
    "proximal.ewma_decay": 8 / 9,
    "objective.value_clip": None,
    "objective.advantage_normalization": "iteration",
}
OURS = {
    "atari-ppo-ewma": CLEANRL["atari-ppo"] | EWMA,
    "cartpole-ppo-ewma": CLEANRL["cartpole-ppo"]
    | EWMA
    | {"num_envs": 8, "optimizer.learning_rate": 5e-4, "normalize.rewards": "iteration"},
    "minatar-ppo-ewma": EWMA
    | {
        "env": "minatar:Breakout",
        "total_env_steps": 5_000_000,
        "num_envs": 64,
        "num_steps": 64,
        "update.minibatches_per_epoch": 64,
        "update.epochs": 1,
        "proximal.ewma_decay": 64 / 65,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 2.83e-3,
        "optimizer.eps": 1e-5,
        "optimizer.max_grad_norm": None,
        "objective.discount": 0.99,
        "objective.gae_lambda": 0.95,
        "objective.clip": 0.2,
        "objective.entropy_coefficient": 0.01,
        "objective.value_coefficient": 0.5,
        "network.encoder": "minatar",
        "network.heads": "shared",
        "env_config.sticky": 0.1,
        "env_config.max_episode_steps": 10_000,
    },
}
# Tuned by us, with one epoch and no gradient clipping where one epoch learns as well.
TUNED = ("classic-ppo-ewma", "box2d-ppo-ewma", "mujoco-ppo-ewma", "vector-ppo-ewma")
OURS_ALL = EWMA | {
    "update.epochs": 1,
    "optimizer.name": "adam",
    "optimizer.eps": 1e-5,
    "optimizer.max_grad_norm": None,
    "objective.clip": 0.2,
    "objective.value_coefficient": 0.5,
    "network.encoder": "mlp",
    "network.heads": "dual",
    "env_config.actions": "scaled",
    "normalize.observations": "iteration",
    "normalize.rewards": "iteration",
}
OURS["classic-ppo-ewma"] = OURS_ALL | {
    "env": "CartPole-v1",
    "total_env_steps": 200_000,
    "num_envs": 8,
    "num_steps": 64,
    "update.minibatches_per_epoch": 32,
    "proximal.ewma_decay": 128 / 129,
    "optimizer.learning_rate": 2e-3,
    "optimizer.anneal": "linear",
    "objective.discount": 0.98,
    "objective.gae_lambda": 0.9,
    "objective.entropy_coefficient": 0.01,
    "network.log_std": 1.0,
}
OURS["box2d-ppo-ewma"] = OURS_ALL | {
    "env": "LunarLander-v3",
    "total_env_steps": 500_000,
    "num_envs": 16,
    "num_steps": 64,
    "update.minibatches_per_epoch": 64,
    "proximal.ewma_decay": 256 / 257,
    "optimizer.learning_rate": 5e-4,
    "optimizer.anneal": "linear",
    "objective.discount": 0.999,
    "objective.gae_lambda": 0.98,
}
OURS["mujoco-ppo-ewma"] = OURS_ALL | {
    "env": "HalfCheetah-v4",
    "total_env_steps": 1_000_000,
    "num_envs": 8,
    "num_steps": 256,
    "update.minibatches_per_epoch": 32,
    "update.epochs": 10,
    "proximal.ewma_decay": 160 / 161,
    "optimizer.learning_rate": 3e-4,
    "optimizer.anneal": "linear",
    "objective.discount": 0.99,
    "objective.gae_lambda": 0.92,
    "network.log_std": -1.0,
}
# A starting point for any environment with vector observations.
OURS["vector-ppo-ewma"] = OURS["box2d-ppo-ewma"] | {
    "env": "CartPole-v1",
    "total_env_steps": 1_000_000,
    "optimizer.learning_rate": 1e-3,
    "optimizer.anneal": "none",
    "objective.discount": 0.99,
    "objective.gae_lambda": 0.97,
    "network.log_std": -0.5,
}
# What is our own in the presets for two cores, over those of easy mode.
SMALL = {
    "env": "procgen-easy:starpilot",
    "microbatch": 256,
    "update.minibatches_per_epoch": 32,
    "update.minibatch_of": "samples",
    "update.epochs": 1,
    "network.impala_fold": 2,
    "tuned_at.minibatches_per_epoch": 32,
    "tuned_at.epochs": 1,
}
SMALL_PPO = SMALL | {"total_env_steps": 1_000_000}
SMALL_PPG = SMALL | {
    "total_env_steps": 500_000,
    "network.heads": "detached",
    "phase.policy_iterations": 4,
    "phase.auxiliary_epochs": 3,
}


def flat(settings: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def test_the_presets_are_there():
    assert {*CLEANRL, "cartpole-ppo-ewma", "atari-ppo-ewma"} <= set(presets.names())
    assert presets.DEFAULT in presets.names()


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_parses_has_a_source_and_a_plan(name: str):
    preset = presets.load(name)
    assert preset.name == name
    assert len(preset.source) > 20 and len(preset.description) > 20
    table = plan_table(preset.config, planning.plan(preset.config))
    assert table.rows and table.lines
    tuned, config = preset.config.tuned_at, preset.config
    if (tuned.num_envs, tuned.num_steps) == (config.num_envs, config.num_steps):
        assert all(row.tuned_at == row.this_run for row in table.rows if row.regime != "batch")


@pytest.mark.parametrize("name", CLEANRL)
def test_the_numbers_are_those_of_cleanrl(name: str):
    config = presets.load(name).config
    settings = flat(config_to_dict(config))
    assert {key: settings[key] for key in CLEANRL[name]} == CLEANRL[name]
    assert config.tuned_at.num_envs == config.num_envs
    assert config.tuned_at.minibatches_per_epoch == config.update.minibatches_per_epoch


@pytest.mark.parametrize("name", PQN)
def test_the_numbers_are_those_of_pqn_and_of_adaptive_batch_scaling(name: str):
    config = presets.load(name).config
    settings = flat(config_to_dict(config))
    assert {key: settings[key] for key in PQN[name]} == PQN[name]
    assert config.tuned_at.num_steps == config.num_steps


def test_every_pqn_preset_is_compared():
    assert set(PQN) == {name for name in presets.names() if presets.load(name).config.algorithm == "pqn"}


def test_ppo_with_adaptive_batch_scaling_has_cleanrls_numbers_and_its_own_controller():
    settings = flat(config_to_dict(presets.load("mujoco-ppo-abs").config))
    expected = CLEANRL["mujoco-ppo"] | ABS_PPO
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize("name", OURS)
def test_our_own_presets_have_the_numbers_of_those_they_are_from(name: str):
    settings = flat(config_to_dict(presets.load(name).config))
    assert {key: settings[key] for key in OURS[name]} == OURS[name]


@pytest.mark.parametrize("proximal", ["", "-ewma"])
@pytest.mark.parametrize(("algorithm", "small"), [("ppo", SMALL_PPO), ("ppg", SMALL_PPG)])
def test_small_presets_are_those_of_easy_mode_with_our_own_changes(
    algorithm: str, small: dict[str, object], proximal: str
):
    easy = flat(config_to_dict(presets.load(f"procgen-easy-{algorithm}{proximal}").config))
    changes = small | ({"proximal.ewma_decay": 32 / 33} if proximal else {})
    assert flat(config_to_dict(presets.load(f"procgen-small-{algorithm}{proximal}").config)) == easy | changes


def test_the_preset_for_images_has_the_numbers_of_procgen_and_bootstraps_time_limits():
    procgen, image = (
        config_to_dict(presets.load(f"{name}-ppo-ewma").config) for name in ("procgen-easy", "image")
    )
    procgen["env_config"]["time_limit"] = "bootstrap"
    assert image == procgen


def plan_at(name: str, num_steps: int, *, has_changed: bool = True) -> Plan:
    """The plan of a preset where its controller stands at a length."""
    config = presets.load(name).config
    control = BatchControl(config, encoder=config.network.encoder)
    controller = ControllerState(length=float(num_steps), has_changed=has_changed)
    control.load_state_dict({"controller": controller.to_dict()}, env_steps=0)
    return control.plan


@pytest.mark.parametrize("name", ["atari-pqn-l-abs", "atari-pqn-xl-abs"])
@pytest.mark.parametrize(
    ("num_steps", "epochs"), [(16, 2), (32, 2), (47, 2), (48, 3), (64, 4), (96, 6), (119, 7), (128, 8)]
)
def test_epochs_grow_with_long_rollouts(name: str, num_steps: int, epochs: int):
    plan = plan_at(name, num_steps)
    assert plan.batch.epochs == epochs
    assert plan.batch.minibatch == 32 * num_steps
    # As in the released code nothing else follows: epochs are the compensation.
    assert plan.hyperparameters.learning_rate == 2.5e-4


@pytest.mark.parametrize(("num_steps", "epochs"), [(16, 2), (47, 2), (48, 3), (64, 4)])
def test_the_smaller_network_stays_within_64_steps(num_steps: int, epochs: int):
    assert plan_at("atari-pqn-abs", num_steps).batch.epochs == epochs
    assert plan_at("atari-pqn-abs", 128).batch.num_steps == 64


def test_released_ppo_runs_ten_epochs_until_its_first_change():
    assert plan_at("mujoco-ppo-abs", 1024, has_changed=False).batch.epochs == 10
    assert [plan_at("mujoco-ppo-abs", steps).batch.epochs for steps in (1024, 2048, 8192)] == [5, 10, 40]


@pytest.mark.parametrize("name", [name for name in presets.names() if name.endswith("-abs")])
def test_adaptive_batch_scaling_starts_at_the_shortest_rollout(name: str):
    config = presets.load(name).config
    controller = config.complete_controller
    started = controllers.in_force(controller, controllers.start(controller))
    assert started.num_steps == planning.plan(config).batch.num_steps == config.controller.min_steps


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "atari-pqn-xl-abs",
            "16 to 128 steps: iteration batch 2,048 to 16,384 samples, minibatch 512 to 4,096",
        ),
        ("atari-pqn-abs", "16 to 64 steps: iteration batch 2,048 to 8,192 samples, minibatch 512 to 2,048"),
        (
            "mujoco-ppo-abs",
            "1,024 to 8,192 steps: iteration batch 1,024 to 8,192 samples, minibatch 32 to 256",
        ),
    ],
)
def test_plan_shows_the_range_of_the_batch(name: str, said: str, capsys: pytest.CaptureFixture[str]):
    main(["plan", "--preset", name])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("controller")]
    assert line.split(maxsplit=1)[1] == said


def trained_rows(base: Path, preset: str, *flags: str) -> list[dict[str, Any]]:
    """What a short run of a preset on its real engine logs."""
    main(["train", "--preset", preset, f"--run-dir={base}", "--threads=1", "--evaluation.num-envs=1", *flags])
    (folder,) = base.iterdir()
    return rows(folder)


MOVES_AT_ONCE = ("--controller.every=1", "--controller.warmup=1")


def test_presets_for_images_select_the_device_and_others_stay_on_the_cpu():
    images = ("atari-", "procgen-", "image-")
    for name in presets.names():
        assert presets.load(name).config.device == ("auto" if name.startswith(images) else "cpu"), name


def test_ppo_with_adaptive_batch_scaling_runs_on_mujoco(tmp_path: Path):
    first, second = trained_rows(
        tmp_path,
        "mujoco-ppo-abs",
        *MOVES_AT_ONCE,
        "--controller.min-steps=128",
        "--controller.max-steps=1024",
        "--controller.low=100",  # no policy moves that far: the longest is wanted
        "--controller.high=200",
        "--total-env-steps=300",
        "--env-config.max-episode-steps=100",
    )
    assert (first["batch/num_steps"], first["losses/epochs_done"], first["batch/minibatch"]) == (128, 10, 4)
    # A tenth of the way is 217.6, and 224 is 7 times 32.
    assert (second["batch/num_steps"], second["losses/epochs_done"]) == (224, 10 * 224 // 2048)
    assert second["batch/minibatch"] == 7
    assert 0 < first["batch/policy_kl"] < 100
    assert first["charts/learning_rate"] == 3e-4 > second["charts/learning_rate"]


def test_pqn_with_adaptive_batch_scaling_runs_on_atari(tmp_path: Path):
    first, second = trained_rows(
        tmp_path,
        "atari-pqn-abs",
        *MOVES_AT_ONCE,
        "--num-envs=4",
        "--controller.min-steps=4",
        "--controller.max-steps=8",
        "--controller.smoothing=1",
        "--controller.low=0.98",
        "--controller.high=0.99",
        "--total-env-steps=20",
        "--env-config.max-episode-steps=20",
    )
    assert (first["batch/iteration"], second["batch/iteration"]) == (16, 32)
    for row in (first, second):
        assert 0 <= row["batch/behavioral_divergence"] < 0.98
        assert row["losses/epochs_done"] == 2 and row["losses/td_loss"] > 0
    assert second["charts/gradient_steps"] == 16


def test_the_sticky_preset_has_all_actions_and_no_life_information():
    config = presets.load("atari-pqn-sticky").config
    env = envs.make(config.env, config.env_config, seeds=[1, 2])
    assert env.spec.actions == DiscreteActions(18)
    env.reset()
    step = env.step(np.array([17, 0]))
    assert step.valid.all() and env.spec.obs_shape == (4, 84, 84)
    env.close()


@pytest.mark.parametrize("text", ["update = 3", "tuned_at = 5"])
def test_a_number_where_a_table_belongs_is_refused_by_name(text: str):
    with pytest.raises(ConfigError, match=f"preset mine: {text} must be a table"):
        presets.parse("mine", text)


def test_a_preset_file_that_is_no_text_is_refused_in_one_sentence(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"env = '\xff'")
    with pytest.raises(ConfigError, match="cannot be read"):
        presets.load(str(path))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--objective.value-clip=-1"], "value-clip = -1.0: must be positive"),
        (["--network.impala-channels=none"], "impala-channels = (): must have one number for each stack"),
        (["--threads=1000000"], "to 1,024"),
        (["--env-config.engine-threads=-3"], "engine-threads = -3: must be from 0 to 1,024"),
        (["--num-envs=100000000000000000000"], "must be from 1 to 1,048,576"),
        (["--optimizer.learning-rate=inf"], "optimizer.learning-rate = inf: must be finite"),
        (["--objective.entropy-coefficient=nan"], "entropy-coefficient = nan: must be finite"),
        (["--env=gym:"], "env = 'gym:': must be an id"),
    ],
)
def test_settings_that_no_run_can_have_are_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(["plan", *words])
    assert refusal.value.code == 2 and sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", [name for name in presets.names() if name.endswith("-ppo-ewma")])
def test_ewma_presets_meet_the_preconditions_of_the_rule_but_for_the_epochs(name: str):
    config = presets.load(name).config
    assert config.proximal.policy == "ewma"
    age = center_of_mass(config.proximal.ewma_decay)  # gradient steps: the paper's 8, an epoch, or as tuned
    epoch = config.update.minibatches_per_epoch
    assert age == pytest.approx(max(8, epoch)) or (name in TUNED and age > epoch)
    assert config.objective.advantage_normalization == "iteration" and config.update.target_kl is None


def test_the_network_of_each_cleanrl_preset_takes_its_observations():
    shapes = {"cartpole-ppo": (4,), "mujoco-ppo": (17,), "atari-ppo": (4, 84, 84)}
    for name, shape in shapes.items():
        network = presets.load(name).config.network
        layout = ObsLayout.single(shape, "image" if len(shape) == 3 else "vector")
        found = encoder_name(network, layout=layout)
        assert found == ("nature" if len(shape) == 3 else "mlp")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate = 1e-3", "learning_rate"),
        ("[optimizer]\nlerning_rate = 1e-3", "lerning_rate"),
        ("[objectives]\nclip = 0.1", "objectives"),
        ("[tuned_at]\nenvs = 3", "envs"),
    ],
)
def test_an_unknown_key_is_refused_by_name(text: str, said: str):
    with pytest.raises(ConfigError, match=f"preset mine.*unknown {said}"):
        presets.parse("mine", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('num_envs = "many"', "num_envs = 'many': must be a whole number"),
        ("[optimizer]\nlearning_rate = 0", "optimizer.learning-rate = 0"),
        ("num_envs = ", "preset mine"),
        ("optimizer = 3", "optimizer = 3: must be a table"),
        ('algorithm = "dqn"', "no algorithm 'dqn'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(text: str, said: str):
    with pytest.raises(ConfigError, match=said):
        presets.parse("mine", text)


def test_a_preset_is_tuned_at_its_own_batch_unless_it_says_otherwise():
    own = presets.parse("mine", "num_envs = 5\nnum_steps = 7\n[update]\nepochs = 3").config.tuned_at
    assert (own.num_envs, own.num_steps, own.minibatches_per_epoch, own.epochs) == (5, 7, 4, 3)
    other = presets.parse("mine", "num_envs = 5\n[tuned_at]\nnum_envs = 50").config.tuned_at
    assert (other.num_envs, other.num_steps) == (50, PPOConfig().num_steps)
