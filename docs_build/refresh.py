"""Everything in the pages that follows from the code, written anew: `make docs` does it first.

Links to lines of code are updated in place, and the reference pages in docs/reference are generated.
"""

import sys
from pathlib import Path

from docs_build import ROOT, api_reference, code_links, flag_reference, references

REFERENCES = {
    "flags.md": flag_reference.page,
    "metrics.md": references.metrics_page,
    "presets.md": references.presets_page,
    "api.md": api_reference.page,
    "equations.md": api_reference.equations_page,
}


def pages() -> list[Path]:
    """Every page that a person writes."""
    written = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    written += ROOT.glob("results/**/*.md")
    return sorted(page for page in written if page.parent.name != "reference")


def changed_pages() -> dict[Path, str]:
    """Pages whose text should be another one, and that text."""
    wanted = {page: code_links.refreshed(page.read_text(), page) for page in pages()}
    wanted |= {ROOT / "docs" / "reference" / name: page() for name, page in REFERENCES.items()}
    return {page: text for page, text in wanted.items() if not page.is_file() or page.read_text() != text}


def main() -> None:
    try:
        changed = changed_pages()
    except code_links.LostLinkError as error:
        sys.exit(f"A link to code leads nowhere. {error}")
    for page, text in changed.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
