"""`anybatch dial`: the plan of every preset as a page on which the batch can be dragged."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from anybatch import presets
from anybatch.cli.help_page import HELP_FLAGS
from anybatch.cli.usage_error import as_user_error
from anybatch.reports import dial_records, study_parts
from anybatch.reports.pages import dial as dial_pages

USAGE = """usage: anybatch dial [STUDY...] [--preset FILE...] [--out FILE]

Write a page on which a preset is chosen and the batch is dragged, and every
number follows. It needs no network and no other file.

  STUDY          folders of studies, whose curves are shown at the batch nearest
                 to the one chosen
  --preset FILE  presets of your own, ending in .toml, before the built-in ones
  --out FILE     the page to write [dial.html]
"""


@dataclass(frozen=True, kw_only=True)
class DialFlags:
    studies: tyro.conf.Positional[tuple[Path, ...]] = ()
    preset: tuple[str, ...] = ()
    out: Path = Path("dial.html")


def dial(words: list[str]) -> None:
    """Write the dial as a page."""
    if HELP_FLAGS & set(words):
        print(USAGE, end="")
        return
    with as_user_error():
        flags = tyro.cli(DialFlags, args=words)
    others = [name for name in presets.names() if name != presets.DEFAULT]
    names = dict.fromkeys((*flags.preset, presets.DEFAULT, *others))
    records = {str(path): dial_records.records_of(study_parts.read(path)) for path in flags.studies}
    content = dial_pages.dial_page({name: presets.load(name) for name in names}, records)
    dial_pages.write(content, flags.out)
    print(f"page     {flags.out}")
