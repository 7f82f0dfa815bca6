"""PPG: the rule for phases, what an auxiliary phase sees, resumes in the middle, and what is refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import phase_config, rows, train_and_stop, with_changes
from toy_runs import differences, newest_learner, newest_state, resume, train

from anybatch import networks, planning, presets
from anybatch.acting.rollout import Rollout
from anybatch.algorithms import ppg
from anybatch.algorithms.state import make_env
from anybatch.backends import Minibatch
from anybatch.backends import minibatches as minibatch
from anybatch.cli import main
from anybatch.config import NetworkConfig, PPGConfig
from anybatch.config.serialization import config_to_dict
from anybatch.dial import PhasePlan, make_plan, plan_table
from anybatch.envs.layout import ObsLayout
from anybatch.errors import ConfigError

STEPS, ENVS, ITERATIONS = 7, 3, 3
# Everything that must survive a resume.
BUSY: dict[str, Any] = {
    "env_config": {"max_episode_steps": 5},
    "normalize": {"rewards": "iteration"},
    "objective": {"advantage_decay": 0.5},
    "optimizer": {"learning_rate": 1e-2},
    "update": {"noise_scale_every": 3},
    "total_env_steps": 170,
}


class Killed(BaseException):
    """Ends a run where it is, like a kill: nothing catches it, nothing is saved."""


def kill(*_: Any) -> None:
    raise Killed


@pytest.mark.parametrize(
    ("c", "iterations", "auxiliary_minibatch", "auxiliary_rate"),
    [
        (1, 32, 4096, 5e-4),
        (4, 128, 1024, 2.5e-4),
        (16, 512, 1024, 2.5e-4),
        (64, 2048, 1024, 2.5e-4),
        (256, 8192, 1024, 2.5e-4),
    ],
)
def test_the_auxiliary_phase_follows_the_iteration_batch_down_to_a_quarter(
    c: int, iterations: int, auxiliary_minibatch: int, auxiliary_rate: float
):
    tuned = presets.load("procgen-ppg-ewma").config
    numbers = make_plan(with_changes(tuned, num_envs=256 // c), encoder="impala").phase
    assert numbers is not None
    assert numbers.policy_iterations == iterations
    assert numbers.auxiliary_minibatch == auxiliary_minibatch
    assert numbers.auxiliary_learning_rate == pytest.approx(auxiliary_rate, rel=1e-12)


def test_a_larger_batch_has_shorter_phases_and_larger_auxiliary_minibatches():
    config = with_changes(presets.load("procgen-ppg").config, num_envs=1024, minibatch="scaled")
    assert make_plan(config, encoder="impala").phase == PhasePlan(
        policy_iterations=8,
        env_steps=8 * 1024 * 256,
        auxiliary_epochs=6,
        auxiliary_minibatch=16384,
        auxiliary_minibatches=8 * 1024 * 256 // 16384,
        auxiliary_learning_rate=1e-3,
        obs_bytes=None,
    )


def test_no_auxiliary_step_is_without_a_sample_on_every_rank():
    phase = {"policy_iterations": 3, "auxiliary_minibatch": 1}
    config = phase_config(envs_per_rank=2, num_steps=4, phase=phase, rescale="none").on_ranks(4)
    numbers = make_plan(config, encoder="mlp").phase
    assert numbers is not None and numbers.env_steps == numbers.policy_iterations * 2 * 4 * 4
    assert numbers.auxiliary_minibatches == numbers.env_steps
    valid = torch.ones(numbers.policy_iterations, 4, config.num_envs, dtype=torch.bool)
    parts = minibatch.sequence_epoch(valid, numbers.auxiliary_minibatches, torch.Generator())
    assert [len(part) for part in parts] == [1] * numbers.env_steps


def test_ranks_whose_number_changes_the_batch_within_a_phase_start_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With envs_per_rank the batch is that of the ranks: four envs on two of them, continued by one."""
    config = phase_config(num_envs=4, total_env_steps=90)
    folder = train(config, tmp_path).folder
    assert newest_state(folder)["local"]["phase_iterations"]  # it ended within a phase
    assert resume(folder, with_changes(config, envs_per_rank=2, total_env_steps=200)).finished
    said = capsys.readouterr().out
    assert "The phase in progress does not fit the batch of this run: a new phase is started." in said
    steps = [row["env_steps"] for row in rows(folder)]
    assert steps == sorted(set(steps)) and steps[-1] >= 200


@pytest.mark.parametrize(
    ("rescale", "expected"),
    [
        ("none", (32, 4096, 5e-4)),
        ("phase-length", (512, 4096, 5e-4)),
        ("auxiliary-phase", (32, 1024, 2.5e-4)),
    ],
)
def test_each_rule_of_a_phase_can_be_left_out(rescale: str, expected: tuple[int, int, float]):
    config = with_changes(presets.load("procgen-ppg").config, num_envs=16, rescale=rescale)
    numbers = make_plan(config, encoder="impala").phase
    assert numbers is not None
    assert (numbers.policy_iterations, numbers.auxiliary_minibatch) == expected[:2]
    assert numbers.auxiliary_learning_rate == pytest.approx(expected[2])


def warnings_at(num_envs: int) -> tuple[str, ...]:
    config = with_changes(presets.load("procgen-ppg").config, num_envs=num_envs)
    return plan_table(config, make_plan(config, encoder="impala")).warnings


def test_a_phase_that_cannot_be_kept_is_told():
    assert "A phase would be 0.5 iterations; 1 is the nearest possible." in warnings_at(64 * 256)
    assert "A phase would be 81.92 iterations; 82 is the nearest possible." in warnings_at(100)
    for envs in (3, 12, 32, 256, 512):
        exact = 32 * 256 / envs
        assert (
            bool([sentence for sentence in warnings_at(envs) if "A phase" in sentence]) != exact.is_integer()
        )


def words_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(words)
    return " ".join(capsys.readouterr().out.split())


def test_plan_shows_the_numbers_of_the_paper_at_a_sixteenth_of_the_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    said = words_of(capsys, "plan", "--preset", "procgen-ppg-ewma", "--num-envs", "16")
    for row in (
        "learning rate 0.0005 0.000125 × √(1/16) (minibatch)",
        "proximal EWMA decay 0.888889 0.992248 center of mass, gradient steps 8 128 × 16",
        "EWMA decay 0 0.882353 effective window, iterations 1 16 × 16 (iteration batch), at least 1",
        "iterations per phase 32 512 × 16 (iteration batch)",
        "auxiliary minibatch 4,096 1,024 × 1/16 (iteration batch), at least a quarter",
        "auxiliary learning rate 0.0005 0.00025 × √(1/4) (auxiliary minibatch)",
    ):
        assert row in said
    assert math.isclose(128 / 129, 0.992248, abs_tol=5e-7) and math.isclose(15 / 17, 0.882353, abs_tol=5e-7)


@pytest.mark.parametrize(
    ("envs", "product", "steps"),
    [(256, "32 iterations × 65,536", "512"), (16, "512 iterations × 4,096", "2,048")],
)
def test_plan_states_the_phase_its_memory_and_its_disk_and_that_they_do_not_follow_the_batch(
    envs: int, product: str, steps: str, capsys: pytest.CaptureFixture[str]
):
    said = words_of(capsys, "plan", "--preset=procgen-ppg-ewma", f"--num-envs={envs}")
    assert f"{product} = 2,097,152 env steps, then 6 auxiliary epochs of {steps} gradient steps" in said
    assert "2,097,152 × 12,288 bytes = 25.8 GB of observations; the same at any batch, since the rule" in said
    assert "25.8 GB in checkpoints, up to 51.5 GB" in said
    said = words_of(
        capsys, "plan", "--preset=procgen-ppg", f"--num-envs={envs}", "--rescale=none", "--phase.no-save-data"
    )
    assert "the same at any batch" not in said
    assert "none: checkpoints are saved only between phases" in said


def test_plan_says_of_a_phase_that_was_rounded_how_large_it_is_and_not_that_it_is_so_at_any_batch(
    capsys: pytest.CaptureFixture[str],
):
    said = words_of(capsys, "plan", "--preset=procgen-ppg", "--num-envs=16384")
    assert "= 51.5 GB of observations phase disk" in said
    assert "A phase would be 0.5 iterations; 1 is the nearest possible." in said


def test_an_auxiliary_minibatch_has_no_more_samples_than_a_phase():
    phase = planning.plan(phase_config(phase={"auxiliary_minibatch": 1000})).phase
    assert phase is not None
    assert phase.auxiliary_minibatch == phase.env_steps == ITERATIONS * STEPS * ENVS
    assert phase.auxiliary_learning_rate == pytest.approx(5e-4 * math.sqrt(phase.env_steps / 1000))
    assert phase.auxiliary_minibatches == 1


def test_plan_knows_the_observations_of_procgen_without_its_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("anybatch.envs.make", kill)
    phase = planning.plan(presets.load("procgen-ppg").config).phase
    assert phase is not None and phase.memory_bytes == 32 * 65_536 * 12_288


def test_plan_asks_an_env_for_its_observations_and_does_without_where_there_is_none():
    plan = planning.plan(phase_config())  # vectors of 5 numbers
    assert plan.phase is not None and plan.phase.memory_bytes == ITERATIONS * STEPS * ENVS * 5 * 4
    assert plan.to_json()["phase"]["memory_bytes"] == plan.phase.memory_bytes  # type: ignore[index]
    config = phase_config(env="toy:Nothing")
    unknown = planning.plan(config)
    assert unknown.phase is not None and unknown.phase.memory_bytes is None
    (line,) = config.plan_lines(unknown)
    assert "63 env steps" in line


PAPER_ALL = {
    "num_envs": 256,
    "num_steps": 256,
    "total_env_steps": 100_000_000,
    "optimizer.learning_rate": 5e-4,
    "update.minibatches_per_epoch": 8,
    "update.minibatch_of": "sequences",
    "update.target_kl": None,
    "network.impala_channels": [16, 32, 32],
    "network.impala_features": 256,
    "network.encoder": "impala",
    "objective.discount": 0.999,
    "objective.gae_lambda": 0.95,
    "objective.entropy_coefficient": 0.01,
    "objective.value_coefficient": 0.5,
    "objective.value_clip": None,
    "objective.max_importance": 100.0,
    "objective.advantage_normalization": "iteration",
    "objective.advantage_decay": 0.0,
    "optimizer.name": "adam",
    "optimizer.eps": 1e-8,
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.999,
    "optimizer.max_grad_norm": None,
    "optimizer.anneal": "none",
    "normalize.observations": "none",
    "normalize.rewards": "iteration",
    "normalize.reward_discount": 0.99,
    "normalize.reward_clip": 10.0,
    "env_config.time_limit": "terminal",
    "env_config.options": {},
}
PAPER_PPO = PAPER_ALL | {
    "update.epochs": 3,
    "network.heads": "shared",
    "objective.clip": 0.2,
    "objective.kl_penalty": 0.0,
}
PAPER_PPG = PAPER_ALL | {
    "update.epochs": 1,
    "network.heads": "dual",
    "objective.clip": None,
    "objective.kl_penalty": 1.0,
    "objective.kl": "sampled",
    "phase.policy_iterations": 32,
    "phase.value_epochs": 1,
    "phase.auxiliary_epochs": 6,
    "phase.auxiliary_minibatch": 4096,
    "phase.auxiliary_learning_rate": 5e-4,
    "phase.clone_coefficient": 1.0,
}
EWMA = {"proximal.policy": "ewma", "proximal.ewma_decay": pytest.approx(8 / 9, rel=1e-15)}
NO_EWMA = {"proximal.policy": "behavior"}
PAPER = {
    "procgen-ppo": PAPER_PPO | NO_EWMA,
    "procgen-ppo-ewma": PAPER_PPO | EWMA,
    "procgen-ppg": PAPER_PPG | NO_EWMA,
    "procgen-ppg-ewma": PAPER_PPG | EWMA,
}


def setting(config: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        config = config[name]
    return config


@pytest.mark.parametrize("name", PAPER)
def test_the_numbers_are_those_of_the_paper(name: str):
    preset = presets.load(name)
    settings = config_to_dict(preset.config)
    assert {path: setting(settings, path) for path in PAPER[name]} == PAPER[name]
    assert preset.config.env == "procgen:coinrun" and "arXiv:2110.00641" in preset.source


EASY = {"num_envs": 64, "num_steps": 256, "total_env_steps": 25_000_000}


@pytest.mark.parametrize("name", PAPER)
def test_easy_siblings_differ_in_mode_batch_and_length_only(name: str):
    hard = config_to_dict(presets.load(name).config)
    easy = config_to_dict(presets.load(name.replace("procgen-", "procgen-easy-")).config)
    assert easy["env"] == "procgen-easy:coinrun"
    assert {key: easy[key] for key in EASY} == EASY
    different = {key for key in hard if hard[key] != easy[key]}
    assert different == {"env", "tuned_at", "num_envs", "total_env_steps"} | (
        {"phase"} if "ppg" in name else set()
    )
    if "phase" in different:
        assert easy["phase"] | {"auxiliary_minibatch": 4096} == hard["phase"]


@pytest.mark.parametrize("name", PAPER)
def test_small_siblings_have_several_phases_and_a_small_network(name: str):
    config = presets.load(name.replace("procgen-", "procgen-small-")).config
    assert config.env == "procgen-easy:starpilot"
    assert config.network.impala_fold == 2 and config.update.epochs == 1
    if isinstance(config, PPGConfig):
        env_steps = config.phase.policy_iterations * config.num_envs * config.num_steps
        assert env_steps == 65_536 and config.total_env_steps >= 5 * env_steps


def test_none_in_a_preset_is_no_clip_but_stays_a_choice_where_it_is_one():
    text = '[objective]\nclip = "none"\n[normalize]\nrewards = "none"\n[optimizer]\nmax_grad_norm = "none"'
    config = presets.parse("mine", text).config
    assert config.objective.clip is None and config.optimizer.max_grad_norm is None
    assert config.normalize.rewards == "none"
    with pytest.raises(ConfigError, match="learning_rate = 'none'"):
        presets.parse("mine", '[optimizer]\nlearning_rate = "none"')


@pytest.mark.parametrize(
    ("heads", "count"), [("dual", 1_248_657), ("shared", 626_513), ("detached", 626_513)]
)
def test_the_network_has_the_parameters_and_the_row_norms_of_the_paper(heads: Any, count: int):
    network = networks.make(
        NetworkConfig(encoder="impala", heads=heads),
        layout=ObsLayout.single((3, 64, 64), "image"),
        num_actions=15,
        continuous=False,
        generator_seed=1,
        auxiliary=True,
    )
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    scales = {"convolution": 1.0, "first": 0.638943, "second": 0.638943, "dense": 1.4}
    scales |= {"head": 0.1, "value_head": 0.1, "auxiliary_head": 0.1}
    seen: set[str] = set()
    for name, parameter in network.named_parameters():
        *_, layer, kind = name.split(".")
        seen.add(layer)
        if kind == "bias":
            assert not parameter.any()
        else:
            norms = parameter.detach().flatten(1).norm(dim=1)
            assert torch.allclose(norms, torch.full_like(norms, scales[layer]), atol=1e-6), name
    assert seen == set(scales)


def sequences_in(part: torch.Tensor) -> set[tuple[int, int]]:
    """(segment, env) of flat indices into [S, T, N]."""
    return {(int(i) // (STEPS * ENVS), int(i) % ENVS) for i in part}


def test_auxiliary_minibatches_mix_segments_and_hold_every_valid_sample_once():
    generator = torch.Generator().manual_seed(3)
    valid = torch.rand(5, STEPS, ENVS, generator=generator) > 0.2
    parts = minibatch.sequence_epoch(valid, 4, generator)
    together = torch.cat(parts)
    assert sorted(together.tolist()) == valid.flatten().nonzero().squeeze(1).tolist()
    sequences = [sequences_in(part) for part in parts]
    assert [len(part) for part in sequences] == [4, 4, 4, 3]  # of 15
    assert all(not one & other for i, one in enumerate(sequences) for other in sequences[:i])
    assert all(len({segment for segment, _ in part}) > 1 for part in sequences)


@pytest.mark.parametrize(("envs", "chunk"), [(64, 256), (4, 128), (1, 32)])
def test_minibatches_are_whole_sequences_or_consecutive_chunks(envs: int, chunk: int):
    valid = torch.ones(256, envs, dtype=torch.bool)
    parts = minibatch.epoch(valid, 8, "sequences", torch.Generator().manual_seed(3))
    assert len(parts) == 8
    starts: list[tuple[int, int]] = []
    for part in parts:
        by_env: dict[int, list[int]] = {}
        for i in part.tolist():
            by_env.setdefault(i % envs, []).append(i // envs)
        assert len(by_env) == max(envs // 8, 1)
        for env, times in by_env.items():
            assert times == list(range(times[0], times[0] + chunk))
            starts.append((env, times[0]))
    for env in range(envs):  # in time order within an env
        assert [start for owner, start in starts if owner == env] == list(range(0, 256, chunk))


def test_an_epoch_of_an_auxiliary_phase_sees_the_whole_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = phase_config(total_env_steps=100, env_config={"max_episode_steps": 5})
    seen: list[tuple[int, int, torch.Tensor]] = []
    step = ppg.auxiliary_step

    def remember(batch: Minibatch, state: ppg.PPGState) -> None:
        assert state.progress is not None and batch.count == len(batch.local)
        seen.append((state.phases, state.progress.epoch, batch.local))
        valid = state.data.valid.flatten().nonzero().squeeze(1).tolist()
        step(batch, state)
        expected[state.phases] = valid

    expected: dict[int, list[int]] = {}
    monkeypatch.setattr(ppg, "auxiliary_step", remember)
    train(config, tmp_path)
    assert expected
    orders = set()
    for number, valid in expected.items():
        assert len(valid) < ITERATIONS * STEPS * ENVS  # there were reset steps
        for epoch in range(2):
            parts = [indices for at, in_epoch, indices in seen if (at, in_epoch) == (number, epoch)]
            assert len(parts) == 4  # 63 samples, 16 each
            assert sorted(torch.cat(parts).tolist()) == valid
            orders.add(tuple(torch.cat(parts).tolist()))
    assert len(orders) == 2 * len(expected)


def test_every_epoch_of_every_phase_has_an_order_of_its_own():
    config = phase_config()
    state = ppg.start(config, make_env(config, env_steps=0))
    state.data.valid.fill_(True)
    orders = set()
    for state.phases in range(3):
        for epoch in range(2):
            state.progress = ppg.AuxiliaryProgress(torch.empty(0), None, epoch=epoch)
            parts = ppg.auxiliary_minibatches(state, config)
            orders.add(tuple(torch.cat([part.local for part in parts]).tolist()))
    assert len(orders) == 6


def test_after_an_auxiliary_phase_the_proximal_policy_is_the_current_one(tmp_path: Path):
    config = phase_config(objective={"clip": 0.2}, update={"minibatches_per_epoch": 1}, total_env_steps=170)
    config = with_changes(config, optimizer={"learning_rate": 3e-2})
    folder = train(config, tmp_path).folder
    table = rows(folder)
    # One gradient step an iteration, so that an iteration's metrics are its first minibatch's.
    for number, row in enumerate(table):
        if number % ITERATIONS == 0:
            assert row["proximal/kl"] == 0 and row["losses/clipfrac"] == 0
        else:
            assert row["proximal/kl"] > 0
    assert table[ITERATIONS]["auxiliary/clone_kl"] > 0 and len(table) > 2 * ITERATIONS


def test_the_auxiliary_phase_has_an_adam_of_its_own_that_lives_on(tmp_path: Path):
    config = phase_config(optimizer={"name": "sgd"}, total_env_steps=170)
    shared = newest_state(train(config, tmp_path).folder)["shared"]
    learner, phase = shared["learner"], shared["phase"]
    assert phase["phases"] >= 2
    assert phase["auxiliary_steps"]["optimizer"]["step"] == phase["phases"] * 2 * 4  # epochs, minibatches
    assert learner["steps"]["optimizer"] == {} and learner["steps"]["taken"] == 2 * learner["iterations"]


@pytest.mark.parametrize("limit", [1e-3, None])
def test_the_gradients_of_the_auxiliary_phase_are_clipped_like_the_others(
    limit: float | None, tmp_path: Path
):
    config = phase_config(
        optimizer={"max_grad_norm": limit},
        phase={"policy_iterations": 1, "auxiliary_epochs": 1, "auxiliary_minibatch": 21},
        total_env_steps=30,
    )
    phase = newest_state(train(config, tmp_path).folder)["shared"]["phase"]
    optimizer = phase["auxiliary_steps"]["optimizer"]
    assert optimizer["step"] == 1
    mean_gradient = float(optimizer["exp_avg"].norm())  # after one step, 1 - β₁ of its gradient
    if limit is None:
        assert mean_gradient > 0.1 * 1e-1
    else:
        assert mean_gradient == pytest.approx(0.1 * limit, rel=1e-2)


def test_the_betas_of_the_auxiliary_adam_do_not_follow_the_policy_minibatch():
    config = with_changes(phase_config(), num_envs=1, rescale="adam-betas")
    state = ppg.start(config, make_env(config, env_steps=0))
    state.backend.begin_iteration(1e-3, state.plan)
    assert state.plan.hyperparameters.beta1 == pytest.approx(0.9 ** (1 / 3))
    assert state.backend.losses["auxiliary"].optimizer.param_groups[0]["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize(
    ("step", "calls"),
    [("policy_iteration", 2), ("policy_iteration", 5), ("auxiliary_step", 1), ("auxiliary_step", 13)],
)
def test_a_run_stopped_within_a_phase_ends_as_if_it_had_not_been(
    step: str, calls: int, delay: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = phase_config(staleness={"iterations": delay}, phase={"value_epochs": 2}, **BUSY)
    whole = train(config, tmp_path / "whole").folder
    stopped = train_and_stop(config, tmp_path / "stopped", step, calls, monkeypatch)
    saved = newest_state(stopped)
    progress, iterations = saved["shared"]["phase"]["progress"], saved["local"]["phase_iterations"]
    if step == "auxiliary_step":
        position = divmod((calls - 1) % 8, 4)  # 2 epochs of 4 minibatches
        assert (progress["epoch"], progress["minibatch"] - 1) == position
        assert len(iterations) == ITERATIONS
    else:
        assert progress is None and len(iterations) == (calls - 1) % ITERATIONS + 1
    assert len(saved["local"]["rank"]["source"]["waiting"]) == delay
    resume(stopped, config)
    assert newest_state(whole)["shared"]["phase"]["phases"] >= 1
    assert not differences(newest_state(whole), newest_state(stopped))
    assert rows(whole) == rows(stopped)


@pytest.mark.parametrize("env", ["toy:Pixels", "toy:Target"])
@pytest.mark.parametrize(
    ("name", "calls"),
    # The last: the auxiliary phase is done and saved, but no row has told its losses yet.
    [("auxiliary_step", 3), ("auxiliary_step", 8), ("auxiliary_step", 9), ("policy_iteration", 4)],
)
def test_a_run_killed_in_or_after_an_auxiliary_phase_ends_as_if_it_had_not_been(
    env: str, name: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    image = {"network": {"encoder": "impala", "impala_channels": [2], "impala_features": 7}, "threads": 1}
    settings = BUSY | (image if env == "toy:Pixels" else {}) | {"total_env_steps": 130}
    config = phase_config(env=env, record={"checkpoint_every_seconds": 0}, **settings)
    whole = train(config, tmp_path / "whole").folder
    step, seen = getattr(ppg, name), []

    def die(*arguments: Any) -> Any:
        seen.append(1)
        if len(seen) == calls:
            raise Killed
        return step(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ppg, name, die)
        train(config, tmp_path / "killed")
    (killed,) = (tmp_path / "killed").iterdir()
    resume(killed, config)
    assert not differences(newest_state(whole), newest_state(killed))
    assert rows(whole) == rows(killed)


def test_a_resume_keeps_the_files_of_the_phases_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = phase_config(staleness={"iterations": 3}, **BUSY)
    folder = train_and_stop(config, tmp_path, "auxiliary_step", 3, monkeypatch)
    before = {path.name: path.stat().st_ino for path in (folder / "segments").iterdir()}
    assert len(before) == 3 + ITERATIONS + 1  # what waits, the phase, its frozen policy
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ppg, "auxiliary_step", kill)  # after the checkpoint that begins the resumed run
        resume(folder, config)
    assert {path.name: path.stat().st_ino for path in (folder / "segments").iterdir()} == before


@pytest.mark.parametrize(("step", "calls"), [("policy_iteration", 2), ("auxiliary_step", 6)])
def test_a_resume_at_another_batch_within_a_phase_starts_a_new_one_and_says_so(
    step: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    config = phase_config(**BUSY)
    folder = train_and_stop(config, tmp_path, step, calls, monkeypatch)
    before = newest_state(folder)["shared"]
    env_steps, phases = before["learner"]["env_steps"], before["phase"]["phases"]
    capsys.readouterr()
    resume(folder, with_changes(config, num_envs=1, total_env_steps=env_steps + 130))
    assert "a new phase is started" in capsys.readouterr().out
    after = [row for row in rows(folder) if row["env_steps"] > env_steps]
    # Nine iterations of one env are as long as three of three.
    assert [row["auxiliary/phases"] for row in after[:10]] == [phases] * 9 + [phases + 1]
    if step == "auxiliary_step":  # the weights moved in the part of it that was done
        assert after[0]["proximal/age_gradient_steps"] < 2
    resume(folder, with_changes(config, num_envs=1, total_env_steps=env_steps + 140))


def test_a_resume_with_a_longer_phase_within_an_auxiliary_phase_starts_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    config = phase_config(**BUSY)
    folder = train_and_stop(config, tmp_path, "auxiliary_step", 3, monkeypatch)
    resume(folder, with_changes(config, phase={"policy_iterations": 4}, total_env_steps=200))
    assert "a new phase is started" in capsys.readouterr().out


def test_a_run_that_ends_without_its_phase_does_not_keep_the_position_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = phase_config(**BUSY)
    folder = train_and_stop(config, tmp_path, "auxiliary_step", 3, monkeypatch)
    env_steps = newest_learner(folder)["env_steps"]
    resume(folder, with_changes(config, phase={"save_data": False}, total_env_steps=env_steps))
    shared = newest_state(folder)["shared"]
    assert shared["phase"]["progress"] is None
    assert shared["ewma"]["total_weight"] == 1  # as after every auxiliary phase, complete or not


def test_without_the_phases_data_checkpoints_are_of_phase_ends_and_of_the_end(tmp_path: Path):
    config = phase_config(
        **BUSY, phase={"save_data": False}, record={"checkpoint_every_iterations": 1, "keep_checkpoints": 99}
    )
    folder = train(config, tmp_path).folder
    table = rows(folder)
    ends = [row["env_steps"] for row in table[ITERATIONS - 1 :: ITERATIONS]]
    last = table[-1]["env_steps"]
    saved = sorted(int(path.name.removeprefix("step_")) for path in (folder / "checkpoints").iterdir())
    assert saved == sorted({0, *ends, last}) and len(ends) >= 2
    assert not (folder / "segments").exists()
    resume(folder, with_changes(config, total_env_steps=250))


def test_without_the_phases_data_a_stopped_run_goes_on_from_the_last_phase_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    config = phase_config(**BUSY, phase={"save_data": False})  # no other checkpoint is due so early
    whole = train(config, tmp_path / "whole").folder
    stopped = train_and_stop(config, tmp_path / "stopped", "policy_iteration", 5, monkeypatch)
    assert "the newest checkpoint is from before this phase" in capsys.readouterr().out
    assert newest_learner(stopped)["iterations"] == ITERATIONS
    resume(stopped, config)
    assert not differences(newest_state(whole), newest_state(stopped))
    assert rows(whole) == rows(stopped)


def test_a_phase_beyond_memory_is_refused_with_its_numbers_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Observations of 20 bytes: 3 × 7 × 3 of them in a phase, 2 rollouts of 8 × 3.
    needed = 20 * (63 + 48)

    def refuse(*_: Any) -> Rollout:
        raise AssertionError("something was computed")

    monkeypatch.setattr(ppg, "available_bytes", lambda: needed - 1)
    with monkeypatch.context() as patch, pytest.raises(ConfigError) as error:
        patch.setattr("anybatch.acting.collector.Collector.collect", refuse)
        train(phase_config(), tmp_path)
    assert str(error.value) == (
        "a phase of 3 iterations keeps 1.26 kB of observations in memory, in addition to 960 bytes of "
        "rollouts; 2.22 kB are available. phase.policy-iterations, 3 at the tuned batch, can be at most 2"
    )
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(ppg, "available_bytes", lambda: needed)
    train(phase_config(), tmp_path)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--phase.policy-iterations=0", "phase.policy-iterations = 0: must be at least 1"),
        ("--phase.auxiliary-learning-rate=-1", "phase.auxiliary-learning-rate = -1.0: must be positive"),
        ("--phase.clone-coefficient=-1", "phase.clone-coefficient = -1.0: must not be negative"),
        ("--env=procgen:coinrum", "no environment procgen:coinrum; the nearest names are procgen:coinrun"),
    ],
)
def test_bad_settings_of_a_phase_are_one_sentence_and_exit_code_2(
    flag: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--preset=procgen-small-ppg", f"--run-dir={tmp_path}", flag])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
