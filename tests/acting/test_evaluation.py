"""Evaluation: fixed numbers of episodes, cut at a cap, and an end that a signal can bring forward."""

import copy
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import endless_envs
import numpy as np
import pytest
import torch
from forked_commands import Commands
from toy_runs import changed, differences, one_iteration, start, toy_config, train
from toy_runs import evaluate as evaluate_run

from anybatch.acting.evaluation import Evaluation, InferencePolicy, Slots, evaluate
from anybatch.cli import main
from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import Episode
from anybatch.envs.protocol import DiscreteActions, EnvSpec, EnvStep
from anybatch.evaluating import evaluate_state, evaluation_env
from anybatch.runs import display
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord
from anybatch.user_objects import NO_OBJECTS

ENDLESS = ["--env=endless_envs:Endless-v0", "--num-envs=3", "--num-steps=7", "--total-env-steps=60"]


class Scripted:
    """Envs whose episodes last as many steps as a script says; 0 is for ever. Reward: 1 a step."""

    def __init__(self, lengths: list[list[int]]) -> None:
        self._lengths = [iter(slot) for slot in lengths]
        self.resets = 0
        self.spec = EnvSpec(
            env_id="Scripted",
            engine="test",
            num_envs=len(lengths),
            obs_shape=(1,),
            obs_dtype=np.dtype(np.float32),
            actions=DiscreteActions(2),
        )

    def reset(self) -> np.ndarray:
        self.resets += 1
        self._left = np.array([next(slot) for slot in self._lengths])
        return np.zeros((self.spec.num_envs, 1), dtype=np.float32)

    def step(self, action: np.ndarray) -> EnvStep:
        assert len(action) == self.spec.num_envs
        self._left = self._left - 1
        ended = self._left == 0
        for env in np.flatnonzero(ended):
            self._left[env] = next(self._lengths[env])
        ones, never = np.ones(len(ended), dtype=np.float32), np.zeros_like(ended)
        obs = np.zeros((len(ended), 1), dtype=np.float32)
        return EnvStep(obs, ones, ended, never, ~never, ones, ended, obs)

    def close(self) -> None:
        pass


class Still:
    """A policy that does nothing."""

    greedy = True

    def act(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(len(obs), dtype=np.int64)


def played(lengths: list[list[int]], episodes: int, cap: int | None) -> tuple[Evaluation, Scripted]:
    env = Scripted(lengths)
    result = evaluate(Still(), env, episodes_per_env=episodes, max_episode_steps=cap)  # type: ignore[arg-type]
    return result, env


def summary(result: Evaluation) -> list[tuple[int, int, bool]]:
    return [(episode.env, episode.length, episode.truncated) for episode in result.episodes]


def test_without_a_cap_every_slot_plays_its_episodes_to_the_end():
    result, env = played([[3, 5, *[9] * 9], [20, 2, 9]], 2, None)
    assert summary(result) == [(0, 3, False), (0, 5, False), (1, 20, False), (1, 2, False)]
    assert env.resets == 1


def test_an_episode_is_cut_at_the_cap_and_counts_as_truncated():
    result, env = played([[4, *[4] * 9], [0], [7, *[7] * 9]], 1, 10)
    assert summary(result) == [(0, 4, False), (1, 10, True), (2, 7, False)]
    assert result.capped_share == pytest.approx(1 / 3) and result.mean_return == 7
    assert result.sentence().endswith(", mean length 7, 33.3% cut at the step cap of 10)")
    assert env.resets == 1


def test_an_environment_that_ends_at_its_own_limit_is_not_called_capped():
    episodes = (Episode(500.0, 500, 0, True), Episode(500.0, 500, 1, True))
    perfect = Evaluation("CartPole-v1", episodes, greedy=False, cap=27_000)
    assert perfect.sentence().endswith("mean length 500, 100% reached the environment's step limit)")
    ended = Evaluation("CartPole-v1", (Episode(9.0, 9, 0, False),), greedy=False, cap=27_000)
    assert ended.sentence().endswith("mean length 9)")


def test_an_episode_that_ends_at_the_cap_is_not_cut():
    result, _ = played([[10, 10, 10]], 2, 10)
    assert summary(result) == [(0, 10, False), (0, 10, False)]


def test_the_rest_of_a_cut_episode_is_not_an_episode():
    """Slot 0 is cut at 10 and goes on to 13, while slot 1 plays; its second episode is the one after that."""
    result, env = played([[13, 6, 99], [9, 15, 99]], 2, 10)
    assert summary(result) == [(0, 10, True), (0, 6, False), (1, 9, False), (1, 10, True)]
    assert env.resets == 1


def test_where_all_that_lack_episodes_were_cut_all_slots_start_again():
    result, env = played([[0, 0, 0], [5, *[5] * 99]], 3, 10)
    assert summary(result) == [(0, 10, True)] * 3 + [(1, 5, False)] * 3
    assert env.resets == 3


def test_progress_is_reported_at_every_step():
    seen: list[tuple[int, int]] = []

    def report(slots: Slots) -> None:
        seen.append((slots.num_finished, slots.longest_under_way))

    env = Scripted([[2, 9, 9], [3, 9, 9]])
    evaluate(Still(), env, episodes_per_env=1, report=report)  # type: ignore[arg-type]
    assert seen == [(0, 1), (1, 2), (2, 1)]


def test_a_run_on_an_env_without_a_limit_ends_with_an_evaluation_that_says_what_was_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--evaluation.num-envs=2", "--evaluation.episodes-per-env=2"]
    main(["train", *ENDLESS, *flags, "--evaluation.max-episode-steps=40", f"--run-dir={tmp_path}"])
    assert "40 ± 0 (standard error) mean return over 4 episodes" in capsys.readouterr().out
    main(["evaluate", str(tmp_path), "--evaluation.max-episode-steps=30", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["returns"] == [30] * 4 and result["capped_share"] == 1


def test_there_is_a_cap_by_default_and_it_can_be_lifted():
    assert toy_config().evaluation.max_episode_steps == 108_000 / 4
    assert toy_config(evaluation={"max_episode_steps": None}).evaluation.max_episode_steps is None
    with pytest.raises(ValueError, match=r"evaluation.max-episode-steps = 0"):
        toy_config(evaluation={"max_episode_steps": 0})


@pytest.mark.parametrize("env", ["toy:Constant", "envpool:CartPole-v1", "gym:CartPole-v1"])
def test_no_episode_of_the_training_is_evaluated_on(env: str):
    config = toy_config(env=env, num_envs=16, evaluation={"num_envs": 16})
    training, evaluation = NO_OBJECTS.training_env(config, env_steps=0), evaluation_env(config)
    seen = [{tuple(obs) for obs in some.reset().tolist()} for some in (training, evaluation)]
    assert len(seen[0]) == len(seen[1]) == 16 and not seen[0] & seen[1]
    for some in (training, evaluation):
        some.close()


def test_the_standard_error_is_that_of_a_sample():
    episodes = tuple(Episode(score, 1, 0) for score in (1.0, 3.0))
    assert Evaluation("x", episodes, greedy=True).standard_error == pytest.approx(1.0)
    assert Evaluation("x", episodes[:1], greedy=True).standard_error == 0.0


@pytest.mark.parametrize("greedy", [True, False])
def test_an_evaluation_changes_nothing_of_what_was_trained(greedy: bool):
    config = toy_config(
        normalize={"observations": "step", "rewards": "step"},
        proximal={"policy": "ewma"},
        evaluation={"greedy": greedy, "episodes_per_env": 3},
    )
    state = start(config)
    one_iteration(config, state)
    before = copy.deepcopy(state.snapshot())
    assert evaluate_state(config, state, output=QUIET).episodes
    assert not differences(vars(before), vars(state.snapshot()))


def test_an_evaluation_shows_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(env="endless_envs:Endless-v0", evaluation={"num_envs": 2, "max_episode_steps": 50})
    folder = train(config, tmp_path).folder
    monkeypatch.setattr(display, "LINE_EVERY_SECONDS", 0.0)
    capsys.readouterr()
    evaluate_run(folder, changed(config, evaluation={"episodes_per_env": 3}))
    shown = capsys.readouterr()
    assert not shown.out  # a program may read the result there
    assert "0 of 6 episodes, the longest in progress at step 49 of at most 50 (0%)" in shown.err
    assert "4 of 6 episodes, the longest in progress at step 1 of at most 50 (67%)" in shown.err


def signalled(
    commands: Commands,
    number: signal.Signals,
    when: Callable[[], bool],
    words: list[str],
    times: int = 1,
    **variables: str,
) -> tuple[int, str, str]:
    """Run a command and send it a signal when it is time; its exit code and what it said."""
    with commands.start(words, **variables) as command:
        for _ in range(times):
            deadline = time.monotonic() + 120
            while not when():
                assert command.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(0.2)  # the second signal must not be merged with the first
            command.send_signal(number)
        return command.wait(60), *command.said()


ONE_AT_A_TIME = ["--evaluation.max-episode-steps=None", "--evaluation.num-envs=1", "--record.no-tensorboard"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_final_evaluation_and_a_resume_completes_it(
    commands: Commands, number: signal.Signals, tmp_path: Path
):
    words = ["train", *ENDLESS, *ONE_AT_A_TIME, f"--run-dir={tmp_path}"]
    code, out, _ = signalled(commands, number, lambda: any(tmp_path.glob("*/result.json")), words)
    (folder,) = tmp_path.iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["finished"] and result["evaluation"] is None
    assert code == 128 + number and f"Stopped. Continue with: anybatch resume {folder}" in out
    main(["resume", str(folder), "--evaluation.max-episode-steps=20"])
    assert json.loads((folder / "result.json").read_text())["evaluation"]["mean_length"] == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_ends_evaluate(commands: Commands, number: signal.Signals, tmp_path: Path):
    config = toy_config(env="endless_envs:Hanging-v0", total_env_steps=9, num_steps=3)
    hanging = tmp_path / "hanging"
    folder = train(
        changed(config, evaluation={"num_envs": 1, "max_episode_steps": 5}), tmp_path / "runs"
    ).folder
    words = ["evaluate", str(folder), "--evaluation.max-episode-steps=None"]
    code, out, err = signalled(
        commands, number, hanging.exists, words, **{endless_envs.HANGING: str(hanging)}
    )
    assert code == 128 + number and not out and err == "\nStopped.\n"


@pytest.mark.parametrize(("command", "number"), [("train", signal.SIGTERM), ("evaluate", signal.SIGINT)])
def test_the_second_signal_ends_what_is_stuck_in_an_engine(
    commands: Commands, command: str, number: signal.Signals, tmp_path: Path
):
    """Python's own handlers do not run then."""
    stuck, runs = tmp_path / "stuck", tmp_path / "runs"
    words = ["train", "--env=endless_envs:Stuck-v0", "--num-envs=1", f"--run-dir={runs}"]
    if command == "evaluate":
        folder = train(
            toy_config(env="endless_envs:Endless-v0", evaluation={"max_episode_steps": 5}), runs
        ).folder
        config = folder / "config.json"
        config.write_text(config.read_text().replace("Endless", "Stuck"))
        words = ["evaluate", str(folder)]
    code, _, _ = signalled(
        commands, number, stuck.exists, words, times=2, **{endless_envs.HANGING: str(stuck)}
    )
    assert code == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_training_whose_env_hangs(
    commands: Commands, number: signal.Signals, tmp_path: Path
):
    hanging = tmp_path / "hanging"
    runs = tmp_path / "runs"
    words = ["train", "--env=endless_envs:Hanging-v0", "--num-envs=1", "--num-steps=16", f"--run-dir={runs}"]
    code, out, err = signalled(
        commands, number, hanging.exists, words, times=2, **{endless_envs.HANGING: str(hanging)}
    )
    assert "send the signal again" in out
    (folder,) = runs.iterdir()
    assert RunRecord(folder).has_checkpoint
    if number == signal.SIGINT:
        assert code == 130
        assert err == f"\nStopped. Continue with: anybatch resume {folder} (saved at 0 env steps).\n"
    else:
        assert code == -signal.SIGTERM  # by the signal itself, which a shell calls 143


def test_an_env_slot_gets_the_same_actions_on_any_number_of_ranks():
    """Noise is drawn for all slots: what a slot plays must not depend on the rank that plays it."""
    network = start(toy_config()).network
    obs = np.random.default_rng(4).normal(size=(5, 5)).astype(np.float32)

    def played(shard: Shard | None) -> np.ndarray:
        generator = torch.Generator().manual_seed(3)
        policy = InferencePolicy(network, None, torch.device("cpu"), generator, greedy=False, shard=shard)
        seen = obs if shard is None else obs[shard.envs]
        return np.stack([policy.act(seen) for _ in range(20)], axis=1)

    whole, parts = played(None), [played(shard) for shard in Shard.whole(5).split(2)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole)) > 1
