"""The native library: how it is compiled, kept and loaded, and what Python and C have to agree on."""

import ctypes
import inspect
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_runs import start, toy_config

from anybatch import native
from anybatch.cli import doctor
from anybatch.native import layout

LOAD = "from anybatch import native; print(native.library('float32')._name)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache. Nothing is optimized, which compiles in a quarter of the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(native.EXTRA_FLAGS, "-O0")
    native.attempt.cache_clear()
    yield tmp_path / "anybatch"
    native.attempt.cache_clear()


def compiled() -> Path:
    """The library that another process compiles or finds; changing one that is loaded here would be fatal."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return Path(done.stdout.strip())


def refusal() -> str:
    """The sentence with which native code is refused, and with which a run goes on with torch."""
    native.attempt.cache_clear()
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("anybatch").addHandler(listener)
    try:
        state = start(toy_config())
    finally:
        logging.getLogger("anybatch").removeHandler(listener)
    assert not state.backend.is_native and len(said) == 1
    check = doctor.native_code()
    assert not check.works
    sentence = said[0].removeprefix("Native code is not used, which makes small networks slower: ")
    assert sentence.removesuffix(".") in check.finding and "\n" not in sentence
    return sentence


@pytest.mark.parametrize("length", [0, 5000, -1])
def test_a_truncated_library_is_compiled_again(length: int, folder: Path):
    kept = compiled()
    content = kept.read_bytes()
    kept.write_bytes(content[:length])
    # Loaded as it is, it would end the process with a bus error.
    assert compiled() == kept
    assert kept.read_bytes() == content and list(folder.iterdir()) == [kept]


@pytest.mark.usefixtures("folder")
def test_so_is_one_with_other_content_and_a_pipe_is_not_waited_for():
    kept = compiled()
    content = kept.read_bytes()
    kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert compiled() == kept and kept.read_bytes() == content
    kept.unlink()
    os.mkfifo(kept)
    assert compiled() == kept and kept.read_bytes() == content


def test_a_library_is_on_disk_before_it_has_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        events.append(f"rename {path.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    native.library("float32")
    assert events == ["sync library", "rename library", f"sync {folder.name}"]


def test_nothing_is_loaded_from_where_others_may_write(folder: Path):
    kept = compiled()
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in (folder, kept):
        before = path.stat().st_mode
        for others in (0o020, 0o002):
            path.chmod(before | others)
            assert refusal().startswith(f"other users may write to {path}, so nothing is loaded from it")
        path.chmod(before)
    assert compiled() == kept


def test_nothing_is_loaded_from_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch):
    compiled()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert refusal().startswith(f"{folder} belongs to another user (number {user})")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", ["/dev/null", "/proc/of-nobody"])
def test_a_cache_that_cannot_be_made_is_one_sentence(place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    assert place in refusal()


def test_so_is_a_file_in_its_place(folder: Path):
    folder.touch()
    assert refusal() == f"{folder} cannot be used: File exists."


@pytest.mark.usefixtures("folder")
def test_a_cache_named_relative_to_the_working_folder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert compiled().is_relative_to(tmp_path / "home" / ".cache" / "anybatch")


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(folder: Path):
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    program = "from anybatch import native; print(repr(native.attempt('float32')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, preexec_fn=no_room
    )
    assert done.stdout.startswith("CompileError(") and "File too large" in done.stdout
    assert list(folder.iterdir()) == []


def is_running(process: str) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("version", ["exec sleep 1000", "echo 1.0"])
def test_a_compiler_that_hangs_is_given_up(
    version: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program, processes = tmp_path / "compiler", tmp_path / "processes"
    program.write_text(
        f"""#!/bin/sh
        echo $$ >> {processes}
        [ "$1" = --version ] && {version} && exit
        sleep 1000 & echo $! >> {processes}; wait
        """
    )
    program.chmod(0o700)
    monkeypatch.setenv("CC", str(program))
    monkeypatch.setattr(native, "SECONDS_TO_COMPILE", 1)
    assert refusal() == f"{program} has not finished after 1 seconds."
    started = processes.read_text().split()
    assert not native.available()
    assert processes.read_text().split() == started, "it is not waited for a second time"
    while any(map(is_running, started)):  # the system takes a moment to end them
        time.sleep(0.05)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_the_error_of_a_compiler_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(native.EXTRA_FLAGS, "-include no-such-file.h")
    assert "error: no-such-file.h" in refusal()
    for variable in (native.EXTRA_FLAGS, "CC"):
        monkeypatch.setenv(variable, "'unfinished")
        assert refusal() == f"{variable} cannot be read: No closing quotation."


MOVED = {
    "Weights": ("step.h", "  double beta1, beta2;", "  double beta2, beta1;", "beta1"),
    "Linear": ("network.h", "  int32_t inputs, outputs;", "  int32_t inputs, outputs, added;", "weight"),
    "Objective": ("ppo.c", "  int32_t exact_kl;", "  int32_t exact_kl, added[2];", "its end"),
    "State": ("minatar_seaquest.c", "oxygen, diver_count", "diver_count, oxygen", "oxygen"),
    "Envs": (
        "classic_control.c",
        "  int32_t kind, num_envs;",
        "  int32_t kind;\n  int64_t num_envs;",
        "num_envs",
    ),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("struct", MOVED)
def test_a_struct_that_differs_from_python_is_refused(struct: str, monkeypatch: pytest.MonkeyPatch):
    file, before, after, field = MOVED[struct]
    sources = native._sources()
    assert sources[file].count(before) == 1
    changed = sources | {file: sources[file].replace(before, after)}
    monkeypatch.setattr(native, "_sources", lambda: changed)
    sentence = refusal()
    assert f"the struct {struct} in " in sentence and f" differ at {field}: " in sentence


@pytest.mark.usefixtures("folder")
def test_a_function_that_c_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "FUNCTIONS", {**layout.FUNCTIONS, "no_such_function": (None, [])})
    assert refusal().startswith("there is no function no_such_function in C")


def test_every_struct_is_compared_and_every_function_declared():
    structs = {struct for of_file in layout.STRUCTS.values() for struct in of_file.values()}
    here = inspect.getmembers(layout, inspect.isclass)
    assert {one for _, one in here if issubclass(one, ctypes.Structure)} <= structs
    assert set(layout.MINATAR_STATES.values()) <= structs
    command = ["nm", "--dynamic", "--defined-only", "--extern-only", native.library("float32")._name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    exported = {name for _, kind, name in map(str.split, lines) if kind == "T"}
    assert exported == set(layout.FUNCTIONS)


def test_the_structs_of_functions_are_not_mixed_up():
    library = native.library("float32")
    with pytest.raises(ctypes.ArgumentError):
        library.ppo_workspace(ctypes.byref(layout.QNetworkStruct()), 1, 1)


# Work for 131,088 envs and a layer of 16,384 outputs: more than 2³¹ numbers, in the same 64 MB over and over.
WIDE = """
import ctypes, mmap, os, torch
from toy_runs import start_pqn, toy_pqn_config

WIDTH, ENVS, PIECE = 1 << 14, (1 << 17) + 16, 1 << 26
config = toy_pqn_config(network={"hidden_sizes": [WIDTH]}, native="on", precision="float32")
kernel = start_pqn(config).backend._kernel
room = kernel._workspace._numbers_for(ENVS) * 4 // PIECE * PIECE + 2 * PIECE
memory = os.memfd_create("piece")
os.truncate(memory, PIECE)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
FIXED, NO_RESERVE = 0x10, 0x4000
start = libc.mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE, -1, 0)
for place in range(start, start + room, PIECE):
    found = libc.mmap(place, PIECE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | FIXED, memory, 0)
    assert found == place
kernel._workspace.for_samples = lambda count: start
inputs, actions = kernel._network.encoder.layer[0].linear.inputs, kernel._network.head.outputs
obs, noise, params = torch.ones(ENVS, inputs), torch.zeros(ENVS, actions), torch.zeros(ENVS, actions)
action, value = torch.full((ENVS,), -1), torch.full((ENVS,), torch.nan)
kernel.act(ENVS, *(tensor.data_ptr() for tensor in (obs, noise, params, action, value)))
assert value.isfinite().all() and (action >= 0).all()
"""


@pytest.mark.slow
def test_envs_times_layer_width_may_exceed_32_bits():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WIDE], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
