"""The dial as a page: a preset, a batch, and every number that follows, computed by scripts in the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from anybatch.errors import DiskError, cause_of
from anybatch.lab.pages import report_files
from anybatch.lab.pages.dial_data import COLUMNS, WORDS, Record, settings_of
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, data_element, element, joined, void
from anybatch.lab.pages.page import page, section
from anybatch.presets import Preset
from anybatch.storage import safe_files
from anybatch.text import counted

SCRIPTS = ("dial_rules.js", "dial_rows.js", "dial.js")
RULES = {
    "learning-rate": "learning rate",
    "proximal-ewma": "proximal EWMA",
    "proximal-copy": "proximal copy",
    "advantage-moments": "advantage moments",
    "phase-length": "iterations per phase",
    "auxiliary-phase": "auxiliary minibatch and learning rate",
    "adam-betas": "Adam's β₁ and β₂ (off by default)",
}
OF_THIS_RUN = {
    "num-steps": "steps per environment",
    "update.minibatches-per-epoch": "minibatches per epoch",
    "update.epochs": "epochs",
}
TUNED_BATCH = {
    "tuned-at.num-envs": "environments",
    "tuned-at.num-steps": "steps per environment",
    "tuned-at.minibatches-per-epoch": "minibatches per epoch",
    "tuned-at.epochs": "epochs",
}
CHOICES = {
    "optimizer.name": ("optimizer", ("adam", "radam", "sgd")),
    "proximal.policy": ("proximal policy", ("behavior", "iteration_start", "ewma", "periodic")),
    "objective.advantage-normalization": ("advantage normalization", ("iteration", "minibatch", "none")),
}
TUNED_NUMBERS = {
    "optimizer.learning-rate": "learning rate",
    "optimizer.beta1": "Adam β₁",
    "optimizer.beta2": "Adam β₂",
    "proximal.ewma-decay": "proximal EWMA decay",
    "proximal.copy-every": "proximal copy every",
    "objective.advantage-decay": "advantage-statistics EWMA decay",
    "phase.policy-iterations": "iterations per phase",
    "phase.auxiliary-minibatch": "auxiliary minibatch",
    "phase.auxiliary-learning-rate": "auxiliary learning rate",
}


def dial_page(presets: Mapping[str, Preset], records: Mapping[str, Sequence[Record]] | None = None) -> str:
    """Presets by the names that `--preset` takes; the first is shown at the start.

    `records` are curves by study folder.
    """
    form = element("form", choice(presets), batch(), results(), settings(), id="dial", autocomplete="off")
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


def batch() -> Markup:
    """The slider, a field for the same number, and a sentence about it."""
    return element(
        "div",
        element("label", "Environments, over all ranks", for_="envs-slider"),
        element(
            "div",
            void("input", type="range", id="envs-slider", min="0", step="1", aria_describedby="summary"),
            element("div", element("span", id="tuned-mark"), class_="marks", aria_hidden="true"),
            class_="slider",
        ),
        void(
            "input",
            type="number",
            id="num-envs",
            min="1",
            step="1",
            inputmode="numeric",
            data_setting="num-envs",
            aria_label="Number of environments",
        ),
        element("p", id="summary", role="status"),
        class_="batch",
    )


def results() -> Markup:
    """The table of the plan, its notes and the command line; filled by the scripts."""
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in COLUMNS)))
    caption = "The batches and the numbers that follow them: as tuned, and in this run"
    table = element(
        "table",
        element("caption", caption, class_="visually-hidden"),
        head,
        element("tbody", id="batches"),
        element("tbody", id="numbers"),
        class_="stacked plan dial-table",
    )
    return element(
        "div",
        element("p", id="refusal", role="alert", hidden=""),
        element(
            "div",
            element("div", table, class_="scroll"),
            element("dl", id="lines"),
            element("ul", id="notes", aria_label="Notes"),
            element("h3", "The command line"),
            element("pre", element("code", id="command")),
            element("div", copy_button("command"), copy_button("link"), class_="copy"),
            id="results",
        ),
    )


def copy_button(what: str) -> Markup:
    words = f"Copy {what}"
    return element("button", words, type="button", id=f"copy-{what}", data_words=words)


def settings() -> Markup:
    """Further settings of a run, and the tuned numbers."""
    reset = element("button", "Back to the preset", type="button", id="as-tuned")
    return element(
        "div",
        element(
            "fieldset",
            element("legend", "This run"),
            element(
                "div", *map(number_field, OF_THIS_RUN, OF_THIS_RUN.values()), *limit_fields(), class_="fields"
            ),
        ),
        rules(),
        element(
            "details",
            element("summary", "The tuned numbers: type your own"),
            element("p", "The batch at which they were chosen:", class_="hint"),
            element("div", *number_fields(TUNED_BATCH), class_="fields"),
            element("p", "The numbers at that batch:", class_="hint"),
            element(
                "div",
                *(select_field(name, *words) for name, words in CHOICES.items()),
                *number_fields(TUNED_NUMBERS),
                class_="fields",
            ),
        ),
        reset,
        class_="settings",
    )


def rules() -> Markup:
    boxes = (
        element(
            "label", void("input", type="checkbox", id=f"rule-{name}"), element("span", label), class_="rule"
        )
        for name, label in RULES.items()
    )
    forms = {"": "by the optimizer", "square-root": "square root", "linear": "linear"}
    form = element(
        "div",
        element("label", "learning rates follow the minibatch", for_="learning-rate-form"),
        element(
            "select",
            *(element("option", label, value=value) for value, label in forms.items()),
            id="learning-rate-form",
        ),
        class_="field",
    )
    legend = element("legend", "What follows the batch")
    return element("fieldset", legend, *boxes, form, id="rules", data_setting="rescale")


def limit_fields() -> tuple[Markup, Markup]:
    kinds = {
        "auto": "auto: keep above the tuned batch",
        "scaled": "scaled with the batch",
        "keep": "keep",
        "noise-scale": "up to the noise scale",
        "samples": "up to a number",
    }
    return (
        element(
            "div",
            element("label", "minibatch", for_="limit-kind"),
            element(
                "select",
                *(element("option", label, value=value) for value, label in kinds.items()),
                id="limit-kind",
                data_setting="minibatch",
            ),
            class_="field",
        ),
        element(
            "div",
            element("label", "largest minibatch", for_="limit-samples"),
            void("input", type="number", id="limit-samples", min="1", step="1", inputmode="numeric"),
            class_="field",
        ),
    )


def number_fields(labels: Mapping[str, str]) -> list[Markup]:
    return [number_field(setting, label) for setting, label in labels.items()]


def number_field(setting: str, label: str) -> Markup:
    is_decay = setting.endswith(("rate", "decay", "beta1", "beta2"))
    name = setting.replace(".", "-")
    return element(
        "div",
        element("label", label, for_=name),
        void(
            "input",
            type="number",
            id=name,
            min="0" if is_decay else "1",
            step="any" if is_decay else "1",
            inputmode="decimal" if is_decay else "numeric",
            data_setting=setting,
        ),
        class_="field",
    )


def select_field(setting: str, label: str, values: Sequence[str]) -> Markup:
    name = setting.replace(".", "-")
    options = (element("option", value, value=value) for value in values)
    return element(
        "div",
        element("label", label, for_=name),
        element("select", *options, id=name, data_setting=setting),
        class_="field",
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
