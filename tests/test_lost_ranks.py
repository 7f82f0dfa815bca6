"""Ranks on the command line: refused, killed, stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from toy_runs import newest_learner

from anybatch.runs import log

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
TRAIN = [
    "train",
    "--preset=cartpole-ppo",
    "--env=toy:Match",
    "--num-envs=3",
    "--num-steps=5",
    "--record.checkpoint-every-iterations=2",
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
def test_a_run_survives_a_killed_rank_and_a_stop_ends_it(tmp_path: Path):
    runs = tmp_path / "runs"
    words = [*COMMAND, *TRAIN, f"--run-dir={runs}", "--total-env-steps=1000000000"]
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        try:
            before = wait_for_rows(runs, 3, process, out)
            os.kill(ranks_of(process.pid)[-1], signal.SIGKILL)
            wait_for_rows(runs, before + 8, process, out)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM, shown(out)
        finally:
            process.kill()
        said = shown(out)
    assert "Stopped. Continue with: anybatch resume" in said
    (folder,) = runs.iterdir()  # it continued in its own folder, and forgot the job
    rows = log.read(folder)
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps)) and {row["charts/ranks"] for row in rows} == {2}
    assert newest_learner(folder)["env_steps"] == steps[-1]


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
