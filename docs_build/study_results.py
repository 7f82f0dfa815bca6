"""What recorded studies found, written into docs/results.md from their files: `make results`.

The page has a mark for each study, with the name of its file without .jsonl.gz and the figures that it shows.
What stands between the mark and its end is replaced, and the figures are drawn into docs/pictures:

    <!-- study: results/studies/invariance score-ratio -->
    <!-- end -->

In the summary at its top, the last two columns of a row are replaced by the numbers and state of a verdict:

    | <!-- verdict: results/studies/invariance invariance -->claim | the paper's number | ours | holds |
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from anybatch.lab.charts.chart import Panels
from anybatch.lab.pages import dial_data, studies, study_parts
from anybatch.lab.pages.report_files import write_picture
from anybatch.lab.pages.study_parts import Part, StudyView, mean_of
from anybatch.lab.studies.recorded import SUFFIX
from anybatch.lab.verdicts.compare import METRIC_NAMES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
PICTURES = ROOT / "docs" / "pictures"
MARK = re.compile(r"(<!-- study: (?P<study>\S+)(?P<figures>[^\n]*) -->\n).*?(?=<!-- end -->)", re.S)
SUMMARY_ROW = re.compile(
    r"^(?P<kept>\| <!-- verdict: (?P<study>\S+) (?P<name>\S+) -->[^|]*\|[^|]*\|)[^|]*\|[^|]*\|$", re.M
)


@cache
def read(study: str) -> StudyView:
    """A recorded study, by its name in a mark."""
    return study_parts.read(ROOT / f"{study}{SUFFIX}")


def with_results(page: str) -> str:
    """The page with the text of every study, and every number of the summary, made anew."""
    page = MARK.sub(lambda match: match[1] + study_text(match["study"]), page)
    return SUMMARY_ROW.sub(lambda match: match["kept"] + summary_cells(match["study"], match["name"]), page)


def summary_cells(study: str, name: str) -> str:
    """The numbers of a verdict and its state, as the last cells of a row."""
    verdict = next(one for one in read(study).verdicts if one.name == name)
    found = [one for one in verdict.comparisons if one.value is not None]
    if verdict.state == "void":
        ours = "–"
    elif verdict.rule == "optimum":
        ours = ", ".join(f"× {one.value:g}" for one in found)
    elif len(found) == 1 and found[0].interval is not None:
        ours = "{:+.3f} ({:+.3f} to {:+.3f})".format(found[0].value, *found[0].interval)
    else:
        ours = ", ".join(f"{one.value:+.3f}" for one in found)
    return f" {ours} | **{verdict.state}** |"


def study_text(study: str) -> str:
    view = read(study)
    reasons = [one.reason for one in view.verdicts if one.state == "void"]
    if reasons:  # numbers of a study that says nothing would be read as if they did
        return f"\n**Withdrawn.** {reasons[0]}\n"
    tables = [line for metric in view.plan.metrics for line in ["", *score_table(view, metric)]]
    return "\n".join(["", *scale_lines(view), "", *verdict_lines(view), *tables, ""])


def scale_lines(view: StudyView) -> Iterator[str]:
    """The unit of the study's numbers, and what weakens it."""
    yield f"Scale: {view.scores.unit_words()}. {' '.join(view.notes)}".rstrip()


def verdict_lines(view: StudyView) -> Iterator[str]:
    """Each claim with its verdict; claims that no cell speaks to yet are left out."""
    for verdict in view.verdicts:
        found = [one for one in verdict.comparisons if one.value is not None]
        if found:
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


def draw(study: str, figures: list[str]) -> None:
    """Draw the figures of a study that the page shows."""
    drawings = {drawn.name: drawn for drawn in studies.report(read(study), []).drawings}
    for name in figures:
        write_picture(drawings[name], PICTURES / f"{Path(study).name}-{name}.png")


def draw_curves(study: str, ratio: str, *, words: dict[str, str]) -> None:
    """Draw the README's learning curves: at the tuned batch, and at `ratio` of it with and without the rules.

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
    title = "With the rules, one environment gives the learning curve of 64"
    write_picture(Panels(name="curves", title=title, charts=tuple(charts)), PICTURES / "curves.png")


def main() -> None:
    draw_curves(
        "results/studies/invariance-to-one-env",
        "1/64",
        words={
            "tuned batch": "64 environments, as tuned",
            "1/64 of it, all rules": "1 environment, with the rules",
            "1/64 of it, no rule": "1 environment, without them",
        },
    )
    page = PAGE.read_text()
    PAGE.write_text(with_results(page))
    for match in MARK.finditer(page):
        draw(match["study"], match["figures"].split())


if __name__ == "__main__":
    main()
