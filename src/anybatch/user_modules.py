"""Modules and functions that a person names by a string, such as the my_package of --env my_package:MyEnv-v0.

Modules named by a command line or a program are intended by its author: they are also searched for in the
working folder, after all installed packages. A record, such as the config of a run folder, a preset or a
study file, may have been written by somebody else: modules it names are imported from installed packages
only, never from the working folder or from Python's own library, and what else it names has no effect until
the command line or the program names it too (`named`).
"""

import contextlib
import importlib
import os
import shlex
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from anybatch.errors import UserError

OBJECT_PREFIX = "object:"
"""Prefix of the recorded name of an environment or network that a program passed as an object."""

NETWORK_FACTORY = "network.factory"
"""The setting that names a network's factory."""

_of_working_folder: set[str] = set()
_named: dict[str, set[str]] = {}


def name(setting: str, value: str) -> None:
    """Remember that the command line or the program has named a value of a setting."""
    _named.setdefault(setting, set()).add(value)


def named(setting: str) -> set[str]:
    """The values of a setting that the command line or the program has named, so that records may too."""
    return _named.get(setting, set())


def how_to_name(setting: str, value: str) -> str:
    """What a person has to type to name a value of a setting, such as env, network.factory, ray_address."""
    flag, argument = setting.replace("_", "-"), setting.partition(".")[0]
    return f"--{flag} {shlex.quote(value)} (from Python: {argument}={value!r})"


def import_named(module: str, *, naming: str, trusted: bool) -> ModuleType:
    """The module of that name. `naming` is what a person types to name it, for error messages.

    `trusted` searches the working folder last, and lets the module find its neighbors there.
    """
    top, *others = module.split(".")
    # Python's own library has parts that act when they are imported, and so does a program.
    is_no_package = top in sys.stdlib_module_names or "__main__" in (top, *others)
    if not trusted and module not in sys.modules and is_no_package:
        raise UserError(
            f"{module} is not part of an installed package, and is imported only if you name it: {naming}"
        )
    try:
        with _without_working_folder():
            return importlib.import_module(module)
    except (TypeError, ValueError) as error:  # .x or an empty part is not a valid module name
        raise UserError(f"{module} is not a module: {error}") from error
    except ModuleNotFoundError as error:
        is_here = PathFinder.find_spec(top, [os.getcwd()]) is not None
        # What is missing may also be something that the module imports.
        if not is_here or error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _not_found(error) from error
        if not trusted:
            raise UserError(
                f"{module} is not installed, and the one in this folder is imported only if you name it: "
                f"{naming}"
            ) from None
    sys.path.append(os.getcwd())
    _of_working_folder.add(module)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _not_found(error) from error


def must_be_named(module: str) -> bool:
    """Whether a module was found only in the working folder, so that other commands must name it again."""
    return module in _of_working_folder


def importable_name(thing: object) -> str | None:
    """The name by which another process finds a function or class, as my_package:make_env; None if it cannot.

    It cannot find what was defined in the main program or within a function.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is thing else None


def named_object(path: str) -> Any:
    """The object that `importable_name` named."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@contextlib.contextmanager
def _without_working_folder() -> Iterator[None]:
    """Remove the entries of sys.path that mean the working folder; the import may add to the rest."""
    places = [place for place, entry in enumerate(sys.path) if entry in ("", os.curdir)]
    taken = [sys.path.pop(place) for place in reversed(places)][::-1]
    try:
        yield
    finally:
        for place, entry in zip(places, taken, strict=True):
            sys.path.insert(place, entry)


def _not_found(error: ModuleNotFoundError) -> UserError:
    return UserError(f"{error}; is it installed, or its folder on PYTHONPATH?")
