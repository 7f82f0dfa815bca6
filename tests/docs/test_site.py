"""The documentation site: built strictly, its links lead somewhere, it fits a phone and a wide screen."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
import pytest

import anybatch
from anybatch import presets
from anybatch.cli.main import COMMANDS
from anybatch.config import CONFIGS
from anybatch.equations.objectives import decoupled_objective
from anybatch.runs.metrics import METRICS
from docs_build import api_reference, flag_reference, references, site_pages, study_results

ROOT = Path(__file__).parents[2]
LOOKED_AT = (
    "index.html",
    "five-minutes.html",
    "algorithms/ppo.html",
    "reference/flags.html",
    "faq.html",
    "glossary.html",
    "project/architecture.html",
)
OVERFLOWING = """[...document.querySelectorAll("article *")].filter((element) => {
  if (element.closest("pre, .md-typeset__scrollwrap")) return false;
  const box = element.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 0.5;
}).map((element) => element.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Links(HTMLParser):
    """What a page points at, what it loads, and the places in it that can be pointed at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value for name, value in attrs if value}
        self.places |= {known[name] for name in ("id", "name") if name in known}
        if tag == "a" and "href" in known:
            self.targets.append(known["href"])
        elif tag == "link" and known.get("rel") != "canonical":
            self.loaded += [known["href"]] if "href" in known else []
        elif "src" in known:
            self.loaded.append(known["src"])


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 40
    broken: list[str] = []
    for page, links in pages.items():
        assert not [url for url in links.loaded if urlsplit(url).netloc], page
        for target in [*links.targets, *links.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            found = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            found = found / "index.html" if found.is_dir() else found
            missing = not found.exists()
            place = unquote(parts.fragment)
            lost = found in pages and place not in {"", *pages[found].places}
            if missing or lost:
                broken.append(f"{page.relative_to(site)} → {target}")
    assert not broken, "\n".join(broken)


def test_files_of_the_repository_link_to_pages_of_the_documentation():
    text = site_pages.page_text("SECURITY.md")
    assert "(../scale.md)" in text and "docs/scale.md" not in text


def test_a_link_to_a_line_shows_what_it_says(site: Path):
    (line,) = re.findall(r"objectives\.py#L(\d+)\)\. It works", (ROOT / "docs/algorithms/ppo.md").read_text())
    anchor = site_pages.line_anchor(int(line))
    code = (site / "source/src/anybatch/equations/objectives.py.html").read_text()
    assert "decoupled_objective" in code.partition(f'id="{anchor}"')[2].partition("\n")[0]
    assert f"objectives.py.html#{anchor}" in (site / "algorithms/ppo.html").read_text()


def test_the_references_have_everything():
    metrics, known, api = references.metrics_page(), references.presets_page(), api_reference.page()
    assert not [name for name in METRICS if f"`{name}`" not in metrics]
    assert not [name for name in presets.names() if f"`{name}`" not in known]
    assert not [name for name in anybatch.__all__ if name != "__version__" and f"### `{name}`" not in api]
    flags = flag_reference.page()
    groups = {"--env-config", "--tuned-at"}
    for algorithm in CONFIGS:
        named = {flag for flag in flag_reference.setting_flags(algorithm) if f"`{flag}`" not in flags}
        assert {flag for flag in named if "." in flag or f"`{flag}.…`" not in flags} <= groups
    assert not [name for name in COMMANDS if f"## `anybatch {name}`" not in flags]
    assert "## `anybatch plan --from`" in flags


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1400])
def test_pages_fit_the_screen_and_ask_for_nothing_else(site: Path, chromium: browser.Browser, width: int):
    for name in LOOKED_AT:
        chromium.complaints.clear()
        chromium.requests.clear()
        chromium.open(site / name, width=width, dark=width == 390)
        assert chromium.evaluate(OVERFLOWING) == []
        assert chromium.complaints == []
        assert not [url for url in chromium.requests if not url.startswith(("file:", "data:", "blob:"))]


def test_search_works_in_pages_that_are_opened_as_files(site: Path, chromium: browser.Browser):
    chromium.open(site / "howto/index.html", width=1400)
    chromium.evaluate("document.querySelector('input.md-search__input').focus()")
    typed = "new Event('keyup', {bubbles: true})"
    search = f"(field => {{ field.value = 'noise scale'; field.dispatchEvent({typed}) }})"
    for _ in range(100):  # the index is loaded and read first
        chromium.evaluate(f"{search}(document.querySelector('input.md-search__input'))")
        time.sleep(0.1)
        if chromium.evaluate("document.querySelectorAll('.md-search-result__item').length"):
            return
    pytest.fail("nothing was found")


def test_a_signature_is_as_it_is_written():
    shown = api_reference.signature("decoupled_objective", decoupled_objective)
    assert "max_importance: float = 100.0" in shown and "logp: Tensor" in shown
    assert "-> TrainedRun" in api_reference.signature("train", anybatch.train)


@pytest.mark.parametrize("page", [study_results.README, study_results.RESULTS], ids=lambda path: path.name)
def test_numbers_between_marks_follow_from_the_recorded_runs(page: Path):
    text = page.read_text()
    assert study_results.DIFFERENCE.search(text)
    assert study_results.with_numbers(text) == text  # otherwise: make results


@pytest.mark.parametrize("name", study_results.recorded_names())
def test_the_page_of_a_study_follows_from_its_recorded_runs(name: str):
    text = (study_results.PAGES / f"{name}.md").read_text()
    assert study_results.page_of(name) == text  # otherwise: make results
    is_void = any(one.state == "void" for one in study_results.read(name).verdicts)
    assert is_void == ("Withdrawn" in text) and is_void != ("normalized | mean" in text)


def test_a_number_is_that_of_its_verdict():
    """From the sentences that verdicts have about themselves, which are tested elsewhere."""
    for found in study_results.DIFFERENCE.finditer(study_results.RESULTS.read_text()):
        if found["final"]:
            continue
        one = study_results.comparison(found["study"], found["verdict"], int(found["index"] or 0))
        assert one.value is not None and one.interval is not None
        assert all(f"{number:+.3f}" in one.sentence for number in (one.value, *one.interval))
