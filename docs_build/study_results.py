"""What the recorded studies found, written from their files by `make results`.

- docs/studies/NAME.md is a page about each study: its scale, verdicts and scores.
- Numbers in README.md and docs/results.md stand between marks and are replaced:

      <!-- difference: invariance-to-one-env rules -->+0.23 (+0.19 to +0.27)<!-- end -->

  A mark names a study and one of its verdicts. A number after it selects one of several comparisons, from 0;
  `final` selects the final return where a study was judged by the area alone.
- docs/pictures has the learning curves, the plot of all differences, and the figures that pages show.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from anybatch.lab.charts.chart import IntervalRow, Intervals, Panels
from anybatch.lab.pages import dial_data, studies, study_parts
from anybatch.lab.pages.report_files import write_picture
from anybatch.lab.pages.study_parts import Part, StudyView, mean_of
from anybatch.lab.studies.recorded import SUFFIX
from anybatch.lab.verdicts import compare, rule
from anybatch.lab.verdicts.compare import METRIC_NAMES
from anybatch.lab.verdicts.rule import EQUALITIES
from anybatch.lab.verdicts.verdict import Comparison

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "results" / "studies"
RESULTS, README = ROOT / "docs" / "results.md", ROOT / "README.md"
PICTURES, PAGES = ROOT / "docs" / "pictures", ROOT / "docs" / "studies"
DIFFERENCE = re.compile(
    r"(?P<mark><!-- difference: (?P<study>\S+) (?P<verdict>[a-z][\w-]*)"
    r"(?: (?P<index>\d+))?(?P<final> final)? -->)"
    r"[^<]*(?=<!-- end -->)"
)
STUDY_PICTURE = re.compile(r"\]\((?:\.\./|docs/)?pictures/(?P<study>[\w-]+?)\.(?P<figure>[\w-]+)\.png\)")


@cache
def read(study: str) -> StudyView:
    return study_parts.read(RECORDED / f"{study}{SUFFIX}")


def recorded_names() -> list[str]:
    """The studies that have a page; sweeps of a learning rate have none."""
    names = [path.name.removesuffix(SUFFIX) for path in sorted(RECORDED.glob(f"*{SUFFIX}"))]
    return [name for name in names if not read(name).plan.tune]


def with_numbers(page: str) -> str:
    """The page with every number between marks made anew."""
    return DIFFERENCE.sub(lambda found: found["mark"] + number(found), page)


def number(found: re.Match[str]) -> str:
    one = comparison(found["study"], found["verdict"], int(found["index"] or 0), final=bool(found["final"]))
    if one.value is None or one.interval is None:
        return "–" if one.value is None else f"× {one.value:g}"
    return signs("{:+.2f} ({:+.2f} to {:+.2f})".format(one.value, *one.interval))


def signs(text: str) -> str:
    """With typographic minus signs, and without a sign before a zero."""
    return re.sub(r"[+-](?=0\.00\b)", "", text).replace("-", "\N{MINUS SIGN}")


def comparison(study: str, verdict: str, index: int = 0, *, final: bool = False) -> Comparison:
    view = read(study)
    judged = next(one for one in view.verdicts if one.name == verdict)
    if not final or "final" in view.plan.metrics:
        kept = [one for one in judged.comparisons if one.metric != ("area" if final else "final")]
        return kept[index]
    rules = rule.parse(view.plan.verdicts, study, metrics=view.plan.metrics)
    asked = next(one for one in rules if one.name == verdict)
    this, that = compare.pairs_of(asked, view.scores)[index]
    margins = {**asked.margins, "final": 0.1}  # only the number is used, not a verdict by this margin
    return compare.compared(replace(asked, margins=margins), view.scores, this, that, "final", count=1)


def page_of(study: str) -> str:
    """The page of a study. One that says nothing shows no numbers, which would be read as if it did."""
    view = read(study)
    void = [one.reason for one in view.verdicts if one.state == "void"]
    lines = [
        f"# {view.plan.study['title']}",
        "",
        f"Claim under test: {view.plan.study['claim']} {len(view.results)} recorded runs in "
        f"`results/studies/{study}{SUFFIX}`; "
        "[how they were made](../../results/studies/README.md). Written by `make results`.",
        "",
    ]
    if void:
        return "\n".join([*lines, f"**Withdrawn.** {void[0]}", ""])
    tables = [line for metric in view.plan.metrics for line in ["", *score_table(view, metric)]]
    return "\n".join([*lines, *scale_lines(view), "", *verdict_lines(view), *tables, ""])


def scale_lines(view: StudyView) -> Iterator[str]:
    """The unit of the study's numbers, and what weakens it."""
    yield f"Scale: {view.scores.unit_words()}. {' '.join(view.notes)}".rstrip()


def verdict_lines(view: StudyView) -> Iterator[str]:
    """Each claim with its verdict; claims that no cell speaks to yet are left out."""
    for verdict in view.verdicts:
        if any(one.value is not None for one in verdict.comparisons):
            yield f"- {verdict.claim} **{verdict.state.capitalize()}.**"
            yield from (f"    - {one.sentence}" for one in verdict.comparisons)


def score_table(view: StudyView, metric: str) -> Iterator[str]:
    """Normalized scores by a metric of all parts, and in all environments, that have cells."""
    parts = [part for part in view.parts if view.normalized(part)]
    strata = [name for name in view.strata if any(name in view.normalized(part) for part in parts)]
    yield f"| {METRIC_NAMES[metric]}, normalized | mean | {' | '.join(strata)} | seeds |"
    yield "|---" * (len(strata) + 3) + "|"
    yield from (score_row(view, part, strata, metric) for part in parts)


def score_row(view: StudyView, part: Part, strata: Sequence[str], metric: str) -> str:
    scores = view.normalized(part, metric)
    total = mean_of(scores)
    interval = "" if total.interval is None else " ({:.2f} to {:.2f})".format(*total.interval)
    by_env = [f"{sum(scores[name]) / len(scores[name]):.2f}" if name in scores else "–" for name in strata]
    seeds = sorted({len(values) for values in scores.values()})
    counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"| {view.label(part)} | {total.value:.2f}{interval} | {' | '.join(by_env)} | {counts} |"


def draw_figures(page: str) -> None:
    """Draw the figures of studies that a page shows, named STUDY.FIGURE.png."""
    for found in STUDY_PICTURE.finditer(page):
        drawings = {drawn.name: drawn for drawn in studies.report(read(found["study"]), []).drawings}
        write_picture(drawings[found["figure"]], PICTURES / f"{found['study']}.{found['figure']}.png")


def draw_curves(study: str, ratio: str, *, name: str, title: str, words: dict[str, str]) -> None:
    """Draw learning curves at the tuned batch, and at `ratio` of it with and without the rules.

    `words` are the names of the lines.
    """
    charts = [
        replace(
            record.charts[ratio],
            title=record.env.removeprefix("minatar:"),
            y_label="mean return of training episodes",
            series=tuple(replace(line, label=words[line.label]) for line in record.charts[ratio].series),
        )
        for record in dial_data.records_of(read(study))
    ]
    write_picture(Panels(name=name, title=title, charts=tuple(charts)), PICTURES / f"{name}.png")


def draw_differences(page: str) -> None:
    """Draw the differences of the table of claims as one plot with the margin of equality."""
    rows = []
    for found in re.finditer(rf"^\| (?P<label>[^|]+?) \|.*?{DIFFERENCE.pattern}", page, re.M):
        one = comparison(found["study"], found["verdict"], int(found["index"] or 0))
        if one.value is None or one.interval is None:
            continue
        label = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", found["label"])
        judged = next(item for item in read(found["study"]).verdicts if item.name == found["verdict"])
        color = "blue" if judged.rule in EQUALITIES else "orange"
        rows.append(
            IntervalRow(label=label, value=one.value, low=one.interval[0], high=one.interval[1], color=color)
        )
    drawing = Intervals(
        name="differences",
        title="What was measured for each claim, and the margin of equality",
        x_label="difference in area (blue: claims of equality, orange: of a gain)",
        rows=tuple(rows),
        margin=(-0.1, 0.1),
        form="{:+.2f}",
    )
    write_picture(drawing, PICTURES / "differences.png")


def main() -> None:
    draw_curves(
        "invariance-to-one-env",
        "1/64",
        name="curves",
        title="With the rules, one environment gives the learning curve of 64",
        words={
            "tuned batch": "64 environments, as tuned",
            "1/64 of it, all rules": "1 environment, with the rules",
            "1/64 of it, no rule": "1 environment, without them",
        },
    )
    draw_curves(
        "invariance-minatar-24-seeds",
        "1/8",
        name="curves-five-games",
        title="With the rules, 8 environments keep the mean return of 64; without them, half of it is lost",
        words={
            "tuned batch": "64 environments, as tuned",
            "1/8 of it, all rules": "8 environments, with the rules",
            "1/8 of it, no rule": "8 environments, without them",
        },
    )
    PAGES.mkdir(exist_ok=True)
    for name in recorded_names():
        (PAGES / f"{name}.md").write_text(page_of(name))
    for path in (RESULTS, README):
        path.write_text(with_numbers(path.read_text()))
    results = RESULTS.read_text()
    draw_differences(results)
    draw_figures(results)


if __name__ == "__main__":
    main()
