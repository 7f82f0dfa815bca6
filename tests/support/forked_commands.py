"""Commands in processes of their own, forked from one that has imported everything.

A process is what signals and kills end; importing torch in each would take longer than what is tested.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

SERVER = """
import gc, json, os, sys
import gymnasium, tensorboard.plugins.hparams.summary_v2
from anybatch.cli import (doctor, main, playing, preset_list, publish, reporting, study, training)

answers = os.fdopen(os.dup(1), "w", buffering=1)
gc.collect()
gc.freeze()
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(child, file=answers)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers)
else:
    sys.exit()
answers.close()
for number, name in enumerate((os.devnull, job["out"], job["err"])):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
os.environ |= job["variables"]
main(job["words"])
"""
"""Each line of its input is a job. It answers with the id of the process, then with its exit code. The new
process leaves the loop, and ends as any Python program does; it need not look at the frozen objects, which
halves its time."""


class Command:
    """A command that runs, one at a time for each server."""

    def __init__(
        self, server: subprocess.Popen[bytes], folder: Path, words: list[str], variables: Mapping[str, str]
    ):
        self._server = server
        self._out, self._err = folder / "out", folder / "err"
        job = {"words": words, "variables": dict(variables), "out": str(self._out), "err": str(self._err)}
        assert server.stdin is not None
        server.stdin.write(json.dumps(job).encode() + b"\n")
        server.stdin.flush()
        self.pid = self._answer()
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send_signal(signal.SIGKILL)  # or a test that fails would wait for it forever
        self.wait(60)

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.returncode if self.returncode is not None or not self._is_answered(0) else self.wait(0)

    def wait(self, seconds: float) -> int:
        if self.returncode is None:
            assert self._is_answered(seconds), f"it still runs after {seconds} s"
            self.returncode = self._answer()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def said(self) -> tuple[str, str]:
        """What it wrote to its standard output and error so far."""
        return self._out.read_text(), self._err.read_text()

    def _is_answered(self, seconds: float) -> bool:
        return bool(select.select([self._server.stdout], [], [], seconds)[0])

    def _answer(self) -> int:
        """The next line, read byte by byte: a buffer would hide it from `select`."""
        assert self._server.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._server.stdout.fileno(), 1)
            assert byte, "the server has ended"
            line += byte
        return int(line)


class Commands:
    """Starts commands."""

    def __init__(self, server: subprocess.Popen[bytes], folder: Path) -> None:
        self._server, self._folder = server, folder

    def start(self, words: list[str], **variables: str) -> Command:
        """A command with further environment variables; modules beside the tests can be imported in it."""
        return Command(self._server, self._folder, words, variables)


@contextmanager
def opened(folder: Path) -> Iterator[Commands]:
    """Commands whose outputs go to files in `folder`."""
    search = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": search},
    ) as server:
        yield Commands(server, folder)
