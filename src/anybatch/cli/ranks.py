"""Several ranks on one machine: `--ranks` starts torch's elastic agent, which starts the ranks.

The agent restarts all ranks when one is lost, and the run then continues from its newest checkpoint. A run
that was refused or stopped by a person is not restarted.
"""

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from multiprocessing import active_children, parent_process
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from anybatch.cli.parser import Argv
from anybatch.cli.run_flags import number_of_ranks
from anybatch.distributed import group
from anybatch.errors import LostRankError, UserError
from anybatch.runs.stop import SIGNALS, Stopped

MAX_RESTARTS = 8
"""How often lost ranks are restarted in one run."""
LOST = 1
"""Exit code of a rank that has lost another one."""
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: which signal a process gets when its parent has ended."""
STOPPED = "ANYBATCH_STOPPED"
"""Environment variable of ranks that start after a stop was requested: they must not train."""


def asked_for(argv: Argv) -> int:
    """The number of processes that `--ranks` requests; 1 without the flag."""
    if "ranks" in argv and group.is_rank():
        raise UserError("--ranks starts the ranks by itself: leave it out under torchrun")
    return number_of_ranks(argv)


@contextlib.contextmanager
def nothing_shown() -> Iterator[None]:
    """Leave standard output to another process."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


@contextlib.contextmanager
def as_a_rank() -> Iterator[None]:
    """Act as the rank that the launcher assigned; only rank 0 uses standard output."""
    if not group.is_rank():
        yield
        return
    with contextlib.ExitStack() as stack:
        if os.environ["RANK"] != "0":
            stack.enter_context(nothing_shown())
        stack.enter_context(group.joined())
        try:
            yield
        except UserError as error:
            speaks = str(error) and group.is_first_to_fail()
            raise type(error)(f"{group.name()}{error}" if speaks else "") from error
        except LostRankError as error:
            if group.failure_was_told():
                raise SystemExit(2) from None
            print(f"anybatch: {group.name()}{error}", file=sys.stderr)
            raise SystemExit(LOST) from None


def launch(command: str, argv: Argv, number: int) -> NoReturn:
    """Run a command in `ranks` ranks on this machine, and exit as it would have in one process."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    run_id = uuid.uuid4().hex
    # No port is open to other machines: ranks meet in a file, and exchange data over the loopback device.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", group.LOOPBACK)
    with tempfile.TemporaryDirectory(prefix="anybatch-ranks-") as folder, ForwardedSignals() as signals:
        os.environ[group.MEETING_FILE] = str(Path(folder) / "meeting")
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=number,
            run_id=run_id,
            rdzv_backend="c10d",
            rdzv_endpoint=str(Path(folder) / "rendezvous"),
            rdzv_configs={"store_type": "file"},
            local_addr="127.0.0.1",
            max_restarts=MAX_RESTARTS,
            logs_specs=DefaultLogsSpecs(log_dir=str(Path(folder) / "logs")),
            signals_to_handle="SIGQUIT",  # the others are forwarded, so that ranks end as one process does
        )
        try:
            codes = elastic_launch(config, work)([command, *argv.without("ranks")])
        except ChildFailedError as failed:
            _, failure = failed.get_first_failure()
            how = f"signal {-failure.exitcode}" if failure.exitcode < 0 else f"exit code {failure.exitcode}"
            print(
                f"anybatch {command}: rank {failure.local_rank} ended with {how}, and the ranks were "
                f"restarted {MAX_RESTARTS} times; `anybatch resume` continues the run",
                file=sys.stderr,
            )
            raise SystemExit(LOST) from None
    code = max(codes.values())
    raise SystemExit(128 + signals.first if code > 128 and signals.first else code)


def work(words: list[str]) -> int:
    """Run the command as a rank. Returns its exit code; a rank that lost another one ends with LOST's
    code."""
    from anybatch.cli.main import main

    # A terminal sends Ctrl-C to every process; the launcher forwards it as one signal to each rank.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_launcher()
    if STOPPED in os.environ:
        return 128 + int(os.environ[STOPPED])
    try:
        main(words)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0
        if code == LOST:
            raise
        return code
    return 0


def end_with_launcher() -> None:
    """Let Linux end this rank with its launcher: one that trained on would keep the run from a resume.

    torch asks for SIGINT in that case, which ranks ignore.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = parent_process()
    if launcher is not None and os.getppid() != launcher.pid:  # it was gone before
        raise SystemExit(LOST)


class ForwardedSignals(contextlib.AbstractContextManager["ForwardedSignals"]):
    """Forwards the first stop signal to the ranks, and ends them at the second."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "ForwardedSignals":
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` requested that
                self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if self.first is not None:
            raise Stopped(number)  # the agent ends the ranks
        self.first = number
        os.environ[STOPPED] = str(number)
        for process in active_children():
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
