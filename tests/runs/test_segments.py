"""Collected data in files of their own: written once, kept as long as needed, checked when read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from anybatch.errors import CheckpointError
from anybatch.runs.checkpoint import Checkpoints

Segments = dict[str, dict[str, Tensor]]


def segments(*names: str) -> Segments:
    return {name: {"obs": torch.full((7, 3), float(ord(name[-1]))), "valid": torch.ones(7)} for name in names}


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
    assert set(first) == {"a", "b"}
    checkpoints.save(20, {}, segments("b", "c"))
    second = files(tmp_path)
    assert set(second) == {"a", "b", "c"} and second["b"] == first["b"]  # a is the first one's still
    checkpoints.save(30, {}, segments("c", "d"))
    third = files(tmp_path)
    assert set(third) == {"b", "c", "d"} and third["b"] == first["b"] and third["c"] == second["c"]
    checkpoints.save(40, {})
    checkpoints.save(50, {})
    assert not files(tmp_path)


def test_segments_come_back_as_they_were(tmp_path: Path):
    loaded = saved(tmp_path).load_latest(pytest.fail)
    assert loaded is not None and set(loaded.segments) == {"c", "d"}
    for name, tensors in segments("c", "d").items():
        assert {key: tensor.tolist() for key, tensor in loaded.segments[name].items()} == {
            key: tensor.tolist() for key, tensor in tensors.items()
        }
        assert all(tensor.data_ptr() % 64 == 0 for tensor in loaded.segments[name].values())


def test_a_resume_does_not_write_the_segments_again(tmp_path: Path):
    saved(tmp_path)
    before = files(tmp_path)
    resumed = Checkpoints(tmp_path, keep=2)
    loaded = resumed.load_latest(pytest.fail)
    assert loaded is not None
    resumed.go_on_from(loaded)
    resumed.save(30, loaded.tree, loaded.segments)
    resumed.save(40, loaded.tree, segments("d", "e"))
    after = files(tmp_path)
    assert after["c"] == before["c"] and after["d"] == before["d"]
    assert Checkpoints(tmp_path, keep=1).load_latest(pytest.fail) is not None


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_segment_makes_the_checkpoint_before_it_the_newest(harm: str, tmp_path: Path):
    checkpoints = saved(tmp_path)
    path = tmp_path / "segments" / "d.safetensors"
    content = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if harm == "flip" else b""))
    said: list[str] = []
    loaded = checkpoints.load_latest(said.append)
    assert loaded is not None and loaded.env_steps == 20 and set(loaded.segments) == {"b", "c"}
    assert len(said) == 1 and "step_000000000030 cannot be used" in said[0] and "d.safetensors" in said[0]


def test_a_segment_that_all_need_leaves_none(tmp_path: Path):
    checkpoints = saved(tmp_path)
    (tmp_path / "segments" / "c.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="None of the 2 checkpoints"):
        checkpoints.load_latest(lambda _: None)


def test_who_wants_the_state_only_reads_no_segment(tmp_path: Path):
    checkpoints = saved(tmp_path)
    for path in (tmp_path / "segments").iterdir():
        path.unlink()
    loaded = checkpoints.load_latest(pytest.fail, with_segments=False)
    assert loaded is not None and loaded.env_steps == 30 and not loaded.segments


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, segments("a"))
    for name in (".aside-b.safetensors", "orphan.safetensors"):
        (tmp_path / "segments" / name).write_bytes(b"half")
    checkpoints.save(20, {}, segments("a"))
    assert set(files(tmp_path)) == {"a"}


def test_a_segment_written_by_a_run_that_died_is_not_taken_for_this_ones(tmp_path: Path):
    """The same iteration played again on an engine that cannot restore its episodes has other data."""
    Checkpoints(tmp_path, keep=2).save(10, {}, segments("a"))
    again = Checkpoints(tmp_path, keep=2)
    other = {"a": {"obs": torch.zeros(7, 3), "valid": torch.zeros(7)}}
    again.save(10, {}, other)
    loaded = again.load_latest(pytest.fail)
    assert loaded is not None and not loaded.segments["a"]["obs"].any()
