"""The page of a study: its claim and verdicts first, then figures, tables, plans and commands."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from anybatch.reports import statistics
from anybatch.reports.charts.chart import Drawing, IntervalRow, Intervals, csv_lines
from anybatch.reports.pages.drawings import drawing
from anybatch.reports.pages.markup import Content, Markup, element, joined
from anybatch.reports.pages.page import command, page, plan_rows, section, table
from anybatch.reports.report_files import Report
from anybatch.reports.study_charts import drawings_of
from anybatch.reports.study_curves import curve_panels, metric_panels
from anybatch.reports.study_parts import LEVEL, Aggregate, Part, StudyView, interquartile_mean_of, mean_of
from anybatch.reports.verdicts import Verdict
from anybatch.studies.cells import RANDOM_ARM
from anybatch.studies.duration import in_words
from anybatch.studies.plan import Request

STATE_COLORS = {"holds": "green", "fails": "orange", "undecided": "slate", "measured": "blue"}
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "measured": "="}
METRIC_NAMES = {"area": "area under the curve", "final": "final return"}
UNITS = {
    "estimate": "",
    "correlation": "rank correlation",
    "regret": "normalized score lost",
}
"""What the numbers of a rule are; of the others, differences of normalized scores."""


def report(view: StudyView, words: Sequence[str]) -> Report:
    """`words` are the command line that makes this report."""
    forests = {verdict.name: found for verdict in view.verdicts if (found := intervals_of(verdict))}
    figures: list[Drawing] = [*drawings_of(view), *metric_panels(view), *curve_panels(view)]
    plan = view.plan
    body = (
        section(
            "Verdicts", *(shown_verdict(verdict, forests.get(verdict.name)) for verdict in view.verdicts)
        ),
        section("Figures", *(element("div", drawing(figure), class_="figure") for figure in figures)),
        section("Scores", scores_table(view)),
        section("Cells", *cells(view)),
        section("Plans", element("p", "A part of the grid each; its seeds share the plan."), *plans(view)),
        section("Commands", *commands(view, words)),
    )
    content = page(
        title=plan.study["title"],
        kicker=kicker(view),
        lead=view.verdicts[0].sentence if view.verdicts else plan.study["claim"],
        body=(element("p", plan.study["source"], class_="soft") if plan.study["source"] else None, *body),
        foot="Made by anybatch. The folder of this page has its figures as PNG and SVG in figures/ and their "
        "numbers as CSV in data/, with the scores of all cells in data/cells.csv.",
    )
    return Report(content, [*forests.values(), *figures], {"cells": cells_csv(view)})


def kicker(view: StudyView) -> str:
    seeds = len({cell.seed for part in view.parts for cell in part.cells})
    envs = list(dict.fromkeys(cell.env for part in view.parts for cell in part.cells))
    shown = ", ".join(envs) if len(envs) <= 4 else f"{len(envs)} environments"
    tuning = ", tuning" if view.plan.tune else ""
    return f"Study {view.plan.study['name']} · {view.plan.scale} scale{tuning} · {shown} · {counted(seeds, 'seed')}"


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def shown_verdict(verdict: Verdict, forest: Intervals | None) -> Markup:
    """The state of a claim, the comparison that decides, and all of them with their intervals."""
    deciding = next((one for one in verdict.comparisons if one.state == verdict.state), None)
    said = sentence_case(deciding.sentence) if deciding else "There is no cell about it at this scale."
    without = [one for one in verdict.comparisons if one.interval is None and one is not deciding]
    return element(
        "article",
        element(
            "div",
            element("span", f"{MARKS[verdict.state]} {verdict.state}", class_=f"badge {verdict.state}"),
            element("div", element("h3", verdict.claim), element("p", said, class_="soft")),
            class_="verdict",
        ),
        drawing(forest) if forest else None,
        *(element("p", sentence_case(one.sentence), class_="soft") for one in without),
        numbers_behind(verdict),
    )


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def intervals_of(verdict: Verdict) -> Intervals | None:
    """All comparisons of a verdict that have an interval and the same unit."""
    rows = tuple(
        IntervalRow(
            label=one.label,
            value=one.value,
            low=one.interval[0],
            high=one.interval[1],
            color=STATE_COLORS[one.state],
            ending=one.state,
        )
        for one in verdict.comparisons
        if one.value is not None and one.interval is not None
    )
    if not rows:
        return None
    levels = {one.level for one in verdict.comparisons if one.level is not None}
    bound = next((one.details["margin"] for one in verdict.comparisons if one.details.get("margin")), None)
    margins = {"equivalent": (-1, 1), "foretold": (-1, 1), "regret": (0, 1), "better": (0, 1)}
    low, high = margins.get(verdict.rule, (0, 0))
    return Intervals(
        name=f"verdict-{verdict.name}",
        title=verdict.claim,
        x_label=UNITS.get(verdict.rule, "difference of normalized scores"),
        rows=rows,
        margin=(low * bound, high * bound) if bound is not None and high else None,
        signed=verdict.rule != "estimate",
        note=f"{' or '.join(f'{level:.0%}' for level in sorted(levels))} intervals"
        + (f"; shaded: the margin of {bound:g}, fixed beforehand." if bound is not None else "."),
    )


def numbers_behind(verdict: Verdict) -> Markup | None:
    """p, power and the other statistics of each comparison, folded away."""
    rows: list[list[Content]] = []
    for one in verdict.comparisons:
        details = one.details
        if "p" not in details:
            continue
        rows.append(
            [
                one.label,
                number(details["p"], "{:.3g}"),
                number(details.get("power"), "{:.0%}"),
                seeds_of(details.get("seeds")),
                number(details.get("mean_absolute_difference"), "{:.3f}"),
                number(details.get("probability_of_improvement"), "{:.2f}"),
                number(details.get("van_elteren_p"), "{:.2g}"),
            ]
        )
    if not rows:
        return None
    header = ("comparison", "p", "power", "seeds", "mean |Δ| per env", "P(improvement)", "van Elteren p")
    return element(
        "details",
        element("summary", "The numbers behind it"),
        table(header, rows, numbers=range(1, len(header)), kind="stacked pairs"),
    )


def number(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def seeds_of(value: Any) -> str:
    sides = value if isinstance(value, list | tuple) else [value]
    return " / ".join(dict.fromkeys(str(side) for side in sides if side is not None))


def scores_table(view: StudyView) -> Markup:
    """Raw scores by environment, and the aggregates of their normalized values."""
    rows: list[list[Content]] = []
    for part in view.parts:
        scores = view.normalized(part)
        row: list[Content] = [view.label(part)]
        row += [raw_score(view, part, stratum) for stratum in view.strata]
        if scores:
            row += [
                shown(interquartile_mean_of(scores)),
                shown(mean_of(scores)),
                f"{statistics.median(scores):.3f}",
            ]
        else:
            row += ["–", "–", "–"]
        rows.append(row)
    header = ("arm", *view.strata, "IQM", "mean", "median")
    metric = METRIC_NAMES[view.plan.metric]
    note = (
        f"Of each environment: {metric}, mean ± standard error over seeds, in units of its return. Right: "
        f"the same normalized (0 is random play, 1 the best of the base or the published scale), with "
        f"{LEVEL:.0%} bootstrap intervals, which need two seeds or more."
    )
    return joined(table(header, rows, numbers=range(1, len(header))), element("p", note, class_="note"))


def raw_score(view: StudyView, part: Part, stratum: str) -> str:
    scores = [result.score(view.plan.metric) for result in view.finished(part, stratum)]
    if not scores:
        return "–"
    error = (
        f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{stdev(scores) / len(scores) ** 0.5:.2g}"
        if len(scores) > 1
        else ""
    )
    return f"{fmean(scores):.4g}{error}"


def shown(found: Aggregate) -> Markup:
    if found.interval is None:
        return joined(f"{found.value:.3f}")
    low, high = found.interval
    return joined(f"{found.value:.3f} ", element("span", f"({low:.3f} to {high:.3f})", class_="soft"))


def cells(view: StudyView) -> list[Markup]:
    """How many there are, what failed and what was left out, each with its reason."""
    wanted = [cell for cell in view.plan.cells if cell.arm != RANDOM_ARM]
    there = [view.results[cell.name] for cell in wanted if cell.name in view.results]
    failed = [result for result in there if result.failed is not None]
    seconds = sum(float(result.facts.get("seconds") or 0) for result in there)
    said = (
        f"{len(there):,} of {counted(len(wanted), 'cell')} have been run, in {in_words(seconds)} of training"
    )
    shown: list[Markup] = [
        element("p", f"{said}; {len(failed)} failed." if failed else f"{said}; none failed.")
    ]
    reasons = [(result.cell.name, result.failed) for result in failed]
    reasons += [(entry["what"], f"left out: {entry['reason']}") for entry in view.plan.left_out]
    missing = [cell.name for cell in wanted if cell.name not in view.results]
    reasons += [(name, "not run yet") for name in missing]
    if reasons:
        shown.append(table(("cell", "reason"), [list(pair) for pair in reasons], kind="stacked"))
    return shown


def plans(view: StudyView) -> list[Markup]:
    """The plan of each part, folded: there may be dozens."""
    folded: list[Markup] = []
    for part in view.parts:
        for stratum in view.strata:
            results = view.finished(part, stratum)
            if results:
                title = f"{view.label(part)} · {stratum}"
                folded.append(element("details", element("summary", title), plan_rows(dict(results[0].plan))))
    return folded or [element("p", "No cell has a result yet.")]


def commands(view: StudyView, words: Sequence[str]) -> list[Markup]:
    facts = view.plan.facts
    known = ("anybatch", "git_commit", "python", "torch")
    versions = [f"{name.replace('_', ' ')} {facts[name]}" for name in known if facts.get(name)]
    return [
        command(study_words(view.plan.request)),
        element("p", f"With {', '.join(versions)}. Plan {view.plan.hash}.", class_="soft"),
        element("p", "This page:"),
        command(words),
    ]


def study_words(request: Request) -> list[str]:
    """The command line that asks for a study."""
    words = ["anybatch", "study", request.study, "--scale", request.scale]
    words += ["--env", *request.envs] if request.envs else []
    words += ["--preset", request.preset] if request.preset else []
    words += ["--seeds", str(request.seeds)] if request.seeds is not None else []
    words += ["--budget", f"{request.budget_seconds:g}s"] if request.budget_seconds is not None else []
    return words + ["--tune"] * request.tune


def cells_csv(view: StudyView) -> str:
    """Every cell with its scores, also those that have none."""
    header = (
        "cell",
        "env",
        "base",
        "arm",
        "ratio",
        "swept",
        "seed",
        "area",
        "final_return",
        "normalized",
        "failed",
    )
    rows: list[list[object]] = []
    for cell in view.plan.cells:
        result = view.results.get(cell.name)
        swept = " ".join(f"{path}={value}" for path, value in (cell.point | cell.factors).items())  # type: ignore[operator]
        score = view.scores.score(cell.name) if cell.arm != RANDOM_ARM else None
        rows.append(
            [
                cell.name,
                cell.env,
                cell.base,
                cell.arm,
                cell.ratio,
                swept,
                cell.seed,
                result.area if result else "",
                result.final_return if result else "",
                "" if score is None else f"{score:.6g}",
                (result.failed or "") if result else "not run yet",
            ]
        )
    return csv_lines(header, rows)
