"""Pages that are files of the repository: recorded results, architecture, changelog and the like.

They are shown as they are. Links between them stay links, pictures come along, and a link to anything else
in the repository, such as a folder of run files, becomes its path.
"""

import posixpath
import re
from pathlib import Path

from docs_build import ROOT

FILES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "results/kills.md": "results/kills.md",
}
"""Files of the repository and the pages that they become. Every results/NAME/README.md is one too."""
PICTURES = {".png", ".svg", ".gif", ".jpg"}
LINK = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)


def page_files() -> dict[str, str]:
    """Path in the repository → path of the page."""
    results = sorted((ROOT / "results").glob("*/README.md"))
    recorded = {str(path.relative_to(ROOT)): f"results/{path.parent.name}.md" for path in results}
    return {path: page for path, page in (FILES | recorded).items() if (ROOT / path).is_file()}


def page_text(path: str) -> tuple[str, dict[str, Path]]:
    """The page that a file becomes, and the pictures that it shows, by their place in the site."""
    pictures: dict[str, Path] = {}
    parts = FENCE.split((ROOT / path).read_text())
    text = "".join(
        part if part.startswith("```") else LINK.sub(lambda link: relinked(link, path, pictures), part)
        for part in parts
    )
    return text, pictures


def relinked(link: re.Match[str], path: str, pictures: dict[str, Path]) -> str:
    """A link of the file `path` as a link of its page."""
    target, _, fragment = link["target"].partition("#")
    if "://" in target or not target:
        return link[0]
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    page = page_files()[path]
    if Path(wanted).suffix in PICTURES and (ROOT / wanted).is_file():
        pictures[wanted] = ROOT / wanted
        return f"{link['picture']}[{link['words']}]({relative(wanted, page)})"
    known = page_of(wanted)
    if known is not None:
        return f"[{link['words']}]({relative(known, page)}{'#' * bool(fragment)}{fragment})"
    return f"{link['words']} (`{wanted}`)"


def page_of(wanted: str) -> str | None:
    """The page of a file, or of a folder with a README."""
    if wanted.startswith("docs/") and (ROOT / wanted).is_file():
        return wanted.removeprefix("docs/")
    pages = page_files()
    return pages.get(wanted) or pages.get(f"{wanted}/README.md")


def relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page))
