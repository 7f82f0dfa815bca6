"""Links of the plain files, as GitHub and editors follow them, and what the pages take from the code."""

import re
from pathlib import Path

import pytest
from pymdownx.slugs import slugify

from docs_build import ROOT, code_links, refresh
from docs_build.site_pages import FENCE

PAGES = [*refresh.pages(), *sorted((ROOT / "docs" / "reference").glob("*.md"))]
LINK = re.compile(r'\]\(([^)\s]+)(?: "[^"\n]*")?\)|(?:href|src)="([^"]+)"')
PAGE = ROOT / "docs" / "algorithms" / "ppo.md"
CODE = "../../src/anybatch"


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The ids that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {slugify(case="lower")(heading.replace("`", ""), "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_plain_file_lead_somewhere(page: Path):
    lost = []
    for found in LINK.finditer(prose(page)):
        target, _, fragment = (found[1] or found[2]).partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        is_lost = not file.exists() or not file.is_relative_to(ROOT)
        if is_lost or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            lost.append(found[0])
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_comment_ends_a_paragraph(page: Path):
    """In Markdown, a line that begins with a comment is a block of its own, and its text is not rendered."""
    assert not re.findall(r"^ {0,3}<!--.*-->.*\S.*$", prose(page), re.M)


def test_links_to_code_and_reference_pages_are_up_to_date():
    changed = [str(page.relative_to(ROOT)) for page in refresh.changed_pages()]
    assert not changed, "run: make docs"


def test_no_page_has_a_mark_that_only_the_site_understands():
    for page in PAGES:
        assert not re.search(r"\{source |\{ ?[.#]\w|^(!!!|\?\?\?)", prose(page), re.M), page


def test_a_link_to_code_gets_the_line_where_its_name_is_defined():
    page = code_links.refreshed(
        f"See [`equations.objectives.decoupled_objective`]({CODE}/equations/objectives.py#L999).", PAGE
    )
    (line,) = re.findall(r"objectives\.py#L(\d+)\)", page)
    lines = (ROOT / "src/anybatch/equations/objectives.py").read_text().splitlines()
    assert lines[int(line) - 1].startswith("def decoupled_objective(")


def test_a_title_names_a_text_within_the_definition():
    link = f'[`equations.objectives.decoupled_objective`]({CODE}/equations/objectives.py "-> Tensor")'
    (line,) = re.findall(r"#L(\d+) ", code_links.refreshed(link, PAGE))
    assert (
        "-> Tensor" in (ROOT / "src/anybatch/equations/objectives.py").read_text().splitlines()[int(line) - 1]
    )


def test_a_name_that_moved_to_another_module_is_found_there():
    link = f"[`equations.former_module.decoupled_objective`]({CODE}/equations/former_module.py#L3)"
    moved = code_links.refreshed(link, PAGE)
    assert moved.startswith(f"[`equations.objectives.decoupled_objective`]({CODE}/equations/objectives.py#L")


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("equations.objectives.no_such_name", "equations/objectives.py", "no_such_name"),
        ("no.such.module", "no/such/module.py", "no module anybatch.no.such.module"),
        ("rules.rescaled_phase_iterations", "errors.py", "is not a name in anybatch.errors"),
        ("equations.returns.gae", 'equations/returns.py "no such line"', "no such line"),
    ],
)
def test_a_link_to_code_that_is_gone_is_an_error(name: str, path: str, said: str):
    with pytest.raises(code_links.LostLinkError, match=rf"docs/algorithms/ppo\.md: .*{said}"):
        code_links.refreshed(f"[`{name}`]({CODE}/{path})", PAGE)
