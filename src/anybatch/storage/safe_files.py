"""The one place that opens the files of runs, studies, tunings, exports and reports.

Such a folder may come from somebody else and hold a link or a FIFO under a name that we use. So a file is
written only if it is a regular one, reached from the folder that a person named through real folders alone.
The call that opens it checks that: whoever changes the folder after a check beforehand would be too fast.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter, FileIO
from pathlib import Path
from typing import Self

from anybatch.errors import DiskError

ASIDE = ".aside-"
"""Prefix of what is being written or being removed."""
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""What the system says if a path is a link, not a folder, a folder, or a FIFO that nobody reads."""


class Folder:
    """An open folder. Its files and folders are reached by their names in it, never through a link."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, within: Path | None = None, make: bool = False) -> Iterator[Self]:
        """Open `path`, which is inside `within`, the folder that a person named: only that one may be a link.

        `make`: missing folders are made.
        """
        root = path if within is None else within
        if make:
            root.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            folder = cls(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY))
            stack.callback(os.close, folder._descriptor)
            for name in path.relative_to(root).parts:
                folder = stack.enter_context(folder.inner(name, make=make))
            yield folder

    @contextlib.contextmanager
    def inner(self, name: str, *, make: bool = False) -> Iterator[Self]:
        """Open a folder in this one."""
        with self._naming(name, "a folder"):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=self._descriptor)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        try:
            yield type(self)(self.path / name, descriptor)
        finally:
            os.close(descriptor)

    def append(self, name: str) -> FileIO:
        """Open a file, which is created unless it exists, for reading and for writing at its end."""
        with self._naming(name, "a regular file"):
            # O_NONBLOCK: a FIFO would wait until somebody reads it.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(name, flags, 0o666, dir_fd=self._descriptor)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.ENXIO, "", name)
                if status.st_nlink > 1:
                    raise DiskError(
                        f"{self.path / name} is the same file as another one (a hard link), which would "
                        "change too: replace it by a copy"
                    )
                return open(descriptor, "a+b", buffering=0)
            except BaseException:
                os.close(descriptor)
                raise

    def new(self, name: str) -> BufferedWriter:
        """Open a new file for writing. What has this name, such as a leftover or a link, is removed."""
        with self._naming(name, "a regular file"):
            self.remove(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            return open(os.open(name, flags, 0o666, dir_fd=self._descriptor), "wb")

    def create(self, name: str, content: bytes) -> None:
        """Write a new file and wait until its content is on disk."""
        with self._naming(name, "a regular file"), self.new(name) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, name: str, content: bytes) -> None:
        """Replace the content of a file in one step: a reader, or a kill, sees the old one or the new one."""
        aside = ASIDE + name
        try:
            self.create(aside, content)
            self.rename(aside, name)
        except BaseException:
            with contextlib.suppress(OSError):  # the error that is being reported already
                self.remove(aside)
            raise
        self.sync()

    def rename(self, name: str, new_name: str) -> None:
        """Give a file or folder another name. A file of that name is replaced, as is a link."""
        with self._naming(new_name, "a folder" if self.is_folder(name) else "a file"):
            os.replace(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def move(self, name: str, to: "Folder") -> None:
        """Move a file or folder to another folder. A file or link of its name there is replaced."""
        with to._naming(name, "a folder" if self.is_folder(name) else "a file"):
            os.replace(name, name, src_dir_fd=self._descriptor, dst_dir_fd=to._descriptor)

    def make_private(self, name: str) -> None:
        """Make a new folder that only this user can open."""
        with self._naming(name, "a folder"):
            os.mkdir(name, 0o700, dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file or a link, if there is one."""
        with self._naming(name, "a file"), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        with self._naming(name, "a folder"):
            os.rmdir(name, dir_fd=self._descriptor)

    def remove_tree(self, name: str) -> None:
        """Remove a folder and everything in it, if there is one. Links in it are removed, not followed."""
        with self._naming(name, "a folder"), contextlib.suppress(FileNotFoundError):
            if self.exists(name) and not self.is_folder(name):
                raise NotADirectoryError(errno.ENOTDIR, "", name)
            shutil.rmtree(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """The names of everything in it."""
        return os.listdir(self._descriptor)

    def exists(self, name: str) -> bool:
        """Whether anything has this name."""
        return self._mode(name) != 0

    def is_file(self, name: str) -> bool:
        """Whether there is a regular file, not a link, of this name."""
        return stat.S_ISREG(self._mode(name))

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder, not a link, of this name."""
        return stat.S_ISDIR(self._mode(name))

    def sync(self) -> None:
        """Wait until the names in it are on disk."""
        os.fsync(self._descriptor)

    def _mode(self, name: str) -> int:
        """Kind and permissions of what has this name; 0 if nothing has."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _naming(self, name: str, what: str) -> Iterator[None]:
        """Name the whole path in errors, and say what it is instead of `what`."""
        path = self.path / name
        if name == ".." or "/" in name:
            raise DiskError(f"{path} is outside {self.path}")
        try:
            yield
        except OSError as error:
            if error.errno in _WRONG_KIND:
                kind = _KINDS.get(stat.S_IFMT(self._mode(name)), "a device")
                raise DiskError(f"{path} is {kind}, but must be {what}") from error
            error.filename = str(path)
            raise


def replace(path: Path, content: bytes, *, within: Path | None = None) -> None:
    """Replace the content of `path` in one step. Missing folders between it and `within` are made."""
    with Folder.opened(path.parent, within=within, make=within is not None) as folder:
        folder.replace(path.name, content)


def write_all(file: FileIO, content: bytes) -> None:
    """Write to an unbuffered file, of which a nearly full disk takes a part without an error."""
    while content:
        content = content[file.write(content) :]


def remove_tree(path: Path, *, within: Path) -> None:
    """Remove a folder inside `within` and everything in it, if there is one."""
    with contextlib.suppress(FileNotFoundError), Folder.opened(path.parent, within=within) as place:
        place.remove_tree(path.name)


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Where to write a file or folder by its path, as other libraries do. It gets the name `path` at the end.

    That is in a new folder, which nobody else can write to: no link can be waiting there.
    """
    aside = ASIDE + path.name
    with Folder.opened(path.parent, make=True) as place:
        place.remove_tree(aside)  # left by a killed process
        place.make_private(aside)
        try:
            yield path.parent / aside / path.name
            with place.inner(aside) as folder:
                folder.move(path.name, place)
        finally:
            place.remove_tree(aside)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading, also through links. Anything else, which might never end, is an
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read(path: Path) -> bytes:
    """The content of a regular file."""
    with open_regular(path) as file:
        return file.read()
