"""MkDocs' hooks: pages that are files elsewhere in the repository, pages of code, and links between them."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]  # MkDocs loads this file by its path

from docs_build import site_pages  # noqa: E402

WITH_OUTPUT = re.compile(r"^```bash\n(?=\$ )", re.M)
"""A command and what it prints, which is no shell script to be colored."""
NOT_RUN = re.compile(r"^(```\w+) not-run: .*$", re.M)
"""The mark by which a page tells the tests why they cannot run a block. Readers do not need it."""


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/: pages, and the code and pictures that pages link to."""
    outside = set(site_pages.repository_files())
    inside = {f"docs/{page.src_uri}" for page in files.documentation_pages()}
    linked = set[str]().union(*map(site_pages.linked_files, inside | outside))
    for path in sorted(outside | linked):
        place = site_pages.place_of(path)
        assert place is not None, path
        files.append(File.generated(config, place, content=content_of(path)))
    return files


def content_of(path: str) -> str | bytes:
    suffix = Path(path).suffix
    if suffix in site_pages.PICTURES:
        return (ROOT / path).read_bytes()
    return site_pages.code_page(path) if suffix in site_pages.CODE else site_pages.page_text(path)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    if page.file.src_uri.startswith(f"{site_pages.CODE_PAGES}/"):
        return markdown
    path = f"docs/{page.file.src_uri}"
    text = site_pages.page_text(path) if (ROOT / path).is_file() else markdown
    return WITH_OUTPUT.sub("```console\n", NOT_RUN.sub(r"\1", text))
