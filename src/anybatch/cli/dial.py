"""`anybatch dial`: a page with the plan of every preset and a slider for the batch."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from anybatch import presets
from anybatch.cli.usage_error import as_user_error
from anybatch.lab.pages import dial as dial_pages
from anybatch.lab.pages import dial_data, study_parts
from anybatch.lab.studies.recorded import SUFFIX


@dataclass(frozen=True, kw_only=True)
class DialFlags:
    studies: tyro.conf.Positional[tuple[Path, ...]] = ()
    preset: tuple[str, ...] = ()
    out: Path = Path("dial.html")


def dial(words: list[str]) -> None:
    """Write the dial as a page."""
    with as_user_error():
        flags = tyro.cli(DialFlags, args=words)
    others = [name for name in presets.names() if name != presets.DEFAULT]
    names = dict.fromkeys((*flags.preset, presets.DEFAULT, *others))
    records = {
        str(path).removesuffix(SUFFIX): dial_data.records_of(study_parts.read(path)) for path in flags.studies
    }
    content = dial_pages.dial_page({name: presets.load(name) for name in names}, records)
    dial_pages.write(content, flags.out)
    print(f"page     {flags.out}")
