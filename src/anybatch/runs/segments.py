"""Collected data that outlives an iteration, in files that are written once and shared by checkpoints.

A delay queue or a phase can be gigabytes, of which an iteration adds a small part. So each segment is a
separate file, named after the iteration that collected it; a checkpoint names those it needs, with checksums.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from anybatch.runs import tensor_file
from anybatch.runs.atomic_file import sync

Segment = Mapping[str, Tensor]

_ASIDE = ".aside-"
_NAME = re.compile(r"(iteration|phase|policy)_\d{9,}")
_FILE = re.compile(rf"({re.escape(_ASIDE)})?{_NAME.pattern}\.safetensors")


class StoredSegments(Mapping[str, dict[str, Tensor]]):
    """Segments on disk, each read on every access: together they can be as large as memory."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths

    def __getitem__(self, name: str) -> dict[str, Tensor]:
        # Copied into memory that torch allocates: tensors in a file are not aligned, and a matrix product of
        # unaligned operands rounds differently, which would change a resumed run.
        return {key: tensor.clone() for key, tensor in load_file(self._paths[name]).items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class SegmentFiles:
    """The segments of one run. A name always means the same content, so an existing file is not rewritten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "segments"
        self._checksums: dict[str, str] = {}
        """Checksums of files that this process wrote or trusts, so that a save does not read them again."""

    def save(self, segments: Mapping[str, Segment]) -> dict[str, str]:
        """Write the segments that are missing. Returns the checksum of each."""
        if segments:
            self.folder.mkdir(parents=True, exist_ok=True)
        for name in self.missing(segments):
            self._write(name, segments[name])
        return {name: self._checksums[name] for name in segments}

    def missing(self, names: Iterable[str]) -> list[str]:
        """The segments that are not in a file yet, or whose file is from another process."""
        return [name for name in names if name not in self._checksums or not self._path(name).exists()]

    def load(self, checksums: Mapping[str, str]) -> Mapping[str, dict[str, Tensor]]:
        """Segments to be read one by one. Raises ValueError or OSError if one is damaged or missing."""
        for name, checksum in checksums.items():
            if sha256(self._path(name)) != checksum:
                raise ValueError(f"{self._path(name).name} is damaged")
        return StoredSegments({name: self._path(name) for name in checksums})

    def trust(self, checksums: Mapping[str, str]) -> None:
        """Accept files that another process wrote and this one has read."""
        self._checksums |= checksums

    def remove_all_but(self, needed: Iterable[str]) -> None:
        """Delete the segments that no checkpoint needs any more, and files that a kill left incomplete.

        Other files in the folder are kept, and a folder that is a link is left alone.
        """
        keep = {f"{name}.safetensors" for name in needed}
        if self.folder.is_symlink() or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if path.name not in keep and _FILE.fullmatch(path.name) and _is_regular(path):
                path.unlink(missing_ok=True)

    def _write(self, name: str, tensors: Segment) -> None:
        path = self._path(name)
        aside = path.with_name(_ASIDE + path.name)
        try:
            tensor_file.write({key: tensor.contiguous() for key, tensor in tensors.items()}, aside)
            sync(aside)
            checksum = sha256(aside)
            os.replace(aside, path)
            sync(self.folder)
        finally:
            aside.unlink(missing_ok=True)
        self._checksums[name] = checksum

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):  # a checkpoint must not name a file elsewhere
            raise ValueError(f"{name!r} is not the name of a segment")
        return self.folder / f"{name}.safetensors"


def _is_regular(path: Path) -> bool:
    """Whether a path is a regular file, not a link or a folder."""
    return stat.S_ISREG(path.lstat().st_mode)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
