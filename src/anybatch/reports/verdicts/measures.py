"""Rules that measure: a metric over the runs, its correlation with others, and where invariance ends."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from anybatch.reports import statistics
from anybatch.reports.verdicts import compare
from anybatch.reports.verdicts.rule import Rule, Selector
from anybatch.reports.verdicts.scores import Scores
from anybatch.reports.verdicts.verdict import Comparison, State
from anybatch.studies.cells import Result

NOISE_SCALE = "batch/noise_scale"
FEWEST_POINTS = 8
"""Fewest parts of a run in which both metrics were measured, for a correlation."""
LEVEL = 0.95


def estimates(rule: Rule, scores: Scores) -> list[Comparison]:
    """A metric over the last part of the runs, in each environment."""
    found = not_run(rule, scores)
    for selector in rule.this:
        for env, by_cell in measured(rule.metric, rule.share, scores, selector).items():
            label = f"{rule.metric} in {env}, {selector.words(scores.plan)}"
            values = {env: list(by_cell.values())}
            middle = statistics.interquartile_mean(values)
            interval = statistics.stratified_interval(statistics.interquartile_mean, values, level=LEVEL)
            details: dict[str, object] = {"per_cell": by_cell, "unit": rule.metric}
            ending = ""
            if rule.metric == NOISE_SCALE:
                envs = worth_having(scores, by_cell)
                details |= {"envs_worth_having": envs}
                ending = f": its minibatch would be reached with {envs:,.0f} envs, and more add little"
            found.append(
                Comparison(
                    label=label,
                    state="measured",
                    value=middle,
                    interval=interval,
                    level=LEVEL,
                    sentence=f"{label}: {middle:.4g}{in_brackets(interval)}{ending}.",
                    details=details,
                )
            )
    return found


def not_run(rule: Rule, scores: Scores) -> list[Comparison]:
    """A comparison for each selector whose cells have not been run."""
    found: list[Comparison] = []
    for selector in rule.this:
        cells = [cell.name for cell in scores.plan.cells if selector.matches(cell)]
        if cells and not any(name in scores.results for name in cells):
            label = f"{rule.metric}, {selector.words(scores.plan)}"
            found.append(Comparison(label=label, state="not run", sentence=f"{label}: not run yet."))
    return found


def measured(metric: str, share: float, scores: Scores, selector: Selector) -> dict[str, dict[str, float]]:
    """The median of a metric over the last part of each run, by environment and cell."""
    found: dict[str, dict[str, float]] = {}
    for name, result in scores.results.items():
        values = result.metrics.get(metric, ())
        last = [value for value in values[len(values) - round(share * len(values)) :] if value is not None]
        if selector.matches(result.cell) and last:
            found.setdefault(scores.stratum(result.cell), {})[name] = float(np.median(last))
    return found


def worth_having(scores: Scores, by_cell: Mapping[str, float]) -> float:
    """The number of envs whose minibatch is the noise scale, with as many minibatches as the runs had."""
    envs = [
        noise * batch["num_envs"] / batch["minibatch"]
        for name, noise in by_cell.items()
        for batch in (scores.results[name].plan["batch"],)
    ]
    return float(np.median(envs))


def correlations(rule: Rule, scores: Scores) -> list[Comparison]:
    """Rank correlation of a metric with others along each run; a mean over runs."""
    found = not_run(rule, scores)
    for selector in rule.this:
        cells = [result for result in scores.results.values() if selector.matches(result.cell)]
        for other in rule.others:
            by_env: dict[str, list[float]] = {}
            for result in cells:
                value = along(result, rule.metric, other)
                if value is not None:
                    by_env.setdefault(scores.stratum(result.cell), []).append(value)
            if not by_env:
                continue
            label = f"{rule.metric} with {other}, {selector.words(scores.plan)}"
            middle = statistics.mean(by_env)
            interval = statistics.stratified_interval(statistics.mean, by_env, level=LEVEL)
            found.append(
                Comparison(
                    label=label,
                    state="measured",
                    value=middle,
                    interval=interval,
                    level=LEVEL,
                    sentence=f"{label}: rank correlation {middle:+.2f}{in_brackets(interval, '+.2f')}.",
                    details={"per_env": {env: float(np.mean(values)) for env, values in by_env.items()}},
                )
            )
    return found


def along(result: Result, first: str, second: str) -> float | None:
    """The rank correlation of two metrics over the parts of a run that have both; None for too few."""
    both = zip(result.metrics.get(first, ()), result.metrics.get(second, ()), strict=False)
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if len(pairs) < FEWEST_POINTS:
        return None
    return statistics.rank_correlation([a for a, _ in pairs], [b for _, b in pairs])


def in_brackets(interval: tuple[float, float] | None, form: str = ".4g") -> str:
    if interval is None:
        return " (no interval from a single seed)"
    low, high = (format(bound, form) for bound in interval)
    return f" ({LEVEL:.0%} interval {low} to {high})"


def foretold(rule: Rule, scores: Scores) -> list[Comparison]:
    """Whether the noise scale at the tuned batch predicts where invariance ends."""
    pairs = [
        (this, that, these, those)
        for this, that in rule.pairs()
        for these, those in [(scores.select(this), scores.select(that))]
        if these.scores.keys() & those.scores.keys()
    ]
    equal = rule_of_equivalence(rule)
    compared = [compare.compared(equal, scores, *pair, count=len(pairs)) for pair in pairs]
    ratios = [float(Fraction(this.ratio)) for this, *_ in pairs]
    by_ratio: list[tuple[float, State]] = [
        (ratio, one.state) for ratio, one in zip(ratios, compared, strict=True)
    ]
    predictions = [
        noise / scores.results[name].plan["batch"]["minibatch"]
        for _, that in rule.pairs()
        for by_cell in measured(NOISE_SCALE, 1.0, scores, that).values()
        for name, noise in by_cell.items()
    ]
    if not compared or not predictions:
        return compared if {one.state for one in compared} == {"not run"} else []
    return [*compared, end_of_invariance(rule, sorted(by_ratio), float(np.median(predictions)))]


def rule_of_equivalence(rule: Rule) -> Rule:
    return Rule(
        name=rule.name,
        claim=rule.claim,
        kind="equivalent",
        this=rule.this,
        that=rule.that,
        margin=rule.margin,
        alpha=rule.alpha,
    )


def end_of_invariance(rule: Rule, by_ratio: list[tuple[float, State]], predicted: float) -> Comparison:
    """The ratios between which invariance ends, and the one that the noise scale predicts."""
    failing = next((ratio for ratio, state in by_ratio if state == "fails"), None)
    holding = 1.0
    for ratio, state in by_ratio:
        if state != "holds":
            break
        holding = ratio
    state, ending = judged_prediction(predicted, holding, failing, rule.within)
    label = "end of invariance"
    said = f"{label}: the noise scale says ratio {predicted:.3g}, and equality was shown up to {holding:g}"
    return Comparison(
        label=label,
        state=state,
        value=predicted,
        sentence=f"{said}; {ending}.",
        details={
            "predicted_ratio": predicted,
            "holds_up_to": holding,
            "fails_from": failing,
            "unit": "ratio",
        },
    )


def judged_prediction(
    predicted: float, holding: float, failing: float | None, within: float
) -> tuple[State, str]:
    """Whether a prediction is right about an end that is somewhere from `holding` to `failing`.

    It is if all of these ratios are within the factor of it, and wrong if none is.
    """
    if holding > predicted * within:
        return "fails", f"that is beyond a factor of {within:g} of it"
    if failing is None:
        return "undecided", "no ratio was shown to differ"
    first = f"the first that differs is {failing:g}"
    if failing < predicted / within:
        return "fails", f"{first}, beyond a factor of {within:g} of it"
    if holding >= predicted / within and failing <= predicted * within:
        return "holds", f"{first}, both within a factor of {within:g} of it"
    return "undecided", f"{first}, and not all ratios in between are within a factor of {within:g} of it"
