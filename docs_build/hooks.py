"""MkDocs' hooks: pages made from code and repository, links to lines of code, and marks for the tests."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]  # MkDocs loads this file by its path

from docs_build import api_reference, flag_reference, references, repository_pages, source_lines  # noqa: E402

REFERENCES = {
    "reference/flags.md": flag_reference.page,
    "reference/metrics.md": references.metrics_page,
    "reference/presets.md": references.presets_page,
    "reference/api.md": api_reference.page,
    "reference/equations.md": api_reference.equations_page,
}
WITH_OUTPUT = re.compile(r"^```bash\n(?=\$ )", re.M)
"""A command and what it prints, which is no shell script to be colored."""
NOT_RUN = re.compile(r"^(```\w+) not-run: .*$", re.M)
"""The mark by which a page tells the tests why they cannot run a block. Readers do not need it."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for name, page in REFERENCES.items():
        add(files, config, name, page())
    for path, name in repository_pages.page_files().items():
        text, pictures = repository_pages.page_text(path)
        add(files, config, name, text)
        for place, picture in pictures.items():
            add(files, config, place, picture.read_bytes())
    for path in sorted(referenced_sources(files)):
        add(files, config, source_lines.page_of(path), source_lines.source_page(path))
    return files


def add(files: Files, config: Any, name: str, content: str | bytes) -> None:
    if files.get_file_from_path(name) is None:  # a page in docs/ of that name takes its place
        files.append(File.generated(config, name, content=content))


def referenced_sources(files: Files) -> set[str]:
    """The files of the package that pages point into."""
    paths: set[str] = set()
    for page in files.documentation_pages():
        paths |= linked(page.content_string, page.src_uri)[1]
    return paths


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    if page.file.src_uri.startswith(f"{source_lines.PAGES}/"):
        return markdown
    text = linked(markdown, page.file.src_uri)[0]
    return WITH_OUTPUT.sub("```console\n", NOT_RUN.sub(r"\1", text))


def linked(markdown: str, page: str) -> tuple[str, set[str]]:
    try:
        return source_lines.linked(markdown, page)
    except source_lines.NoSuchLineError as error:
        raise PluginError(str(error)) from None
