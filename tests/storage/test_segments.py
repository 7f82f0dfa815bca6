"""Collected data in files of their own: written once, kept as long as needed, checked when read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from anybatch.errors import CheckpointError, DiskError
from anybatch.storage.checkpoint import Checkpoints
from anybatch.storage.segments import SegmentFiles

Segments = dict[str, dict[str, Tensor]]


def name_of(letter: str) -> str:
    """The name of the segment that the tests call by a letter."""
    return f"iteration_{ord(letter):09d}"


def segments(*letters: str) -> Segments:
    return {
        name_of(letter): {"obs": torch.full((7, 3), float(ord(letter))), "valid": torch.ones(7)}
        for letter in letters
    }


def names_of(letters: str) -> set[str]:
    return {name_of(letter) for letter in letters}


def files(folder: Path) -> dict[str, int]:
    """Names and inodes: a file that is written again gets another one."""
    return {path.stem: path.stat().st_ino for path in (folder / "segments").iterdir()}


def saved(folder: Path, keep: int = 2) -> Checkpoints:
    """Three checkpoints of a window of two segments that moves on; the first one is no longer kept."""
    checkpoints = Checkpoints(folder, keep=keep)
    for env_steps, names in ((10, "ab"), (20, "bc"), (30, "cd")):
        checkpoints.save(env_steps, {"env_steps": env_steps}, segments(*names))
    return checkpoints


def test_a_segment_is_written_once_and_deleted_when_no_checkpoint_needs_it(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, segments("a", "b"))
    first = files(tmp_path)
    assert set(first) == names_of("ab")
    checkpoints.save(20, {}, segments("b", "c"))
    second = files(tmp_path)
    assert (
        set(second) == names_of("abc") and second[name_of("b")] == first[name_of("b")]
    )  # a is the first one's still
    checkpoints.save(30, {}, segments("c", "d"))
    third = files(tmp_path)
    assert set(third) == names_of("bcd")
    assert third[name_of("b")] == first[name_of("b")] and third[name_of("c")] == second[name_of("c")]
    checkpoints.save(40, {})
    checkpoints.save(50, {})
    assert not files(tmp_path)


def test_segments_come_back_as_they_were(tmp_path: Path):
    loaded = saved(tmp_path).load_latest()
    assert loaded is not None and set(loaded.segments) == names_of("cd")
    for name, tensors in segments("c", "d").items():
        assert {key: tensor.tolist() for key, tensor in loaded.segments[name].items()} == {
            key: tensor.tolist() for key, tensor in tensors.items()
        }
        assert all(tensor.data_ptr() % 64 == 0 for tensor in loaded.segments[name].values())


def test_a_resume_does_not_write_the_segments_again(tmp_path: Path):
    saved(tmp_path)
    before = files(tmp_path)
    resumed = Checkpoints(tmp_path, keep=2)
    loaded = resumed.load_latest()
    assert loaded is not None
    resumed.continue_from(loaded)
    resumed.save(30, loaded.tree, loaded.segments)
    resumed.save(40, loaded.tree, segments("d", "e"))
    after = files(tmp_path)
    assert all(after[name_of(letter)] == before[name_of(letter)] for letter in "cd")
    assert Checkpoints(tmp_path, keep=1).load_latest() is not None


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_segment_makes_the_checkpoint_before_it_the_newest(
    harm: str, tmp_path: Path, logged: list[str]
):
    checkpoints = saved(tmp_path)
    path = tmp_path / "segments" / f"{name_of('d')}.safetensors"
    content = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if harm == "flip" else b""))
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.env_steps == 20 and set(loaded.segments) == names_of("bc")
    assert len(logged) == 1 and "step_000000000030 cannot be used" in logged[0] and path.name in logged[0]


def test_a_segment_that_all_need_leaves_none(tmp_path: Path):
    checkpoints = saved(tmp_path)
    (tmp_path / "segments" / f"{name_of('c')}.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        checkpoints.load_latest()


def test_a_segment_that_was_deleted_from_outside_is_written_again(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, segments("a", "b"))
    (tmp_path / "segments" / f"{name_of('a')}.safetensors").unlink()
    checkpoints.save(20, {}, segments("a", "b"))
    loaded = Checkpoints(tmp_path, keep=2).load_latest()
    assert loaded is not None and loaded.env_steps == 20
    assert torch.equal(loaded.segments[name_of("a")]["obs"], segments("a")[name_of("a")]["obs"])


def test_who_wants_the_state_only_reads_no_segment(tmp_path: Path):
    checkpoints = saved(tmp_path)
    for path in (tmp_path / "segments").iterdir():
        path.unlink()
    loaded = checkpoints.load_latest(with_segments=False)
    assert loaded is not None and loaded.env_steps == 30 and not loaded.segments


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, segments("a"))
    for name in (name_of("b"), f".aside-{name_of('c')}", "phase_000000003", "policy_000000003"):
        (tmp_path / "segments" / f"{name}.safetensors").write_bytes(b"half")
    checkpoints.save(20, {}, segments("a"))
    assert set(files(tmp_path)) == names_of("a")


def test_what_a_run_did_not_write_is_never_deleted(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(10, {}, segments("a"))
    mine = tmp_path / "mine.safetensors"
    mine.write_bytes(b"precious")
    folder = tmp_path / "segments"
    for name in ("notes.txt", "weights.safetensors", "phase_3.safetensors", "my_phase_000000003.safetensors"):
        (folder / name).write_bytes(b"precious")
    (folder / "phase_000000007.safetensors").mkdir()  # a folder, and a link, under names like ours
    (folder / "phase_000000008.safetensors").symlink_to(mine)
    before = set(folder.iterdir())
    checkpoints.save(20, {}, segments("b"))
    gone, new = (folder / f"{name_of(letter)}.safetensors" for letter in "ab")
    assert set(folder.iterdir()) == before - {gone} | {new}
    assert mine.read_bytes() == b"precious"


def test_a_linked_segments_folder_is_left_alone(tmp_path: Path):
    """A copy of a run that links to the data of the first one must not change it."""
    Checkpoints(tmp_path / "first", keep=1).save(10, {}, segments("a"))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "segments").symlink_to(tmp_path / "first" / "segments")
    with pytest.raises(DiskError, match="copy/segments is a link, but must be a folder"):
        Checkpoints(tmp_path / "copy", keep=1).save(10, {}, segments("b"))
    assert set(files(tmp_path / "first")) == names_of("a")


@pytest.mark.parametrize("name", ["../../mine", "/tmp/mine", "mine", ".aside-phase_000000001", ""])
def test_a_checkpoint_that_names_a_file_elsewhere_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="is not the name of a segment"):
        SegmentFiles(tmp_path).load({name: "0"})
    with pytest.raises(ValueError, match="is not the name of a segment"):
        SegmentFiles(tmp_path).save({name: {}})


def test_a_segment_written_by_a_run_that_died_is_not_taken_for_this_ones(tmp_path: Path):
    """The same iteration played again on an engine that cannot restore its episodes has other data."""
    Checkpoints(tmp_path, keep=2).save(10, {}, segments("a"))
    again = Checkpoints(tmp_path, keep=2)
    other = {name_of("a"): {"obs": torch.zeros(7, 3), "valid": torch.zeros(7)}}
    again.save(10, {}, other)
    loaded = again.load_latest()
    assert loaded is not None and not loaded.segments[name_of("a")]["obs"].any()
