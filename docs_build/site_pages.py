"""Where files of the repository are in the documentation site, and their links there.

Links are written for the plain files: they lead from file to file of the repository, so that they work on
GitHub and in an editor. In the site, a link to a page becomes one to that page, a link to code becomes one to
a page that shows the code, pictures come along, and a link to anything else becomes its path.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from docs_build import ROOT

FILES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Files of the repository and their pages. Every results/NAME/README.md and file of docs/ is one too."""
CODE = {".py", ".toml"}
CODE_PAGES = "source"
"""Folder of the site in which code is shown."""
PICTURES = {".png", ".svg", ".gif", ".jpg"}
LINK = re.compile(r'(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)(?P<title> "[^"\n]*")?\)')
FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)


def place_of(path: str) -> str | None:
    """The place in the site of a file or folder of the repository; None if it has none."""
    file = ROOT / path
    if file.is_dir():
        return place_of(f"{path}/README.md") if (file / "README.md").is_file() else None
    if path in FILES or path.startswith("docs/"):
        return FILES.get(path) or path.removeprefix("docs/")
    if re.fullmatch(r"results/[^/]+/README\.md", path):
        return f"{posixpath.dirname(path)}.md"
    if file.suffix in CODE:
        return f"{CODE_PAGES}/{path}.md"
    return path if file.suffix in PICTURES else None


def repository_files() -> Iterator[str]:
    """The files outside docs/ that are pages."""
    yield from (path for path in FILES if path != "README.md")
    yield from (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "results").glob("*/README.md")))


def linked_files(path: str) -> set[str]:
    """Code and pictures outside docs/ that a page shows or links to."""
    targets = {target_of(link, path) for part in prose(path) for link in LINK.finditer(part)}
    wanted = {target for target in targets if target and Path(target).suffix in CODE | PICTURES}
    return {target for target in wanted if not target.startswith("docs/")}


def page_text(path: str) -> str:
    """The text of the file `path` of the repository with the links that it has in the site."""
    parts = FENCE.split((ROOT / path).read_text())
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda link: relinked(link, path), part)
        for part in parts
    )


def prose(path: str) -> list[str]:
    return [part for part in FENCE.split((ROOT / path).read_text()) if not part.startswith("```")]


def target_of(link: re.Match[str], path: str) -> str | None:
    """The file or folder of the repository that a link of the file `path` leads to."""
    target = link["target"].partition("#")[0]
    if "://" in target or not target:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def relinked(link: re.Match[str], path: str) -> str:
    """A link of the file `path` as a link of its page."""
    wanted = target_of(link, path)
    if wanted is None:
        return link[0]
    place, page = place_of(wanted), place_of(path)
    if place is None or page is None:
        return f"{link['words']} (`{wanted}`)"
    target = posixpath.relpath(place, posixpath.dirname(page))
    _, mark, fragment = link["target"].partition("#")
    if re.fullmatch(r"L\d+", fragment):
        fragment = line_anchor(int(fragment[1:]))
    return f"{link['picture']}[{link['words']}]({target}{mark}{fragment}{link['title'] or ''})"


def line_anchor(line: int) -> str:
    """The id of a line in the page of its file, as pymdownx.highlight with `line_spans` names it."""
    return f"__span-0-{line}"


def code_page(path: str) -> str:
    """The page that shows a file with its line numbers."""
    language = "python" if path.endswith(".py") else "toml"
    front = "---\nsearch:\n  exclude: true\nhide:\n  - navigation\n  - toc\n---\n"
    return f'{front}# `{path}`\n\n``````{language} linenums="1"\n{(ROOT / path).read_text()}``````\n'
