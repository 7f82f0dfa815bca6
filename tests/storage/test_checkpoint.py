import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from anybatch.errors import CheckpointError, DiskError
from anybatch.storage import checkpoint
from anybatch.storage.checkpoint import Checkpoints

FILES = ("tensors.safetensors", "state.json", "checksums.json")


def state(number: int) -> dict:
    return {"number": number, "networks": {"weight": torch.full((101, 7), float(number))}}


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


@contextmanager
def disk_that_takes_files_up_to(size: int):
    """The kernel refuses to write any file beyond `size` bytes, with a real error from the real calls."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_saved_last_is_loaded(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for env_steps in (0, 1024, 123_456):
        path = checkpoints.save(env_steps, state(env_steps))
    assert path == tmp_path / "checkpoints" / "step_000000123456"
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert (loaded.path, loaded.env_steps, loaded.tree["number"]) == (path, 123_456, 123_456)
    assert torch.equal(loaded.tree["networks"]["weight"], torch.full((101, 7), 123_456.0))
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)


def test_a_run_without_checkpoints_loads_none(tmp_path: Path):
    assert Checkpoints(tmp_path, keep=1).load_latest() is None


def test_order_is_by_env_steps_even_beyond_the_padding(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(999_999_999_999, state(1))
    checkpoints.save(10_000_000_000_000, state(2))
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 2


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_only_the_newest_are_kept(tmp_path: Path, keep: int):
    checkpoints = Checkpoints(tmp_path, keep=keep)
    for env_steps in range(7):
        checkpoints.save(env_steps, state(env_steps))
    assert names(checkpoints) == [f"step_{env_steps:012d}" for env_steps in range(7 - keep, 7)]


def test_saving_again_at_the_same_env_steps_replaces(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for number in (1, 2, 3):
        checkpoints.save(64, state(number))
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 3
    assert names(checkpoints) == ["step_000000000064"]


def test_a_kill_while_replacing_leaves_the_replaced_one_loadable(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(64, state(1))
    path.rename(path.with_name(path.name + ".replaced"))  # as between the two renames
    loaded = checkpoints.load_latest()
    assert loaded is not None and (loaded.env_steps, loaded.tree["number"]) == (64, 1)
    checkpoints.save(64, state(2))
    assert names(checkpoints) == ["step_000000000064"]


def test_a_kill_before_the_replaced_one_is_removed_leaves_the_newer_one_first(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = checkpoints.save(1024, state(1))
    path.rename(path.with_name(path.name + ".replaced"))
    checkpoints.write(1024, state(2))
    assert names(checkpoints) == [path.name, f"{path.name}.replaced"]
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.path == path and loaded.tree["number"] == 2


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", [cut, empty, flip_a_bit, os.unlink])
def test_a_damaged_checkpoint_is_passed_over_with_one_sentence(
    tmp_path: Path, harm: Callable[[Path], None], file: str, logged: list[str]
):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, state(1))
    damaged = checkpoints.save(2, state(2))
    harm(damaged / file)
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 1
    assert len(logged) == 1 and str(damaged) in logged[0]


def test_checksums_that_leave_a_file_out_are_not_trusted(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(1, state(1))
    sums = json.loads((path / "checksums.json").read_text())
    del sums["tensors.safetensors"]
    (path / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(CheckpointError, match="checkpoints"):
        checkpoints.load_latest()


def test_saving_after_a_damaged_one_was_passed_over_never_removes_the_newest_good_one(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    damaged = checkpoints.save(500, state(500))
    cut(damaged / "tensors.safetensors")
    checkpoints.save(450, state(450))
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 450
    assert damaged.is_dir()  # a person may still repair it


def test_checkpoints_of_which_none_can_be_read_are_an_error(tmp_path: Path, logged: list[str]):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for env_steps in (1, 2):
        cut(checkpoints.save(env_steps, state(env_steps)) / "state.json")
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        checkpoints.load_latest()
    assert len(logged) == 2


@pytest.mark.parametrize("other", [-1, 1])
def test_another_schema_is_refused_rather_than_passed_over(
    other: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, state(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SCHEMA", checkpoint.SCHEMA + other)
        checkpoints.save(2, state(2))
    with pytest.raises(CheckpointError, match=r"step_000000000002 was written by another version"):
        checkpoints.load_latest()


def test_training_on_what_was_loaded_does_not_change_the_file(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, state(1))
    for _ in range(2):
        loaded = checkpoints.load_latest()
        assert loaded is not None and loaded.tree["networks"]["weight"].eq(1).all()
        loaded.tree["networks"]["weight"] += 1


def test_leftovers_of_a_killed_save_are_ignored_and_removed(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = checkpoints.save(1, state(1))
    shutil.copytree(path, path.with_name(".aside-step_000000000002"))
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 1
    checkpoints.save(3, state(3))
    assert names(checkpoints) == ["step_000000000001", "step_000000000003"]


def test_a_checkpoint_under_the_name_of_another_is_passed_over(tmp_path: Path, logged: list[str]):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2)).rename(checkpoints.folder / "step_000000000009")
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.env_steps == 1
    assert len(logged) == 1 and "it was saved at 2 env steps, but its name says 9" in logged[0]


def test_what_a_run_did_not_write_is_never_deleted(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    first = checkpoints.save(1, state(1))
    (first / "notes.txt").write_text("the good one")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "state.json").write_text("precious")
    for name in (".aside-mine", "step_5", ".aside-step_5"):
        shutil.copytree(mine, checkpoints.folder / name)
    (checkpoints.folder / ".aside-step_000000000004").symlink_to(mine)
    (checkpoints.folder / "step_000000000000").symlink_to(mine)
    for env_steps in (2, 3):
        checkpoints.save(env_steps, state(env_steps))
    left = {path.read_text() for path in checkpoints.folder.glob("*/notes.txt")}
    assert left == {"the good one"}
    for name in (".aside-mine", "step_5", ".aside-step_5"):
        assert (checkpoints.folder / name / "state.json").read_text() == "precious"
    assert (mine / "state.json").read_text() == "precious"
    with pytest.raises(DiskError, match="is a link"):
        checkpoints.save(4, state(4))
    assert [path.name for path in mine.iterdir()] == ["state.json"]


def test_checkpoints_behind_a_link_are_left_alone(tmp_path: Path):
    """A copy of a run that links to the checkpoints of the first one can read them, but not write there."""
    first = Checkpoints(tmp_path / "first", keep=2)
    for env_steps in (1, 2):
        first.save(env_steps, state(env_steps))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "checkpoints").symlink_to(first.folder)
    copy = Checkpoints(tmp_path / "copy", keep=1)
    with pytest.raises(DiskError, match="copy/checkpoints is a link, but must be a folder"):
        copy.save(3, state(3))
    assert sorted(names(first)) == ["step_000000000001", "step_000000000002"]
    loaded = copy.load_latest()
    assert loaded is not None and loaded.tree["number"] == 2


@pytest.mark.parametrize(
    "size", [0, 1, 300, 2000]
)  # fails in the tensors, or at the size of 300 in none but them
def test_a_full_disk_is_one_sentence_and_leaves_the_older_ones_intact(tmp_path: Path, size: int):
    checkpoints = Checkpoints(tmp_path, keep=1)
    good = checkpoints.save(1, state(1))
    with disk_that_takes_files_up_to(size), pytest.raises(DiskError) as error:
        checkpoints.save(2, state(2))
    assert str(checkpoints.folder) in str(error.value) and f"the newest good one is {good}." in str(
        error.value
    )
    assert names(checkpoints) == [good.name]
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.tree["number"] == 1
    checkpoints.save(2, state(2))


def test_a_disk_that_is_full_for_the_state_after_the_tensors_leaves_the_older_ones_intact(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    good = checkpoints.save(1, state(1))
    tree = {"text": "x" * 10_000, "weight": torch.zeros(7)}
    with disk_that_takes_files_up_to(5000), pytest.raises(DiskError, match="newest good one"):
        checkpoints.save(2, tree)
    assert names(checkpoints) == [good.name]


def test_the_first_save_on_a_full_disk_says_that_there_is_none_earlier(tmp_path: Path):
    with disk_that_takes_files_up_to(100), pytest.raises(DiskError, match="there is no earlier one"):
        Checkpoints(tmp_path, keep=1).save(0, state(0))


def test_a_tree_that_cannot_be_saved_touches_nothing(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, state(1))
    with pytest.raises(TypeError):
        checkpoints.save(2, {"bad": object()})
    assert names(checkpoints) == ["step_000000000001"]


KILL_LOOP = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from anybatch.storage.checkpoint import Checkpoints

def save_for_ever(first):
    number = first
    while True:  # each env_steps twice, so that replacing is killed too
        weight = torch.full((20_011,), float(number))
        checkpoints.save(number // 2, {"number": number, "weight": weight})
        os.write(told, b".")
        number += 1

chance = random.Random(7)
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
start = time.monotonic()
checkpoints.save(0, {"number": 0, "weight": torch.zeros(20_011)})
seconds_per_save = time.monotonic() - start
number = 0
for _ in range(20):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(number + 1)
    for _ in range(chance.randrange(3)):
        os.read(heard, 1)
    time.sleep(chance.uniform(0.0, 2 * seconds_per_save))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = checkpoints.load_latest()
    before, number = number, loaded.tree["number"]
    assert number >= before, (before, number)
    assert loaded.env_steps == number // 2
    assert loaded.tree["weight"].eq(float(number)).all()
print("LAST", number)
"""


def test_kill_minus_nine_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", KILL_LOOP, str(tmp_path)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # where a damaged checkpoint would be reported
    assert int(done.stdout.split()[-1]) > 5  # the children did save


KILLED_BY_THE_KERNEL = """
import resource, signal, sys
from pathlib import Path
import torch
from anybatch.storage.checkpoint import Checkpoints

folder, largest_file, segment_size = Path(sys.argv[1]), *map(int, sys.argv[2:])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
segments = {"iteration_000000001": {"rewards": torch.zeros(segment_size)}} if segment_size else {}
Checkpoints(folder, keep=1).save(7, {"weight": torch.zeros(1_000)}, segments)
"""
"""A file that becomes too large ends the process in the middle of its write."""


@pytest.mark.parametrize("segment_size", [0, 100_000])
def test_a_process_killed_while_it_writes_tensors_leaves_nothing_that_stays(
    segment_size: int, tmp_path: Path
):
    largest_file = 100_000 if segment_size else 1_000  # too small for the segment, or for the checkpoint
    command = [
        sys.executable,
        "-c",
        KILLED_BY_THE_KERNEL,
        str(tmp_path),
        str(largest_file),
        str(segment_size),
    ]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGXFSZ
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(8, state(8))
    assert names(checkpoints) == ["step_000000000008"]
    assert not list(tmp_path.glob("segments/*"))
