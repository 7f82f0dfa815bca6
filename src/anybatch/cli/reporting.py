"""`anybatch report`, `plot` and `dial`: runs, studies, tunings and presets as pages and pictures."""

from pathlib import Path

from anybatch import presets
from anybatch.cli.flags import DialFlags, PlotFlags, ReportFlags
from anybatch.cli.parser import Argv, parse
from anybatch.errors import UserError
from anybatch.lab.pages import compared, dial_data, report_files, run_charts, study_parts, tuning_page
from anybatch.lab.pages import dial as dial_pages
from anybatch.lab.pages import runs as run_page
from anybatch.lab.pages import studies as study_page
from anybatch.lab.pages.report_files import Report
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.studies import recorded
from anybatch.lab.tuning import outcome as tuning
from anybatch.lab.tuning.outcome import Outcome

REPORT_FOLDER = "report"


def report(words: list[str]) -> None:
    flags = parse(ReportFlags(), Argv(words))
    if flags.record is not None:
        record(flags.paths, flags.record, flags.out)
        return
    folder, made = made_of(flags.paths, flags.out)
    show_written(made, flags.out or folder, within=flags.out or folder.parent)


def record(paths: tuple[Path, ...], file: Path, out: Path | None) -> None:
    """Pack a study or a tuning into one file."""
    if out is not None:
        raise UserError("--record writes no page, so it cannot be used with --out")
    if paths[0].is_file():
        raise UserError(f"{paths[0]} is one file already: --record is for the folder of a study or a tuning")
    match study_or_tuning(paths):
        case StudyView() as view:
            recorded.write_study(file, view.plan, view.results.values())
        case Outcome() as outcome:
            tuning.record(file, outcome)
        case None:
            raise UserError(f"--record is for a study or a tuning, and {paths[0]} is neither")
    print(f"recorded  {file}")


def study_or_tuning(paths: tuple[Path, ...]) -> StudyView | Outcome | None:
    """The study or the tuning that is named; None if they are runs."""
    tunings = [path for path in paths if tuning.is_tuning(path)]
    studies = [path for path in paths if study_parts.is_study(path)]
    packed = [path for path in paths if path.is_file()]
    if (tunings or studies or packed) and len(paths) > 1:
        what = "a tuning" if tunings else "a study" if studies else "a file"
        raise UserError(
            f"{(tunings or studies or packed)[0]} is {what}, which has its own report: name nothing else "
            "beside it"
        )
    if packed:
        content = recorded.read(packed[0])
        is_tuning = content.kind == recorded.TUNING
        return tuning.outcome_in(content) if is_tuning else StudyView(*recorded.study_in(content))
    if tunings:
        return tuning.read(tunings[0])
    return study_parts.read(studies[0]) if studies else None


def made_of(paths: tuple[Path, ...], out: Path | None) -> tuple[Path, Report]:
    """The report of a tuning, of a study or of runs, and the folder it belongs in unless `out` is given."""
    found = study_or_tuning(paths)
    given = [] if out is None else ["--out", str(out)]
    if found is not None:
        path, name = paths[0], paths[0].name.removesuffix(recorded.SUFFIX)
        folder = path.with_name(f"{name}-{REPORT_FOLDER}") if path.is_file() else path / REPORT_FOLDER
        again = ["anybatch", "report", *map(str, paths), *given]
        is_study = isinstance(found, StudyView)
        return folder, study_page.report(found, again) if is_study else tuning_page.report(found)
    runs = compared.read_all(paths)
    folder = runs[0].folder / REPORT_FOLDER if len(runs) == 1 else Path(REPORT_FOLDER)
    # By their folders: runs/ may soon be the folder of a newer run.
    named = [str(run_page.shown_path(run.folder)) for run in runs]
    return folder, run_page.report(runs, ["anybatch", "report", *named, *given])


def show_written(made: Report, out: Path, *, within: Path) -> None:
    """Write a report and print where its files are."""
    print(f"page     {report_files.write(made, out, within=within)}")
    if report_files.can_draw():
        print(f"figures  {out / report_files.FIGURES} (PNG and SVG)")
    else:
        print(f"figures  no PNG or SVG files, which {report_files.NEEDS_MATPLOTLIB}")
    print(f"data     {out / report_files.DATA} (CSV)")


def plot(words: list[str]) -> None:
    flags = parse(PlotFlags(), Argv(words))
    if flags.out is None:
        raise UserError("name the picture file, such as --out curve.png")
    report_files.validate_format(flags.out)
    groups = compared.grouped([run for run in compared.read_all(flags.runs) if run.rows])
    report_files.write_picture(run_charts.chart_of_metric(flags.metric, groups), flags.out)
    print(flags.out)


def dial(words: list[str]) -> None:
    flags = parse(DialFlags(), Argv(words))
    others = [name for name in presets.names() if name != presets.DEFAULT]
    names = dict.fromkeys((*flags.preset, presets.DEFAULT, *others))
    records = {
        str(path).removesuffix(recorded.SUFFIX): dial_data.records_of(study_parts.read(path))
        for path in flags.studies
    }
    content = dial_pages.dial_page({name: presets.load(name) for name in names}, records)
    dial_pages.write(content, flags.out)
    print(f"page     {flags.out}")
