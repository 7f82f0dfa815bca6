"""The real commands for a few hundred steps."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from forked_commands import Commands
from plain_commands import said
from toy_runs import newest_learner

import anybatch
from anybatch import __version__, presets
from anybatch.cli import doctor, main
from anybatch.cli.flags import ExportFlags, Flags, SettingsFlags, TrainFlags
from anybatch.cli.help_page import FLAGS
from anybatch.cli.lab_flags import TuneFlags
from anybatch.cli.parser import Argv, flag_table, parse
from anybatch.config import CONFIGS
from anybatch.config.serialization import NAMES_ELSEWHERE
from anybatch.runs import log
from anybatch.runs.record import RunRecord

SHORT = [
    "--total-env-steps=300",
    "--num-steps=16",
    "--update.minibatches-per-epoch=4",
    "--evaluation.num-envs=2",
]


def run_in(base: Path) -> Path:
    (folder,) = base.iterdir()
    return folder


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target", "CartPole-v1", "gym:CartPole-v1"])
def test_train_resume_and_evaluate(env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = said(capsys, "train", f"--env={env}", "--num-envs=8", f"--run-dir={tmp_path}", *SHORT)
    folder = run_in(tmp_path)
    assert "8 envs × 16 steps = 128 samples" in out  # the plan comes first
    assert "mean return over 2 episodes" in out and str(folder) in out
    assert f"anybatch train --env={env} {' '.join(SHORT)} --num-envs 2" in out  # the same, at a smaller batch
    files = {path.name for path in folder.iterdir()}
    assert files >= {"config.json", "plan.json", "facts.json", "metrics.jsonl", "result.json", "checkpoints"}
    assert any(name.startswith("events.out.tfevents") for name in files)
    assert json.loads((folder / "result.json").read_text())["finished"]

    out = said(capsys, "resume", str(tmp_path), "--num-envs=3", "--total-env-steps=450")
    assert "3 envs × 16 steps = 48 samples" in out
    rows = log.read(folder)
    assert rows[-1]["env_steps"] >= 450 and rows[-1]["batch/iteration"] == 48
    assert rows[-1]["charts/learning_rate"] < rows[0]["charts/learning_rate"]

    out = said(capsys, "evaluate", str(folder), "--evaluation.num-envs=3", "--evaluation.greedy", "--json")
    result = json.loads(out)
    assert result["episodes"] == 3 and result["greedy"] and len(result["returns"]) == 3
    assert result["env_steps"] == rows[-1]["env_steps"]
    assert f"after {result['env_steps']:,} env steps" in said(capsys, "evaluate", str(folder))
    assert "advice" in said(capsys, "advise", str(folder))


@pytest.mark.parametrize(
    ("flags", "instead"),
    [
        (["--preset=minatar-pqn"], "--threads 3 instead of --ranks 3"),
        (
            ["--preset=cartpole-ppo", "--envs-per-rank=4"],
            "--threads 3 --num-envs 12 instead of --ranks 3 --envs-per-rank 4",
        ),
        (["--preset=cartpole-ppo", "--native=off"], None),
        (["--preset=cartpole-ppo", "--precision=bf16"], None),
    ],
)
def test_a_plan_of_ranks_recommends_threads_where_native_code_runs_the_network(
    flags: list[str], instead: str | None, capsys: pytest.CaptureFixture[str]
):
    def notes(number: int) -> list[str]:
        main(["plan", *flags, f"--ranks={number}", "--json"])
        shown = json.loads(capsys.readouterr().out)["warnings"]
        return [sentence for sentence in shown if "threads" in sentence]

    assert notes(1) == []
    found = notes(3)
    assert len(found) == (instead is not None) and all(f"use {instead}." in note for note in found)
    main(["plan", *flags, "--ranks=3"])
    assert all(f"note: {note}" in capsys.readouterr().out for note in found)


def test_a_number_of_envs_is_refused_where_the_ranks_decide_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """It would have no effect: a resume would continue at another batch than it names."""
    run = ["train", "--env=toy:Match", "--envs-per-rank=8"]
    out = said(capsys, *run, f"--run-dir={tmp_path}", *SHORT)
    assert "8 envs × 16 steps = 128 samples" in out
    smaller = " ".join(SHORT)
    assert f"anybatch train --env=toy:Match {smaller} --num-envs 2" in out  # a quarter, whatever the ranks
    resumed = ["resume", str(tmp_path), "--num-envs=3", "--total-env-steps=450"]
    for words in (resumed, [*resumed, "--ranks=2"], [*run, "--num-envs=3"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2 and "follow the ranks: leave num-envs out" in capsys.readouterr().err
    out = said(capsys, *resumed, "--envs-per-rank=none")
    assert "3 envs × 16 steps = 48 samples" in out


def test_flags_with_underscores_are_the_same_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--preset", "cartpole-ppo", "--envs-per-rank", "8", "--ranks", "2", "--num_envs", "8"])
    assert ended.value.code == 2 and "follow the ranks: leave num-envs out" in capsys.readouterr().err
    out = said(capsys, "train", "--env=toy:Match", "--num_envs", "8", f"--run_dir={tmp_path}", *SHORT)
    assert f"anybatch train --env=toy:Match {' '.join(SHORT)} --num-envs 2" in out


def test_evaluation_counts_the_same_number_of_episodes_in_every_slot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    said(capsys, "train", "--env=toy:Match", f"--run-dir={tmp_path}", *SHORT)
    flags = ["--evaluation.num-envs=7", "--evaluation.episodes-per-env=5", "--json"]
    first, second = (json.loads(said(capsys, "evaluate", str(tmp_path), *flags)) for _ in range(2))
    assert first["episodes"] == len(first["returns"]) == 35
    assert first == second
    assert first["mean_return"] == pytest.approx(sum(first["returns"]) / 35)


def test_an_ewma_preset_takes_another_proximal_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--preset=cartpole-ppo-ewma", "--proximal.policy", "behavior"]
    out = said(capsys, "train", *flags, "--env=toy:Match", f"--run-dir={tmp_path}", *SHORT)
    assert "proximal EWMA" not in out
    assert "proximal/age_env_steps" not in log.read(run_in(tmp_path))[-1]


@pytest.mark.parametrize("greedy", [False, True])
def test_the_suggested_evaluation_is_another_one(
    greedy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--env=toy:Match", f"--run-dir={tmp_path}", *["--evaluation.greedy"] * greedy]
    out = said(capsys, "train", *flags, *SHORT)
    (suggested,) = [line for line in out.splitlines() if "anybatch evaluate" in line]
    assert ("--evaluation.greedy" in suggested) != greedy


def test_plan_shows_the_table_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    flags = ["--proximal.policy", "ewma", "--objective.advantage-normalization", "iteration"]
    out = said(capsys, "plan", "--preset", "cartpole-ppo", "--num-envs", "1", *flags)
    assert "1 env × 128 steps = 128 samples" in out
    assert "0.000125" in out and "√(1/4)" in out and re.search(r"center of mass, gradient steps +8 +32 ", out)
    assert "note: The rule assumes one policy epoch" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("columns", [80, 120])
def test_the_plan_breaks_no_word_on_a_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the output for a terminal then
    main(["plan", "--preset=procgen-ppg-ewma", "--num-envs=16"])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= columns
    text = " ".join(" ".join(lines).split())
    assert "8 gradient steps per iteration" in text and "6 auxiliary epochs of 2,048 gradient steps" in text
    assert re.search(r"center of mass, gradient steps +8 +128 +× 16 \(env steps", "\n".join(lines))


@pytest.mark.parametrize("words", [[], *([*name.split()] for name in FLAGS)])
def test_help_fits_a_terminal_of_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main([*words, "--help"])
    out = capsys.readouterr().out
    assert "usage: anybatch" in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plan", "--lrx", "3"], "there is no flag --lrx; --help lists the flags"),
        (
            ["plan", "--evaluation.greedy", "true"],
            "true: no flag takes it as a value; --help shows the usage",
        ),
        (["plan", "--device"], "--device needs a value"),
        (["plan", "--ranks", "0"], "--ranks 0: must be a whole number from 1 to 1,024"),
        (
            ["plan", "--env-config.options", "num_levels"],
            "--env-config.options num_levels: must be pairs of a name and a value, such as num_levels 200",
        ),
        (
            ["plan", "--network.hidden-sizes", "64", "0"],
            "network.hidden-sizes = 64 0: must be from 1 to 16,384",
        ),
        (
            ["plan", "--objective.value-coefficient", "-1"],
            "objective.value-coefficient = -1.0: must not be negative",
        ),
        (
            ["plan", "--record.checkpoint-every-seconds", "-1"],
            "record.checkpoint-every-seconds = -1.0: must not be negative",
        ),
        (
            ["plan", "--record.checkpoint-every-iterations", "-1"],
            "record.checkpoint-every-iterations = -1: must not be negative",
        ),
        (["pull"], "name the repository: anybatch pull USER/NAME"),
        (["study", "--plan"], "name a study; `anybatch study` lists them"),
        (["study", "xyz"], "there is no study 'xyz'; `anybatch study` lists them"),
        (
            ["study", "invariance", "--plan", "--preset", "atari-ppo"],
            "--preset atari-ppo needs --env: it is the base for the environments named there",
        ),
        (
            ["study", "invariance", "--plan", "--env", "Acrobot-v1", "Acrobot-v1"],
            "--env Acrobot-v1 Acrobot-v1: must not repeat an environment",
        ),
        (["study", "invariance", "--plan", "--budget", "0m"], "--budget 0m: must be longer than 0"),
        (
            ["plan", "--from=sb3", "no.json", "--num-envs=1"],
            "no.json cannot be read: No such file or directory",
        ),
        (
            ["plan", "--normalize.observations", "Step"],
            "--normalize.observations Step: must be one of none, step, iteration",
        ),
        (["tarin"], "there is no such command; did you mean anybatch train?"),
        (["--foo"], "there is no such command; `anybatch --help` lists the commands"),
    ],
)
def test_what_was_mistyped_is_said_with_a_way_on(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(words)
    assert refusal.value.code == 2
    assert capsys.readouterr().err == f"anybatch {words[0]}: {sentence}\n"


@pytest.mark.parametrize(
    ("words", "unknown", "meant"),
    [
        ("train --lr 1e-3", "--lr", "--optimizer.learning-rate"),
        ("train --n_steps=4", "--n_steps", "--num-steps"),
        ("train --epochs 4", "--epochs", "--update.epochs"),
        (
            "train --learning-rate 1 --gamma 1",
            "--learning-rate or --gamma",
            "--optimizer.learning-rate, --objective.discount",
        ),
        (
            "plan --batch-size 64",
            "--batch-size",
            "--num-envs, --num-steps, --update.minibatches-per-epoch",
        ),
        ("plan --preset cartpole-ppo --gae-lambda=1", "--gae-lambda", "--objective.gae-lambda"),
        ("plan --preset cartpole-pqn --gae-lambda=1", "--gae-lambda", "--objective.q-lambda"),
        ("tune --total-timesteps 1000", "--total-timesteps", "--env-steps"),
    ],
)
def test_a_flag_of_another_library_is_answered_with_ours(
    words: str, unknown: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(words.split())
    assert refusal.value.code == 2
    command = words.split()[0]
    said = f"anybatch {command}: there is no flag {unknown}; did you mean {meant}?\n"
    assert capsys.readouterr().err == said


def test_names_of_other_libraries_stand_for_flags_that_exist():
    known = flag_table(TuneFlags()).keys() | flag_table(ExportFlags()).keys()
    for config in CONFIGS.values():
        known |= flag_table(TrainFlags(config=config())).keys()
    assert set(NAMES_ELSEWHERE) <= known


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "--num-envs", "4\n\x1b[2J"], r"--num-envs 4\n\x1b[2J: must be a whole number"),
        (["plan", "--preset", "x\r.toml"], r"no preset file x\r.toml"),
        (["plan", "--num-envs", "a" * 5000], f"--num-envs {'a' * 60}…: must be a whole number"),
        (["pl\nan"], r"anybatch pl\nan: there is no such command"),
    ],
)
def test_whatever_a_refusal_quotes_it_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main(words)
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and err[:-1].isprintable()


@pytest.mark.parametrize(
    ("encoding", "root"), [("latin-1", "× ?(1/4)"), ("ascii", "? ?(1/4)"), ("utf-8", "× √(1/4)")]
)
def test_what_an_encoding_lacks_is_replaced(encoding: str, root: str):
    for words in (["presets"], ["plan", "--num-envs=2"]):
        shown = subprocess.run(
            [sys.executable, "-m", "anybatch", *words],
            env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
            capture_output=True,
            check=True,
        )
    assert root in shown.stdout.decode(encoding)


def test_what_the_c_locale_lacks_is_replaced():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "anybatch", "plan", "--num-envs=2"]
    shown = subprocess.run(command, env=os.environ | plain, capture_output=True, check=True)
    assert "? ?(1/4)" in shown.stdout.decode("ascii")


def test_help_is_readable_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "5")
    for words in (["train", "--help"], ["plan", "--help-all"], ["presets"]):
        assert max(map(len, said(capsys, *words).splitlines())) > 20


def test_a_plan_that_nobody_reads_does_not_end_the_training(tmp_path: Path):
    flags = ["--env=toy:Match", f"--run-dir={tmp_path}", *SHORT]
    with subprocess.Popen([sys.executable, "-m", "anybatch", "train", *flags], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.wait() == 0
    assert RunRecord(tmp_path).result is not None


@pytest.mark.parametrize("none", ["none", "None", "NONE"])
def test_none_is_accepted_as_the_help_shows_it(none: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--optimizer.max-grad-norm", none, "--actors", none]
    said(capsys, "train", "--env=toy:Match", f"--run-dir={tmp_path}", *flags, *SHORT)
    config = RunRecord(tmp_path).config
    assert config.optimizer.max_grad_norm is None and config.actors is None


def test_of_a_flag_given_twice_the_last_counts(capsys: pytest.CaptureFixture[str]):
    twice = said(capsys, "plan", "--preset", "cartpole-ppo", "--preset=cartpole-pqn")
    assert twice == said(capsys, "plan", "--preset", "cartpole-pqn")


@pytest.mark.parametrize(
    ("flag", "rule"),
    [
        ("--num-envs", "a whole number"),
        ("--env-config.max-episode-steps", "a whole number or none"),
        ("--network.hidden-sizes", "whole numbers"),
        ("--minibatch", "a whole number or one of auto, scaled, keep, noise-scale"),
        ("--optimizer.learning-rate", "a number"),
        ("--objective.clip", "a number or none"),
    ],
)
def test_a_word_for_a_number_is_refused_in_plain_words(
    flag: str, rule: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(["plan", flag, "many"])
    assert refusal.value.code == 2
    assert capsys.readouterr().err == f"anybatch plan: {flag} many: must be {rule}\n"


def test_plan_as_json(capsys: pytest.CaptureFixture[str]):
    plan = json.loads(
        said(capsys, "plan", "--preset=mujoco-ppo", "--num-envs=4", "--minibatch=scaled", "--json")
    )
    assert plan["batch"]["iteration_batch"] == 4 * 2048
    assert plan["ratios"] == {"minibatch": 4, "env_steps_per_gradient_step": 4, "iteration_batch": 4}
    assert plan["hyperparameters"]["learning_rate"] == pytest.approx(6e-4)
    assert any("one policy epoch" in sentence for sentence in plan["warnings"])


def test_the_recorded_plan_is_the_one_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--preset=vector-ppo-ewma", "--env=toy:Match", "--num-envs=3", *SHORT]
    plan = json.loads(said(capsys, "plan", *flags, "--json"))
    said(capsys, "train", *flags, f"--run-dir={tmp_path}")
    assert json.loads((run_in(tmp_path) / "plan.json").read_text()) == plan


def test_presets_lists_every_preset(capsys: pytest.CaptureFixture[str]):
    first_words = {line.split()[0] for line in said(capsys, "presets").splitlines() if line}
    assert set(presets.names()) <= first_words


def test_a_preset_is_printed_with_its_source(capsys: pytest.CaptureFixture[str]):
    assert "CleanRL, ppo_continuous_action.py" in said(capsys, "presets", "mujoco-ppo")


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [("mujoco-ppo", ["HalfCheetah-v4", "2,048", "1,000,000"]), ("atari-ppo", ["Breakout-v5", "10,000,000"])],
)
def test_help_shows_the_numbers_of_the_preset_named(
    preset: str, numbers: list[str], capsys: pytest.CaptureFixture[str]
):
    for words in (["--preset", preset, "--help"], ["--help", f"--preset={preset}"]):
        main(["train", *words])
        out = capsys.readouterr().out
        assert all(number in out for number in [preset, *numbers])
        assert "Environments stepped together" in out


def test_help_all_says_what_every_flag_means(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    main(["train", "--preset=mujoco-ppo", "--help-all"])
    out = capsys.readouterr().out
    assert "--optimizer.learning-rate" in out and "0.0003" in out and "--evaluation.greedy" in out


@pytest.mark.parametrize(("name", "kind"), FLAGS.items())
def test_help_has_one_layout(name: str, kind: type[Flags], capsys: pytest.CaptureFixture[str]):
    """Usage, description, flags with defaults, example; nothing but the command is needed."""
    out = help_of(capsys, name)
    assert out.startswith(f"usage: anybatch {name} ")
    assert (kind.__doc__ or "").split()[:4] == out.split("\n\n")[1].split()[:4]
    assert out.endswith(f"\nExample:\n  {kind.example}\n")
    everything = help_of(capsys, name, "--help-all")
    for flag in flag_table(kind()).values():
        shown = flag.name.upper() if flag.name in kind.positional else f"--{flag.name}"
        assert f"  {shown} " in everything.replace("\n", " \n")
    assert issubclass(kind, SettingsFlags) or out == everything


@pytest.mark.parametrize(("name", "kind"), FLAGS.items())
def test_the_example_of_a_command_is_one(name: str, kind: type[Flags]):
    assert f"{kind.example} ".startswith(f"anybatch {name} ")
    parse(kind(), Argv(kind.example.split()[2:]))
    known = set[str]().union(*(flag_table(TrainFlags(config=config())) for config in CONFIGS.values()))
    assert set(kind.common) <= known | flag_table(kind()).keys()


def test_the_help_of_train_begins_with_what_people_change_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, "train").splitlines()
    first = [line.split()[0] for line in lines if line.startswith("  --")]
    assert first[:5] == ["--env", "--preset", "--num-envs", "--total-env-steps", "--seed"]
    assert first[5:9] == ["--rescale", "--optimizer.learning-rate", "--objective.clip", "--update.epochs"]
    assert "--ray-address" not in first and len(lines) <= 70


def test_the_help_of_a_command_on_a_run_shows_its_settings_if_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert "--num-envs [as recorded]" in settings_in(help_of(capsys, "resume"))
    main(["train", "--env=toy:Match", "--num-envs=3", f"--run-dir={tmp_path}", *SHORT])
    capsys.readouterr()
    assert "--num-envs [3]" in settings_in(help_of(capsys, f"resume {tmp_path}"))


def settings_in(page: str) -> str:
    """The flags of a help page with their values, without the meanings."""
    return re.sub(r"(--[\w.-]+)\s[^\[]*", r"\1 ", page)


def help_of(capsys: pytest.CaptureFixture[str], name: str, flag: str = "--help") -> str:
    main([*name.split(), flag])
    return capsys.readouterr().out


def test_the_program_alone_says_what_it_can_do(capsys: pytest.CaptureFixture[str]):
    for words, code in (([], 2), (["--help"], 0)):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == code
        assert "anybatch COMMAND" in capsys.readouterr().out
    assert said(capsys, "--version").strip() == __version__


def test_a_preset_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.toml"
    file.write_text('env = "toy:Match"\nnum_envs = 5\nnum_steps = 11\n[optimizer]\nlearning_rate = 0.25\n')
    runs = tmp_path / "runs"
    said(capsys, "train", f"--preset={file}", "--total-env-steps=60", f"--run-dir={runs}")
    assert run_in(runs).name.startswith("toy-Match__mine__s1__")
    assert log.read(run_in(runs))[0]["charts/learning_rate"] == 0.25


def test_doctor_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("anybatch.cli.doctor.SECONDS_PER_MEASUREMENT", 0.01)
    monkeypatch.setattr("anybatch.cli.doctor.MICROBATCHES", (3, 5))
    monkeypatch.setattr("anybatch.cli.doctor.PROBES", ("CartPole-v1", "gym:CartPole-v1", "CartPol-v1"))
    checks = {check["name"]: check for check in json.loads(said(capsys, "doctor", "--json"))}
    assert all(checks[name]["works"] for name in ("machine", "torch", "gymnasium", "CartPole-v1"))
    assert "env steps/s" in checks["gym:CartPole-v1"]["finding"]
    assert checks["native code"]["finding"].startswith("a small network uses native code: ")
    assert not checks["CartPol-v1"]["works"] and "CartPole-v1" in checks["CartPol-v1"]["finding"]
    assert "--microbatch" in checks["nature microbatch"]["finding"]


def test_doctor_lists_the_packages_of_every_extra():
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras.pop("dev")
    for extra, wanted in extras.items():
        packages = {re.split(r"[\[<>=]", package)[0] for package in wanted} - {"anybatch", "gymnasium"}
        assert packages <= doctor.EXTRAS.keys(), f"anybatch doctor does not look for all of {extra}"
        assert f"`{extra}`" in (root / "docs" / "install.md").read_text()
    assert set(doctor.EXTRAS.values()) == extras.keys()


def test_doctor_says_each_finding_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    said_before: list[str] = []

    def slow(env_id: str) -> doctor.Check:
        said_before.append(capsys.readouterr().out)
        return doctor.Check(env_id, True, "measured")

    monkeypatch.setattr(doctor, "engine", slow)
    monkeypatch.setattr(doctor, "microbatches", slow)
    main(["doctor"])
    first, second, *_, last = said_before
    assert "torch" in first and "CartPole-v1" in second and "nature" in last


def test_a_run_is_named_after_what_differs_or_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["train", "--env=toy:Match", "--preset=cartpole-ppo-ewma", f"--run-dir={tmp_path}", *SHORT]
    out = said(capsys, *words, "--num-envs=5", "--device=auto")
    assert "mean return over the last " in out and "device auto: cpu, since torch finds no GPU" in out
    (first,) = tmp_path.iterdir()
    assert first.name.startswith("toy-Match__cartpole-ppo-ewma__n5-t16__s1__")
    assert json.loads((first / "facts.json").read_text())["device"] == "cpu"
    for _ in range(2):
        out = said(capsys, *words, "--name=mine")
        assert "--name" not in out  # the runs proposed are others
    assert {path.name for path in tmp_path.iterdir()} == {first.name, "mine", "mine-2"}
    with pytest.raises(SystemExit) as ended:
        main([*words, "--name=../mine"])
    assert ended.value.code == 2 and "letters, digits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_stop_signal_ends_a_run_with_a_checkpoint_and_its_code(
    number: signal.Signals, code: int, commands: Commands, tmp_path: Path
):
    flags = ["--env=toy:Match", "--num-envs=3", "--num-steps=16", "--total-env-steps=1000000000"]
    flags += ["--record.log-every=1"]  # so that the last iteration has a row
    with commands.start(["train", *flags, f"--run-dir={tmp_path}"]) as command:
        deadline = time.monotonic() + 120
        while not any(path.stat().st_size for path in tmp_path.glob("*/metrics.jsonl")):
            assert command.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        command.send_signal(number)
        assert command.wait(120) == code
    out, err = command.said()
    assert err == ""
    folder = run_in(tmp_path)
    state = newest_learner(folder)
    saved = f"(saved at {state['env_steps']:,} env steps)."
    assert "Stopping after this iteration" in out
    assert out.endswith(f"Stopped. Continue with: anybatch resume {folder} {saved}\n")
    assert state["iterations"] >= 1 and log.read(folder)[-1]["env_steps"] == state["env_steps"]
    assert not json.loads((folder / "result.json").read_text())["finished"]


def test_a_run_whose_terminal_is_closed_saves_and_ends(tmp_path: Path):
    master, terminal = os.openpty()
    train = "import os, sys; os.setsid(); os.close(os.open(os.ttyname(1), os.O_RDWR)); "  # its terminal
    command = [sys.executable, "-c", train + "from anybatch.cli import main; main()", "train"]
    flags = ["--env=toy:Match", "--num-envs=3", "--total-env-steps=1000000000", f"--run-dir={tmp_path}"]
    flags += ["--record.log-every=1"]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen([*command, *flags], **streams, env=os.environ | {"TERM": "xterm"}) as process:
        try:
            os.close(terminal)
            reader = threading.Thread(target=drain, args=[master, tmp_path])
            reader.start()
            reader.join(120)
            os.close(master)
            assert process.wait(60) == 129
        finally:
            process.kill()
    folder = run_in(tmp_path)
    assert newest_learner(folder)["env_steps"] == log.read(folder)[-1]["env_steps"] > 0
    assert json.loads((folder / "result.json").read_text())["finished"] is False


def drain(terminal: int, runs: Path) -> None:
    """Read what a terminal shows until a run has some metrics."""
    while os.read(terminal, 10_000) and not any(path.stat().st_size for path in runs.glob("*/metrics.jsonl")):
        pass


def test_files_that_are_not_what_they_should_be_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    main(["train", "--env=toy:Match", "--num-envs=3", f"--run-dir={tmp_path}", *SHORT])
    metrics = run_in(tmp_path) / log.METRICS_FILE
    metrics.unlink()
    assert "has no metrics yet" in said(capsys, "advise", str(tmp_path))
    metrics.mkdir()
    with pytest.raises(SystemExit) as refusal:
        main(["advise", str(tmp_path)])
    assert refusal.value.code == 2
    assert capsys.readouterr().err == f"anybatch advise: {metrics} cannot be read: it is not a regular file\n"


def test_check_env(capsys: pytest.CaptureFixture[str]):
    assert said(capsys, "check-env", "CartPole-v1").strip() == "nothing stands out"
    found = said(capsys, "check-env", "Pendulum-v1").splitlines()
    assert found == anybatch.check_env("Pendulum-v1") and len(found) == 1
    assert "nothing" in said(capsys, "check-env", "Pendulum-v1", "--env-config.actions=scaled")
    with pytest.raises(SystemExit) as end:
        main(["check-env", "Pendulm-v1"])
    assert end.value.code == 2 and "Pendulum-v1" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "cuda:9", "tpu", "meta"])
def test_a_device_that_does_not_exist_is_one_sentence(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as end:
        main(["train", "--env=toy:Match", f"--device={device}", *SHORT, f"--run-dir={tmp_path}"])
    said = capsys.readouterr().err
    assert end.value.code == 2 and f"device = {device} " in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())
