"""Collected data that outlives an iteration, in files that are written once and shared by checkpoints.

A delay queue or a phase can be gigabytes, of which an iteration adds a small part. So each segment is a file
of its own, named after the iteration that collected it; a checkpoint names those it needs, with checksums.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from anybatch.runs.atomic_file import sync

Segment = Mapping[str, Tensor]

_ASIDE = ".aside-"


class SegmentFiles:
    """The segments of one run. A name stands for one content: a file that exists is not written again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "segments"
        self._checksums: dict[str, str] = {}
        """Of the files this process wrote or read, so that a save does not read gigabytes back."""

    def save(self, segments: Mapping[str, Segment]) -> dict[str, str]:
        """Write those that are not there yet. Returns the checksum of each."""
        if segments:
            self.folder.mkdir(parents=True, exist_ok=True)
        for name, tensors in segments.items():
            if name not in self._checksums or not self._path(name).exists():
                self._write(name, tensors)
        return {name: self._checksums[name] for name in segments}

    def load(self, checksums: Mapping[str, str]) -> dict[str, dict[str, Tensor]]:
        """Read segments back. Raises ValueError or OSError for one that is missing or damaged."""
        loaded: dict[str, dict[str, Tensor]] = {}
        for name, checksum in checksums.items():
            path = self._path(name)
            if sha256(path) != checksum:
                raise ValueError(f"{path.name} is damaged")
            loaded[name] = load_file(path)
            self._checksums[name] = checksum
        return loaded

    def remove_all_but(self, needed: Iterable[str]) -> None:
        """Delete the segments that no checkpoint needs any more, and what a kill left half written."""
        keep = {self._path(name).name for name in needed}
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            if path.name not in keep:
                path.unlink(missing_ok=True)

    def _write(self, name: str, tensors: Segment) -> None:
        path = self._path(name)
        aside = path.with_name(_ASIDE + path.name)
        try:
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, aside)
            sync(aside)
            checksum = sha256(aside)
            os.replace(aside, path)
            sync(self.folder)
        finally:
            aside.unlink(missing_ok=True)
        self._checksums[name] = checksum

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
