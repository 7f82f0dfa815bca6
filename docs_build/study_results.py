"""What recorded studies found, written into docs/results.md from their cells: `make results`.

The page has a mark for each study, with the figures that it shows. What stands between the mark and its
end is replaced, and the figures are drawn into docs/pictures:

    <!-- study: results/studies/invariance score-ratio -->
    <!-- end -->
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from anybatch.reports import study_parts
from anybatch.reports.pages import studies
from anybatch.reports.report_files import write_picture
from anybatch.reports.study_parts import METRIC_NAMES, Part, StudyView, mean_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
PICTURES = ROOT / "docs" / "pictures"
MARK = re.compile(r"(<!-- study: (?P<folder>\S+)(?P<figures>[^\n]*) -->\n).*?(?=<!-- end -->)", re.S)


def with_results(page: str) -> str:
    """The page with the text of every study in it made anew."""
    return MARK.sub(lambda match: match[1] + study_text(ROOT / match["folder"]), page)


def study_text(folder: Path) -> str:
    view = study_parts.read(folder)
    return "\n".join(["", *verdict_lines(view), "", *score_table(view), ""])


def verdict_lines(view: StudyView) -> Iterator[str]:
    """Each claim with its verdict; claims that no cell speaks to yet are left out."""
    for verdict in view.verdicts:
        found = [one for one in verdict.comparisons if one.value is not None]
        if found:
            yield f"- {verdict.claim} **{verdict.state.capitalize()}.**"
            yield from (f"    - {one.sentence}" for one in found)


def score_table(view: StudyView) -> Iterator[str]:
    """Normalized scores of all parts, and in all environments, that have cells."""
    metric = METRIC_NAMES[view.plan.metric]
    parts = [part for part in view.parts if view.normalized(part)]
    strata = [name for name in view.strata if any(name in view.normalized(part) for part in parts)]
    yield f"| {metric}, normalized | mean | {' | '.join(strata)} | seeds |"
    yield "|---" * (len(strata) + 3) + "|"
    yield from (score_row(view, part, strata) for part in parts)


def score_row(view: StudyView, part: Part, strata: Sequence[str]) -> str:
    scores = view.normalized(part)
    total = mean_of(scores)
    interval = "" if total.interval is None else " ({:.2f} to {:.2f})".format(*total.interval)
    by_env = [f"{sum(scores[name]) / len(scores[name]):.2f}" if name in scores else "–" for name in strata]
    seeds = sorted({len(values) for values in scores.values()})
    counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"| {view.label(part)} | {total.value:.2f}{interval} | {' | '.join(by_env)} | {counts} |"


def draw(folder: Path, figures: list[str]) -> None:
    """Draw the figures of a study that the page shows."""
    drawings = {drawn.name: drawn for drawn in studies.report(study_parts.read(folder), []).drawings}
    for name in figures:
        write_picture(drawings[name], PICTURES / f"{folder.name}-{name}.png")


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(with_results(page))
    for match in MARK.finditer(page):
        draw(ROOT / match["folder"], match["figures"].split())


if __name__ == "__main__":
    main()
