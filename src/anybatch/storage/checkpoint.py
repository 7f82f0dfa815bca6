"""Checkpoints that survive `kill -9` and a full disk: safetensors, JSON and checksums, no pickle.

A checkpoint is a folder, written under a temporary name, synced, then renamed. A folder called `step_…` is
complete unless the disk lost a part of it, which the checksums detect.
"""

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from anybatch.errors import CheckpointError, DiskError
from anybatch.storage import json_text, safe_files, state_tree
from anybatch.storage.safe_files import ASIDE, Folder
from anybatch.storage.segments import Segment, SegmentFiles, sha256
from anybatch.storage.state_tree import StateTree

logger = logging.getLogger(__name__)

SCHEMA = 3
PLACE = "checkpoints"
TENSORS, STATE, CHECKSUMS = "tensors.safetensors", "state.json", "checksums.json"

_REPLACED = ".replaced"  # still good, kept until its replacement is in place
_NAME = re.compile(rf"step_(\d{{12,}})({re.escape(_REPLACED)})?")
_LEFTOVER = re.compile(rf"{re.escape(ASIDE)}{_NAME.pattern}")


class _OtherSchemaError(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A train state at one point in time, as nested dicts of plain values, tensors and arrays."""

    shared: StateTree
    """The part that all ranks share."""
    local: StateTree
    """This rank's part; in a checkpoint, the parts of all ranks. Numpy arrays have one entry per env, in env
    order; everything else is the same on all ranks."""
    num_envs: int
    """Environments of the run, over all ranks."""
    segments: Mapping[str, dict[str, Tensor]]
    """Collected data that the state still needs, by name, each in its own file."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A checkpoint that was read completely."""

    path: Path
    env_steps: int
    tree: StateTree
    segments: Mapping[str, dict[str, Tensor]]
    """Collected data that the state still needs, by name; empty if only the state was requested."""
    segment_checksums: dict[str, str]


class Checkpoints:
    """The newest `keep` checkpoints of the run in `folder`. One process at a time may save."""

    def __init__(self, folder: Path, keep: int, *, place: str = PLACE) -> None:
        """`place` is their subfolder of the run folder."""
        self._run, self.folder = folder, folder / place
        self.keep = keep
        self._segments = SegmentFiles(folder)

    def save(self, env_steps: int, tree: StateTree, segments: Mapping[str, Segment] | None = None) -> Path:
        """Write a checkpoint, then remove those beyond `keep`. A DiskError leaves the older ones intact."""
        path = self.write(env_steps, tree, segments)
        self._remove_older_than(path)
        self._segments.remove_all_but(name for kept in self.newest_first() for name in _segments_of(kept))
        return path

    def write(self, env_steps: int, tree: StateTree, segments: Mapping[str, Segment] | None = None) -> Path:
        """Write a checkpoint and keep the others."""
        tensors, plain = state_tree.split(tree)
        name = f"step_{env_steps:012d}"
        try:
            with Folder.opened(self.folder, within=self._run, make=True) as place:
                # First, since leftovers of a killed run may occupy the missing space.
                for leftover in place.names():
                    if _LEFTOVER.fullmatch(leftover):
                        _delete(place, leftover)
                content = {
                    "schema": SCHEMA,
                    "env_steps": env_steps,
                    "segments": self._segments.save(segments or {}),
                    "state": plain,
                }
                state = json.dumps(content, allow_nan=False).encode()
                _write_in_place(place, name, {TENSORS: save(tensors), STATE: state})
        except (OSError, SafetensorError) as error:
            newest = next((path for path in self.newest_first() if _is_whole(path)), None)
            rest = f"the newest good one is {newest}" if newest else "there is no earlier one"
            raise DiskError(
                f"No checkpoint could be written to {self.folder} at {env_steps} env steps ({error}); {rest}."
            ) from error
        return self.folder / name

    def missing(self, segments: Iterable[str]) -> list[str]:
        """The segments that the next checkpoint has to write."""
        return self._segments.missing(segments)

    def continue_from(self, loaded: Loaded) -> None:
        """Keep the segment files of a loaded checkpoint, instead of writing them again."""
        self._segments.trust(loaded.segment_checksums)

    def exist(self) -> bool:
        return bool(self.newest_first())

    def load_latest(self, *, with_segments: bool = True) -> Loaded | None:
        """The newest complete checkpoint; None if there never was one.

        Segments can be gigabytes, and are not needed for the policy alone. Each skipped checkpoint is
        reported in the log. Raises CheckpointError if none can be read, or if the newest was written by
        another version: continuing from an earlier checkpoint would discard its work.
        """
        return self.load_first(self.newest_first(), with_segments=with_segments)

    def load_first(self, candidates: Sequence[Path], *, with_segments: bool = True) -> Loaded | None:
        """The first complete one of `candidates`; None if there are none. Raises as `load_latest` does."""
        problems: list[str] = []
        for place, path in enumerate(candidates, 1):
            try:
                return self._load(path, with_segments)
            except _OtherSchemaError as error:
                raise CheckpointError(f"{path} {error}") from None
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else error
                problems.append(f"{path.name}: {what}")
                rest = "; trying the one before it" * (place < len(candidates))
                logger.warning(f"The checkpoint {path} cannot be used ({what}){rest}.")
        if candidates:
            count, reasons = len(candidates), "; ".join(problems)
            raise CheckpointError(f"none of the {count} checkpoints in {self.folder} can be read: {reasons}")
        return None

    def _load(self, path: Path, with_segments: bool) -> Loaded:
        damage = _damage(path)
        if damage:
            raise ValueError(damage)
        state = _content(path)
        tree = state_tree.join(load_file(path / TENSORS), state["state"])
        return Loaded(
            path=path,
            env_steps=state["env_steps"],
            tree=tree,
            segments=self._segments.load(state["segments"]) if with_segments else {},
            segment_checksums=state["segments"],
        )

    def newest_first(self) -> list[Path]:
        """The folders of all checkpoints, including damaged ones."""
        if not self.folder.is_dir():
            return []
        paths = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(paths, key=lambda path: (env_steps_of(path), path.suffix != _REPLACED), reverse=True)

    def remove_all_but(self, kept: Path) -> None:
        """Remove the other checkpoints, older or newer."""
        self._remove(path for path in self.newest_first() if path != kept)

    def _remove_older_than(self, saved: Path) -> None:
        # Later ones are kept: load_latest skipped them, and what it could not read is not ours to delete.
        older = [
            path
            for path in self.newest_first()
            if env_steps_of(path) <= env_steps_of(saved) and path != saved
        ]
        replaced = [path for path in older if path.suffix == _REPLACED]
        self._remove(replaced + [path for path in older if path not in replaced][self.keep - 1 :])

    def _remove(self, checkpoints: Iterable[Path]) -> None:
        with Folder.opened(self.folder, within=self._run) as place:
            for path in checkpoints:
                _remove(place, path.name)


def _write_in_place(place: Folder, name: str, files: Mapping[str, bytes]) -> None:
    """Write a checkpoint and its checksums under a temporary name, then rename it."""
    aside = ASIDE + name
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    try:
        with place.inner(aside, make=True) as folder:
            for file, content in {**files, CHECKSUMS: json.dumps(sums).encode()}.items():
                folder.create(file, content)
            folder.sync()
        # A folder cannot be renamed onto another. Between the two renames the old one is still loadable.
        if place.exists(name):
            _remove(place, name + _REPLACED)
            place.rename(name, name + _REPLACED)
        place.rename(aside, name)
        place.sync()
    finally:
        _delete(place, aside)


def _remove(place: Folder, name: str) -> None:
    """Remove a checkpoint; a link is left alone."""
    with contextlib.suppress(OSError):
        if place.is_folder(name):
            # Renamed first, so that a kill never leaves an incomplete checkpoint under a checkpoint's name.
            place.rename(name, ASIDE + name)
            _delete(place, ASIDE + name)


def _delete(place: Folder, name: str) -> None:
    """Delete the files of a checkpoint, and its folder if nothing else is in it. A link is left alone."""
    with contextlib.suppress(OSError, DiskError):
        with place.inner(name) as folder:
            for file in (TENSORS, STATE, CHECKSUMS):
                folder.remove(file)
        place.remove_folder(name)


def _content(path: Path) -> dict[str, Any]:
    """The content of state.json, if its schema is known and its env steps match the checkpoint's name."""
    state = json_text.parse(safe_files.read(path / STATE))
    schema, env_steps, segments = state["schema"], state["env_steps"], state["segments"]
    if type(schema) is not int or schema < 1:
        raise ValueError(f"{STATE} has schema {schema!r}")
    if schema != SCHEMA:
        raise _OtherSchemaError(
            f"was written by another version of anybatch (schema {schema}; this one reads {SCHEMA})"
        )
    if type(env_steps) is not int or env_steps != env_steps_of(path):
        raise ValueError(f"it was saved at {env_steps!r} env steps, but its name says {env_steps_of(path)}")
    if not isinstance(segments, dict) or not all(isinstance(sum_, str) for sum_ in segments.values()):
        raise ValueError(f"{STATE} does not name its segments")
    return state


def _segments_of(path: Path) -> list[str]:
    """The segments that a checkpoint names; none if it cannot be read, since it cannot be loaded either."""
    try:
        return list(json_text.parse(safe_files.read(path / STATE))["segments"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _damage(path: Path) -> str | None:
    sums: object = json_text.parse(safe_files.read(path / CHECKSUMS))
    if not isinstance(sums, dict) or set(sums) != {TENSORS, STATE}:
        return f"{CHECKSUMS} is damaged"
    return next((f"{name} is damaged" for name in sums if sha256(path / name) != sums[name]), None)


def _is_whole(path: Path) -> bool:
    try:
        return _damage(path) is None
    except (OSError, ValueError):
        return False


def env_steps_of(path: Path) -> int:
    """The env steps in the name of a checkpoint's folder."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])
