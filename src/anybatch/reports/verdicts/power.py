"""What a study can decide, estimated from the spread of tuning seeds before its own cells are run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from anybatch.reports import statistics
from anybatch.reports.verdicts.rule import Rule, Selector, parse
from anybatch.reports.verdicts.scores import Scores
from anybatch.studies.plan import StudyPlan

WANTED_POWER = 0.8


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """How likely an equivalence is to be shown if two arms are equal."""

    name: str
    margin: float
    power: float
    decidable_margin: float
    """The margin within which equal arms would be shown to be with a probability of 80 %."""
    seeds: int
    envs: int

    def sentence(self) -> str:
        return (
            f"{self.name}: with the spread of these seeds, {self.seeds} seeds in {self.envs} "
            f"environment{'s' * (self.envs > 1)} would show equal arms to be within ± {self.margin:g} with a "
            f"probability of {self.power:.0%}; for {WANTED_POWER:.0%} the margin must be "
            f"{self.decidable_margin:.2g}"
        )


def outlooks(plan: StudyPlan, tuned: Scores) -> list[Outlook]:
    """The outlook of each equivalence rule in `plan`, from the tuning cells of the unchanged base."""
    spreads = base_spreads(tuned)
    rules = [rule for rule in parse(plan.verdicts, plan.study["name"]) if rule.kind == "equivalent"]
    found = [outlook(rule, plan, spreads) for rule in rules]
    return [one for one in found if one is not None]


def base_spreads(tuned: Scores) -> dict[str, float]:
    """The standard deviation over seeds of the unchanged base, in each environment with two or more."""
    by_env: dict[str, list[float]] = {}
    for cell in tuned.plan.cells:
        score = tuned.score(cell.name)
        if cell.factors and all(factor == 1 for factor in cell.factors.values()) and score is not None:
            by_env.setdefault(cell.env, []).append(score)
    return {env: float(np.std(values, ddof=1)) for env, values in by_env.items() if len(values) > 1}


def outlook(rule: Rule, plan: StudyPlan, spreads: Mapping[str, float]) -> Outlook | None:
    """The outlook of a rule's comparison with the fewest seeds; None if it has no cells."""
    found: list[Outlook] = []
    for this, that in rule.pairs():
        here, there = seeds_of(plan, this), seeds_of(plan, that)
        envs = [env for env in here if env in there and env in spreads]
        if not envs or min(min(here[env], there[env]) for env in envs) < 2:
            continue
        variance = sum(spreads[env] ** 2 * (1 / here[env] + 1 / there[env]) for env in envs)
        error = math.sqrt(variance) / len(envs)
        degrees = sum(here[env] + there[env] - 2 for env in envs)
        reach = statistics.t_quantile(1 - rule.alpha, degrees)
        reach += statistics.t_quantile((1 + WANTED_POWER) / 2, degrees)
        found.append(
            Outlook(
                name=rule.name,
                margin=rule.margin,
                power=statistics.equivalence_power(error, degrees, rule.margin, rule.alpha),
                decidable_margin=error * reach,
                seeds=min(min(here[env], there[env]) for env in envs),
                envs=len(envs),
            )
        )
    return min(found, key=lambda one: one.power, default=None)


def seeds_of(plan: StudyPlan, selector: Selector) -> dict[str, int]:
    counts: dict[str, int] = {}
    for cell in plan.cells:
        if selector.matches(cell):
            counts[cell.env] = counts.get(cell.env, 0) + 1
    return counts
