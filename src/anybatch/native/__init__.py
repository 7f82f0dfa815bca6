"""Native code in C, for work so small that calling torch or numpy costs more than the arithmetic.

It is compiled on this machine at first use, then kept. Without a compiler, other code does the same; only
MinAtar's games have no other.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from anybatch.native import layout

SECONDS_TO_COMPILE = 300
"""Seconds after which compiling is given up; seven are usual, and more on a busy machine."""
FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-freciprocal-math",
    "-std=gnu11",
    "-fPIC",
    "-pthread",
    *(f"-D{name}={number}" for name, number in layout.NUMBERS.items()),
)
"""Sums may be reordered, which vectors need; NaN and infinities keep their meaning. Not -ffast-math: with it,
loading the library would change how the whole process rounds its smallest numbers."""
X86_FLAGS = ("-mprefer-vector-width=512",)
"""By default compilers use half of the width, for programs that use vectors only occasionally."""
EXTRA_FLAGS = "ANYBATCH_CFLAGS"
"""Environment variable with further options for the compiler, which take precedence; see `make sanitize`."""

Precision = Literal["float32", "float64"]


def available() -> bool:
    """Whether there is a native library here; compiles it if necessary."""
    try:
        library("float32")
    except CompileError:
        return False
    return True


class CompileError(Exception):
    """There is no native library. The message says why, in a sentence without a full stop."""


def library(precision: Precision) -> ctypes.CDLL:
    """The library for real numbers of this precision."""
    found = attempt(precision)
    if isinstance(found, CompileError):
        raise CompileError(*found.args)
    return found


@cache
def attempt(precision: Precision) -> ctypes.CDLL | CompileError:
    """The library, or why there is none. Made once: a compiler that hangs is not waited for again."""
    try:
        loaded = ctypes.CDLL(str(_kept_or_compiled(precision)))
        layout.check(loaded)
        layout.declare_functions(loaded)
    except CompileError as error:
        return error
    except OSError as error:
        return CompileError(f"the native library cannot be loaded: {error}")
    except layout.LayoutError as error:
        return CompileError(f"{error}: this installation of anybatch is damaged")
    return loaded


def _kept_or_compiled(precision: Precision) -> Path:
    until = time.monotonic() + SECONDS_TO_COMPILE
    sources, compiler, folder = _sources(), _compiler(), _cache_folder()
    extra = _words(EXTRA_FLAGS)
    flags = (
        *FLAGS,
        *(X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ()),
        *(("-DANYBATCH_DOUBLE",) if precision == "float64" else ()),
        *extra,
    )
    [version] = _run_all([[*compiler, "--version"]], folder, until)
    # Several machines may share a home folder.
    known = (sources, version, flags, platform.machine(), _processor(), sysconfig.get_platform())
    stem = f"kernels-{hashlib.sha256(repr(known).encode()).hexdigest()[:16]}"
    try:
        for path in sorted(folder.glob(f"{stem}-*.so")):
            if path.name == _kept_name(stem, _content(path)):
                return path
            path.unlink(missing_ok=True)  # damaged, for example because the disk was full
        return _compile(sources, compiler, flags, extra, folder / stem, until)
    except OSError as error:
        raise CompileError(f"{folder} cannot be used: {error.strerror}") from None


def _sources() -> dict[str, str]:
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith((".c", ".h"))]
    texts = {
        file.name: file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)
    }
    return texts | {f"{stem}.c": texts[f"{stem}.c"] + layout.tables(stem) for stem in layout.STRUCTS}


def _compiler() -> list[str]:
    """The command of the C compiler: CC, else the usual names."""
    named = _words("CC")
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    if named:
        raise CompileError(f"the C compiler {named[0]}, which CC names, is not installed")
    raise CompileError("there is no C compiler (install gcc or clang)")


def _words(variable: str) -> list[str]:
    """The words of an environment variable, as a shell would separate them."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise CompileError(f"{variable} cannot be read: {error}") from None


def _cache_folder() -> Path:
    """Where libraries are kept. Nobody else may write there: whoever can, can run code as this user."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        folder = (named if named.is_absolute() else Path.home() / ".cache") / "anybatch"
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _validate_owner(folder, folder.stat())
    except OSError as error:
        raise CompileError(f"{error.filename} cannot be used: {error.strerror}") from None
    except RuntimeError:  # no HOME, and a user that the system does not know
        raise CompileError("there is no home folder to keep the compiled library in") from None
    return folder


def _validate_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise CompileError(
            f"{path} belongs to another user (number {found.st_uid}), so nothing is loaded from it"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompileError(
            f"other users may write to {path}, so nothing is loaded from it; chmod go-w {path} changes that"
        )


def _content(path: Path) -> bytes:
    # A link is not followed, and a pipe is not waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        _validate_owner(path, found)
        return file.read() if stat.S_ISREG(found.st_mode) else b""


def _kept_name(stem: str, content: bytes) -> str:
    """With a checksum: a truncated library, once loaded, would end the process without a message."""
    return f"{stem}-{hashlib.sha256(content).hexdigest()}.so"


def _processor() -> str:
    """The instructions of this processor, which -march=native compiles for."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    named = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(sorted(set(named))) or platform.processor()


def _compile(
    sources: dict[str, str],
    compiler: list[str],
    flags: Sequence[str],
    link_flags: Sequence[str],
    stem: Path,
    until: float,
) -> Path:
    """Compile the files side by side, since a user waits for it, and link them."""
    names = sorted((name for name in sources if name.endswith(".c")), key=lambda name: -len(sources[name]))
    with tempfile.TemporaryDirectory(dir=stem.parent) as temporary:
        folder = Path(temporary)
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        _run_all([[*compiler, *flags, "-c", name] for name in names], folder, until)  # the longest first
        objects = [f"{Path(name).stem}.o" for name in names]
        _run_all(
            [[*compiler, "-shared", "-pthread", *link_flags, "-o", "library", *objects, "-lm"]], folder, until
        )
        linked = folder / "library"
        linked.chmod(0o700)
        path = stem.with_name(_kept_name(stem.name, linked.read_bytes()))
        _sync(linked)
        linked.replace(path)  # complete or not at all, even if two processes compile
    _sync(path.parent)
    return path


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _run_all(commands: Sequence[list[str]], folder: Path, until: float) -> list[str]:
    """What commands print, of which as many run at a time as there are cores."""
    waiting, running, printed = list(commands), list[subprocess.Popen[str]](), list[str]()
    program = commands[0][0]
    try:
        while waiting or running:
            while waiting and len(running) <= (os.cpu_count() or 1):
                running.append(_start(waiting.pop(0), folder))
            out, err = running[0].communicate(timeout=max(0.0, until - time.monotonic()))
            done = running.pop(0)
            if done.returncode:
                lines = err.strip().splitlines() or ["no message"]
                first = next((line for line in lines if "error" in line), lines[0])
                raise CompileError(f"{program} failed: {first[:200]}")
            printed.append(out)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{program} has not finished after {SECONDS_TO_COMPILE} seconds") from None
    finally:
        for process in running:
            with process, suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return printed


def _start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # a compiler is several processes, which end together
        )
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be run: {error.strerror}") from None
