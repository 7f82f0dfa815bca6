"""The dial as a page: a preset, a batch, and every number that follows, computed by scripts in the page."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from anybatch.lab.pages import report_files
from anybatch.lab.pages.dial_data import WORDS, Record, settings_of
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, data_element, element, joined
from anybatch.lab.pages.page import files, page
from anybatch.presets import Preset
from anybatch.text import counted

SCRIPTS = ("dial_rules.js", "dial_rows.js", "dial.js")


def dial_page(presets: Mapping[str, Preset], records: Mapping[str, Sequence[Record]] | None = None) -> str:
    """Presets by the names that `--preset` takes; the first is shown at the start.

    `records` are curves by study folder.
    """
    groups: dict[str, list[Markup]] = {}
    for name, preset in presets.items():
        groups.setdefault(preset.config.title, []).append(element("option", name, value=name))
    options = joined(*(element("optgroup", *group, label=title) for title, group in groups.items()))
    body = files("dial_body.html").replace("{presets}", options)
    data = [
        {
            "name": name,
            "description": shown(preset.description),
            "source": shown(preset.source),
            "settings": settings_of(preset.config),
        }
        for name, preset in presets.items()
    ]
    return page(
        title="The dial",
        kicker="anybatch · on-policy RL in which the batch size is a dial",
        lead="Choose the preset that your numbers come from and drag the number of environments. Every "
        "number that depends on the batch follows, by the rule next to it.",
        body=(
            Markup(body.replace("{records}", recorded(records or {}))),
            data_element(data, id="presets"),
            data_element(WORDS, id="words"),
        ),
        foot="Made by anybatch dial. The page computes what anybatch plan prints, and sends nothing.",
        styles=("dial.css",),
        scripts=SCRIPTS,
    )


def shown(words: str) -> str:
    """Text of a preset as part of a sentence, without the marks that show code on a terminal."""
    return words.rstrip(".").replace("`", "")


def recorded(records: Mapping[str, Sequence[Record]]) -> Markup:
    """The curves of each study, with a figure for each batch; the scripts show the nearest one."""
    parts: list[Content] = []
    for folder, found in records.items():
        if not found:
            continue
        figures = (
            element(
                "div",
                *(
                    element("div", drawing(chart), data_ratio=f"{float(Fraction(ratio)):.9g}")
                    for ratio, chart in record.charts.items()
                ),
                class_="record",
            )
            for record in found
        )
        parts += [element("p", source_sentence(folder, found)), element("div", *figures, class_="records")]
    if not parts:
        return joined()
    nearest = element("p", id="nearest", class_="soft", role="status")
    return element("section", element("h2", "Recorded curves"), nearest, *parts, id="records")


def source_sentence(folder: str, records: Sequence[Record]) -> Markup:
    """A sentence about the runs, which belong to a study, not to the chosen preset."""
    seeds = max(record.seeds for record in records)
    envs = ", ".join(dict.fromkeys(record.env for record in records))
    return joined(
        f"{records[0].base}, on {envs}; {counted(seeds, 'seed')} each. Lines are means over seeds, "
        "and their range is shaded. From ",
        element("code", folder),
        ".",
    )


def write(content: str, out: Path) -> None:
    """Write the page; refuse to replace a file that anybatch did not write."""
    report_files.validate_page(out)
    report_files.replace(out, content.encode(errors="replace"))
