"""Verdicts on a page: the state of each claim, its comparisons with their intervals, and statistics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anybatch.lab.charts.chart import IntervalRow, Intervals
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Markup, element
from anybatch.lab.pages.page import table
from anybatch.lab.verdicts import State, Verdict
from anybatch.text import probability_text

STATES: dict[State, tuple[str, str, str]] = {
    "holds": ("✓", "green", "green"),
    "fails": ("✗", "orange", "red"),
    "undecided": ("?", "slate", "yellow"),
    "measured": ("=", "blue", "cyan"),
    "not run": ("…", "slate", "dim"),
    "not tested": ("–", "slate", "yellow"),
    "void": ("–", "slate", "red"),
}
"""The mark of each state, its color on a page, and its color in a terminal."""
MARGINS = {
    "equivalent": (-1, 1),
    "foretold": (-1, 1),
    "regret": (0, 1),
    "better": (0, 1),
    "not_worse": (-1, 0),
}
"""Where the shaded margin of a rule is, in units of it."""
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
    if verdict.state == "void" or (verdict.is_open_by_correction and not undrawn):
        undrawn = [verdict.reason]
    badge = f"{STATES[verdict.state][0]} {verdict.state}"
    sentences = (element("p", sentence, class_="soft") for sentence in undrawn)
    return element(
        "article",
        element(
            "div",
            element("span", badge, class_=f"badge {verdict.state.replace(' ', '-')}"),
            element("div", element("h3", verdict.claim), *sentences),
            class_="verdict",
        ),
        *(drawing(forest) for forest in forests),
        numbers_behind(verdict),
    )


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
            color=STATES[one.state][1],
            ending=one.state if one.state != "measured" else "",
        )
        for one in comparisons
        if one.value is not None and one.interval is not None
    )
    if not rows:
        return None
    levels = {one.level for one in comparisons if one.level is not None}
    bound = next((one.details["margin"] for one in comparisons if one.details.get("margin")), None)
    low, high = MARGINS.get(verdict.rule, (0, 0))
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
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "p": lambda details: f"{details['p']:.3g}",
        "power": lambda details: number(details, "power", probability_text),
        "seeds": lambda details: number(details, "seeds", seeds_text),
        "mean |Δ| per env": lambda details: number(details, "mean_absolute_difference", "{:.3f}".format),
        "P(improvement)": lambda details: number(details, "probability_of_improvement", "{:.2f}".format),
        "van Elteren p": lambda details: number(details, "van_elteren_p", "{:.2g}".format),
        "curve p": lambda details: number(details, "curve_p", "{:.2g}".format),
    }
    tested = [one for one in verdict.comparisons if "p" in one.details]
    if not tested:
        return None
    if not any("curve_p" in one.details for one in tested):
        del columns["curve p"]
    rows = [[one.label, *(text(one.details) for text in columns.values())] for one in tested]
    return element(
        "details",
        element("summary", "The numbers behind it"),
        table(("comparison", *columns), rows, numbers=range(1, len(columns) + 1)),
        element("p", NUMBERS_NOTE + (SEVERAL_NOTE if len(rows) > 1 else ""), class_="note"),
    )


def number(details: Mapping[str, Any], name: str, text: Callable[[Any], str]) -> str:
    """A number behind a comparison as text; empty where the rule has none."""
    return "" if details.get(name) is None else text(details[name])


def seeds_text(value: int | Sequence[int]) -> str:
    """The number of seeds; that of each side where they differ."""
    sides = [value] if isinstance(value, int) else value
    return " / ".join(map(str, dict.fromkeys(sides)))
