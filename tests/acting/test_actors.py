"""Collecting while learning gives the run that a delay queue gives, whatever happens to the actors."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from actor_runs import (
    assert_equal_runs,
    assert_equals_the_queue,
    cartpole_config,
    ewma_config,
    pqn_config,
    without_actors,
)
from phase_runs import phase_config, rows
from toy_runs import changed, cut_back, differences, newest_state, resume, toy_config, train

import anybatch
from anybatch import training
from anybatch.acting.actors import shards
from anybatch.acting.actors.local_transport import LocalTransport
from anybatch.acting.actors.source import NO_WEIGHTS, ActorPool, Job
from anybatch.acting.actors.transport import ActorLost, Watch
from anybatch.acting.actors.worker import ActorWorker
from anybatch.acting.rollout import Origin
from anybatch.algorithms.actors import build_worker
from anybatch.cli import main
from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict
from anybatch.distributed.shard import Shard
from anybatch.errors import ConfigError, EnvError
from anybatch.storage import state_tree
from anybatch.user_objects import NO_OBJECTS


def test_overlap_is_the_queue_of_length_one_to_the_bit(tmp_path: Path):
    observations = {"observations": "step", "rewards": "iteration"}
    assert_equals_the_queue(ewma_config(overlap=True, normalize=observations), tmp_path)


@pytest.mark.parametrize("lag", [1, 3])
def test_two_actors_on_native_cartpole_are_the_queue_to_the_bit(lag: int, tmp_path: Path):
    assert_equals_the_queue(cartpole_config(actors="local:2", staleness={"iterations": lag}), tmp_path)


def test_two_actors_with_pqn_are_the_queue_to_the_bit(tmp_path: Path):
    assert_equals_the_queue(pqn_config(actors="local:2", staleness={"iterations": 3}), tmp_path)


def test_two_actors_under_a_controller_are_the_queue_to_the_bit(tmp_path: Path):
    controller = {"kind": "divergence", "every": 1, "warmup": 1, "window": 2, "min_steps": 4, "max_steps": 9}
    config = pqn_config(
        actors="local:2", controller=controller | {"low": 0.01, "high": 0.3}, total_env_steps=600
    )
    assert_equals_the_queue(config, tmp_path)
    assert len({row["batch/num_steps"] for row in rows(next((tmp_path / "actors").iterdir()))}) > 1


@contextmanager
def started(config: AnyConfig) -> Iterator[Any]:
    """A state whose actors run until the end of the block."""
    with training.started(config.completed(), NO_OBJECTS, env_steps=0) as state:
        yield state


def test_every_actor_acts_with_the_weights_that_the_learner_has_at_that_version():
    with started(toy_config(actors="local:2", num_envs=4)) as state:

        def params_of(obs: torch.Tensor, version: int) -> torch.Tensor:
            state.backend.flat.values.fill_(0.1 * (version + 1))
            with torch.no_grad():
                return state.network.policy_params(obs)

        rollouts: list[Any] = []
        for version in range(4):
            state.backend.flat.values.fill_(0.1 * (version + 1))
            rollouts.append(state.source.next(state.network, 5, Origin(version, 7 * version, version)))
        assert rollouts.pop(0) is None
        assert [due.origin for due in rollouts] == [Origin(number, 7 * number, number) for number in range(3)]
        for due in rollouts:
            obs, acted = due.obs[:-1].flatten(0, 1), due.policy_params.flatten(0, 1)
            torch.testing.assert_close(acted, params_of(obs, due.origin.version))
            assert not torch.isclose(acted, params_of(obs, due.origin.version + 1)).any()


class Disturbed:
    """Does something to an actor's process when a rollout has been asked for."""

    def __init__(self, at: dict[int, signal.Signals]) -> None:
        self.at, self.done = at, 0

    def __call__(self, pool: ActorPool, actor: int, job: Job) -> None:
        number = self.at.get(job.origin.iteration)
        if number is not None and actor == len(pool.shards) - 1 and job.num_steps:
            self.at = {
                iteration: sent for iteration, sent in self.at.items() if iteration != job.origin.iteration
            }
            os.kill(pool.transport.process_ids()[actor], number)
            self.done += 1


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, signal.Signals]], Disturbed]:
    submit = ActorPool.submit

    def install(at: dict[int, signal.Signals]) -> Disturbed:
        disturbance = Disturbed(at)

        def submit_and_disturb(pool: ActorPool, actor: int, job: Job) -> None:
            submit(pool, actor, job)
            disturbance(pool, actor, job)

        monkeypatch.setattr(ActorPool, "submit", submit_and_disturb)
        return disturbance

    return install


def test_an_actor_that_is_killed_or_hangs_changes_nothing(
    disturb: Callable[..., Disturbed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = cartpole_config(actors="local:2", staleness={"iterations": 2}, actor_timeout=3.0)
    undisturbed = train(without_actors(config), tmp_path / "undisturbed").folder
    disturbance = disturb({2: signal.SIGKILL, 5: signal.SIGSTOP})
    disturbed = train(config, tmp_path / "disturbed").folder
    said = capsys.readouterr().out
    assert disturbance.done == 2 and rows(disturbed)[-1]["actors/restarts"] >= 2
    assert "Actor 1 was ended by SIGKILL: it is restarted, and collects rollout" in said
    assert "Actor 1 gave no sign of life for 3 seconds: it is restarted" in said
    assert_equal_runs(undisturbed, disturbed)


def test_an_actor_that_is_killed_while_it_builds_its_environments_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    set_up, killed = LocalTransport.set_up, list[int]()

    def set_up_and_kill_once(transport: LocalTransport, actor: int, recipe: bytes) -> None:
        set_up(transport, actor, recipe)
        if not killed:
            killed.extend(transport.process_ids())
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(LocalTransport, "set_up", set_up_and_kill_once)
    assert_equals_the_queue(ewma_config(overlap=True), tmp_path)
    assert killed and rows(next((tmp_path / "actors").iterdir()))[-1]["actors/restarts"] == 1


def test_an_actor_that_is_lost_again_and_again_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    def lose(*_: Any) -> bytes:
        raise ActorLost("was ended by SIGKILL")

    with started(toy_config(overlap=True)) as state:
        monkeypatch.setattr(ActorPool, "_received", lose)
        monkeypatch.setattr(ActorPool, "_set_up", lambda *_: None)
        state.source.next(state.network, 5, Origin())
        with pytest.raises(ValueError, match="actor 0 was lost 5 times in the same rollout"):
            state.source.next(state.network, 5, Origin(1, 0, 1))


class TransportHere:
    """Actors without processes; the next answer is lost with its actor where that is asked for."""

    def __init__(self) -> None:
        self.recipes: list[dict[str, Any]] = []
        self.workers: dict[int, ActorWorker] = {}
        self.seconds = 0.0
        """That all actors took to collect what has been received."""
        self.is_to_lose = False
        self._answers: dict[int, deque[bytes]] = {}

    def set_up(self, actor: int, recipe: bytes) -> None:
        self.recipes.append(state_tree.unpack(recipe))
        self.workers[actor] = build_worker(self.recipes[-1])
        self._answers[actor] = deque([self.workers[actor].first_answer()])

    def publish(self, weights: bytes) -> bytes:
        return weights

    def request(self, actor: int, request: bytes, weights: bytes) -> None:
        self._answers[actor].append(self.workers[actor].answer(request, weights))

    def receive(self, actor: int) -> bytes:
        if self.is_to_lose:
            self.is_to_lose = False
            raise ActorLost("was lost")
        answer = self._answers[actor].popleft()
        self.seconds += state_tree.unpack(answer).get("seconds", 0.0)
        return answer

    def process_ids(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> TransportHere:
    here = TransportHere()
    monkeypatch.setattr("anybatch.algorithms.actors.make_transport", lambda _: here)
    return here


def test_a_lost_actor_starts_episodes_that_no_rollout_began_with(transport: TransportHere):
    """If its engine cannot restore those in progress: their seeds depend on the env steps so far."""
    with started(toy_config(env="gym:CartPole-v1", overlap=True)) as state:
        rollouts = [state.source.next(state.network, 5, Origin(number)) for number in range(3)]
        transport.is_to_lose = True
        rollouts.append(state.source.next(state.network, 5, Origin(3)))
    received = [due for due in rollouts if due is not None]
    assert [due.origin.iteration for due in received] == [0, 1, 2]
    first, again = (recipe["env_steps"] for recipe in transport.recipes)
    assert (first, again) == (0, sum(due.num_valid for due in received[:2]))


def test_an_actor_that_is_lost_while_a_run_is_resumed_continues_from_its_checkpoint(transport: TransportHere):
    config = toy_config(actors="local:2")
    with started(config) as state:
        for number in range(3):
            state.source.next(state.network, 5, Origin(number))
        saved, segments = state.source.state_dict(), state.source.segments()
    with started(config) as resumed:
        transport.is_to_lose = True
        assert resumed.source.load_state_dict(saved, segments, num_steps=5)
        assert not transport.is_to_lose and not differences(saved, resumed.source.state_dict())


def test_fresh_episodes_of_an_actor_are_seen_through_the_statistics_of_the_run(transport: TransportHere):
    """Of CartPole, whose first observations are within ± 0.05."""
    config = toy_config(env="gym:CartPole-v1", overlap=True, normalize={"observations": "iteration"})
    with started(config) as state:
        normalizer = {"count": 100.0, "mean": np.full(4, 5.0), "square_sum": np.full(4, 400.0)}
        collector = state.source.state_dict()["collector"]
        job = Job(0, Origin(), None, False, NO_WEIGHTS, {"collector": collector, "normalizer": normalizer})
        transport.workers[0].answer(job.packed(), NO_WEIGHTS)
        assert transport.workers[0].collector.obs == pytest.approx(np.full((3, 4), -2.5), abs=0.03)


def test_the_idle_share_of_actors_is_of_the_time_of_all_of_them(transport: TransportHere):
    with started(toy_config(actors="local:2")) as state:
        before = time.perf_counter()
        state.source.metrics()
        within = time.perf_counter()
        transport.seconds = 0.0
        for number in range(4):
            state.source.next(state.network, 50, Origin(number))
        within = time.perf_counter() - within
        idle = state.source.metrics()["actors/idle"]
        whole = time.perf_counter() - before
    assert 1 - transport.seconds / (2 * within) <= idle <= 1 - transport.seconds / (2 * whole)


def test_a_watch_tells_silence_from_standing_still(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("anybatch.acting.actors.transport.time.monotonic", lambda: now)
    watch = Watch(10.0)
    watch.begin(patience_seconds=20.0)
    watch.hear("", working=False)  # which takes no patience away
    now += 29
    watch.validate_responding()
    watch.begin()
    for _ in range(4):  # it lives, and has nothing to do
        now += 8
        watch.hear("", working=False)
        watch.validate_responding()
    for step in range(4):
        now += 8
        watch.hear(str(step), working=True)
        watch.validate_responding()
    now += 11
    with pytest.raises(ActorLost, match="no sign of life for 10 seconds"):
        watch.validate_responding()
    watch.hear("3", working=True)  # alive, and where it was
    with pytest.raises(ActorLost, match="stuck in one step for 10 seconds"):
        watch.validate_responding()


@pytest.mark.parametrize("becomes", [{"overlap": False, "actors": None}, {"overlap": True, "actors": None}])
def test_a_run_with_actors_continues_with_any_other_way_of_collecting(
    becomes: dict[str, Any], tmp_path: Path
):
    config = cartpole_config(staleness={"iterations": 2}, actors="local:2")
    whole = train(without_actors(config), tmp_path / "whole").folder
    until = rows(whole)[2]["env_steps"]
    part = train(changed(config, total_env_steps=until), tmp_path / "part").folder
    assert len(newest_state(part)["local"]["rank"]["source"]["waiting"]) == 2
    resume(part, changed(config, **becomes))
    assert_equal_runs(whole, part)


def test_a_run_with_a_queue_continues_with_actors(tmp_path: Path):
    kept = {"checkpoint_every_iterations": 1, "keep_checkpoints": 99}
    config = without_actors(pqn_config(staleness={"iterations": 2}, record=kept))
    whole = train(config, tmp_path / "whole").folder
    part = cut_back(whole, tmp_path / "part", rows(whole)[1]["env_steps"])
    resume(part, changed(config, actors="local:2"))
    assert_equal_runs(whole, part)


FOREVER = [
    "train",
    "--preset=cartpole-ppo",
    "--env=toy:Match",
    "--num-envs=4",
    "--num-steps=5",
    "--actors=local:2",
    "--total-env-steps=1000000000",
    "--record.no-tensorboard",
    "--record.checkpoint-every-iterations=1",
    "--evaluation.num-envs=2",
]
COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]


def children_of(process_id: int) -> list[int]:
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process_id and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_actor_outlives_its_learner(number: signal.Signals, tmp_path: Path):
    """Not even one that is stopped. A run that was asked to end has saved itself, and says how it ended."""
    with subprocess.Popen(
        [*COMMAND, *FOREVER, f"--run-dir={tmp_path}"], stdout=subprocess.DEVNULL
    ) as learner:
        try:
            wait_until(lambda: len(list(tmp_path.glob("*/checkpoints/step_*"))) > 2, 60)
            actors = children_of(learner.pid)
            assert len(actors) == 2
            if number == signal.SIGKILL:
                os.kill(actors[0], signal.SIGSTOP)
            learner.send_signal(number)
            code = learner.wait(20)
        finally:
            learner.kill()
    wait_until(lambda: not any(map(is_alive, actors)), 5)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    (folder,) = tmp_path.iterdir()
    assert newest_state(folder)["shared"]["learner"]["env_steps"] > 0


@pytest.mark.parametrize(
    ("count", "actors", "expected"), [(36, 2, [20, 16]), (34, 2, [16, 18]), (7, 3, [3, 2, 2])]
)
def test_shares_are_whole_blocks_of_envs_where_there_are_enough(count: int, actors: int, expected: list[int]):
    parts = shards.shares(Shard(first=5, count=count, total=60), actors)
    assert [part.count for part in parts] == expected
    assert [env for part in parts for env in range(60)[part.envs]] == list(range(5, 5 + count))


def test_shards_of_a_state_joined_are_that_state():
    whole = {
        "generator": torch.arange(5),
        "num_envs": 7,
        "env": {"steps": np.arange(7), "game": {"board": np.arange(14).reshape(7, 2)}},
        "obs": np.arange(7.0),
        "episodes": {"returns": np.arange(7.0)},
    }
    parts = [shards.part_of_state(whole, part, restorable=True) for part in Shard.whole(7).split(3)]
    assert [part["num_envs"] for part in parts] == [7, 7, 7]  # of the whole run
    assert [len(part["obs"]) for part in parts] == [3, 2, 2]
    assert parts[1]["env"]["game"]["board"].tolist() == [[6, 7], [8, 9]]
    again = shards.joined_state(parts)
    assert again.keys() == whole.keys() and again["num_envs"] == 7
    assert again["env"]["game"]["board"].tolist() == whole["env"]["game"]["board"].tolist()
    assert torch.equal(again["generator"], whole["generator"])


def test_an_error_of_an_environment_is_raised_in_the_learner_as_it_is(tmp_path: Path):
    config = toy_config(env="broken_envs:NaNReward-v0", overlap=True)
    with pytest.raises(EnvError, match="environment 0 returned a non-finite"):
        train(config, tmp_path)


def test_actors_number_environments_over_the_whole_run():
    config = toy_config(env="guarded_envs:Guarded-v0", env_config={"options": {"fault": "nothing"}})
    recipe = {
        "algorithm": config.algorithm,
        "config": config_to_dict(config),
        "env_factory": None,
        "network_factory": None,
        "env_steps": 0,
        "shard": [2, 1, 3],
        "threads": torch.get_num_threads(),
    }
    worker = build_worker(recipe)
    with pytest.raises(EnvError, match=r"^environment 2 of guarded_envs:Guarded-v0 gave an action_mask"):
        worker.collector.collect(worker.network, 4)


SMALL = ["train", "--env=toy:Match", "--num-envs=3", "--record.no-tensorboard"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--actors=local"], "actors = 'local': must be local:N or ray:N, such as local:2"),
        (["--actors=cluster:2"], "actors = 'cluster:2': must be local:N or ray:N"),
        (["--actors=local:0"], "actors = local:0: must be from 1 to 4,096 actors"),
        (["--actors=local:4"], "actors = local:4 is more than num-envs = 3: every actor needs"),
        (["--overlap", "--ray-address=auto"], "ray-address = auto needs actors on Ray"),
        (["--overlap", "--actor-timeout=0"], "actor-timeout = 0.0: must be positive"),
        (
            ["--actors=local:2", "--normalize.observations=step"],
            "normalize.observations = step keeps statistics that 2 actors cannot share: "
            "collect in one process with --overlap or --actors local:1, or use",
        ),
    ],
)
def test_what_actors_cannot_do_is_one_sentence(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, f"--run-dir={tmp_path}", *flags])
    assert stop.value.code == 2 and said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_plan_says_who_collects_and_how_old_data_are_and_why_the_objective_is_decoupled(
    capsys: pytest.CaptureFixture[str],
):
    plan = [
        "plan",
        "--preset=cartpole-ppo",
        "--env=toy:Match",
        "--actors=local:2",
        "--staleness.iterations=3",
    ]
    main(plan)
    shown = capsys.readouterr().out
    assert "collected by     2 actors on this machine, while the learner learns: lag of 3 iterations" in shown
    assert (
        "proximal.policy is iteration_start: data collected while the learner learns is 3 iterations" in shown
    )
    main([*plan, "--proximal.policy=behavior"])
    assert "proximal.policy is" not in capsys.readouterr().out
    main(["plan", "--preset=cartpole-ppo-ewma", *plan[2:]])
    assert "proximal.policy is" not in capsys.readouterr().out


def test_ppg_with_overlap_is_the_queue_to_the_bit(tmp_path: Path):
    """The version after an auxiliary phase is the one that the phase left."""
    assert_equals_the_queue(phase_config(overlap=True, total_env_steps=150), tmp_path)


def make_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def test_a_function_of_a_module_makes_the_environments_of_actors(tmp_path: Path):
    trained = anybatch.train(
        "cartpole-ppo",
        env=make_pole,
        run_dir=tmp_path,
        overlap=True,
        num_envs=2,
        num_steps=8,
        total_env_steps=40,
        evaluation={"num_envs": 2, "max_episode_steps": 5},
        record={"tensorboard": False},
    )
    assert trained.finished and trained.config.proximal.policy == "iteration_start"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"env": lambda: make_pole()}, "object:<lambda> cannot be built in another process"),
        ({"env": "object"}, "cannot be built in another process, where actors collect: pass a function"),
        ({"network": torch.nn.Linear(4, 8)}, "object:Linear cannot be built in another process"),
    ],
    ids=["lambda", "object", "network"],
)
def test_what_another_process_cannot_build_is_refused(parts: dict[str, Any], said: str, tmp_path: Path):
    if parts.get("env") == "object":
        parts = {"env": make_pole()}
    parts = {"env": make_pole} | parts
    with pytest.raises(ConfigError, match=said):
        anybatch.train("cartpole-ppo", run_dir=tmp_path, overlap=True, num_envs=1, **parts)
    assert not list(tmp_path.iterdir())


def test_actors_on_the_command_line_cannot_build_the_object_of_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    trained = anybatch.train(
        "cartpole-ppo",
        env=make_pole(),
        run_dir=tmp_path,
        num_steps=8,
        total_env_steps=8,
        evaluation={"num_envs": 1, "max_episode_steps": 5},
        record={"tensorboard": False},
    )
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(trained.folder), "--actors=local:1", "--total-env-steps=99"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert "this run has an environment object, CartPole" in said
