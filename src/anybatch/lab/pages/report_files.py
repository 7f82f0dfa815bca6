"""A report on disk: index.html, which needs no other file, and next to it figures and their numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from anybatch.errors import DiskError, UserError, cause_of
from anybatch.lab.charts.chart import Drawing, csv_text
from anybatch.lab.pages.page import GENERATOR, SUBJECT, about_mark
from anybatch.storage import safe_files

PAGE = "index.html"
FIGURES, DATA = "figures", "data"
PICTURES = (".png", ".svg")
FORMATS = (*PICTURES, ".pdf")
NEEDS_MATPLOTLIB = "need the package matplotlib: install it with pip install 'anybatch[plot]'"


@dataclass(frozen=True)
class Report:
    """The parts of a report."""

    page: str
    drawings: Sequence[Drawing]
    tables: Mapping[str, str]
    """Contents of further CSV files, by name without .csv."""
    about: str = ""
    """What the page is about, if its folder may have a page about something else."""


def write(report: Report, out: Path, *, within: Path | None = None, with_pictures: bool = True) -> Path:
    """Write a report into the folder `out` and return its page. An earlier report there is replaced.

    `within`: the folder that a person named, if it is not `out` itself; what is in it must not be a link.
    Pictures take most of the time, and are left out if matplotlib is missing.
    """
    page, root = out / PAGE, within or out
    tables = {drawn.name: csv_text(drawn) for drawn in report.drawings} | dict(report.tables)
    data = {out / DATA / f"{name}.csv": text for name, text in tables.items()}
    suffixes = PICTURES if with_pictures and can_draw() else ()
    pictures = {
        out / FIGURES / f"{drawn.name}{suffix}": drawn for drawn in report.drawings for suffix in suffixes
    }
    validate_page(page, (*data, *pictures), about=report.about)
    try:
        # First the page: where it is, the other files are ours, even if this process is killed here.
        safe_files.replace(page, report.page.encode(errors="replace"), within=root)
        for path, text in data.items():
            safe_files.replace(path, text.encode(errors="replace"), within=root)
        for path, drawn in pictures.items():
            safe_files.replace(path, picture(drawn, path.suffix), within=root)
    except OSError as error:
        raise DiskError(f"the report could not be written to {out}: {cause_of(error)}") from error
    return page


def validate_page(page: Path, beside: Iterable[Path] = (), *, about: str = "") -> None:
    """Refuse to replace a page that anybatch did not write, or files `beside` it if there is no page.

    A page that says what it is about is replaced only by one `about` the same.
    """
    lost: list[Path] = []
    there = ""
    try:
        if page.exists():
            there = safe_files.read(page).decode(errors="replace")
            lost = [page] if GENERATOR not in there else []
        else:
            lost = [path for path in beside if path.exists()]
    except OSError as error:
        raise DiskError(f"{page} could not be read: {cause_of(error)}") from error
    if lost:
        raise UserError(
            f"{lost[0]} was not written by anybatch and would be lost: name another place with --out"
        )
    if about and SUBJECT in there and about_mark(about) not in there:
        raise UserError(f"{page} is about other runs and would be lost: name another place with --out")


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def picture(drawn: Drawing, suffix: str) -> bytes:
    """A drawing as the content of a file that ends in `suffix`."""
    if not can_draw():
        raise UserError(f"pictures {NEEDS_MATPLOTLIB}")
    from anybatch.lab.charts import matplotlib_figures

    return matplotlib_figures.picture(drawn, suffix)


def validate_format(out: Path) -> None:
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the file must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def write_picture(drawn: Drawing, out: Path) -> None:
    """Write one drawing, in the format of the file name `out`."""
    validate_format(out)
    replace(out, picture(drawn, out.suffix.lower()))


def replace(out: Path, content: bytes) -> None:
    """Write one file that a person named."""
    try:
        safe_files.replace(out, content, within=out.parent)
    except OSError as error:
        raise DiskError(f"{out} could not be written: {cause_of(error)}") from error
