"""Rules about a swept setting: where its optimum is, and the cost of not tuning it."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.studies.plan import setting_name
from anybatch.lab.verdicts.compare import FEWEST_SEEDS, by, missing_runs, undecided, without_result
from anybatch.lab.verdicts.rule import Rule, Selector
from anybatch.lab.verdicts.scores import Scores, Selection
from anybatch.lab.verdicts.verdict import Comparison, State, interval_words
from anybatch.text import probability_text

DRAWS = 10_000
SURE = 0.95
"""Probability beyond which the position of an optimum counts as certain."""

ROUNDING = 1e-9
"""Factors such as 0.1 are not exact."""

Sweep = dict[float, dict[int, float]]
"""Scores by factor and seed."""


def optima(rule: Rule, scores: Scores) -> list[Comparison]:
    """Where the optimum of a setting is, for each selector and environment."""
    found = [
        (metric, selector, env, sweep)
        for selector in rule.this
        for metric in scores.plan.metrics
        for env, sweep in sweeps(rule, scores, selector, metric).items()
    ]
    comparisons: list[Comparison] = []
    for metric, selector, env, sweep in found:
        label = f"{env}, {selector.words(scores.plan)}{by(metric, scores)}"
        selected = scores.select(selector, metric=metric, swept=rule.setting).within([env])
        comparisons.append(replace(optimum(rule, label, sweep, selected, count=len(found)), metric=metric))
    return comparisons


def sweeps(rule: Rule, scores: Scores, selector: Selector, metric: str) -> dict[str, Sweep]:
    """The scores of a sweep by a metric, by environment. Cells without a result are absent."""
    found: dict[str, Sweep] = {}
    for env, cells in scores.cells(selector, swept=rule.setting).items():
        sweep: Sweep = {}
        for cell in cells:
            by_seed = sweep.setdefault(cell.factors[rule.setting], {})
            score = scores.score(cell.name, metric)
            if score is not None:
                by_seed[cell.seed] = score
        found[env] = dict(sorted(sweep.items()))
    return found


def optimum(rule: Rule, label: str, sweep: Sweep, selected: Selection, *, count: int) -> Comparison:
    """Whether the best factor is within one notch of 1, as far as the spread of its seeds can tell.

    `selected` are the cells of the sweep, some of which may have no result. `count` is the number of sweeps
    that the rule is about.
    """
    if min(map(len, sweep.values())) < FEWEST_SEEDS:
        few = f"undecided, because fewer than {FEWEST_SEEDS} seeds of a factor have a result"
        return without_result(label, selected) or undecided(label, few)
    means = {factor: float(np.mean(list(by_seed.values()))) for factor, by_seed in sweep.items()}
    best = max(means, key=lambda factor: means[factor])
    near = [factor for factor in means if abs(math.log(factor)) <= math.log(rule.notch) + ROUNDING]
    reaches = min(means) < min(near, default=1) and max(means) > max(near, default=1)
    share = share_within(sweep, near)
    state: State = "holds" if share >= SURE else "fails" if share <= (1 - SURE) / count else "undecided"
    notch = f"a factor of {rule.notch:g}"
    ending = f"the optimum is within {notch} of × 1 with a probability of {probability_text(share)}"
    counted, runs = sum(map(len, sweep.values())), selected.runs
    if counted < runs:
        state = "undecided"  # the claim is about all runs of the plan
    if not near:
        state, ending = "undecided", f"no factor of the sweep is within {notch} of × 1"
    elif not reaches:
        state, ending = "undecided", f"the sweep does not reach beyond {notch} on both sides"
    return Comparison(
        label=label,
        state=state,
        value=best,
        clauses=(
            f"the best {setting_name(rule.setting)} is × {best:g}",
            f"{ending}{missing_runs(counted, runs)}",
        ),
        details={
            "means": means,
            "share_within": share,
            "seeds": min(map(len, sweep.values())),
            "missing": runs - counted,
        },
    )


def share_within(sweep: Sweep, near: list[float]) -> float:
    """The probability that the best factor is among the given ones.

    The true mean of each factor is distributed about that of its n seeds as s/√n times Student's t with n - 1
    degrees of freedom, where s is the standard deviation of these seeds. (Resampling two or three seeds would
    take their spread to be smaller than it is.) Factors that are equal share their probability.
    """
    rng = np.random.default_rng(0)
    drawn: list[np.ndarray] = []
    for by_seed in sweep.values():
        scores = np.array(list(by_seed.values()))
        error = scores.std(ddof=1) / math.sqrt(len(scores))
        drawn.append(scores.mean() + error * rng.standard_t(len(scores) - 1, DRAWS))
    is_best = np.stack(drawn) == np.max(drawn, axis=0)
    is_near = np.array([factor in near for factor in sweep])
    return float((is_best[is_near].sum(axis=0) / is_best.sum(axis=0)).mean())


def regrets(rule: Rule, scores: Scores) -> list[Comparison]:
    """The loss from not tuning a setting at each batch, against the best factor in the oracle's cells."""
    there = [
        (this, oracle, metric)
        for this, oracle in rule.pairs()
        if scores.cells(this).keys() & scores.cells(oracle, swept=rule.setting).keys()
        for metric in scores.plan.metrics
    ]
    return [replace(regret(rule, scores, *one, count=len(there)), metric=one[-1]) for one in there]


def regret(
    rule: Rule, scores: Scores, this: Selector, oracle: Selector, metric: str, *, count: int
) -> Comparison:
    """The loss by one metric, one of the `count` comparisons that the rule makes."""
    name = setting_name(rule.setting)
    label = f"{this.words(scores.plan)} against the best {name} there{by(metric, scores)}"
    these, tuned = scores.select(this, metric=metric), sweeps(rule, scores, oracle, metric)
    both = [env for env in these.scores if env in tuned]
    these = these.within(both)
    those = scores.select(oracle, metric=metric, swept=rule.setting).within(both)
    unfinished = without_result(label, these, those)
    if unfinished is not None:
        return unfinished
    fewest = min(len(shared_seeds(tuned[env], these.by_seed(env))) for env in both)
    if fewest < FEWEST_SEEDS:
        reason = f"at least {FEWEST_SEEDS} seeds must be shared with all factors, not {fewest}"
        return undecided(label, reason)
    lost = {env: left_one_out(tuned[env], these.by_seed(env)) for env in both}
    return judged_regret(rule, label, lost, rule.margins[metric], count=count)


def shared_seeds(sweep: Sweep, untuned: Mapping[int, float]) -> list[int]:
    """The seeds that have a score without the setting's tuning and at each of its factors."""
    return sorted(set(untuned).intersection(*sweep.values()))


def left_one_out(sweep: Sweep, untuned: Mapping[int, float]) -> list[float]:
    """The regret of each seed against the factor that is best on all other seeds.

    The best of several noisy means on the same seeds would be too good, since luck contributes to the choice.
    """
    seeds = shared_seeds(sweep, untuned)
    lost: list[float] = []
    for seed in seeds:
        others = {
            factor: float(np.mean([by_seed[other] for other in seeds if other != seed]))
            for factor, by_seed in sweep.items()
        }
        best = max(others, key=lambda factor: others[factor])
        lost.append(sweep[best][seed] - untuned[seed])
    return lost


def judged_regret(
    rule: Rule, label: str, lost: dict[str, list[float]], margin: float, *, count: int
) -> Comparison:
    """Whether a regret is below the margin, one of the `count` comparisons that the rule makes.

    Only failing is corrected for their number, as in `compare.judged`.
    """
    found = statistics.difference(lost, {env: [0.0, 0.0] for env in lost})
    level = 1 - 2 * rule.alpha
    interval = found.interval(level)
    state: State = "undecided"
    ending = f"neither shown to be below nor above {margin:g}"
    if found.p_below(margin) <= rule.alpha:
        state, ending = "holds", f"less than {margin:g}"
    elif found.p_above(margin) <= rule.alpha / count:
        state, ending = "fails", f"more than {margin:g}"
    return Comparison(
        label=label,
        state=state,
        value=found.mean,
        interval=interval,
        level=level,
        clauses=(f"loses {interval_words(found.mean, interval, level)}, {ending}",),
        details={
            "margin": margin,
            "p": found.p_below(margin),
            "per_env": {env: float(np.mean(values)) for env, values in lost.items()},
            "seeds": min(map(len, lost.values())),
        },
    )
