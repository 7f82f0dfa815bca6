"""Every preset parses, says where it is from, and has the numbers it claims."""

import pytest

from anybatch import presets, session
from anybatch.config import PPOConfig
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import encoder_name
from anybatch.runs.config_record import config_to_dict

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
        "normalize.observations": False,
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
        "normalize.observations": True,
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
        "normalize.observations": False,
        "normalize.rewards": "none",
    },
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
    resolved = session.plan(preset.config)
    assert resolved.rows and resolved.plan.lines()
    tuned, config = preset.config.tuned_at, preset.config
    if (tuned.num_envs, tuned.num_steps) == (config.num_envs, config.num_steps):
        assert all(row.tuned_at == row.this_run for row in resolved.rows)


@pytest.mark.parametrize("name", CLEANRL)
def test_the_numbers_are_those_of_cleanrl(name: str):
    config = presets.load(name).config
    settings = flat(config_to_dict(config))
    assert {key: settings[key] for key in CLEANRL[name]} == CLEANRL[name]
    assert config.tuned_at.num_envs == config.num_envs
    assert config.tuned_at.minibatches_per_epoch == config.update.minibatches_per_epoch


@pytest.mark.parametrize("name", [name for name in presets.names() if name.endswith("-ppo-ewma")])
def test_ewma_presets_meet_the_preconditions_of_the_rule_but_for_the_epochs(name: str):
    config = presets.load(name).config
    assert config.proximal.policy == "ewma"
    assert config.proximal.ewma_decay == pytest.approx(8 / 9)
    assert config.objective.advantage_normalization == "iteration" and config.update.target_kl is None


def test_the_network_of_each_cleanrl_preset_takes_its_observations():
    shapes = {"cartpole-ppo": (4,), "mujoco-ppo": (17,), "atari-ppo": (4, 84, 84)}
    for name, shape in shapes.items():
        network = presets.load(name).config.network
        found = encoder_name(network, obs_shape=shape, obs_kind="image" if len(shape) == 3 else "vector")
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
        ('num_envs = "many"', "num_envs = 'many': int is wanted"),
        ("[optimizer]\nlearning_rate = 0", "optimizer.learning-rate = 0"),
        ("num_envs = ", "preset mine"),
        ("optimizer = 3", "optimizer = 3: a table"),
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
