"""What a study can decide, estimated from the spread of tuning seeds before its own cells are run."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts.compare import FEWEST_SEEDS, METRIC_NAMES
from anybatch.lab.verdicts.rule import Rule, Selector, parse
from anybatch.lab.verdicts.scores import Scores
from anybatch.text import counted, probability_text

WANTED_POWER = 0.8

Stratum = tuple[str, str]
"""An environment and a base: what comparisons are stratified by."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """How likely an equivalence is to be shown if two arms are equal."""

    name: str
    metric: str
    margin: float
    power: float
    decidable_margin: float
    """The margin within which equal arms would be shown to be with a probability of 80 %."""
    seeds: int
    envs: int

    def sentence(self) -> str:
        return (
            f"{self.name}, {METRIC_NAMES[self.metric]}: with the spread of these seeds, {self.seeds} seeds "
            f"in {counted(self.envs, 'environment')} would show equal arms to be within ± {self.margin:g} "
            f"with a probability of {probability_text(self.power)}; for {WANTED_POWER:.0%} the margin "
            f"must be {self.decidable_margin:.2g}"
        )


def outlooks(plan: StudyPlan, tuned: Scores) -> list[Outlook]:
    """The outlook of each equivalence rule in `plan`, from the tuning cells of the unchanged base."""
    rules = parse(plan.verdicts, plan.study["name"], metrics=plan.metrics)
    found = [
        outlook(rule, plan, metric, base_spreads(tuned, metric))
        for rule in rules
        if rule.kind == "equivalent"
        for metric in plan.metrics
    ]
    return [one for one in found if one is not None]


def base_spreads(tuned: Scores, metric: str) -> dict[Stratum, float]:
    """The standard deviation over seeds of each unchanged base, in each environment with two or more."""
    by_stratum: dict[Stratum, list[float]] = {}
    for cell in tuned.plan.cells:
        score = tuned.score(cell.name, metric)
        if cell.factors and all(factor == 1 for factor in cell.factors.values()) and score is not None:
            by_stratum.setdefault((cell.env, cell.base), []).append(score)
    return {key: float(np.std(values, ddof=1)) for key, values in by_stratum.items() if len(values) > 1}


def outlook(rule: Rule, plan: StudyPlan, metric: str, spreads: Mapping[Stratum, float]) -> Outlook | None:
    """The least favorable outlook of a rule's comparisons by a metric; None if none has cells."""
    found: list[Outlook] = []
    margin = rule.margins[metric]
    for this, that in rule.pairs():
        here, there = seeds_of(plan, this), seeds_of(plan, that)
        strata = [key for key in here if key in there and key in spreads]
        fewest = min((min(here[key], there[key]) for key in strata), default=0)
        if fewest < FEWEST_SEEDS:
            continue
        variance = sum(spreads[key] ** 2 * (1 / here[key] + 1 / there[key]) for key in strata)
        error = math.sqrt(variance) / len(strata)
        degrees = sum(here[key] + there[key] - 2 for key in strata)
        found.append(
            Outlook(
                name=rule.name,
                metric=metric,
                margin=margin,
                power=statistics.equivalence_power(error, degrees, margin, rule.alpha),
                decidable_margin=statistics.decidable_margin(error, degrees, rule.alpha, WANTED_POWER),
                seeds=fewest,
                envs=len({env for env, _ in strata}),
            )
        )
    return min(found, key=lambda one: one.power, default=None)


def seeds_of(plan: StudyPlan, selector: Selector) -> Counter[Stratum]:
    """The number of seeds of a selector's cells in each stratum."""
    return Counter((cell.env, cell.base) for cell in plan.cells if selector.matches(cell))
