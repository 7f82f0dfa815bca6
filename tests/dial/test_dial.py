"""What the numbers of a config are for: the batch they were tuned at, written down or the config's own."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from toy_runs import resume, toy_config, train

from anybatch import evaluating, presets
from anybatch.cli import main
from anybatch.config import (
    AnyConfig,
    ControllerConfig,
    OptimizerConfig,
    PPGConfig,
    PPOConfig,
    TunedAt,
    UpdateConfig,
)
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import Plan, make_plan, plan_table
from anybatch.errors import ConfigError
from anybatch.runs import advice, log
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord


def plan_of(config: AnyConfig) -> Plan:
    return make_plan(config, encoder="mlp")


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The plan that the command line prints as JSON."""
    capsys.readouterr()
    main(["plan", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which a command ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(list(words))
    assert ending.value.code == 2
    return capsys.readouterr().err.strip()


def unpinned(**changes: Any) -> PPOConfig:
    """A small config that leaves the batch it was tuned at open."""
    return replace(toy_config(**changes), tuned_at=None)


def test_a_config_built_in_python_means_what_it_says():
    config = PPOConfig(
        num_envs=32, update=UpdateConfig(epochs=3), optimizer=OptimizerConfig(learning_rate=3e-4)
    )
    plan = plan_of(config)
    assert plan.hyperparameters.learning_rate == 3e-4 and plan.ratios.are_one
    assert plan.tuned_at == TunedAt(num_envs=32, num_steps=128, minibatches_per_epoch=4, epochs=3)
    assert plan_of(replace(config, num_envs=64)).hyperparameters.learning_rate == 3e-4


def test_a_pinned_config_rescales_where_an_open_one_does_not():
    config = PPOConfig(num_envs=32, optimizer=OptimizerConfig(learning_rate=3e-4))
    pinned = config.pinned()
    assert plan_of(pinned) == plan_of(config)
    assert plan_of(replace(pinned, num_envs=8)).hyperparameters.learning_rate == pytest.approx(1.5e-4)
    assert replace(pinned, num_envs=7).pinned().tuned_at == pinned.tuned_at  # what is written down stays


def test_a_phase_of_an_open_config_is_as_long_as_it_says():
    config = PPGConfig(num_envs=32)
    plan = plan_of(config)
    assert plan.phase is not None and plan.phase.policy_iterations == config.phase.policy_iterations
    assert plan.phase.auxiliary_minibatch == config.phase.auxiliary_minibatch


def test_an_open_config_is_pinned_when_its_run_starts(tmp_path: Path):
    config = unpinned(optimizer={"learning_rate": 1e-3})
    folder = train(config, tmp_path).folder
    recorded = RunRecord(folder).config
    assert recorded == config.pinned()
    resume(folder, replace(recorded, num_envs=12, total_env_steps=300))
    rates = [row["charts/learning_rate"] for row in log.read(folder)]
    assert rates[0] == 1e-3 and rates[-1] == pytest.approx(2e-3)


def test_presets_are_pinned_with_what_they_leave_out_of_a_table():
    config = presets.parse("mine", "num_envs = 5\n[tuned_at]\nnum_steps = 64").config
    assert config.tuned_at == TunedAt(num_envs=5, num_steps=64, minibatches_per_epoch=4, epochs=4)


def test_the_command_line_pins_what_its_flags_change(capsys: pytest.CaptureFixture[str]):
    flags = ["--preset", "cartpole-ppo", "--num-envs", "32", "--minibatch", "scaled"]
    preset = presets.load("cartpole-ppo").config
    assert preset.tuned_at is not None
    assert planned(capsys, *flags)["ratios"]["minibatch"] == 32 / preset.num_envs
    plan = planned(capsys, *flags, "--tuned-at.num-envs", "2")
    assert plan["ratios"]["minibatch"] == 16
    assert plan["tuned_at"] == asdict(preset.tuned_at) | {"num_envs": 2}


@pytest.mark.parametrize("command", ["train", "plan", "resume"])
@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_names_the_batch_tuned_at(command: str, flag: str, capsys: pytest.CaptureFixture[str]):
    main([command, flag])
    assert ("--tuned-at.num-envs" if flag == "--help-all" else "--tuned-at.…") in capsys.readouterr().out


@pytest.mark.parametrize("pin", [lambda config: config, PPOConfig.pinned])
def test_a_config_comes_back_from_its_record(pin: Callable[[PPOConfig], PPOConfig]):
    config = pin(PPOConfig(num_envs=3))
    assert config_from_dict(PPOConfig, json.loads(json.dumps(config_to_dict(config)))) == config


def test_a_wrong_tuned_batch_in_a_record_is_named():
    data = config_to_dict(PPOConfig())
    with pytest.raises(ConfigError, match=r"^tuned_at = 3: "):
        config_from_dict(PPOConfig, data | {"tuned_at": 3})


def test_advice_counts_iterations_of_the_batch_of_an_open_config():
    rows = [{"proximal/age_env_steps": 2100.0}] * 2
    config = unpinned(proximal={"policy": "ewma"})  # 3 × 7 samples
    (found,) = advice.advise(rows, config)
    assert "100 iterations of the tuned batch" in found.measured


def test_the_plan_of_an_open_config_notes_no_change_of_rollout_length():
    config = PPOConfig(num_steps=64)
    assert not any("num-steps" in sentence for sentence in plan_table(config, plan_of(config)).warnings)
    changed = replace(config.pinned(), num_steps=32)
    assert any("num-steps = 32" in sentence for sentence in plan_table(changed, plan_of(changed)).warnings)


ABS = ["--preset", "minatar-pqn-abs"]  # rollouts of 16 to 64 steps, numbers tuned at 32
SCHEDULE = ["--preset", "cartpole-ppo", "--controller.kind", "schedule", "--controller.schedule", "0:32"]


@pytest.mark.parametrize(
    ("flags", "lengths"),
    [
        (ABS, "--controller.min-steps, --controller.max-steps and --controller.start-steps"),
        (
            [*ABS, "--controller.epochs", "constant", "--controller.compensate", "all"],
            "--controller.min-steps, --controller.max-steps and --controller.start-steps",
        ),
        (SCHEDULE, "--controller.schedule"),
    ],
)
def test_a_rollout_length_beside_the_controllers_is_refused(
    flags: list[str], lengths: str, capsys: pytest.CaptureFixture[str]
):
    sentence = refusal(capsys, "plan", *flags, "--num-steps", "256")
    assert sentence.startswith("anybatch plan: num-steps = 256 does not fit controller.kind = ")
    assert f"use {lengths}, or add --tuned-at.num-steps 256 " in sentence and "\n" not in sentence
    plan = planned(capsys, *flags, "--num-steps", "256", "--tuned-at.num-steps", "256")
    assert plan["ratios"]["minibatch"] == (1 if "all" not in flags else 16 / 256)


def test_a_run_with_two_lengths_is_refused_before_it_leaves_a_folder(tmp_path: Path):
    controller = {"kind": "schedule", "schedule": ["0:4"]}
    config = replace(toy_config(controller=controller).pinned(), num_steps=9)
    with pytest.raises(ConfigError, match="num-steps = 9 does not fit"):
        train(config, tmp_path)
    assert not list(tmp_path.iterdir())
    assert train(replace(config, num_steps=7), tmp_path).finished


def test_a_run_that_was_trained_with_two_lengths_can_be_evaluated(tmp_path: Path):
    config = toy_config(controller={"kind": "schedule", "schedule": ["0:4"]})
    folder = train(config, tmp_path).folder
    record, output = RunRecord(folder), Output(shown=False)
    played = evaluating.evaluate_run(record, replace(record.config, num_steps=9), output=output)
    assert played.env_steps >= 100


KINDS = {
    # Shortest and longest ÷ the length tuned at, iterations, thresholds, smoothing.
    "divergence": (0.5, 2, 50, 0.05, 0.95, 0.1),
    "kl": (0.5, 4, 10, 0.01, 0.1, 0.1),
    "noise_scale": (0.5, 2, 50, None, None, 1.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_steps", [1, 32, 128, 2048])
def test_the_defaults_of_a_controller_are_those_of_its_kind(kind: Any, num_steps: int):
    shortest, longest, every, low, high, smoothing = KINDS[kind]
    known = ControllerConfig(kind=kind).with_defaults(num_steps)
    assert (known.min_steps, known.max_steps) == (max(1, shortest * num_steps), longest * num_steps)
    assert (known.every, known.low, known.high, known.smoothing) == (every, low, high, smoothing)
    assert ControllerConfig(**vars(ControllerConfig(kind=kind, every=3))).completed(num_steps).every == 3


def test_the_defaults_are_the_released_numbers_at_the_released_baselines():
    adaptive, by_kl = (presets.load(name).config.controller for name in ("atari-pqn-abs", "mujoco-ppo-abs"))
    for stated, num_steps in ((adaptive, 32), (by_kl, 2048)):
        left_open = dict.fromkeys(("min_steps", "max_steps", "every", "low", "high", "smoothing"))
        assert replace(stated, **left_open).with_defaults(num_steps) == stated


@pytest.mark.parametrize(("kind", "step_range"), [("kl", [64, 512]), ("noise_scale", [64, 256])])
def test_a_controller_outside_its_preset_has_the_defaults_of_its_kind(
    kind: str, step_range: list[int], capsys: pytest.CaptureFixture[str]
):
    flags = ["--preset", "cartpole-ppo", "--controller.kind", kind]
    assert planned(capsys, *flags)["step_range"] == step_range
    assert planned(capsys, *flags, "--controller.min-steps", "8")["step_range"] == [8, step_range[1]]


def test_lengths_follow_the_rollout_tuned_at_and_not_the_envs(capsys: pytest.CaptureFixture[str]):
    flags = ["--preset", "cartpole-ppo", "--controller.kind", "kl", "--num-envs", "64"]
    assert planned(capsys, *flags)["step_range"] == [64, 512]


def test_a_length_beyond_a_default_is_refused_with_both(capsys: pytest.CaptureFixture[str]):
    flags = ["--preset", "cartpole-ppo", "--controller.kind", "kl", "--controller.max-steps", "32"]
    sentence = refusal(capsys, "plan", *flags)
    assert "controller.min-steps = 64 is more than controller.max-steps = 32" in sentence


def test_a_run_records_the_numbers_of_its_controller(tmp_path: Path):
    config = unpinned(controller={"kind": "kl", "every": 2}, num_steps=8)
    recorded = RunRecord(train(config, tmp_path).folder).config
    known = recorded.controller
    assert (known.min_steps, known.max_steps, known.every, known.low, known.high) == (4, 32, 2, 0.01, 0.1)
    assert recorded == config.completed() == recorded.completed()


def test_a_controller_that_a_run_gets_on_a_resume_has_the_defaults_of_its_kind(tmp_path: Path):
    folder = train(unpinned(num_steps=8), tmp_path).folder
    recorded = RunRecord(folder).config
    assert recorded.controller == ControllerConfig()
    resume(folder, replace(recorded, controller=ControllerConfig(kind="kl"), total_env_steps=150))
    assert RunRecord(folder).config.controller.low == 0.01
    assert log.read(folder)[-1]["batch/num_steps"] == 4


def test_help_names_the_defaults_of_both_kinds(capsys: pytest.CaptureFixture[str]):
    main(["plan", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert "None: 0.05 for divergence, 0.01 for kl." in text
    assert "None: twice tuned-at.num-steps; four times for kl." in text


SMALLER = ["--preset", "procgen-ppg-ewma", "--env", "toy:Pixels", "--num-envs", "16"]  # 1/16 of the minibatch


def rule_rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return {row["number"]: row for row in planned(capsys, *words)["rows"]}


def test_the_linear_rule_can_be_asked_for(capsys: pytest.CaptureFixture[str]):
    plan = planned(capsys, *SMALLER, "--rescale", "all,learning-rate=linear")
    rows = {row["number"]: row for row in plan["rows"]}
    assert plan["hyperparameters"]["learning_rate"] == pytest.approx(5e-4 / 16)
    assert rows["learning rate"]["rule"] == "× 1/16 (minibatch), linear rule requested"
    # The auxiliary minibatch is at its floor, a quarter.
    assert plan["phase"]["auxiliary_learning_rate"] == pytest.approx(5e-4 / 4)
    assert rows["auxiliary learning rate"]["rule"] == "× 1/4 (auxiliary minibatch), linear rule requested"
    others = {"proximal EWMA decay", "iterations per phase", "auxiliary minibatch"}
    by_default = rule_rows(capsys, *SMALLER)
    assert {name: rows[name] for name in others} == {name: by_default[name] for name in others}
    assert by_default["learning rate"]["rule"] == "× √(1/16) (minibatch)"
    assert by_default["auxiliary learning rate"]["rule"] == "× √(1/4) (auxiliary minibatch)"


def test_the_linear_rule_goes_with_a_list_of_rules(capsys: pytest.CaptureFixture[str]):
    rows = rule_rows(capsys, *SMALLER, "--rescale", "learning-rate=linear, proximal-ewma")
    assert rows["learning rate"]["this_run"] == "3.125e-05"
    assert rows["proximal EWMA decay"]["this_run"] != rows["proximal EWMA decay"]["tuned_at"]
    assert rows["auxiliary learning rate"]["this_run"] == rows["auxiliary learning rate"]["tuned_at"]
    assert rows["iterations per phase"]["rule"] == "kept (--rescale without phase-length)"


@pytest.mark.parametrize(
    ("optimizer", "rescale", "ratio"),
    [
        ("adam", "learning-rate=square-root", 2.0),
        ("radam", "learning-rate=linear", 4.0),
        ("sgd", "all", 4.0),
        ("sgd", "all,learning-rate=square-root", 2.0),
        ("adam", "all,adam-betas", 2.0),
    ],
)
def test_a_rule_that_is_asked_for_replaces_the_optimizers(optimizer: Any, rescale: str, ratio: float):
    config = PPOConfig(optimizer=OptimizerConfig(name=optimizer, learning_rate=1e-3), rescale=rescale)
    four_times = replace(config.pinned(), num_envs=32, minibatch="scaled")
    assert plan_of(four_times).hyperparameters.learning_rate == pytest.approx(ratio * 1e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("learning-rate=cubic", "'learning-rate=cubic' is not a rule; the rules are all, none, "),
        ("proximal-ewma=linear", "'proximal-ewma=linear' is not a rule"),
        ("learning-rate=", "'learning-rate=' is not a rule"),
        ("all=linear", "'all=linear' is not a rule"),
        ("momentum,all", "'momentum' is not a rule"),
        ("all,none", "'none' is not a rule"),
        ("", "'' is not a rule"),
        ("learning-rate=linear,learning-rate=square-root", "only one form of learning-rate can be given"),
    ],
)
def test_unknown_rules_are_refused(text: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    said = refusal(capsys, "plan", f"--rescale={text}")
    assert said.startswith(f"anybatch plan: rescale = {text!r}: {sentence}") and "\n" not in said
