"""What is written is on disk before it has its name, so that not even a power cut leaves half of it."""

import os
from pathlib import Path

import pytest

from anybatch.storage import safe_files


def test_a_file_is_on_disk_before_it_has_its_name_and_its_name_before_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def noted_replace(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        events.append(f"rename {source} to {target}")
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    safe_files.replace(tmp_path / "plan.json", b"{}")
    aside = f"{safe_files.ASIDE}plan.json"
    assert events == [f"sync {aside}", f"rename {aside} to plan.json", f"sync {tmp_path.name}"]
