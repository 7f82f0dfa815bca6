"""`anybatch report` and `anybatch plot`: runs, studies and tunings as pages and pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tyro

from anybatch.cli.usage_error import as_user_error
from anybatch.errors import UserError
from anybatch.reports import compared, report_files, run_charts, study_parts
from anybatch.reports.charts import files
from anybatch.reports.pages import runs as run_page
from anybatch.reports.pages import studies as study_page
from anybatch.reports.report_files import Report
from anybatch.tuning import page as tuning_page
from anybatch.tuning import tune

REPORT_FOLDER = "report"


@dataclass(frozen=True, kw_only=True)
class ReportFlags:
    paths: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PlotFlags:
    paths: tyro.conf.Positional[tuple[Path, ...]]
    metric: str = run_charts.RETURN
    out: Path | None = None


Flags = TypeVar("Flags", ReportFlags, PlotFlags)


def report(words: list[str]) -> None:
    """Write a page about runs, a study or a tuning."""
    flags = parsed(ReportFlags, words)
    folder, made = made_of(flags.paths, ["anybatch", "report", *words])
    show_written(made, flags.out or folder)


def made_of(paths: tuple[Path, ...], words: list[str]) -> tuple[Path, Report]:
    """The report of a tuning, of a study or of runs, and the folder it belongs in."""
    tunings = [path for path in paths if tune.is_tuning(path)]
    studies = [path for path in paths if study_parts.is_study(path)]
    if (tunings or studies) and len(paths) > 1:
        what = "a tuning" if tunings else "a study"
        raise UserError(
            f"{(tunings or studies)[0]} is {what}, which has its own report: name no other folder beside it"
        )
    if tunings:
        return tunings[0] / REPORT_FOLDER, tuning_page.report(tune.read(tunings[0]))
    if studies:
        return studies[0] / REPORT_FOLDER, study_page.report(study_parts.read(studies[0]), words)
    runs = compared.read_all(paths)
    folder = runs[0].folder / REPORT_FOLDER if len(runs) == 1 else Path(REPORT_FOLDER)
    return folder, run_page.report(runs, words)


def show_written(made: Report, out: Path) -> None:
    """Write a report and print where its files are."""
    print(f"page     {report_files.write(made, out)}")
    if files.is_available():
        print(f"figures  {out / report_files.FIGURES} (PNG and SVG)")
    else:
        print(f"figures  no PNG or SVG files, which need the package matplotlib: {files.EXTRA}")
    print(f"data     {out / report_files.DATA} (CSV)")


def plot(words: list[str]) -> None:
    """Draw one metric of runs."""
    flags = parsed(PlotFlags, words)
    if flags.out is None:
        raise UserError("name the picture file, such as --out curve.png")
    files.refuse_format(flags.out)
    groups = compared.grouped([run for run in compared.read_all(flags.paths) if run.rows])
    report_files.write_picture(run_charts.chart_of_metric(flags.metric, groups), flags.out)
    print(flags.out)


def parsed(kind: type[Flags], words: list[str]) -> Flags:
    with as_user_error():
        flags = tyro.cli(kind, args=words)
    if not flags.paths:
        raise UserError("name at least one run folder, such as runs/ for the newest run in that folder")
    return flags
