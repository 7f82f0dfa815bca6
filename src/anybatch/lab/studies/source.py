"""The package at the time a plan was made. Cells run from a copy, unaffected by changes to the checkout."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies.cells import SOURCE
from anybatch.runs import folder as run_folder
from anybatch.storage import safe_files
from anybatch.storage.safe_files import Folder

PACKAGE = Path(__file__).resolve().parents[2]
COMPILED = "__pycache__"


def files(package: Path) -> list[Path]:
    """The files of a package, by relative path."""
    found = (path for path in package.rglob("*") if path.is_file() and COMPILED not in path.parts)
    return sorted(path.relative_to(package) for path in found)


def digest(package: Path) -> str:
    """SHA-256 of the names and contents of a package's files."""
    total = hashlib.sha256()
    for path in files(package):
        total.update(f"{path.as_posix()}\0".encode())
        total.update(hashlib.sha256((package / path).read_bytes()).digest())
    return total.hexdigest()


def freeze(out: Path) -> dict[str, Any]:
    """Copy the package into the folder of a study. Returns the facts about it that the plan records."""
    copy = out / SOURCE / PACKAGE.name
    if copy.exists():
        refuse_foreign(copy)
    safe_files.remove_tree(copy, within=out)
    for path in files(PACKAGE):
        place = Folder.opened((copy / path).parent, within=out, make=True)
        with place as folder, folder.new(path.name) as file:
            file.write((PACKAGE / path).read_bytes())
    known = run_folder.facts(engine="", device="", native_code=False, threads=0)
    facts = {name: known[name] for name in ("anybatch", "git_commit", "python", "torch")}
    return facts | {"source": digest(copy)}


def refuse_foreign(copy: Path) -> None:
    """Refuse to remove files that this package does not have, or not fully as after a kill."""
    for path in files(copy):
        ours = PACKAGE / path
        if not ours.is_file() or not ours.read_bytes().startswith((copy / path).read_bytes()):
            raise UserError(
                f"{copy / path} is not a copy of this package and would be lost: choose another folder "
                "with --out"
            )


def restore(out: Path, facts: Mapping[str, Any]) -> None:
    """Make sure that the copy is the one that the plan was made with, by its recorded `facts`.

    A folder without the copy gets it again, from this package if it is still the same.
    """
    copy, recorded = out / SOURCE / PACKAGE.name, facts.get("source")
    if not copy.exists() and digest(PACKAGE) == recorded:
        freeze(out)
    if not copy.exists() or digest(copy) != recorded:
        commit = facts.get("git_commit")
        checkout = f"Continue it with the package of commit {commit}, or choose" if commit else "Choose"
        raise UserError(
            f"{out / SOURCE} is not the source that the plan was made with, so new cells would not be "
            f"comparable with the existing ones. {checkout} another folder with --out"
        )
