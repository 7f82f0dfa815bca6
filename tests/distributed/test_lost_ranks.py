"""Ranks on the command line: refused, killed, stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from toy_runs import newest_learner, toy_config, train

from anybatch.runs import log, restarts

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
TRAIN = [
    "train",
    "--preset=cartpole-ppo",
    "--env=toy:Match",
    "--num-envs=3",
    "--num-steps=5",
    "--record.checkpoint-every-iterations=2",
    "--record.log-every=1",
    "--record.no-tensorboard",
    "--ranks=2",
]
PATIENCE_SECONDS = 200


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--ranks=4"], "4 ranks share num-envs = 3: each must have at least one env"),
        (["--ranks=none"], "--ranks none: must be a whole number from 1 to 1,024"),
        (["--normalize.observations=step"], "use --normalize.observations iteration"),
        (["--update.epochs=0"], "epochs"),
    ],
)
def test_what_ranks_cannot_do_is_one_sentence(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from anybatch.cli import main

    words = [word for word in TRAIN if word.partition("=")[0] != flags[0].partition("=")[0]]
    with pytest.raises(SystemExit) as ended:
        main([*words, f"--run-dir={tmp_path}/runs", *flags])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and said in err and err.count("\n") == 1 and out == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("run_id", "continues"), [("exp-none", True), ("none", False)])
def test_a_job_begun_anew_continues_the_run_of_its_id_unless_it_has_none(
    run_id: str, continues: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = train(toy_config(), tmp_path).folder
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", run_id)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    restarts.begin(tmp_path, folder)
    assert restarts.begun_run(tmp_path) == (folder if continues else None)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert restarts.begun_run(tmp_path) == folder


def test_gradients_that_end_all_ranks_are_one_sentence_of_one_rank(tmp_path: Path):
    """A minibatch has fewer samples than there are ranks: one of them has none to look for a cause in."""
    flags = ["--optimizer.learning-rate=1e38", "--update.minibatches-per-epoch=15"]
    words = [*COMMAND, *TRAIN, f"--run-dir={tmp_path}", "--total-env-steps=10000", *flags]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("anybatch train: rank 0 of 2 on ")
    assert "gradient steps in a row were non-finite" in done.stderr
    assert done.stdout.count("iteration batch ") == 1  # it was not started again


@pytest.mark.timeout(600)
def test_a_run_survives_a_killed_rank_and_a_killed_launcher_and_a_stop_ends_it(tmp_path: Path):
    runs = tmp_path / "runs"
    words = [*TRAIN, f"--run-dir={runs}", "--total-env-steps=1000000000"]
    with launched(words, tmp_path / "first") as (process, out):
        before = wait_for_rows(runs, 3, process, out)
        os.kill(ranks_of(process.pid)[-1], signal.SIGKILL)
        before = wait_for_rows(runs, before + 8, process, out)
        ranks = ranks_of(process.pid)
        process.kill()
        wait_for_the_end_of(ranks)
    (note,) = runs.glob(".elastic-*")
    note.unlink()  # of a job that nothing will start again
    (folder,) = runs.iterdir()  # it continued in its own folder
    with launched(["resume", str(folder), "--ranks=2"], tmp_path / "second") as (process, out):
        wait_for_rows(runs, before + 8, process, out)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM, shown(out)
        said = shown(out)
    assert "Stopped. Continue with: anybatch resume" in said
    assert list(runs.iterdir()) == [folder]  # the job was forgotten
    rows = log.read(folder)
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps)) and {row["charts/ranks"] for row in rows} == {2}
    assert newest_learner(folder)["env_steps"] == steps[-1]


@pytest.mark.timeout(600)
def test_a_rank_that_is_killed_before_it_has_met_the_others_is_restarted(tmp_path: Path):
    runs = tmp_path / "runs"
    words = [*TRAIN, f"--run-dir={runs}", "--total-env-steps=1000000000"]
    with launched(words, tmp_path / "out") as (process, out):
        while len(started := ranks_of(process.pid)) < 2:
            assert process.poll() is None, shown(out)
            time.sleep(0.01)
        os.kill(started[-1], signal.SIGKILL)
        wait_for_rows(runs, 3, process, out)
        assert not set(started) & set(ranks_of(process.pid))
    assert len([path for path in runs.iterdir() if path.is_dir()]) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_continues_when_one_of_two_agents_of_torchrun_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runs = tmp_path / "runs"
    words = [*(word for word in TRAIN if word != "--ranks=2"), f"--run-dir={runs}"]
    port = free_port()
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
    agent += ["--max-restarts=8", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    agent += ["--rdzv-id=job-1", "-m", "anybatch", *words, "--total-env-steps=1000000000"]
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    with launched([], tmp_path / "first", agent) as (first, out):
        wait_for_port(port, first, out)  # the agent that hosts the rendezvous must be the one that stays
        with launched([], tmp_path / "second", agent):
            wait_for_ranks(runs, 2, first, out)
        wait_for_ranks(runs, 1, first, out)
    (folder,) = (path for path in runs.iterdir() if path.is_dir())
    rows = log.read(folder)
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    changes = list(dict.fromkeys(row["charts/ranks"] for row in rows))
    assert changes[-2:] == [2, 1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for_port(port: int, process: "subprocess.Popen[bytes]", out: IO[str]) -> None:
    """Wait until something listens on a port of this machine."""
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=10):
            return
        assert process.poll() is None, shown(out)
        time.sleep(0.05)


def wait_for_ranks(runs: Path, number: int, process: "subprocess.Popen[bytes]", out: IO[str]) -> None:
    """Wait until the newest rows are of so many ranks, more of them than a lost rank takes back."""
    ranks: list[int] = []
    while ranks[-6:] != [number] * 6:
        wait_for_rows(runs, 1, process, out)
        assert process.poll() is None, shown(out)
        time.sleep(0.05)
        (metrics,) = runs.glob("*/metrics.jsonl")
        ranks = [row["charts/ranks"] for row in log.read(metrics.parent)]


@contextmanager
def launched(
    words: list[str], path: Path, command: list[str] = COMMAND
) -> Iterator[tuple["subprocess.Popen[bytes]", IO[str]]]:
    """A command whose output goes to a file; neither it nor what it starts outlives the block."""
    with path.open("w+") as out:
        process = subprocess.Popen([*command, *words], stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process, out
        finally:
            below = descendants(process.pid)
            process.kill()
            process.wait()
            for one in below:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


def descendants(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return []
    return [one for child in map(int, children) for one in (child, *descendants(child))]


def wait_for_the_end_of(processes: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline, "ranks outlive their launcher"
        time.sleep(0.05)


def ranks_of(launcher: int) -> list[int]:
    """The processes of the ranks, rank 0 first. The launcher has a helper of Python's own as well."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    commands = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
    return [child for child, command in sorted(commands.items()) if "spawn_main" in command]


def wait_for_rows(runs: Path, number: int, process: "subprocess.Popen[bytes]", out: IO[str]) -> int:
    """Wait until the run has logged so many rows. Returns how many there are."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        logs = list(runs.glob("*/metrics.jsonl"))
        rows = len(log.read(logs[0].parent)) if logs else 0
        if rows >= number:
            return rows
        assert process.poll() is None and time.monotonic() < deadline, shown(out)
        time.sleep(0.05)


def shown(out: IO[str]) -> str:
    out.seek(0)
    return out.read()
