"""The dial as a page: a preset, a batch, and every number that follows, computed by scripts in the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from anybatch.errors import DiskError, cause_of
from anybatch.lab.pages import report_files
from anybatch.lab.pages.dial_data import WORDS, Record, settings_of
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, data_element, element, joined
from anybatch.lab.pages.page import files, page, section
from anybatch.presets import Preset
from anybatch.storage import safe_files
from anybatch.text import counted

SCRIPTS = ("dial_rules.js", "dial_rows.js", "dial.js")


def dial_page(presets: Mapping[str, Preset], records: Mapping[str, Sequence[Record]] | None = None) -> str:
    """Presets by the names that `--preset` takes; the first is shown at the start.

    `records` are curves by study folder.
    """
    form = element("form", choice(presets), Markup(files("dial_form.html")), id="dial", autocomplete="off")
    without_scripts = "The dial needs JavaScript; anybatch plan prints the same table."
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
            element("noscript", element("p", without_scripts)),
            form,
            recorded(records or {}),
            section("What the rules promise", *promises()),
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


def choice(presets: Mapping[str, Preset]) -> Markup:
    """The presets by algorithm, in the order of their first one."""
    groups: dict[str, list[Markup]] = {}
    for name, preset in presets.items():
        options = groups.setdefault(preset.config.title, [])
        options.append(element("option", name, value=name))
    return element(
        "div",
        element(
            "div",
            element("label", "Preset", for_="preset"),
            element(
                "select",
                *(element("optgroup", *options, label=name) for name, options in groups.items()),
                id="preset",
                aria_describedby="preset-words",
            ),
            class_="field",
        ),
        element("p", id="preset-words", class_="hint"),
        class_="choice",
    )


def recorded(records: Mapping[str, Sequence[Record]]) -> Markup | None:
    """The curves of each study, with a figure for each batch; the scripts show the nearest one."""
    parts: list[Content] = []
    for folder, found in records.items():
        if not found:
            continue
        figures = (
            element(
                "div",
                *(
                    element("div", drawing(chart), data_ratio=f"{ratio_value(ratio):.9g}")
                    for ratio, chart in record.charts.items()
                ),
                class_="record",
            )
            for record in found
        )
        parts += [element("p", source_sentence(folder, found)), element("div", *figures, class_="records")]
    if not parts:
        return None
    nearest = element("p", id="nearest", class_="soft", role="status")
    return element("section", element("h2", "Recorded curves"), nearest, *parts, id="records")


def ratio_value(ratio: str) -> float:
    above, _, below = ratio.partition("/")
    return int(above) / int(below or 1)


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


def promises() -> tuple[Markup, ...]:
    paper = element("a", "arXiv:2110.00641", href="https://arxiv.org/abs/2110.00641")
    return (
        element(
            "p",
            "A learning curve over env steps should not depend on the batch. The rules are those of Hilton, "
            "Cobbe and Schulman 2021 (",
            paper,
            "), who tested smaller batches. Above the tuned batch, the rules hold only while the minibatch "
            "is below the gradient noise scale; a minibatch limit keeps it there.",
        ),
        element(
            "p",
            "They assume one policy epoch, gradients that are rarely clipped, and advantages normalized over "
            "the iteration. The notes below the table say which of these assumptions a run violates, as far "
            "as that is known in advance; after training, anybatch advise finds the rest in the metrics.",
        ),
    )


def write(content: str, out: Path) -> None:
    """Write the page; refuse to replace a file that anybatch did not write."""
    report_files.refuse_foreign(out)
    try:
        safe_files.replace(out, content.encode(errors="replace"), within=out.parent)
    except OSError as error:
        raise DiskError(f"{out} could not be written: {cause_of(error)}") from error
