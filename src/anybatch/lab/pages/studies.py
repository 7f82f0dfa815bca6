"""The page of a study: its claim and verdicts first, then figures, tables, plans and commands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from anybatch.lab import statistics
from anybatch.lab.charts.chart import Drawing, Intervals, csv_lines
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, element, joined
from anybatch.lab.pages.page import command, page, plan_rows, section, table
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
from anybatch.lab.pages.verdicts import intervals_of, listed_claims, shown_verdict
from anybatch.lab.studies.cells import RANDOM_ARM
from anybatch.lab.studies.duration import in_words, written
from anybatch.lab.studies.plan import Request, StudyPlan
from anybatch.lab.verdicts import Verdict
from anybatch.lab.verdicts.compare import METRIC_NAMES
from anybatch.text import counted


def report(view: StudyView, words: Sequence[str]) -> Report:
    """`words` are the command line that makes this report."""
    forests = {verdict.name: intervals_of(verdict) for verdict in view.verdicts}
    figures: list[Drawing] = [
        *score_drawings(view),
        *sweep_drawings(view),
        *metric_panels(view),
        *curve_panels(view),
    ]
    plan = view.plan
    body = (
        section("Verdicts", *shown_verdicts(view, forests)),
        section("Figures", *(element("div", drawing(figure), class_="figure") for figure in figures)),
        section("Scores", *scores(view)),
        section("Cells", *cells(view)),
        section(
            "Plans", element("p", "One plan for each part of the grid; its seeds share it."), *plans(view)
        ),
        section("Commands", *commands(view, words)),
    )
    content = page(
        title=plan.study["title"],
        kicker=kicker(view),
        lead=lead(view),
        body=(
            *(element("p", sentence) for sentence in limits(view)),
            element("p", plan.study["source"], class_="soft") if plan.study["source"] else None,
            *body,
        ),
        foot="Made by anybatch. The folder of this page has its numbers as CSV in data/, with the scores of "
        "all cells in data/cells.csv. Where anybatch report made it with matplotlib installed, the figures "
        "are in figures/ as PNG and SVG.",
    )
    drawn = [forest for found in forests.values() for forest in found]
    return Report(content, [*drawn, *figures], {"cells": cells_csv(view)})


def shown_verdicts(view: StudyView, forests: Mapping[str, Sequence[Intervals]]) -> list[Markup | None]:
    """The verdicts, and after them the claims whose cells have not been run."""
    begun = [verdict for verdict in view.verdicts if verdict.state != "not run"]
    waiting = [verdict for verdict in view.verdicts if verdict.state == "not run"]
    return [
        *(shown_verdict(verdict, forests[verdict.name]) for verdict in begun),
        listed_claims(waiting),
    ]


ON_THE_SCALE = ("equivalent", "better", "not_worse", "regret", "foretold")
"""The verdict rules that are about normalized scores."""
NARROW = (
    "They are too narrow with few: they contain the true mean in about 80% of all cases with 3 seeds, and in "
    "85 to 90% with 5. No verdict depends on them."
)
ANSWERS = {
    "holds": "Yes, on {where}: {claim}",
    "fails": "No, on {where} it does not hold that {claim}",
    "undecided": "Undecided: {seeds} on {where} cannot tell whether {claim}",
    "unfinished": "Not finished: on {where}, it is not known yet whether {claim}",
    "not run": "Not run yet: on {where}, it is not known whether {claim}",
    "not tested": "Not tested: on {where}, no control failed the same test; it is not known whether {claim}",
    "not needed": "Equal with the rules on {where}; without them equal too, so the rules were not needed "
    "here.",
}
"""The first sentence of a page, by the state of the study's first verdict."""
WITHOUT_THEM = {
    "fails": "Without the rules, it does not.",
    "undecided": "Without the rules, this is not shown.",
}
"""The second sentence, if the control of a claim that holds is the arm without rules."""


def lead(view: StudyView) -> str:
    """Whether the claim holds, where, and the comparison that decides it."""
    if not view.verdicts:
        return f"No verdict at this scale on the claim that {within_a_sentence(view.plan.study['claim'])}"
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
    seeds, where = counted(seed_count(view), "seed"), where_judged(first) or env_words(view)
    answer = ANSWERS[state].format(where=where, seeds=seeds, claim=within_a_sentence(first.claim))
    if state == "holds" and without in WITHOUT_THEM:
        answer = f"{answer} {WITHOUT_THEM[without]}"
    return answer if state == "not run" else f"{answer} {as_a_sentence(first.reason)}"


def state_without_rules(verdict: Verdict) -> str:
    """How the test of a claim ends for the arm without rules; empty if that is not its control."""
    controls = [one.details["control"] for one in verdict.comparisons if "control" in one.details]
    states = {one["state"] for one in controls if one["arm"] == WITHOUT_RULES}
    return next((state for state in ("fails", "undecided", "holds") if state in states), "")


def as_a_sentence(text: str) -> str:
    """Text that begins with a capital letter, unless it begins with the name of an environment."""
    first = text.partition(" ")[0]
    return text if ":" in first.rstrip(":") else text[0].upper() + text[1:]


def limits(view: StudyView) -> list[str]:
    """The context of the lead: its scale, and the parts of the grid that are not there, by reason."""
    compared = any(verdict.rule in ON_THE_SCALE for verdict in view.verdicts)
    scale = [f"Differences are in normalized scores: {view.scores.unit_words()}."] if compared else []
    return [*scale, *view.notes, *unfinished(view), *left_out(view.plan)]


def unfinished(view: StudyView) -> list[str]:
    """How many cells have not been run, and how many claims have none; empty for a finished grid."""
    wanted = [cell for cell in view.plan.cells if cell.arm != RANDOM_ARM]
    missing = sum(cell.name not in view.results for cell in wanted)
    if not missing:
        return []
    waiting = [verdict for verdict in view.verdicts if verdict.state == "not run"]
    wait = "waits" if len(waiting) == 1 else "wait"
    claims = f"; {len(waiting)} of {counted(len(view.verdicts), 'claim')} {wait} for them" if waiting else ""
    have = "has" if missing == 1 else "have"
    return [f"{missing:,} of {counted(len(wanted), 'cell')} {have} not been run yet{claims}."]


def within_a_sentence(claim: str) -> str:
    """A claim within a sentence; one that begins with a name such as ABS is unchanged."""
    first = claim.split()[0]
    return claim if len(first) > 1 and first.isupper() else claim[0].lower() + claim[1:]


def seed_count(view: StudyView) -> int:
    return len({cell.seed for part in view.parts for cell in part.cells})


def where_judged(verdict: Verdict) -> str:
    """The environments that the comparisons of a verdict have in common; empty if they do not name any."""
    named = [one.details["envs"] for one in verdict.comparisons if "envs" in one.details]
    common = [env for env in named[0] if all(env in envs for envs in named)] if named else []
    return in_words_or_number(common)


def env_words(view: StudyView) -> str:
    return in_words_or_number(list(dict.fromkeys(cell.env for part in view.parts for cell in part.cells)))


def in_words_or_number(envs: Sequence[str]) -> str:
    return ", ".join(envs) if len(envs) <= 4 else f"{len(envs)} environments"


def kicker(view: StudyView) -> str:
    seeds, shown = seed_count(view), env_words(view)
    tuning = ", tuning" if view.plan.tune else ""
    scale = f"{view.plan.scale} scale{tuning}"
    return f"Study {study_name(view.plan)} · {scale} · {shown} · {counted(seeds, 'seed')}"


def study_name(plan: StudyPlan) -> str:
    """The name of one of our studies, or that of the user's file."""
    wanted = plan.request.study
    return Path(wanted).name if wanted.endswith(".toml") else wanted


def scores(view: StudyView) -> list[Markup]:
    """Raw scores by environment, and the aggregates of their normalized values, of parts that have any."""
    begun = [part for part in view.parts if any(cell.name in view.results for cell in part.cells)]
    shown = [element("h3", "By environment")]
    for metric in view.plan.metrics:
        raw = [
            [view.label(part), *(raw_score(view, part, name, metric) for name in view.strata)]
            for part in begun
        ]
        words = f"{METRIC_NAMES[metric].capitalize()}, mean ± standard error over seeds."
        shown.append(element("p", words, class_="note"))
        shown.append(table(("arm", *view.strata), raw, numbers=range(1, len(view.strata) + 1)))
    shown.append(element("h3", "Normalized"))
    note = (
        f"{as_a_sentence(view.scores.unit_words())}. In brackets: {LEVEL:.0%} bootstrap intervals, which "
        f"need two seeds or more. {NARROW}"
    )
    shown.append(element("p", note, class_="note"))
    header = ("arm", "environments", "interquartile mean", "mean", "median")
    for metric in view.plan.metrics:
        if len(view.plan.metrics) > 1:
            shown.append(element("p", f"{METRIC_NAMES[metric].capitalize()}.", class_="note"))
        rows = [aggregates(view, part, metric) for part in begun]
        shown.append(table(header, rows, numbers=range(1, len(header)), kind="stacked"))
    return shown


def aggregates(view: StudyView, part: Part, metric: str) -> list[Content]:
    """A row of the normalized scores of a part by one metric."""
    found = view.normalized(part, metric)
    numbers: list[Content] = ["–", "–", "–"]
    if found:
        numbers = [
            shown(interquartile_mean_of(found)),
            shown(mean_of(found)),
            f"{statistics.median(found):.3f}",
        ]
    return [view.label(part), f"{len(found)} of {len(view.strata)}", *numbers]


def raw_score(view: StudyView, part: Part, stratum: str, metric: str) -> str:
    scores = [result.score(metric) for result in view.finished(part, stratum)]
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
    """How many cells there are, which failed and which were left out, each with its reason."""
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
    absent = ((view.plan.part_words(entry), f"left out: {entry.reason}") for entry in view.plan.left_out)
    reasons += dict.fromkeys(absent)  # once for all environments
    reasons += [pair for part in view.parts if (pair := not_run(view, part))]
    if reasons:
        shown.append(table(("cell", "reason"), [list(pair) for pair in reasons], kind="stacked"))
    return shown


def not_run(view: StudyView, part: Part) -> tuple[str, str] | None:
    """A part of the grid and how many of its cells have not been run: all of them can be hundreds."""
    missing = sum(cell.name not in view.results for cell in part.cells)
    return (view.label(part), f"{missing} of {len(part.cells)} not run yet") if missing else None


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


def commands(view: StudyView, words: Sequence[str]) -> list[Markup]:
    facts = view.plan.facts
    known = ("anybatch", "git_commit", "python", "torch")
    versions = [f"{name.replace('_', ' ')} {facts[name]}" for name in known if facts.get(name)]
    return [
        command(study_words(view.plan.request)),
        element("p", f"{', '.join(versions)}; plan {view.plan.hash}".lstrip("; "), class_="soft"),
        element("p", "This page:"),
        command(words),
    ]


def study_words(request: Request) -> list[str]:
    """The command line of a study."""
    words = ["anybatch", "study", request.study, "--scale", request.scale]
    words += ["--env", *request.envs] if request.envs else []
    words += ["--range", *(f"{value:g}" for value in request.ranges)] if request.ranges else []
    words += ["--preset", request.preset] if request.preset else []
    words += ["--seeds", str(request.seeds)] if request.seeds is not None else []
    words += ["--budget", written(request.budget_seconds)] if request.budget_seconds is not None else []
    return words + ["--tune"] * request.tune


def cells_csv(view: StudyView) -> str:
    """Every cell with its scores, including cells without any."""
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
        *(f"normalized_{metric}" for metric in view.plan.metrics),
        "failed",
    )
    rows: list[list[object]] = []
    for cell in view.plan.cells:
        result = view.results.get(cell.name)
        swept = " ".join(f"{path}={value}" for path, value in (cell.point | cell.factors).items())  # type: ignore[operator]
        scores = [
            view.scores.score(cell.name, metric) if cell.arm != RANDOM_ARM else None
            for metric in view.plan.metrics
        ]
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
                *("" if score is None else f"{score:.6g}" for score in scores),
                (result.failed or "") if result else "not run yet",
            ]
        )
    return csv_lines(header, rows)
