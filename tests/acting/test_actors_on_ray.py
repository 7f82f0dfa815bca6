"""Actors of Ray: the same run to the bit, restarts, and a private Ray that nobody else can reach."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from actor_runs import assert_equal_runs, assert_equals_the_queue, cartpole_config, pqn_config, without_actors
from process_trees import processes_below
from toy_runs import newest_learner, train

from anybatch.acting.actors import ray_transport
from anybatch.acting.actors.source import ActorPool, Job
from anybatch.cli import main
from anybatch.distributed import ray_connection

ACTORS = 2
SLOW_START_SECONDS = 8.0
"""More than Ray's own retries of a call to an actor that it starts again take."""


@pytest.fixture(scope="module")
def private_ray() -> Iterator[None]:
    """One for all runs of this file, which a run of its own would start and end."""
    assert ray_connection.connect(None, ACTORS)
    yield
    ray.shutdown()


def listening_addresses(processes: set[int]) -> set[str]:
    """Of the TCP sockets of some processes, in hexadecimal as Linux tells them."""
    inodes: set[str] = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:  # 0A: listening
                found.add(fields[1].partition(":")[0])
    return found


@pytest.mark.usefixtures("private_ray")
def test_two_actors_of_ray_are_the_queue_to_the_bit(tmp_path: Path):
    assert_equals_the_queue(pqn_config(actors="ray:2", staleness={"iterations": 2}), tmp_path)
    addresses = listening_addresses(processes_below(os.getpid()))
    local = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert addresses and addresses <= local  # 127.0.0.1 and ::1


@pytest.mark.usefixtures("private_ray")
def test_an_actor_of_ray_that_is_killed_or_hangs_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = cartpole_config(actors="ray:2", actor_timeout=4.0)
    undisturbed = train(without_actors(config), tmp_path / "undisturbed").folder
    submit, faults = ActorPool.submit, {2: signal.SIGKILL, 4: signal.SIGSTOP}

    def submit_and_disturb(pool: ActorPool, actor: int, job: Job) -> None:
        submit(pool, actor, job)
        if actor == 1 and job.origin.iteration in faults:
            os.kill(pool.transport.process_ids()[actor], faults.pop(job.origin.iteration))

    monkeypatch.setattr(ActorPool, "submit", submit_and_disturb)
    assert_equal_runs(undisturbed, train(config, tmp_path / "disturbed").folder)
    assert not faults


@pytest.mark.usefixtures("private_ray")
def test_an_actor_that_ray_takes_long_to_start_again_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class SlowActor(ray_transport.RemoteActor):
        def __init__(self, build: Any) -> None:
            time.sleep(SLOW_START_SECONDS)
            super().__init__(build)

    monkeypatch.setattr(ray_transport, "RemoteActor", SlowActor)
    submit = ActorPool.submit

    def submit_and_kill(pool: ActorPool, actor: int, job: Job) -> None:
        submit(pool, actor, job)
        if actor == 0 and job.origin.iteration == 2:
            os.kill(pool.transport.process_ids()[actor], signal.SIGKILL)

    monkeypatch.setattr(ActorPool, "submit", submit_and_kill)
    train(pqn_config(actors="ray:1"), tmp_path)
    assert capsys.readouterr().out.count("Actor 0 has ended: it is restarted") == 1


@pytest.mark.slow
def test_a_run_whose_ray_has_lost_its_head_ends_and_can_be_resumed(tmp_path: Path):
    main_of = [sys.executable, "-c", "from anybatch.cli import main; main()"]
    flags = ["--preset=cartpole-ppo", "--env=toy:Match", "--num-envs=3", "--num-steps=5", "--actors=ray:1"]
    flags += ["--record.no-tensorboard", "--record.checkpoint-every-iterations=1"]
    with subprocess.Popen(
        [*main_of, "train", *flags, "--total-env-steps=1000000000", f"--run-dir={tmp_path}"]
    ) as learner:
        try:
            while len(list(tmp_path.glob("*/checkpoints/step_*"))) < 2:
                assert learner.poll() is None
                time.sleep(0.1)
            for process in processes_below(learner.pid):
                if "gcs_server" in Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]:
                    os.kill(process, signal.SIGKILL)
            assert learner.wait(60) == 1
        finally:
            learner.kill()
    (folder,) = tmp_path.iterdir()
    until = newest_learner(folder)["env_steps"] + 30
    main(["resume", str(folder), "--no-overlap", "--actors=None", f"--total-env-steps={until}"])


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1:1", "Connection refused"), ("ray://10.0.0.1:10001", "must be auto or host:port")],
)
def test_an_address_without_a_ray_is_one_sentence(
    address: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if ray.is_initialized():  # by the tests above
        ray.shutdown()
    flags = ["--preset=cartpole-ppo", "--env=toy:Match", "--actors=ray:2", f"--ray-address={address}"]
    with pytest.raises(SystemExit) as stop:
        main(["train", *flags, f"--run-dir={tmp_path}"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert f"no Ray of version {ray.__version__} could be used at ray-address = {address}" in said
    assert reason in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


CONNECT = """
from anybatch.distributed import ray_connection
with ray_connection.needed_for("actors", address=None):
    import ray.util
print(ray.util.get_node_ip_address())
ray.init = lambda **options: None
ray_connection.connect(None, 1)
"""


@pytest.mark.parametrize("imported_before", [False, True])
def test_a_private_ray_listens_on_this_machine_only_or_is_not_started(imported_before: bool):
    environment = {name: word for name, word in os.environ.items() if not name.startswith("RAY_")}
    program = "import ray" * imported_before + CONNECT
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    is_local = done.stdout.split()[0] == "127.0.0.1"
    assert is_local or imported_before
    assert (done.returncode == 0) == is_local
    assert is_local or "ConfigError: a private Ray would be reachable from other machines" in done.stderr
