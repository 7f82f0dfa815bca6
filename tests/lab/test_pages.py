"""Reports in a real browser: whole, readable and silent, on a phone and on a wide screen."""

from collections.abc import Iterator
from pathlib import Path

import browser
import made_studies
import made_tunings
import pytest
from toy_runs import toy_config, toy_pqn_config, train

from anybatch.lab.pages import compared, report_files, tuning_page
from anybatch.lab.pages import runs as run_page
from anybatch.lab.pages import studies as study_page
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.studies import files
from anybatch.lab.studies.plan import Request, StudyPlan, make_plan

WIDTHS = (390, 1400)

# Elements that reach over an edge of the window, but for those in a table that scrolls by itself.
OVERFLOWING = """[...document.querySelectorAll("body *")].filter((element) => {
  if (element.closest(".scroll") && !element.matches(".scroll")) return false;
  if (element.closest(".widest, script")) return false;
  const box = element.getBoundingClientRect();
  return box.width && (box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5);
}).map((element) => element.outerHTML.slice(0, 120))"""
FIGURES = """[...document.querySelectorAll("figure")].map((figure) => {
  const plot = figure.querySelector("svg").getBoundingClientRect();
  const lines = [...figure.querySelectorAll("path.line, path.dots")];
  const drawn = lines.filter((line) => {
    const box = line.getBoundingClientRect();
    const style = getComputedStyle(line);
    const drawn = box.width + box.height > 0 || line.matches(".dots");  // a dot is the end of a line only
    return drawn && style.visibility === "visible" && style.opacity !== "0";
  });
  return [figure.id, Math.round(plot.width), Math.round(plot.height), lines.length, drawn.length];
})"""
COVERED_LABELS = """[...document.querySelectorAll(".x, .y")].flatMap((axis) => {
  const boxes = [...axis.querySelectorAll("span:not(.widest)")].map((label) => label.getBoundingClientRect());
  return boxes.flatMap((one, place) => boxes.slice(place + 1).filter((other) =>
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom));
}).length"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two algorithms and batches, one of them with names as long as they can be."""
    base = tmp_path_factory.mktemp("runs")
    controller = {"kind": "divergence", "min_steps": 4, "max_steps": 8}
    made = [
        train(toy_config(total_env_steps=600, update={"noise_scale_every": 1}), base).folder,
        train(toy_config(total_env_steps=600, seed=2, update={"noise_scale_every": 1}), base).folder,
        train(toy_pqn_config(total_env_steps=1500, num_steps=4, controller=controller), base).folder,
    ]
    made[0] = made[0].rename(base / ("a-very-long-name-without-a-place-to-break-" + "x" * 58))
    out = tmp_path_factory.mktemp("report")
    words = ["anybatch", "report", *map(str, made)]
    return report_files.write(run_page.report(compared.read_all(made), words), out)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_runs_is_whole_at_every_width(
    chromium: browser.Browser, run_report: Path, width: int, dark: bool
):
    assert_whole(chromium, run_report, width, dark=dark)


@pytest.fixture(scope="module")
def study_pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A study of the package at its real size, a sweep, and one over a setting; the last cell is missing."""
    asked = Request(study="invariance", scale="cpu", seeds=2)
    plans = [
        make_plan(files.load("invariance"), asked),
        made_studies.plan_of(made_studies.SWEEP),
        made_studies.plan_of(made_studies.STALE),
    ]
    return [study_page_of(plan, tmp_path_factory.mktemp("study")) for plan in plans]


def study_page_of(plan: StudyPlan, folder: Path) -> Path:
    results = [made_studies.result_of(plan, cell) for cell in plan.cells[:-1]]
    page = folder / report_files.PAGE
    page.write_text(study_page.report(StudyView(plan, results), ["anybatch", "report", "study"]).page)
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_of_studies_are_whole_at_every_width(
    chromium: browser.Browser, study_pages: list[Path], width: int, dark: bool
):
    for page in study_pages:
        assert_whole(chromium, page, width, dark=dark)


@pytest.fixture(scope="module")
def tuning_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuning")
    page = out / report_files.PAGE
    page.write_text(tuning_page.report(made_tunings.outcome_in(out)).page)
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_tuning_is_whole_at_every_width(
    chromium: browser.Browser, tuning_report: Path, width: int, dark: bool
):
    assert_whole(chromium, tuning_report, width, dark=dark)


def assert_whole(chromium: browser.Browser, page: Path, width: int, *, dark: bool) -> None:
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.open(page, width=width, dark=dark)
    assert chromium.complaints == []
    assert chromium.requests == [page.resolve().as_uri()]
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.evaluate(OVERFLOWING) == []
    figures = chromium.evaluate(FIGURES)
    assert figures
    for name, plot_width, height, lines, drawn in figures:
        assert plot_width >= 200 and height >= 30, name
        assert lines == drawn > 0, name
    assert chromium.evaluate(COVERED_LABELS) == 0


def test_the_page_follows_the_color_scheme(chromium: browser.Browser, run_report: Path):
    chromium.open(run_report, width=1400, dark=False)
    light = chromium.evaluate(BACKGROUND)
    chromium.open(run_report, width=1400, dark=True)
    assert light == "rgb(251, 251, 250)" and chromium.evaluate(BACKGROUND) == "rgb(16, 19, 24)"


def test_the_pointer_shows_the_values_of_all_lines(chromium: browser.Browser, run_report: Path):
    chromium.open(run_report, width=1400, height=2000)
    middle = "document.querySelector('#figure-return .plot, #figure-return-1 .plot').getBoundingClientRect()"
    left, top, width, height = chromium.evaluate(
        f"(({{x, y, width, height}}) => [x, y, width, height])({middle})"
    )
    chromium.move_pointer(left + width / 2, top + height / 2)
    shown = chromium.evaluate("document.querySelector('.tip:not([hidden])')?.innerText")
    assert "env steps" in shown and len(shown.split("\n")) >= 4
    chromium.move_pointer(1, 1)
    assert chromium.evaluate("document.querySelectorAll('.tip:not([hidden])').length") == 0
