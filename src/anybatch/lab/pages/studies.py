"""The page of a study: its claim and verdicts first, then figures, tables, plans and commands."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from anybatch.lab import statistics
from anybatch.lab.charts.chart import Drawing, csv_lines
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, element, joined
from anybatch.lab.pages.page import command, page, plan_rows, section, table, versions
from anybatch.lab.pages.report_files import Report
from anybatch.lab.pages.study_charts import score_drawings, sweep_drawings
from anybatch.lab.pages.study_curves import curve_panels, metric_panels
from anybatch.lab.pages.study_parts import (
    LEVEL,
    WITHOUT_RULES,
    Aggregate,
    Part,
    StudyView,
    interquartile_mean_of,
    left_out,
    mean_of,
)
from anybatch.lab.pages.verdicts import intervals_of, shown_verdict
from anybatch.lab.studies.cells import RANDOM_ARM
from anybatch.lab.studies.duration import written
from anybatch.lab.studies.plan import Request, StudyPlan
from anybatch.lab.verdicts import Verdict
from anybatch.lab.verdicts.compare import METRIC_NAMES
from anybatch.text import counted, duration_text

ON_THE_SCALE = ("equivalent", "better", "not_worse", "regret", "foretold")
"""The verdict rules that are about normalized scores."""
NARROW = (
    "They are too narrow with few: they contain the true mean in about 80% of all cases with 3 seeds, and in "
    "85 to 90% with 5. No verdict depends on them."
)
ANSWERS = {
    "holds": "Holds on {where}",
    "fails": "Does not hold on {where}",
    "undecided": "Undecided with {seeds} on {where}",
    "unfinished": "Not finished on {where}",
    "not run": "Not run yet on {where}",
    "not tested": "Not tested on {where}, since no control failed the same test",
    "not needed": "Holds on {where}, and without the rules too, so they were not needed there",
}
"""How a page begins, by the state of the study's first verdict; its claim follows."""
WITHOUT_THEM = {
    "fails": " Without the rules, it does not.",
    "undecided": " Without the rules, this is not shown.",
}
"""What follows, if the control of a claim that holds is the arm without rules."""


def report(view: StudyView, words: Sequence[str]) -> Report:
    """`words` are the command line that makes this report."""
    forests = {verdict.name: intervals_of(verdict) for verdict in view.verdicts}
    figures: list[Drawing] = [
        *score_drawings(view),
        *sweep_drawings(view),
        *metric_panels(view),
        *curve_panels(view),
    ]
    begun = [verdict for verdict in view.verdicts if verdict.state != "not run"]
    waiting = [element("li", verdict.claim) for verdict in view.verdicts if verdict.state == "not run"]
    plan, tuning = view.plan, ", tuning" if view.plan.tune else ""
    content = page(
        title=plan.study["title"],
        kicker=f"Study {study_name(plan)} · {plan.scale} scale{tuning} · {env_words(view.envs)} · "
        f"{counted(view.seeds, 'seed')}",
        lead=lead(view),
        body=(
            *(element("p", sentence) for sentence in limits(view)),
            element("p", plan.study["source"], class_="soft") if plan.study["source"] else None,
            section(
                "Verdicts",
                *(shown_verdict(verdict, forests[verdict.name]) for verdict in begun),
                element("article", element("h3", "Not run yet"), element("ul", *waiting, class_="soft"))
                if waiting
                else None,
            ),
            section("Figures", *(element("div", drawing(figure), class_="figure") for figure in figures)),
            section("Scores", *scores(view)),
            section("Cells", *cells(view)),
            section(
                "Plans", element("p", "One plan for each part of the grid; its seeds share it."), *plans(view)
            ),
            section(
                "Commands",
                command(study_words(plan.request)),
                element("p", versions(plan.facts, f"plan {plan.hash}"), class_="soft"),
                element("p", "This page:"),
                command(words),
            ),
        ),
        foot="Made by anybatch. The folder of this page has its numbers as CSV in data/, with the scores of "
        "all cells in data/cells.csv. Where anybatch report made it with matplotlib installed, the figures "
        "are in figures/ as PNG and SVG.",
    )
    drawn = [forest for found in forests.values() for forest in found]
    return Report(content, [*drawn, *figures], {"cells": cells_csv(view)})


def lead(view: StudyView) -> str:
    """Whether the claim holds, where, and the comparison that decides it."""
    if not view.verdicts:
        return f"No verdict at this scale on the claim: {view.plan.study['claim']}"
    first = view.verdicts[0]
    if first.state == "void":
        return first.reason
    if first.state not in ANSWERS:
        return first.sentence
    waits = any(one.state == "not run" or one.details.get("missing") for one in first.comparisons)
    state = "unfinished" if first.state == "undecided" and waits else first.state
    without = state_without_rules(first)
    if state == "not tested" and without == "holds":
        state = "not needed"
    judged = [one.details["envs"] for one in first.comparisons if "envs" in one.details]
    common = [env for env in judged[0] if all(env in envs for envs in judged)] if judged else []
    where, seeds = env_words(common or view.envs), counted(view.seeds, "seed")
    answer = f"{ANSWERS[state].format(where=where, seeds=seeds)}: {first.claim}"
    if state == "not run":
        return answer
    added = WITHOUT_THEM.get(without, "") if state == "holds" else ""
    return f"{answer}{added} Deciding comparison: {first.reason}"


def state_without_rules(verdict: Verdict) -> str:
    """How the test of a claim ends for the arm without rules; empty if that is not its control."""
    controls = [one.details["control"] for one in verdict.comparisons if "control" in one.details]
    states = {one["state"] for one in controls if one["arm"] == WITHOUT_RULES}
    return next((state for state in ("fails", "undecided", "holds") if state in states), "")


def limits(view: StudyView) -> list[str]:
    """The context of the lead: its scale, and the parts of the grid that are not there, by reason."""
    compared = any(verdict.rule in ON_THE_SCALE for verdict in view.verdicts)
    scale = [f"Differences are in normalized scores: {view.scores.unit_words()}."] if compared else []
    wanted = [cell for cell in view.plan.cells if cell.arm != RANDOM_ARM]
    missing = sum(cell.name not in view.results for cell in wanted)
    waiting = sum(verdict.state == "not run" for verdict in view.verdicts)
    claims = f"; no verdict yet on {waiting} of {counted(len(view.verdicts), 'claim')}" if waiting else ""
    unfinished = f"Cells not run yet: {missing:,} of {len(wanted):,}{claims}."
    return [*scale, *view.notes, *([unfinished] if missing else []), *left_out(view.plan)]


def env_words(envs: Sequence[str]) -> str:
    return ", ".join(envs) if len(envs) <= 4 else f"{len(envs)} environments"


def study_name(plan: StudyPlan) -> str:
    """The name of one of our studies, or that of the user's file."""
    wanted = plan.request.study
    return Path(wanted).name if wanted.endswith(".toml") else wanted


def scores(view: StudyView) -> list[Markup]:
    """Raw scores by environment, and the aggregates of their normalized values, of parts that have any."""
    begun = [part for part in view.parts if any(cell.name in view.results for cell in part.cells)]
    found = [element("h3", "By environment")]
    for metric in view.plan.metrics:
        raw = [
            [view.label(part), *(raw_score(view, part, name, metric) for name in view.strata)]
            for part in begun
        ]
        words = f"{METRIC_NAMES[metric].capitalize()}, mean ± standard error over seeds."
        found.append(element("p", words, class_="note"))
        found.append(table(("arm", *view.strata), raw, numbers=range(1, len(view.strata) + 1)))
    found.append(element("h3", "Normalized"))
    note = (
        f"Scale: {view.scores.unit_words()}. In brackets: {LEVEL:.0%} bootstrap intervals, which need two "
        f"seeds or more. {NARROW}"
    )
    found.append(element("p", note, class_="note"))
    header = ("arm", "environments", "interquartile mean", "mean", "median")
    for metric in view.plan.metrics:
        if len(view.plan.metrics) > 1:
            found.append(element("p", f"{METRIC_NAMES[metric].capitalize()}.", class_="note"))
        rows = [aggregates(view, part, metric) for part in begun]
        found.append(table(header, rows, numbers=range(1, len(header)), kind="stacked"))
    return found


def aggregates(view: StudyView, part: Part, metric: str) -> list[Content]:
    """A row of the normalized scores of a part by one metric."""
    found = view.normalized(part, metric)
    numbers: list[Content] = ["–", "–", "–"]
    if found:
        means = interquartile_mean_of(found), mean_of(found)
        numbers = [*map(with_interval, means), f"{statistics.median(found):.3f}"]
    return [view.label(part), f"{len(found)} of {len(view.strata)}", *numbers]


def with_interval(found: Aggregate) -> Markup:
    if found.interval is None:
        return joined(f"{found.value:.3f}")
    low, high = found.interval
    return joined(f"{found.value:.3f} ", element("span", f"({low:.3f} to {high:.3f})", class_="soft"))


def raw_score(view: StudyView, part: Part, stratum: str, metric: str) -> str:
    scores = [result.score(metric) for result in view.finished(part, stratum)]
    if len(scores) < 2:
        return f"{scores[0]:.4g}" if scores else "–"
    error = stdev(scores) / len(scores) ** 0.5
    return f"{fmean(scores):.4g}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{error:.2g}"


def cells(view: StudyView) -> list[Markup]:
    """How many cells there are, which failed and which were left out, each with its reason."""
    wanted = [cell for cell in view.plan.cells if cell.arm != RANDOM_ARM]
    there = [view.results[cell.name] for cell in wanted if cell.name in view.results]
    failed = [result for result in there if result.failed is not None]
    training = duration_text(sum(float(result.facts.get("seconds") or 0) for result in there))
    reasons = [(result.cell.name, result.failed) for result in failed]
    absent = ((view.plan.part_words(entry), f"left out: {entry.reason}") for entry in view.plan.left_out)
    reasons += dict.fromkeys(absent)  # once for all environments
    for part in view.parts:  # all of their cells can be hundreds
        missing = sum(cell.name not in view.results for cell in part.cells)
        if missing:
            reasons.append((view.label(part), f"{missing} of {len(part.cells)} not run yet"))
    run = f"{len(there):,} of {counted(len(wanted), 'cell')} have been run"
    shown = [element("p", f"{run}, in {training} of training; {len(failed) or 'none'} failed.")]
    return [*shown, table(("cell", "reason"), reasons, kind="stacked")] if reasons else shown


def plans(view: StudyView) -> list[Markup]:
    """The plan of each part in each environment, folded: there may be dozens."""
    folded: list[Markup] = []
    for part in view.parts:
        contents: list[Markup] = []
        for stratum in view.strata:
            results = view.finished(part, stratum)
            if results:
                contents += [element("h3", stratum), plan_rows(dict(results[0].plan))]
        if contents:
            folded.append(element("details", element("summary", view.label(part)), *contents))
    return folded or [element("p", "No cell has a result yet.")]


def study_words(request: Request) -> list[str]:
    """The command line of a study."""
    words = ["anybatch", "study", request.study, "--scale", request.scale]
    words += ["--env", *request.envs] if request.envs else []
    words += ["--range", *(f"{value:g}" for value in request.ranges)] if request.ranges else []
    words += ["--preset", request.preset] if request.preset else []
    words += ["--seeds", str(request.seeds)] if request.seeds is not None else []
    words += ["--budget", written(request.budget_seconds)] if request.budget_seconds is not None else []
    return [*words, "--tune"] if request.tune else words


def cells_csv(view: StudyView) -> str:
    """Every cell with its scores, including cells without any."""
    metrics = view.plan.metrics
    grid = ("env", "base", "arm", "ratio")
    header = ["cell", *grid, "swept", "seed", "area", "final_return"]
    header += [*(f"normalized_{metric}" for metric in metrics), "failed"]
    rows: list[list[object]] = []
    for cell in view.plan.cells:
        result = view.results.get(cell.name)
        swept = " ".join(f"{path}={value}" for path, value in {**cell.point, **cell.factors}.items())
        row: list[object] = [cell.name, *(getattr(cell, name) for name in grid), swept, cell.seed]
        row += [result.area, result.final_return] if result else ["", ""]
        for metric in metrics:
            score = view.scores.score(cell.name, metric) if cell.arm != RANDOM_ARM else None
            row.append("" if score is None else f"{score:.6g}")
        rows.append([*row, (result.failed or "") if result else "not run yet"])
    return csv_lines(header, rows)
