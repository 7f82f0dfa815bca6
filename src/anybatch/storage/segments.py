"""Collected data that outlives an iteration, in files that are written once and shared by checkpoints.

A delay queue or a phase can be gigabytes, of which an iteration adds a small part. So each segment is a
separate file, named after the iteration that collected it; a checkpoint names those it needs, with checksums.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from anybatch.storage.safe_files import ASIDE, Folder, open_regular

Segment = Mapping[str, Tensor]

_NAME = re.compile(r"(iteration|phase|policy)_\d{9,}")
_FILE = re.compile(rf"({re.escape(ASIDE)})?{_NAME.pattern}\.safetensors")


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
        self._run, self.folder = folder, folder / "segments"
        self._checksums: dict[str, str] = {}
        """Checksums of files that this process wrote or trusts, so that a save does not read them again."""

    def save(self, segments: Mapping[str, Segment]) -> dict[str, str]:
        """Write the segments that are missing. Returns the checksum of each."""
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

        Other files in the folder are kept.
        """
        keep = {f"{name}.safetensors" for name in needed}
        with contextlib.suppress(FileNotFoundError), Folder.opened(self.folder, within=self._run) as place:
            for name in place.names():
                if name not in keep and _FILE.fullmatch(name) and place.is_file(name):
                    place.remove(name)

    def _write(self, name: str, tensors: Segment) -> None:
        content = save({key: tensor.contiguous() for key, tensor in tensors.items()})
        path = self._path(name)
        with Folder.opened(path.parent, within=self._run, make=True) as place:
            place.replace(path.name, content)
        self._checksums[name] = hashlib.sha256(content).hexdigest()

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):  # a checkpoint must not name a file elsewhere
            raise ValueError(f"{name!r} is not the name of a segment")
        return self.folder / f"{name}.safetensors"


def sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
