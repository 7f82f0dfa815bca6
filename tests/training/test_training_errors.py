"""What cannot be done is one sentence on stderr and exit code 2, never a traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_runs import changed, newest_learner, toy_config, train

from anybatch.cli import main
from anybatch.runs import folder as run_folder
from anybatch.storage.checkpoint import Checkpoints

SMALL = [
    "--env=toy:Match",
    "--num-envs=3",
    "--num-steps=7",
    "--total-env-steps=60",
    "--network.hidden-sizes=11",
    "--evaluation.num-envs=2",
    "--record.no-tensorboard",
]
Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one line that a command ends with, after its name."""

    def run(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(words)
        lines = capsys.readouterr().err.splitlines()
        assert stop.value.code == 2
        assert len(lines) == 1 and lines[0].startswith(f"anybatch {words[0]}: ")
        return lines[0].removeprefix(f"anybatch {words[0]}: ")

    return run


@pytest.fixture
def train_refused(refused: Refused, tmp_path: Path) -> Refused:
    return lambda *flags: refused("train", *SMALL, f"--run-dir={tmp_path}", *flags)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with three checkpoints."""
    return train(toy_config(record={"checkpoint_every_iterations": 1}), tmp_path / "runs").folder


@pytest.mark.parametrize(
    ("env", "near"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("gym:cartpole-v1", "CartPole-v1"),
        ("envpool:Breakot-v5", "Breakout-v5"),
        ("toy:Mach", "Match"),
        ("broken_envs:Sund-v0", "Sound-v0"),
    ],
)
def test_a_wrong_env_id_is_answered_with_near_ones(env: str, near: str, train_refused: Refused):
    assert near in train_refused(f"--env={env}")


def test_a_module_that_is_not_there_is_named(train_refused: Refused):
    assert "no_such_module" in train_refused("--env=no_such_module:Env-v0")


def test_a_space_that_is_not_supported_is_named_with_those_that_are(train_refused: Refused):
    said = train_refused("--env=broken_envs:Unsupported-v0")
    assert "Dict('position'" in said and "whose part words is Text" in said and "supported are Box" in said


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (
            ["--objective.advantage-decay=0.5", "--objective.advantage-normalization=minibatch"],
            ["objective.advantage-decay = 0.5", "objective.advantage-normalization = minibatch"],
        ),
        (["--env-config.engine=envpool"], ["toy:Match", "env-config.engine = envpool"]),
        (["--env-config.sticky=0.25"], ["env-config.sticky = 0.25", "toy:Match"]),
        (["--network.encoder=nature"], ["network.encoder = nature", "mlp"]),
        (["--env=toy:Pixels", "--normalize.observations=step"], ["observations = step", "toy:Pixels"]),
        (["--num-envs=0"], ["num-envs = 0"]),
        (["--rescale=learning-rate,foo"], ["foo", "advantage-moments"]),
        (["--device=nowhere"], ["device = nowhere is not a device; use auto, cpu"]),
        (["--env-config.options", "reset", "sometimes"], ["reset", "sometimes", "same_step"]),
    ],
)
def test_contradictions_name_the_fields_and_their_values(
    flags: list[str], parts: list[str], train_refused: Refused
):
    said = train_refused(*flags)
    assert all(part in said for part in parts), said
    assert "config." not in said.replace("env-config.", "")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--num-env=3"], ["--num-env", "--num-envs"]),
        (["--num-envs=many"], ["--num-envs", "many"]),
        (["--proximal.policy=newest"], ["newest", "behavior", "ewma"]),
        (["--num-envs"], ["--num-envs"]),
        (["surplus"], ["surplus"]),
    ],
)
def test_flags_that_cannot_be_read_are_one_line_too(flags: list[str], parts: list[str], refused: Refused):
    for command in ("train", "plan"):
        said = refused(command, *flags)
        assert all(part in said for part in parts), said


def test_commands_and_presets_that_are_not_there_are_answered_with_those_that_are(
    refused: Refused, tmp_path: Path
):
    assert "did you mean anybatch train?" in refused("trainx")
    assert "`anybatch --help` lists the commands" in refused("xyz")
    assert "cartpole-ppo" in refused("plan", "--preset=cartpol")
    assert "no preset file" in refused("plan", f"--preset={tmp_path}/mine.toml")
    assert "--fast" in refused("doctor", "--fast")
    assert "--all" in refused("presets", "--all")


@pytest.mark.parametrize("command", ["resume", "evaluate", "advise"])
def test_a_run_folder_that_does_not_exist_is_answered_with_the_runs_nearby(
    command: str, refused: Refused, run: Path
):
    assert run.name in refused(command, str(run.parent / "another"))
    assert "there is no run" in refused(command, str(run.parent.parent / "nowhere"))
    assert "not a run folder" in refused(command, str(run / "checkpoints"))
    assert "run folder" in refused(command)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--env=toy:Corridor", "env = toy:Match, not toy:Corridor"),
        ("--network.hidden-sizes=13", "network.hidden_sizes = (11,), not (13,)"),
        ("--network.heads=shared", "network.heads = dual, not shared"),
        ("--optimizer.name=sgd", "optimizer.name = adam, not sgd"),
        ("--normalize.observations=step", "normalize.observations = none, not step"),
    ],
)
def test_a_resume_as_another_run_says_what_differs(flag: str, said: str, refused: Refused, run: Path):
    assert said in refused("resume", str(run), flag)


def test_a_checkpoint_of_another_network_says_what_differs(refused: Refused, run: Path):
    config = json.loads((run / run_folder.CONFIG_FILE).read_text())
    config["network"]["hidden_sizes"] = [13]
    (run / run_folder.CONFIG_FILE).write_text(json.dumps(config))
    for words in (("resume", str(run), "--total-env-steps=999"), ("evaluate", str(run))):
        assert "(11, 5) in the checkpoint and (13, 5) here" in refused(*words)


def damage(checkpoint: Path) -> None:
    file = checkpoint / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("step_*"))


def test_an_altered_checkpoint_is_passed_over_for_an_older_one_and_named(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    *_, older, newest = checkpoints(run)
    damage(newest)
    capsys.readouterr()
    main(["evaluate", str(run), "--json"])
    said = capsys.readouterr()
    assert newest.name in said.err and "tensors.safetensors is damaged" in said.err
    assert len(said.err.splitlines()) == 1
    assert json.loads(said.out)["env_steps"] == int(older.name.removeprefix("step_"))
    main(["resume", str(run), "--total-env-steps=150"])
    assert newest_learner(run)["env_steps"] >= 150


def test_a_run_whose_checkpoints_are_all_damaged_cannot_go_on(run: Path, capsys: pytest.CaptureFixture[str]):
    for checkpoint in checkpoints(run):
        damage(checkpoint)
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(run)])
    shown = capsys.readouterr()
    assert stop.value.code == 2 and shown.out.count("cannot be used") == 3
    assert shown.err.startswith("anybatch resume: none of the 3 checkpoints")


def test_a_run_without_checkpoint_cannot_go_on(refused: Refused, run: Path):
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint yet" in refused("resume", str(run))


def test_a_damaged_config_is_named(refused: Refused, run: Path):
    (run / run_folder.CONFIG_FILE).write_text("{")
    assert "config.json cannot be read" in refused("resume", str(run))


def test_a_run_that_is_being_trained_is_not_trained_twice(refused: Refused, run: Path):
    with run_folder.lock(run):
        assert "another process" in refused("resume", str(run), "--total-env-steps=150")


@pytest.mark.parametrize("normalize", ["--normalize.observations=step", "--normalize.observations=none"])
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("NaNReward-v0", "environment 0 returned a non-finite reward, nan, at step 3"),
        ("InfiniteReward-v0", "environment 0 returned a non-finite reward, inf, at step 3"),
        ("NaNObs-v0", "environment 0 returned a non-finite observation, nan"),
    ],
)
def test_an_env_that_returns_no_number_is_named(
    env: str, said: str, normalize: str, train_refused: Refused, tmp_path: Path
):
    assert said in train_refused(f"--env=broken_envs:{env}", normalize)
    (folder,) = tmp_path.iterdir()
    assert newest_learner(folder)["env_steps"] == 0  # the checkpoint before it is good


def test_a_loss_that_stops_being_a_number_ends_the_run(train_refused: Refused):
    said = train_refused("--optimizer.learning-rate=1e36", "--total-env-steps=3000")
    assert "gradient steps in a row were non-finite" in said


def test_a_run_dir_that_is_a_file_is_named(train_refused: Refused, tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert "file" in train_refused(f"--run-dir={tmp_path}/file")


@pytest.mark.parametrize(
    ("size", "said"), [(1_000, "config.json"), (20_000, "No checkpoint could be written")]
)
def test_a_full_disk_is_one_line_of_a_real_process(size: int, said: str, tmp_path: Path):
    flags = [*SMALL, f"--run-dir={tmp_path}", "--network.hidden-sizes", "64", "64"]
    # Set in the new process itself: a preexec_fn would fork this one, which has threads.
    limited = (
        "import resource; from anybatch.cli import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "train", *flags],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 1
    assert lines[0].startswith("anybatch train: ") and said in lines[0] and "File too large" in lines[0]


def test_a_disk_that_fills_up_while_training_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
):
    outcome = train(toy_config(record={"checkpoint_every_iterations": 1}), tmp_path)
    env_steps = newest_learner(outcome.folder)["env_steps"]

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("anybatch.storage.checkpoint._write_in_place", no_space)
        said = refused("resume", str(outcome.folder), "--total-env-steps=200")
    assert "No space left on device" in said and "the newest good one is" in said
    assert newest_learner(outcome.folder)["env_steps"] == env_steps


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("minibatch_of", ["samples", "sequences"])
def test_a_batch_of_one_sample_runs(env: str, minibatch_of: str, tmp_path: Path):
    config = toy_config(
        env=env,
        num_envs=1,
        num_steps=1,
        total_env_steps=50,
        update={"minibatches_per_epoch": 1, "minibatch_of": minibatch_of, "noise_scale_every": 2},
        objective={"advantage_decay": 0.9},
        proximal={"policy": "ewma"},
        normalize={"observations": "step", "rewards": "step"},
    )
    assert train(config, tmp_path).env_steps == 50
    assert train(changed(config, objective={"advantage_decay": 0.0}), tmp_path).finished


def test_more_minibatches_than_valid_samples_runs(tmp_path: Path):
    config = toy_config(
        env="toy:Constant", env_config={"max_episode_steps": 1}, update={"minibatches_per_epoch": 21}
    )
    outcome = train(config, tmp_path)  # half of the 21 steps are reset steps
    assert outcome.finished
    assert Checkpoints(outcome.folder, keep=1).load_latest() is not None
