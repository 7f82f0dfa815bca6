"""Rules that measure: a metric over the runs, its correlation with others, and where invariance ends."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain

import numpy as np

from anybatch import rules
from anybatch.lab import statistics
from anybatch.lab.studies.cells import Cell, Result
from anybatch.lab.studies.curves import NOISE_SCALE
from anybatch.lab.verdicts import compare
from anybatch.lab.verdicts.rule import Rule
from anybatch.lab.verdicts.scores import Scores
from anybatch.lab.verdicts.verdict import Comparison, State, overall
from anybatch.text import counted

FEWEST_POINTS = 8
"""Fewest parts of a run in which both metrics were measured, for a correlation."""
LEVEL = 0.95
END = "end of invariance"
"""Label of the comparison that decides a prediction."""


def estimates(rule: Rule, scores: Scores) -> list[Comparison]:
    """A metric over the last part of the runs, in each environment."""
    return [
        estimate(rule, scores, f"{rule.metric} in {env}, {selector.words(scores.plan)}", cells)
        for selector in rule.this
        for env, cells in scores.cells(selector).items()
    ]


def estimate(rule: Rule, scores: Scores, label: str, cells: Sequence[Cell]) -> Comparison:
    """A metric over the last part of the runs of `cells`, which are of one environment."""
    if not any(cell.name in scores.results for cell in cells):
        return compare.not_run(label)
    by_cell = measured(rule.metric, rule.share, scores, cells)
    if not by_cell:
        return compare.undecided(label, f"not measured in any of {counted(len(cells), 'run')}")
    pairs = [pair for name in by_cell for pair in noise_pairs(scores.results[name], rule.share)]
    if rule.metric == NOISE_SCALE and pairs:
        return pooled_noise(label, pairs, by_cell, scores)
    values = list(by_cell.values())
    middle, interval = float(np.mean(values)), statistics.mean_interval({"": values}, LEVEL)
    details: dict[str, object] = {"per_cell": by_cell, "unit": rule.metric}
    ending = compare.missing_runs(len(by_cell), len(cells))
    if rule.metric == NOISE_SCALE:
        envs = worth_having(scores, by_cell)
        details |= {"envs_worth_having": envs}
        ending += f": its minibatch would be reached with {envs:,.0f} envs, and more add little"
    return measurement(label, middle, interval, f"{middle:.4g}{in_brackets(interval)}{ending}", details)


def pooled_noise(
    label: str, pairs: Sequence[tuple[float, float]], by_cell: Mapping[str, float], scores: Scores
) -> Comparison:
    """The noise scale from all traces and signals of the runs, or what it is more than."""
    _, _, scale, error, above = rules.pooled_noise_scale(pairs)
    details: dict[str, object] = {"unit": NOISE_SCALE}
    if scale is None or error is None:
        words = "hidden by noise" if above is None else f"more than {above:.4g}, hidden by noise"
        return compare.undecided(label, words, **details)
    interval = scale - rules.STANDARD_ERRORS * error, scale + rules.STANDARD_ERRORS * error
    envs = worth_having(scores, dict.fromkeys(by_cell, scale))
    words = f"{scale:.4g}{in_brackets(interval)}: its minibatch would be reached with {envs:,.0f} envs"
    return measurement(label, scale, interval, words, details | {"envs_worth_having": envs})


def noise_pairs(result: Result, share: float) -> list[tuple[float, float]]:
    """Trace and signal in the last parts of a run."""
    pairs = result.noise()
    first = len(pairs) - max(1, round(share * len(pairs)))
    return [pair for pair in pairs[max(0, first) :] if pair is not None]


def measurement(
    label: str,
    value: float,
    interval: tuple[float, float] | None,
    words: str,
    details: Mapping[str, object],
) -> Comparison:
    """A number that nothing is compared with; `words` say it with its interval."""
    return Comparison(
        label=label,
        state="measured",
        value=value,
        interval=interval,
        level=LEVEL,
        clauses=(words,),
        details=details,
    )


def measured(metric: str, share: float, scores: Scores, cells: Iterable[Cell]) -> dict[str, float]:
    """The median of a metric over the last part of each run that has measured it, by cell.

    A noise scale is the quotient of the mean trace and the mean signal, where these were kept.
    """
    found: dict[str, float] = {}
    for name in (cell.name for cell in cells if cell.name in scores.results):
        pairs = noise_pairs(scores.results[name], share) if metric == NOISE_SCALE else []
        if pairs:
            found[name] = rules.noise_scale(*map(float, np.mean(pairs, axis=0)))
            continue
        values = scores.results[name].metrics.get(metric, ())
        first = len(values) - max(1, round(share * len(values)))
        last = [value for value in values[max(0, first) :] if value is not None]
        if last:
            found[name] = float(np.median(last))
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
    found: list[Comparison] = []
    for selector in rule.this:
        words = selector.words(scores.plan)
        by_env = scores.cells(selector)
        if by_env and not any(cell.name in scores.results for cell in chain(*by_env.values())):
            found.append(compare.not_run(f"{rule.metric}, {words}"))
            continue
        for other in rule.others:
            label = f"{rule.metric} with {other}, {words}"
            found.append(correlation(rule.metric, other, scores, label, by_env))
    return found


def correlation(
    metric: str, other: str, scores: Scores, label: str, cells: Mapping[str, Sequence[Cell]]
) -> Comparison:
    """The rank correlation of two metrics along the runs of cells, by environment."""
    results = {
        env: [scores.results[cell.name] for cell in of if cell.name in scores.results]
        for env, of in cells.items()
    }
    known = {
        env: [value for one in of if (value := along(one, metric, other)) is not None]
        for env, of in results.items()
    }
    by_env = {env: values for env, values in known.items() if values}
    if not by_env:
        return compare.undecided(label, f"not measured {FEWEST_POINTS} times or more in any run")
    middle, interval = float(statistics.mean(by_env)), statistics.mean_interval(by_env, LEVEL)
    number = f"rank correlation {middle:+.2f}{in_brackets(interval, '+.2f')}"
    runs = compare.missing_runs(sum(map(len, by_env.values())), sum(map(len, cells.values())))
    details = {"per_env": {env: float(np.mean(values)) for env, values in by_env.items()}}
    return measurement(label, middle, interval, f"{number}{runs}", details)


def along(result: Result, first: str, second: str) -> float | None:
    """The rank correlation of two metrics over the parts of a run that have both; None for too few."""
    both = zip(result.course(first), result.course(second), strict=False)
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
    pairs = compare.pairs_of(rule, scores)
    by_pair = [compare.compared_pair(rule, scores, *pair, count=len(pairs)) for pair in pairs]
    by_ratio: list[tuple[float, State]] = [
        (float(Fraction(this.ratio)), overall(found)) for (this, _), found in zip(pairs, by_pair, strict=True)
    ]
    compared = [one for found in by_pair for one in found]
    predictions = [
        noise / scores.results[name].plan["batch"]["minibatch"]
        for _, that in rule.pairs()
        for cells in scores.cells(that).values()
        for name, noise in measured(NOISE_SCALE, 1.0, scores, cells).items()
    ]
    if {one.state for one in compared} <= {"not run"}:
        return compared
    if not predictions:
        reason = "no run has measured the noise scale that would predict it"
        return [*compared, compare.undecided(END, reason)]
    return [*compared, end_of_invariance(rule, sorted(by_ratio), float(np.median(predictions)))]


def end_of_invariance(rule: Rule, by_ratio: list[tuple[float, State]], predicted: float) -> Comparison:
    """The ratios between which invariance ends, and the one that the noise scale predicts."""
    failing = next((ratio for ratio, state in by_ratio if state == "fails"), None)
    holding = 1.0
    for ratio, state in by_ratio:
        if state != "holds":
            break
        holding = ratio
    state, ending = judged_prediction(predicted, holding, failing, rule.within)
    said = f"the noise scale predicts ratio {predicted:.3g}, and equality was shown up to {holding:g}"
    return Comparison(
        label=END,
        state=state,
        value=predicted,
        clauses=(said, ending),
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
