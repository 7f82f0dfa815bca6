"""Ranks and actors on two hosts: equal to one process, and what happens when a host or its network is lost.

With -s, they print bytes and the time of exchanges, which docs/scale.md has.
"""

import math
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hosts
import pytest
from hosts import DEVICE, Host

from anybatch.runs import log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PORT = 29_400
TOKEN = secrets.token_hex(32)
TRAIN = (
    *("train", "--env=CartPole-v1", "--num-envs=8", "--num-steps=32", "--evaluation.num-envs=1", "--seed=5"),
    *("--record.checkpoint-every-seconds=0", "--native=off"),
)
COUNTS = ("env_steps", "charts/iterations", "charts/gradient_steps", "batch/iteration", "batch/minibatch")


@contextmanager
def agents(pair: list[Host], runs: Path, *words: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """torchrun on each host, with a rank each; ends with the block. Without a command it trains in `runs`."""
    if words[0].startswith("--"):
        words = (*TRAIN, f"--run-dir={runs}", *words)
    with ExitStack() as stack:
        started = []
        for place, host in enumerate(pair):
            run = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                f"--nnodes={len(pair)}",
                "--nproc-per-node=1",
            ]
            run += [f"--node-rank={place}", f"--master-addr={pair[0].address}", f"--master-port={PORT}"]
            run += ["-m", "anybatch", *words]
            runs.parent.mkdir(exist_ok=True)
            out = stack.enter_context((runs.parent / f"host{place}.txt").open("w"))
            environ = os.environ | {
                "GLOO_SOCKET_IFNAME": DEVICE,
                "TP_SOCKET_IFNAME": DEVICE,
                "OMP_NUM_THREADS": "1",
            }
            process = subprocess.Popen(host.command(run), stdout=out, stderr=out, text=True, env=environ)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        yield started


def alone(runs: Path, *words: str) -> Path:
    """The same run in one process."""
    run = [sys.executable, "-m", "anybatch", *TRAIN, *words, f"--run-dir={runs}"]
    subprocess.run(run, check=True, capture_output=True)
    (folder,) = (path for path in runs.iterdir() if path.is_dir())
    return folder


def folder_of(runs: Path) -> Path:
    (folder,) = (path for path in runs.iterdir() if path.is_dir())
    return folder


def rows_of(runs: Path) -> list[dict[str, Any]]:
    folders = [path for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    return log.read(folders[0]) if folders and (folders[0] / "metrics.jsonl").is_file() else []


def wait_for_rows(runs: Path, number: int, processes: list["subprocess.Popen[str]"]) -> None:
    while len(rows_of(runs)) < number:
        assert all(process.poll() is None for process in processes), said(runs)
        time.sleep(0.2)


def said(runs: Path) -> str:
    return "\n".join(path.read_text()[-3000:] for path in sorted(runs.parent.glob("host*.txt")))


def test_two_hosts_give_the_run_of_one_process(tmp_path: Path):
    steps = "--total-env-steps=5120"
    with hosts.opened(2) as pair, agents(pair, tmp_path / "runs", steps) as processes:
        assert [process.wait(600) for process in processes] == [0, 0], said(tmp_path / "runs")
        sent = [host.bytes_sent() for host in pair]
    rows, reference = rows_of(tmp_path / "runs"), log.read(alone(tmp_path / "alone", steps))
    assert {row["charts/ranks"] for row in rows} == {2}
    assert [[row[name] for name in COUNTS] for row in rows] == [
        [row[name] for name in COUNTS] for row in reference
    ]
    for ours, theirs in zip(rows[:3], reference, strict=False):
        for name in ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm"):
            assert math.isclose(ours[name], theirs[name], rel_tol=1e-3, abs_tol=1e-5), name
    gradient = 4 * 9_000  # a network of about 9,000 float32 weights, sent once per gradient step
    gradient_steps = rows[-1]["charts/gradient_steps"]
    assert min(sent) > gradient * gradient_steps / 2, sent
    share = sum(row["time/collectives"] for row in rows) / sum(row["wall_seconds"] for row in rows[-1:])
    print(f"\n{sent} bytes sent, {gradient_steps} gradient steps, {share:.0%} of the time in exchanges")


def test_a_network_with_a_round_trip_of_20_ms_changes_the_time_only(tmp_path: Path):
    steps = "--total-env-steps=1024"
    with hosts.far_apart(0.01) as pair, agents(pair, tmp_path / "far", steps) as processes:
        assert [process.wait(600) for process in processes] == [0, 0], said(tmp_path / "far")
        sent = [host.bytes_sent() for host in pair]
    with hosts.opened(2) as pair, agents(pair, tmp_path / "near", steps) as processes:
        assert [process.wait(600) for process in processes] == [0, 0], said(tmp_path / "near")
    far, near = rows_of(tmp_path / "far"), rows_of(tmp_path / "near")
    assert [decisive(row) for row in far] == [decisive(row) for row in near]
    print(f"\n{sent} bytes sent, {far[-1]['charts/gradient_steps']} gradient steps")
    for name, rows in (("20 ms", far), ("no delay", near)):
        seconds = sum(row["time/collectives"] for row in rows[1:])
        number = rows[-1]["charts/gradient_steps"] - rows[0]["charts/gradient_steps"]
        share = seconds / (rows[-1]["wall_seconds"] - rows[0]["wall_seconds"])
        print(f"{name}: {seconds / number:.3f} s in exchanges per gradient step, {share:.0%} of the time")


def ray_environ() -> dict[str, str]:
    """Variables for Ray on several hosts, with a token against strangers, as docs/actors.md advises."""
    others = {name: word for name, word in os.environ.items() if not name.startswith("RAY_")}
    return others | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def ray_cluster(pair: list[Host], temporary: Path) -> Iterator[str]:
    """Ray on each host, with a core each, and its address; ends with the block."""
    environ = ray_environ() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    start += ["--object-store-memory=100000000"]
    address = f"{pair[0].address}:6379"
    with ExitStack() as stack:
        for host in pair:
            head = ["--head", "--port=6379", "--include-dashboard=false"]
            where = [
                f"--node-ip-address={host.address}",
                *(head if host == pair[0] else [f"--address={address}"]),
            ]
            path = temporary / f"ray-{host.name}.txt"
            out = stack.enter_context(path.open("w"))
            process = subprocess.Popen(host.command([*start, *where]), stdout=out, stderr=out, env=environ)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            while "Ray runtime started" not in path.read_text():
                assert process.poll() is None, path.read_text()
                time.sleep(0.2)
        yield address


def test_actors_of_ray_on_two_hosts_are_the_queue_to_the_bit(tmp_path: Path):
    words = ["--total-env-steps=5120", "--staleness.iterations=2", "--normalize.observations=none"]
    reference = log.read(alone(tmp_path / "alone", *words))
    runs = tmp_path / "runs"
    with hosts.opened(2) as pair, ray_cluster(pair, tmp_path) as address:
        run = [sys.executable, "-m", "anybatch", *TRAIN, *words, f"--run-dir={runs}"]
        run += ["--actors=ray:2", f"--ray-address={address}"]
        before = [host.bytes_sent() for host in pair]
        done = subprocess.run(
            pair[0].command(run), capture_output=True, text=True, env=ray_environ(), timeout=600
        )
        sent = [host.bytes_sent() - first for host, first in zip(pair, before, strict=True)]
    assert done.returncode == 0, done.stderr
    rows = rows_of(runs)
    assert [decisive(row) for row in rows] == [decisive(row) for row in reference]
    iterations = len(rows)
    rollout, weights = 4 * 32 * 4 * 4, 4 * 9_000  # 4 envs, whose observations are 4 numbers of 4 bytes
    assert sent[0] > weights * iterations / 2 and sent[1] > rollout * iterations / 2, sent
    waited = sum(row["actors/learner_idle"] for row in rows) / iterations
    seconds = (rows[-1]["wall_seconds"] - rows[0]["wall_seconds"]) / (iterations - 1)
    print(f"\n{sent} bytes sent, {iterations} iterations of {seconds:.3f} s")
    print(f"the learner waited {waited:.0%} of the time")


def decisive(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what depends on the clock and on who collects."""
    own = ("wall_seconds", "charts/SPS", "time/", "actors/")
    return {name: value for name, value in row.items() if not name.startswith(own)}


def test_a_link_that_is_down_for_a_minute_delays_the_run(tmp_path: Path):
    runs = tmp_path / "runs"
    with hosts.opened(2) as pair, agents(pair, runs, "--total-env-steps=1000000000") as processes:
        wait_for_rows(runs, 3, processes)
        pair[1].set_link("down")
        time.sleep(60)
        assert all(process.poll() is None for process in processes), said(runs)
        before = len(rows_of(runs))
        pair[1].set_link("up")
        wait_for_rows(runs, before + 5, processes)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert all(process.wait(120) is not None for process in processes)
    steps = [row["env_steps"] for row in rows_of(runs)]
    assert steps == sorted(set(steps))


def test_a_host_that_is_lost_ends_the_run_within_a_minute_and_a_resume_equals_one_that_was_not_disturbed(
    tmp_path: Path,
):
    runs, end = tmp_path / "runs", "--total-env-steps=20480"
    with hosts.opened(2) as pair, agents(pair, runs, end) as processes:
        wait_for_rows(runs, 4, processes)
        pids = subprocess.check_output(["ip", "netns", "pids", pair[1].name], text=True).split()
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
        lost = time.monotonic()
        processes[0].wait(300)
        seconds = time.monotonic() - lost
    assert seconds < 60, seconds
    print(f"\nthe other host ended after {seconds:.1f} s")
    folder = folder_of(runs)
    with hosts.opened(2) as pair:
        with agents(pair, runs, "resume", str(folder)) as processes:
            assert [process.wait(600) for process in processes] == [0, 0], said(runs)
        with agents(pair, tmp_path / "undisturbed" / "runs", end) as processes:
            assert [process.wait(600) for process in processes] == [0, 0], said(
                tmp_path / "undisturbed" / "runs"
            )
    resumed, reference = log.read(folder), rows_of(tmp_path / "undisturbed" / "runs")
    assert [row["env_steps"] for row in resumed] == [row["env_steps"] for row in reference]
    names = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")
    assert [[row[name] for name in names] for row in resumed] == [
        [row[name] for name in names] for row in reference
    ]
