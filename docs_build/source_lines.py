"""Where a name of the package is defined: links from a page to the lines that do what it says.

A page says `{source equations.objectives:decoupled_objective}`, module and name within anybatch, or the
module alone. A text after a bar, `{source algorithms.ppo:train | control_batch}`, means the first line
of that definition which contains it. What cannot be found is an error: no page points at code that has moved.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs_build import ROOT

PACKAGE = ROOT / "src" / "anybatch"
MARK = re.compile(r"\{source (?P<module>[\w.]+)(?::(?P<name>[\w.]+))?(?: \| (?P<text>[^}\n]+))?\}")
PAGES = "source"
"""Folder of the site in which the sources are shown."""


class NoSuchLineError(Exception):
    """A page points at something that is not there. The message says what."""


@dataclass(frozen=True)
class Line:
    """Where something is: a file of the package, and its first line."""

    path: str
    number: int


def found(module: str, name: str | None = None, text: str | None = None) -> Line:
    """The first line of a module, of a definition in it, or the first line of that which contains `text`."""
    path = file_of(module)
    lines = path.read_text().splitlines()
    first, last = 1, len(lines)
    if name is not None:
        node = definition(path, module, name)
        first, last = first_line(node), node.end_lineno or node.lineno
    if text is not None:
        holds = [number for number in range(first, last + 1) if text.strip() in lines[number - 1]]
        if not holds:
            raise NoSuchLineError(f"anybatch.{module}:{name} has no line with {text.strip()!r}")
        first = holds[0]
    return Line(path.relative_to(PACKAGE).as_posix(), first)


def file_of(module: str) -> Path:
    place = PACKAGE.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.is_file():
        raise NoSuchLineError(f"there is no module anybatch.{module}")
    return path


def definition(path: Path, module: str, name: str) -> ast.stmt:
    """The statement that defines a dotted name: a class, function, constant, method or field."""
    body = parsed(path).body
    node: ast.stmt | None = None
    for part in name.split("."):
        node = next((statement for statement in body if part in names_of(statement)), None)
        if node is None:
            raise NoSuchLineError(f"anybatch.{module} defines no {name}")
        body = getattr(node, "body", [])
    assert node is not None
    return node


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def names_of(statement: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def first_line(node: ast.stmt) -> int:
    """Decorators belong to what they decorate."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def linked(markdown: str, page: str) -> tuple[str, set[str]]:
    """The text of a page with its marks turned into links, and the files that they point into.

    `page` is the page's own path, such as algorithms/ppo.md.
    """
    paths: set[str] = set()
    up = "../" * page.count("/")

    def link(mark: re.Match[str]) -> str:
        try:
            line = found(mark["module"], mark["name"], mark["text"])
        except NoSuchLineError as error:
            raise NoSuchLineError(f"{page}: {error}") from None
        paths.add(line.path)
        return f"[`{line.path}:{line.number}`]({up}{page_of(line.path)}#{anchor(line.number)})"

    return MARK.sub(link, markdown), paths


def page_of(path: str) -> str:
    """The page of the site that shows a file."""
    return f"{PAGES}/{path.removesuffix('.py')}.md"


def anchor(line: int) -> str:
    """The id of a line in the page of its file, as pymdownx.highlight with `line_spans` names it."""
    return f"__span-0-{line}"


def source_page(path: str) -> str:
    """The page that shows a file of the package with its line numbers."""
    code = (PACKAGE / path).read_text()
    front = "---\nsearch:\n  exclude: true\nhide:\n  - navigation\n  - toc\n---\n"
    return f'{front}# `anybatch/{path}`\n\n``````python linenums="1"\n{code}``````\n'
