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
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

SECONDS_TO_COMPILE = 120
"""Seconds after which compiling is given up; two are usual."""
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
)
"""Sums may be reordered, which vectors need; NaN and infinities keep their meaning. Not -ffast-math: with it,
loading the library would change how the whole process rounds its smallest numbers."""
X86_FLAGS = ("-mprefer-vector-width=512",)
"""By default compilers use half of the width, for programs that use vectors only occasionally."""


def available() -> bool:
    """Whether there is a native library here; compiles it if necessary."""
    try:
        library("float32")
    except CompileError:
        return False
    return True


class CompileError(Exception):
    """There is no native library. The message says why, in a sentence without a full stop."""


@cache
def library(precision: Literal["float32", "float64"]) -> ctypes.CDLL:
    """The library for real numbers of this precision."""
    sources = _sources()
    compiler = _compiler()
    flags = (
        *FLAGS,
        *(X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ()),
        *(("-DANYBATCH_DOUBLE",) if precision == "float64" else ()),
    )
    path = _cache_folder() / f"kernels-{_fingerprint(sources, compiler, flags)}.so"
    if not path.exists():
        _compile(sources, compiler, flags, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{path} cannot be loaded: {error}") from None


def _sources() -> dict[str, str]:
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith((".c", ".h"))]
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)}


def _compiler() -> list[str]:
    """The command of the C compiler: CC, else the usual names."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    if named:
        raise CompileError(f"the C compiler {named[0]}, which CC names, is not installed")
    raise CompileError("there is no C compiler (install gcc or clang)")


def _cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anybatch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def _fingerprint(sources: dict[str, str], compiler: list[str], flags: tuple[str, ...]) -> str:
    """A fingerprint of sources, compiler and processor: several machines may share a home folder."""
    version = _run([*compiler, "--version"])
    known = (sources, version, flags, platform.machine(), _processor(), sysconfig.get_platform())
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _processor() -> str:
    """The instructions of this processor, which -march=native compiles for."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    named = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(sorted(set(named))) or platform.processor()


def _compile(sources: dict[str, str], compiler: list[str], flags: tuple[str, ...], path: Path) -> None:
    """Compile the files side by side, since a user waits for it, and link them."""
    files = sorted((name for name in sources if name.endswith(".c")), key=lambda name: -len(sources[name]))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name, text in sources.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the longest files first
            list(pool.map(lambda name: _run([*compiler, *flags, "-c", name], folder), files))
        objects = [f"{Path(name).stem}.o" for name in files]
        _run([*compiler, "-shared", "-pthread", "-o", path.name, *objects, "-lm"], folder)
        os.replace(Path(folder) / path.name, path)  # complete or not at all, even if two processes compile


def _run(command: list[str], folder: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_TO_COMPILE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        first = next(iter(done.stderr.strip().splitlines()), "no message")
        raise CompileError(f"{command[0]} failed: {first[:200]}")
    return done.stdout
