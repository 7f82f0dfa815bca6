"""Links from pages to lines of the package, which follow the code when it changes.

A page has an ordinary Markdown link whose text is a name within anybatch:

    [`equations.objectives.decoupled_objective`](../../src/anybatch/equations/objectives.py#L26)

A title, `(path#L26 "some text")`, means the first line of that definition which contains the text. Path and
line are computed from the name. A name that has moved to another module is found there if it is the only one.
"""

import ast
import os
import re
from functools import cache
from pathlib import Path

from docs_build import ROOT

PACKAGE = ROOT / "src" / "anybatch"
LINK = re.compile(
    r'\[`(?P<name>[\w.]+)`\]\((?P<path>[^)\s#]*src/anybatch/[^)\s#]+)(?:#L\d+)?(?: "(?P<text>[^"\n]+)")?\)'
)


class LostLinkError(Exception):
    """A page points at code that does not exist. The message says at what."""


def refreshed(markdown: str, page: Path) -> str:
    """The text of a page with the paths and lines of its links to code as they are now."""

    def link(found: re.Match[str]) -> str:
        try:
            return link_to(found["name"], module_of(found["path"]), found["text"], page)
        except LostLinkError as error:
            raise LostLinkError(f"{page.relative_to(ROOT)}: {error}") from None

    return LINK.sub(link, markdown)


def link_to(name: str, module: str, text: str | None, page: Path) -> str:
    """The link to `name`, which was in `module` when the page was written."""
    definition = name.removeprefix(module).removeprefix(".")
    if name != f"{module}.{definition}".rstrip("."):
        raise LostLinkError(f"{name} is not a name in anybatch.{module}, which the link points at")
    if definition and not defines(module, definition):
        module = only_module_with(definition, module)
    file = file_of(module)
    if file is None:
        raise LostLinkError(f"there is no module anybatch.{module}")
    target = os.path.relpath(file, page.parent)
    if definition:
        target += f"#L{line_of(file, definition, text)}"
    name = f"{module}.{definition}".rstrip(".")
    return f"[`{name}`]({target} {chr(34)}{text}{chr(34)})" if text else f"[`{name}`]({target})"


def module_of(path: str) -> str:
    """The module of a file that a link names: src/anybatch/equations/returns.py → equations.returns."""
    inside = path.partition("src/anybatch/")[2].removesuffix(".py").removesuffix("/__init__")
    return inside.replace("/", ".")


def file_of(module: str) -> Path | None:
    place = PACKAGE.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return path if path.is_file() else None


def defines(module: str, definition: str) -> bool:
    file = file_of(module)
    return file is not None and statement_of(file, definition) is not None


def only_module_with(definition: str, module: str) -> str:
    files = [file for file in PACKAGE.rglob("*.py") if statement_of(file, definition) is not None]
    if len(files) != 1:
        where = " and ".join(sorted(module_of(file.as_posix()) for file in files)) or "no module"
        raise LostLinkError(f"anybatch.{module} does not define {definition}; it is in {where}")
    return module_of(files[0].as_posix())


def line_of(file: Path, definition: str, text: str | None) -> int:
    """The first line of a definition, or the first line in it that contains `text`."""
    statement = statement_of(file, definition)
    assert statement is not None
    # Decorators belong to what they decorate.
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", []))])
    lines = file.read_text().splitlines()[first - 1 : statement.end_lineno]
    offset = next((index for index, line in enumerate(lines) if (text or "") in line), None)
    if offset is None:
        raise LostLinkError(f"{definition} in {file.relative_to(ROOT)} has no line with {text!r}")
    return first + offset


def statement_of(file: Path, definition: str) -> ast.stmt | None:
    """The statement that defines a dotted name: a class, function, constant, method or field."""
    body, statement = parsed(file).body, None
    for part in definition.split("."):
        statement = next((one for one in body if part in names_of(one)), None)
        if statement is None:
            return None
        body = getattr(statement, "body", [])
    return statement


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def names_of(statement: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}
