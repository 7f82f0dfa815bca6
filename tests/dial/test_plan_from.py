"""`anybatch plan --from`: other trainers' configurations at another batch."""

import inspect
import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from anybatch.cli import main
from anybatch.config import OptimizerConfig, PPOConfig, TunedAt, UpdateConfig
from anybatch.dial import make_plan
from anybatch.dial.other_plans import OtherPlan, plan_for
from anybatch.dial.other_trainers import TRAINERS, read_settings
from anybatch.dial.paste import paste
from anybatch.errors import UserError

GIVEN = {
    "sb3": "n_envs=8 n_steps=32 batch_size=64 n_epochs=3 learning_rate=1e-3 gamma=0.98",
    "cleanrl": "num_envs=8 num-steps=32 --num-minibatches=4 update_epochs=3 learning_rate=1e-3 "
    "norm_adv=False",
    "rsl_rl": "num_envs=8 num_steps_per_env=32 num_mini_batches=4 learning_rate=1e-3 schedule=fixed lam=0.9",
    "purejaxrl": "NUM_ENVS=8 NUM_STEPS=32 NUM_MINIBATCHES=4 UPDATE_EPOCHS=3 LR=1e-3 ENV_NAME=CartPole-v1",
    "rllib": "num_env_runners=2 num_envs_per_env_runner=4 train_batch_size_per_learner=256 minibatch_size=64 "
    "lr=1e-3 lambda_=0.9",
}
"""One configuration in everybody's words: 8 envs × 32 steps, minibatches of 64, learning rate 0.001."""


def planned(trainer: str, words: str, num_envs: int) -> OtherPlan:
    kind = TRAINERS[trainer]
    return plan_for(kind, read_settings(kind, words.split()), num_envs=num_envs)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("num_envs", [2, 8, 32])
def test_every_trainer_has_the_numbers_of_our_own_plan(trainer: str, num_envs: int):
    config = PPOConfig(
        num_envs=num_envs,
        minibatch="scaled",
        num_steps=32,
        update=UpdateConfig(minibatches_per_epoch=4, epochs=3),
        optimizer=OptimizerConfig(learning_rate=1e-3),
        tuned_at=TunedAt(num_envs=8, num_steps=32, minibatches_per_epoch=4, epochs=3),
    )
    ours = make_plan(config, encoder="mlp")
    made = planned(trainer, GIVEN[trainer], num_envs)
    assert made.this_run.iteration_batch == ours.batch.iteration_batch
    assert made.this_run.minibatch == ours.batch.minibatch
    rate = made.settings[TRAINERS[trainer].learning_rate]
    assert rate == pytest.approx(ours.hyperparameters.learning_rate, rel=1e-5)


def test_sb3_learns_with_what_is_pasted():
    made = planned("sb3", GIVEN["sb3"], 16)
    code = paste(made).replace("ENV_ID", "'CartPole-v1'").replace("POLICY", "'MlpPolicy'")
    names: dict[str, Any] = {"PPO": PPO, "make_vec_env": make_vec_env}
    exec(code, names)
    model = names["model"].learn(512)
    assert model.num_timesteps == 512 and model.n_envs == 16 and model.n_steps == 32
    assert model.batch_size == 128 and model.n_epochs == 3 and model.gamma == 0.98
    assert model.learning_rate == pytest.approx(1e-3 * math.sqrt(2), rel=1e-5)


def test_the_settings_and_defaults_of_sb3_are_those_of_the_installed_one():
    parameters = inspect.signature(PPO.__init__).parameters
    unlisted = set(parameters) - set(TRAINERS["sb3"].known) - {"self", "env", "_init_setup_model"}
    assert not unlisted
    for key, value in TRAINERS["sb3"].defaults.items():
        assert parameters[key].default == value, key


def test_cleanrl_gets_flags():
    words = paste(planned("cleanrl", GIVEN["cleanrl"] + " anneal_lr=True", 32)).split()
    flags = dict(pairwise(words))
    assert flags["--num-envs"] == "32" and flags["--num-minibatches"] == "4" and flags["--num-steps"] == "32"
    assert float(flags["--learning-rate"]) == pytest.approx(2e-3)
    assert "--no-norm-adv" in words and "--anneal-lr" in words


def test_rsl_rl_gets_yaml_with_an_algorithm_section():
    text = paste(planned("rsl_rl", GIVEN["rsl_rl"] + " learning_rate=1e-5", 32))
    assert "num_envs of the environment: 32" in text
    content = yaml.safe_load(text)
    assert content["num_steps_per_env"] == 32
    algorithm = content["algorithm"]
    assert algorithm["learning_rate"] == pytest.approx(2e-5) and algorithm["num_mini_batches"] == 4
    assert algorithm["schedule"] == "fixed" and algorithm["lam"] == 0.9


def test_purejaxrl_gets_its_dict():
    names: dict[str, Any] = {}
    exec(paste(planned("purejaxrl", GIVEN["purejaxrl"], 32)), names)
    assert names["config"]["NUM_ENVS"] == 32 and names["config"]["LR"] == pytest.approx(2e-3)
    assert names["config"]["ENV_NAME"] == "CartPole-v1"


def test_rllib_gets_calls_of_its_config():
    called: dict[str, dict[str, Any]] = {}
    config = SimpleNamespace(
        **{
            group: lambda group=group, **given: called.update({group: given})
            for group in ("env_runners", "learners", "training")
        }
    )
    exec(paste(planned("rllib", GIVEN["rllib"] + " num_learners=2", 32)), {"config": config})
    assert called["env_runners"] == {"num_env_runners": 2, "num_envs_per_env_runner": 16}
    assert called["learners"] == {"num_learners": 2}
    training = called["training"]
    assert training["train_batch_size_per_learner"] == 1024 and training["minibatch_size"] == 256
    assert training["lr"] == pytest.approx(2e-3) and training["lambda_"] == 0.9


def test_the_batches_of_rllib_are_those_of_all_learners():
    made = planned("rllib", GIVEN["rllib"] + " num_learners=2", 32)
    assert (made.tuned_at.iteration_batch, made.tuned_at.minibatch) == (512, 128)
    assert (made.this_run.iteration_batch, made.this_run.minibatch) == (2048, 512)
    assert made.this_run.num_steps == 64


def test_the_learning_rate_follows_the_minibatch_as_it_was_rounded():
    made = planned("sb3", "n_envs=8 n_steps=4 batch_size=3 learning_rate=1e-3", 2)
    assert made.settings["batch_size"] == 1
    assert made.settings["learning_rate"] == pytest.approx(1e-3 / math.sqrt(3), rel=1e-5)


def test_the_default_batch_of_rllib_needs_no_whole_number_of_minibatches():
    made = planned("rllib", "", 8)
    assert made.tuned_at.iteration_batch == 4000 and made.this_run.iteration_batch == 16000
    assert made.settings["minibatch_size"] == 512 and made.settings["lr"] == pytest.approx(1e-4)


@given(st.sampled_from(sorted(TRAINERS)), st.integers(0, 6))
def test_there_and_back_is_where_it_began(trainer: str, power: int):
    kind = TRAINERS[trainer]
    there = planned(trainer, GIVEN[trainer], 8 * 2**power)
    back = plan_for(kind, there.settings, num_envs=8)
    again = planned(trainer, GIVEN[trainer], 8)
    assert back.this_run == again.this_run == again.tuned_at and not again.notes
    rate = kind.learning_rate
    assert back.settings[rate] == pytest.approx(again.settings[rate], rel=1e-5)
    assert again.settings[rate] == 1e-3


def test_an_infinite_setting_can_be_pasted_and_read_as_json(capsys: pytest.CaptureFixture[str]):
    infinite = {"sb3": "clip_range_vf", "rsl_rl": "max_grad_norm", "purejaxrl": "MAX_GRAD_NORM"}
    for trainer, key in (infinite | {"rllib": "vf_clip_param"}).items():
        made = planned(trainer, f"{GIVEN[trainer]} {key}=1e400", 16)
        assert "max_grad_norm: .inf" in paste(made) or 'float("inf")' in paste(made).replace("'", '"')
        main(["plan", "--from", trainer, *GIVEN[trainer].split(), f"{key}=1e400", "--num-envs=16", "--json"])
        assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["settings"][key] == "inf"


def test_a_schedule_stays_a_schedule():
    zoo = planned("sb3", "n_envs=8 n_steps=32 batch_size=256 learning_rate=lin_0.001 policy=MlpPolicy", 32)
    assert zoo.settings["learning_rate"] == "lin_0.002"
    content = yaml.safe_load(paste(zoo))
    assert content["learning_rate"] == "lin_0.002" and content["batch_size"] == 1024
    pieces = planned("rllib", "lr=[[0,4e-4],[1000,1e-4]]", 8)
    assert pieces.settings["lr"] == [[0, pytest.approx(8e-4)], [1000, pytest.approx(2e-4)]]


def test_sgd_follows_the_minibatch_itself():
    made = planned("rsl_rl", GIVEN["rsl_rl"] + " optimizer=sgd", 32)
    assert made.settings["learning_rate"] == pytest.approx(4e-3)


def test_what_a_trainer_cannot_express_is_said():
    def notes(trainer: str, more: str = "", num_envs: int = 32) -> str:
        return " ".join(planned(trainer, f"{GIVEN[trainer]} {more}", num_envs).notes)

    for trainer in TRAINERS:
        assert "4 times as old in env steps" in notes(trainer) and "PPO-EWMA" in notes(trainer)
        assert "4 times younger" in notes(trainer, num_envs=2)
    assert "normalize_advantage = True normalizes advantages within each minibatch" in notes("sb3")
    assert "within each minibatch" not in notes("sb3", "normalize_advantage=False")
    assert "within each minibatch" not in notes("cleanrl") and "within each" in notes("purejaxrl")
    assert "n_epochs = 3" in notes("sb3") and "one policy epoch" not in notes("sb3", "n_epochs=1")
    assert "Measured with Stable-Baselines3" in notes("sb3") and "Measured" not in notes("sb3", num_envs=2)
    assert "n_steps = 8 keeps the iteration batch at 256 samples" in notes("sb3")
    assert "keeps the iteration" not in notes("sb3", num_envs=2) + notes("sb3", num_envs=64) + notes("rllib")
    assert "target_kl = 0.03 ends iterations early" in notes("sb3", "target_kl=0.03")
    assert "desired_kl = 0.01" in notes("rsl_rl", "schedule=adaptive") and "desired" not in notes("rsl_rl")
    assert "fewer samples" in notes("rsl_rl", num_envs=2) and "fewer samples" not in notes("rsl_rl")
    assert "kl_coeff" in notes("rllib") and "kl_coeff" not in notes("rllib", "use_kl_loss=False")


def test_the_command_prints_the_table_and_what_to_paste(capsys: pytest.CaptureFixture[str]):
    main(["plan", "--from", "sb3", *GIVEN["sb3"].split(), "--num-envs", "64"])
    said = capsys.readouterr().out
    assert "8 × 32 = 256" in said and "64 × 32 = 2,048" in said
    assert "× √8 (minibatch)" in said and "learning_rate=0.00282843" in said and "note: " in said
    main(["plan", "--from=sb3", "--json", *GIVEN["sb3"].split(), "--num-envs=64"])
    content = json.loads(capsys.readouterr().out)
    assert content["settings"]["batch_size"] == 512 and content["trainer"] == "sb3"
    assert "learning_rate=0.00282843" in content["paste"] and len(content["rows"]) == 4
    main(["plan", "--from", "sb3", "--help"])
    assert "usage: anybatch plan --from TRAINER" in capsys.readouterr().out


def test_files_are_read_and_changed_by_words(tmp_path: Path):
    rsl_rl = tmp_path / "agent.yaml"
    rsl_rl.write_text(
        "num_steps_per_env: 24\nobs_groups: {policy: [policy]}\npolicy: {class_name: ActorCritic}\n"
        "algorithm:\n  num_mini_batches: 4\n  learning_rate: 1.0e-3\n"
    )
    made = planned("rsl_rl", f"{rsl_rl} num_envs=4096", 1024)
    assert made.this_run.iteration_batch == 24 * 1024 and made.settings["learning_rate"] == 5e-4
    zoo = tmp_path / "ppo.yml"
    zoo.write_text("CartPole-v1:\n  n_envs: 8\n  n_timesteps: !!float 1e5\n  learning_rate: lin_0.001\n")
    assert planned("sb3", str(zoo), 32).settings["learning_rate"] == "lin_0.002"
    plain = tmp_path / "ppo.json"
    plain.write_text('{"n_envs": 8, "learning_rate": 1e-3}')
    assert planned("sb3", f"{plain} learning_rate=2e-3", 32).settings["learning_rate"] == pytest.approx(4e-3)
    zoo.write_text("CartPole-v1: {n_envs: 8}\nAcrobot-v1: {n_envs: 8}\n")
    with pytest.raises(UserError, match="several configurations, CartPole-v1, Acrobot-v1: it must have one"):
        planned("sb3", str(zoo), 32)
    for name, content in {"a.json": "{", "b.yaml": "a: [", "c.json": "[1]", "d.json": None}.items():
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        with pytest.raises(UserError, match=f"{name} (cannot be read|must hold a table)"):
            planned("sb3", str(path), 32)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--from sb4 n_envs=8", "must be one of sb3, cleanrl, rsl_rl, purejaxrl, rllib"),
        ("--from sb3 n_env=8", "has no setting n_env; the nearest names are n_envs"),
        ("--from sb3 n_steps=8", "n_envs must be given, at the batch the numbers were tuned at"),
        ("--from cleanrl num_envs=8", "num_steps, num_minibatches, update_epochs, learning_rate must be"),
        ("--from sb3 n_envs=x", "n_envs = x: must be a whole number from 1 to 1,000"),
        ("--from sb3 n_envs=8 n_steps=True", "n_steps = True: must be a whole number"),
        ("--from sb3 n_envs=8 n_epochs=0", "n_epochs = 0: must be a whole number from 1 to 1,000"),
        ("--from sb3 n_envs=8 learning_rate=-1", "learning_rate = -1: must be a positive number"),
        ("--from sb3 n_envs=8 learning_rate=True", "learning_rate = True: must be a positive number"),
        ("--from sb3 n_envs=8 learning_rate=lin_x", "must be a positive number"),
        ("--from rllib lr=[[0]]", "a schedule must be pairs"),
        ("--from sb3 n_envs=1 n_steps=8", "batch_size = 64 does not fit the 8 samples of an iteration"),
        ("--from rsl_rl num_envs=1 num_steps_per_env=24 optimizer=lion", "there are rules only for"),
        ("--from rllib num_env_runners=5", "must be a multiple of num_env_runners = 5"),
        ("--from sb3 learning_rate", "settings of Stable-Baselines3 must be key=value"),
        ("--from sb3 n_envs=8 --num-steps 3", "plan --from takes --num-envs and --json"),
        ("--from", "--from needs a"),
        (f"--from sb3 n_envs={400 * '9'}", "n_envs: numbers must have at most 40 digits"),
        (f"--from sb3 n_envs=8 gamma={400 * '9'}", "gamma: numbers must have at most 40 digits"),
        ("--from sb3 n_envs=8 n_steps=1e300", "n_steps = 1000000000000000052504760255204420248704468581"),
        ("--from sb3 n_envs=8 n_steps=1e400", "n_steps = inf: must be a whole number"),
        ("--from sb3 n_envs=8 learning_rate=1e300", "must be a positive number, at most 3.4e+38"),
        (f"--from sb3 n_envs=8 learning_rate=lin_{400 * '9'}", "must be a positive number"),
        ("--from sb3 n_envs=8 gamma=1j", "gamma = 1j: must be a number, a string, a list or a table"),
        ("--from sb3 n_envs=8 learning_rate=[[0,1j]]", "learning_rate = 1j: must be a number"),
        ("--from sb3 n_envs=8 gamma={1,2}", "gamma = {1, 2}: must be a number"),
        (f"--from sb3 n_envs=8 gamma={70 * '['}{70 * ']'}", "gamma: it is nested too deeply"),
        ("--from rsl_rl num_envs=1 num_steps_per_env=24 optimizer=[]", "there are rules only for"),
        ("--from sb3 n_envs=8 --num-envs 1e15", "must be from 1 to 1,000,000,000,000"),
    ],
)
def test_bad_settings_are_one_sentence(words: str, said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--num-envs", "64", *words.split()])
    assert stopped.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1


NESTED = 100_000
BOMB = "a: &a [1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{10 * f'*{old}, '}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NESTED * '{"a":', "nested too deeply"),
        (NESTED * "[", "nested too deeply"),
        (f'{{"n_envs": 8, "gamma": {70 * "["}{70 * "]"}}}', "nested too deeply"),
        (f'{{"n_envs": 8, "gamma": {400 * "9"}}}', "at most 40 digits"),
        (f'{{"n_envs": 8, "gamma": {5000 * "9"}}}', "cannot be read"),
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_file_that_nobody_could_mean_is_one_sentence(
    content: str, said: str, suffix: str, form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert said in refusal_of_file(content, suffix, form, tmp_path, capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: &a {b: *a}", "nested too deeply"),
        (f"n_envs: 8\ngamma: 0x{5000 * 'f'}", "at most 40 digits"),
        ("n_envs: 8\ngamma: 2020-01-01", "must be a number, a string, a list or a table"),
        ("n_envs: 8\ngamma: !!timestamp x", "not what its tag says"),
        (BOMB, "must have at most 10,000 values"),
    ],
)
def test_what_only_yaml_can_say_is_one_sentence(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert said in refusal_of_file(content, ".yaml", [], tmp_path, capsys)


def refusal_of_file(
    content: str, suffix: str, form: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    path = folder / f"settings{suffix}"
    path.write_text(content)
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--from", "sb3", str(path), "--num-envs", "16", *form])
    errors = capsys.readouterr().err
    assert stopped.value.code == 2 and errors.count("\n") == 1
    return errors


def test_the_number_of_envs_must_be_one(capsys: pytest.CaptureFixture[str]):
    for words in (["--num-envs", "0"], ["--num-envs", "many"], ["--num-envs"], []):
        with pytest.raises(SystemExit):
            main(["plan", "--from", "sb3", "n_envs=8", *words])
        assert "--num-envs" in capsys.readouterr().err
