"""Verdicts on a page: the state of each claim, its comparisons with their intervals, and statistics."""

from collections.abc import Sequence
from typing import Any

from anybatch.lab.charts.chart import IntervalRow, Intervals
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, element
from anybatch.lab.pages.page import table
from anybatch.lab.verdicts import Verdict
from anybatch.text import probability_text

STATE_COLORS = {
    "holds": "green",
    "fails": "orange",
    "undecided": "slate",
    "measured": "blue",
    "not run": "slate",
    "not tested": "slate",
    "void": "slate",
}
MARKS = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "?",
    "measured": "=",
    "not run": "…",
    "not tested": "–",
    "void": "–",
}
UNITS = {
    "estimate": "of the metric",
    "correlation": "rank correlation",
    "regret": "normalized score lost",
}
"""What the numbers of a rule are, if they are not differences."""
DIFFERENCE = "difference of normalized scores"
NUMBERS_NOTE = (
    "p: of the test that shows the claim. Power: how likely equal arms are to be shown to be equal. "
    "Mean |Δ|: mean size of the differences in single environments. P(improvement): how often a run "
    "of the first arm beats one of the second. Van Elteren p: of a two-sided test by ranks. Curve p: of a "
    "permutation test whether both arms have the same learning curve. No verdict depends on these two."
)
SEVERAL_NOTE = (
    " The claim holds if all comparisons hold. It fails if one fails, at a level that is divided by their "
    "number, so an interval may be beyond the margin and its comparison still undecided."
)


def shown_verdict(verdict: Verdict, forests: Sequence[Intervals]) -> Markup:
    """The state of a claim and its comparisons: drawn if they have an interval, otherwise in words.

    Undecided ones are also in words, which say why.
    """
    drawn = ("holds", "fails", "measured")
    undrawn = [one.sentence for one in verdict.comparisons if one.interval is None or one.state not in drawn]
    if verdict.state == "void":
        undrawn = [verdict.reason]
    elif verdict.adjusted_p is not None and verdict.state == "undecided" and not undrawn:
        undrawn = [verdict.reason]  # only the correction for the number of claims left it undecided
    sentences = (element("p", sentence, class_="soft") for sentence in undrawn)
    return element(
        "article",
        element(
            "div",
            element(
                "span",
                f"{MARKS[verdict.state]} {verdict.state}",
                class_=f"badge {verdict.state.replace(' ', '-')}",
            ),
            element("div", element("h3", verdict.claim), *sentences),
            class_="verdict",
        ),
        *(drawing(forest) for forest in forests),
        numbers_behind(verdict),
    )


def listed_claims(verdicts: Sequence[Verdict]) -> Markup | None:
    """The claims that no cell speaks to yet, as a list."""
    if not verdicts:
        return None
    claims = (element("li", verdict.claim) for verdict in verdicts)
    return element("article", element("h3", "Not run yet"), element("ul", *claims, class_="soft"))


def intervals_of(verdict: Verdict) -> list[Intervals]:
    """The comparisons of a verdict that have an interval, drawn by metric: their margins differ."""
    if verdict.state == "void":
        return []
    metrics = list(dict.fromkeys(one.metric for one in verdict.comparisons))
    found = [intervals_by(verdict, metric, several=len(metrics) > 1) for metric in metrics]
    return [one for one in found if one is not None]


def intervals_by(verdict: Verdict, metric: str, *, several: bool) -> Intervals | None:
    """The comparisons by one metric, of a verdict that may have several; None if none has an interval."""
    comparisons = [one for one in verdict.comparisons if one.metric == metric]
    rows = tuple(
        IntervalRow(
            label=one.label,
            value=one.value,
            low=one.interval[0],
            high=one.interval[1],
            color=STATE_COLORS[one.state],
            ending=one.state if one.state != "measured" else "",
        )
        for one in comparisons
        if one.value is not None and one.interval is not None
    )
    if not rows:
        return None
    levels = {one.level for one in comparisons if one.level is not None}
    bound = next((one.details["margin"] for one in comparisons if one.details.get("margin")), None)
    margins = {
        "equivalent": (-1, 1),
        "foretold": (-1, 1),
        "regret": (0, 1),
        "better": (0, 1),
        "not_worse": (-1, 0),
    }
    low, high = margins.get(verdict.rule, (0, 0))
    shown_levels = [f"{level:.0%} intervals" for level in sorted(levels)]
    margin = (low * bound, high * bound) if bound is not None and (low or high) else None
    shaded = [f"shaded: the margin of {bound:g}"] if margin is not None else []
    return Intervals(
        name=f"verdict-{verdict.name}-{metric}" if several else f"verdict-{verdict.name}",
        title=verdict.claim,
        x_label=", ".join([UNITS.get(verdict.rule, DIFFERENCE), *shown_levels, *shaded]),
        rows=rows,
        margin=margin,
        form="{:.4g}" if verdict.rule == "estimate" else "{:+.3f}",
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
                power_of(details.get("power")),
                seeds_of(details.get("seeds")),
                number(details.get("mean_absolute_difference"), "{:.3f}"),
                number(details.get("probability_of_improvement"), "{:.2f}"),
                number(details.get("van_elteren_p"), "{:.2g}"),
                number(details.get("curve_p"), "{:.2g}"),
            ]
        )
    if not rows:
        return None
    header = ("comparison", "p", "power", "seeds", "mean |Δ| per env", "P(improvement)", "van Elteren p")
    header = (*header, "curve p")
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return element(
        "details",
        element("summary", "The numbers behind it"),
        table(header, rows, numbers=range(1, len(header))),
        element("p", NUMBERS_NOTE + (SEVERAL_NOTE if len(rows) > 1 else ""), class_="note"),
    )


def power_of(value: float | None) -> str:
    return "" if value is None else probability_text(value)


def number(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def seeds_of(value: Any) -> str:
    sides = value if isinstance(value, list | tuple) else [value]
    return " / ".join(dict.fromkeys(str(side) for side in sides if side is not None))
