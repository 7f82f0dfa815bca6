"""The folder of a run: its name, its lock, and the facts recorded with the metrics."""

import contextlib
import fcntl
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any

from anybatch.errors import DiskError, UserError, cause_of
from anybatch.storage import json_text, safe_files
from anybatch.storage.safe_files import Folder

_LONGEST_NAME = 100
NAME_SEPARATOR = "__"
"""Between the parts of the name of a run folder."""
_SAFE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,{_LONGEST_NAME - 1}}}")

NEWEST = "newest"
"""The choice of the newest good checkpoint."""
CONFIG_FILE, PLAN_FILE, FACTS_FILE, LOCK_FILE = "config.json", "plan.json", "facts.json", "lock"
SPACES_FILE = "spaces.json"


def name_of(env_id: str, preset: str, seed: int, now: datetime, tag: str = "") -> str:
    """<env>__<preset>__<tag>__s<seed>__<time>, where `tag` says what differs from the preset."""
    parts = [_safe(env_id), _safe(preset), *([_safe(tag)] if tag else []), f"s{seed}", f"{now:%Y%m%d-%H%M%S}"]
    return NAME_SEPARATOR.join(parts)


def validate_name(name: str) -> None:
    """Check a name given by a person: it must be a valid folder name on every system."""
    if not _SAFE_NAME.fullmatch(name):
        raise UserError(
            f"name = {name!r}: must be up to {_LONGEST_NAME} letters, digits and . _ + - only, and begin "
            "with a letter or digit"
        )


def validate_decodable(folder: Path) -> None:
    """Refuse a folder whose name is not text, before anything is written to it."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{folder}: must be a name in UTF-8, since checkpoints in it could not be read again"
        ) from None


def create(base: Path, stem: str) -> Path:
    """Make `base`/`stem`/, with a number appended if it exists already."""
    validate_decodable(base)
    try:
        base.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 10_000):
            folder = base / (stem if attempt == 1 else f"{stem}-{attempt}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise DiskError(f"no run folder can be made in {base}: {cause_of(error)}") from error
    raise DiskError(f"no run folder can be made in {base}: every name like {stem} exists already")


def find_run(path: Path) -> Path:
    """`path` itself if it is a run folder, or the newest run in it."""
    if (path / CONFIG_FILE).is_file():
        return path
    runs = _runs_in(path)
    if runs:
        return runs[0]
    if path.is_dir():
        raise UserError(f"{path} is not a run folder and contains none: a run folder holds {CONFIG_FILE}")
    if path.exists():
        raise UserError(f"{path} is a file, not a run folder")
    nearby = ", ".join(run.name for run in _runs_in(path.parent)[:5])
    place = "the current folder" if path.parent == Path() else str(path.parent)
    hint = f"the newest runs in {place} are {nearby}" if nearby else f"there is no run in {place}"
    raise UserError(f"there is no folder {path}; {hint}")


def find_runs(path: Path) -> list[Path]:
    """`path` itself if it is a run folder, or all runs in it, by name."""
    return [path] if find_run(path) == path else sorted(_runs_in(path))


@contextlib.contextmanager
def lock(folder: Path, *, patience_seconds: float = 0.0) -> Iterator[None]:
    """Lock the run for this process. The kernel frees the lock when the process ends, however it ends.

    If another process holds it, wait up to `patience_seconds` for that process to end.
    """
    until = time.monotonic() + patience_seconds
    with Folder.opened(folder) as place, place.append(LOCK_FILE) as file:
        while not _takes_lock(file):
            if time.monotonic() >= until:
                raise UserError(f"another process is training in {folder}; wait for it or stop it first")
            time.sleep(0.1)
        yield


@contextlib.contextmanager
def made_and_locked(folder: Path, *, what: str) -> Iterator[None]:
    """Make a folder for `what` unless it exists, and lock it. A new one that stays empty is removed."""
    validate_decodable(folder.resolve())  # the path that worker processes get
    is_new = not folder.exists()
    try:
        with Folder.opened(folder, make=True) as place:
            place.append(LOCK_FILE).close()
    except OSError as error:
        raise UserError(f"no {what} can be kept in {folder}: {cause_of(error)}") from error
    with lock(folder):
        try:
            yield
        finally:
            if is_new and [path.name for path in folder.iterdir()] == [LOCK_FILE]:
                (folder / LOCK_FILE).unlink()
                folder.rmdir()


def _takes_lock(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: training there is better than refusing to
    return True


def write_json(
    path: Path,
    data: object,
    *,
    within: Path | None = None,
    compact: bool = False,
    all_finite: bool = False,
) -> None:
    """Write `data` in one step: a reader sees the old file or the new one.

    `within`: the folder that a person named; no folder between it and the file may be a link. `compact`: on
    one line. `all_finite`: raise ValueError at a number that is not finite, which JSON does not have.
    """
    layout: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=not all_finite, **layout)
        # A file name on the command line may be no text. What UTF-8 cannot write, JSON can: as \udcff.
        safe_files.replace(path, text.encode(errors="backslashreplace") + b"\n", within=within)
    except OSError as error:
        raise DiskError(f"{path} could not be written: {cause_of(error)}") from error


def read_json(path: Path) -> Any:
    """The data written by `write_json`. Raises UserError if it is missing or damaged."""
    try:
        return json_text.parse(safe_files.read(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {cause_of(error)}") from None


def facts(
    *, engine: str, device: str, native_code: bool, threads: int
) -> dict[str, str | int | list[str] | None]:
    """Other facts that a result depends on. Nothing that identifies the machine."""
    return {
        "anybatch": version_of("anybatch"),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "engine": engine,
        "device": device,
        "native_code": native_code,
        "threads": threads,
        "command": [_program_name(), *sys.argv[1:]],
    }


def _program_name() -> str:
    """The program without its path; that of `python -m anybatch` is anybatch, not __main__.py."""
    program = Path(sys.argv[0])
    return program.parent.name if program.name == "__main__.py" else program.name


def add_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write the facts of this process; those of earlier processes are kept as `earlier`."""
    path = folder / FACTS_FILE
    before: dict[str, Any] = {}
    with contextlib.suppress(UserError):  # a new run has none; a damaged record must not stop a resume
        before = read_json(path)
    if not isinstance(before, dict):
        before = {}
    known = before.pop("earlier", [])
    earlier = [*(known if isinstance(known, list) else []), before] if before else []
    write_json(path, facts | {"earlier": earlier})


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # running from a source folder that is not installed
        return None


def _git_commit() -> str | None:
    """The commit this package is run from, with `-dirty` if changed since; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]
    if not (package.parents[1] / ".git").exists():  # otherwise git would find any enclosing repository
        return None
    # Without optional locks: reading must not write, nor leave a lock behind if the disk is full.
    command = ["git", "--no-optional-locks", "-C", str(package), "describe", "--always", "--dirty"]
    command += ["--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return done.stdout.strip()
    return None


def _runs_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    configs = [config for config in path.glob(f"*/{CONFIG_FILE}") if config.is_file()]
    return [config.parent for config in sorted(configs, key=lambda c: c.stat().st_mtime_ns, reverse=True)]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", name)[:80]
