"""Drawings as picture files for papers and slides, drawn by matplotlib."""

import io
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.charts.chart import Drawing

FORMATS = (".png", ".svg", ".pdf")
EXTRA = "install it with pip install 'anybatch[plot]'"
DOTS_PER_INCH = 160
UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata without a date, so that equal pictures are equal files."""


def refuse_format(out: Path) -> None:
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the file must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def is_available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def picture(drawn: Drawing, suffix: str) -> bytes:
    """A drawing as the content of a .png, .svg or .pdf file."""
    if not is_available():
        raise UserError(f"a picture needs the package matplotlib: {EXTRA}")
    import matplotlib

    from anybatch.lab.charts import matplotlib_figures

    with matplotlib.rc_context(matplotlib_figures.STYLE):
        content = io.BytesIO()
        settings: dict[str, Any] = {"dpi": DOTS_PER_INCH, "metadata": UNDATED.get(suffix)}
        matplotlib_figures.figure_of(drawn).savefig(content, format=suffix[1:], **settings)
    return content.getvalue()
