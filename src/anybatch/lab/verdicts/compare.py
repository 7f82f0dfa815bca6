"""Rules that compare two groups of cells: equivalent, better, and not worse."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.statistics import Difference
from anybatch.lab.verdicts.rule import EQUALITIES, Rule, Selector
from anybatch.lab.verdicts.scores import Lack, Scores, Selection
from anybatch.lab.verdicts.verdict import Comparison, State
from anybatch.text import probability_text

Strata = Mapping[str, Sequence[float]]

FEWEST_SEEDS = 2
VAN_ELTEREN_ALPHA = 0.001
"""The level of the paper's tests, before it is divided by their number (arXiv:2110.00641, App. E)."""
METRIC_NAMES = {"area": "area under the curve", "final": "final return"}


def comparisons(rule: Rule, scores: Scores) -> list[Comparison]:
    """One comparison by each metric for each pair of the rule for which the plan has cells."""
    pairs = pairs_of(rule, scores)
    return [one for pair in pairs for one in compared_pair(rule, scores, *pair, count=len(pairs))]


def pairs_of(rule: Rule, scores: Scores) -> list[tuple[Selector, Selector]]:
    """The pairs of a rule for which the plan has cells in a common environment."""
    return [
        (this, that) for this, that in rule.pairs() if scores.cells(this).keys() & scores.cells(that).keys()
    ]


def compared_pair(
    rule: Rule, scores: Scores, this: Selector, that: Selector, *, count: int
) -> list[Comparison]:
    """The comparisons of a pair by each metric; `count` is the number of pairs that the rule compares."""
    metrics = scores.plan.metrics
    found = [compared(rule, scores, this, that, metric, count=count * len(metrics)) for metric in metrics]
    if len(metrics) > 1:
        found = with_curves(found, scores, this, that)
    control = rule.control_of(this)
    return found if control is None else under_control(rule, scores, found, control, that)


def compared(
    rule: Rule,
    scores: Scores,
    this: Selector,
    that: Selector,
    metric: str,
    *,
    count: int,
    within: Collection[str] | None = None,
) -> Comparison:
    """A comparison by one metric, in all environments or `within` some.

    `count` is the number of comparisons that the rule makes.
    """
    label = f"{this.words(scores.plan)} against {that.words(scores.plan)}"
    if len(scores.plan.metrics) > 1:
        label = f"{label}, {METRIC_NAMES[metric]}"
    needs_unit = rule.kind in EQUALITIES
    these, those = (scores.select(one, metric=metric, needs_unit=needs_unit) for one in (this, that))
    both = [env for env in these.scores if env in those.scores]  # what only one side has says nothing here
    both = [env for env in both if within is None or env in within]
    these, those = these.within(both), those.within(both)
    level = 1 - 2 * rule.alpha
    unfinished = without_result(label, these, those)
    if unfinished is not None:
        return replace(with_finished_envs(unfinished, these, those, level=level), metric=metric)
    found = statistics.difference(these.scores, those.scores)
    state, ending = judged(rule, found, metric, count)
    low, high = found.interval(level)
    return Comparison(
        label=label,
        state=state,
        value=found.mean,
        interval=(low, high),
        level=level,
        metric=metric,
        sentence=f"{label}: {found.mean:+.3f} ({level:.0%} interval {low:+.3f} to {high:+.3f}), {ending}"
        f"{divergences(these, those)}.",
        details=tested(rule, found, metric)
        | {
            "envs": both,
            "seeds": [these.fewest_seeds, those.fewest_seeds],
            "diverged": [sum(these.diverged.values()), sum(those.diverged.values())],
        }
        | described(these.scores, those.scores, count),
    )


def with_curves(
    found: Sequence[Comparison], scores: Scores, this: Selector, that: Selector
) -> list[Comparison]:
    """The comparisons of a pair by its metrics, with the distance between its learning curves."""
    if any("p" not in one.details for one in found):
        return list(found)
    these, those, envs = scores.curves(this), scores.curves(that), found[0].details["envs"]
    curves = statistics.curve_distance({env: these[env] for env in envs}, {env: those[env] for env in envs})
    numbers = {
        "curve_distance": curves.distance,
        "curve_distance_expected": curves.expected,
        "curve_p": curves.p,
    }
    words = (
        f"the curves are {curves.distance:.3f} apart, where equal ones would be {curves.expected:.3f} apart "
        f"(permutation test, p = {p_text(curves.p)})"
    )
    first, *others = (replace(one, details={**one.details, **numbers}) for one in found)
    return [with_words(first, words), *others]


def with_words(one: Comparison, words: str, state: State | None = None) -> Comparison:
    """A comparison with something added to its sentence, and another state if one is given."""
    return replace(one, sentence=f"{one.sentence.removesuffix('.')}; {words}.", state=state or one.state)


def p_text(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "less than 0.001"


def under_control(
    rule: Rule, scores: Scores, found: Sequence[Comparison], control: Selector, that: Selector
) -> list[Comparison]:
    """The comparisons of a pair that is claimed to be equal, after its control took the same test.

    The control is known to differ. A test that it passes too would not notice such a difference.
    """
    if any(one.state != "holds" for one in found):
        return list(found)
    name, envs = f"the control, {control.words(scores.plan)},", found[0].details["envs"]
    lacking = [env for env in envs if env not in scores.cells(control)]
    if lacking:
        words = f"but {name} is not part of this plan in {', '.join(lacking)}"
        return [with_words(one, words, "not tested") for one in found]
    by_metric = [compared(rule, scores, control, that, one.metric, count=1, within=envs) for one in found]
    known = [
        replace(one, details={**one.details, "control": numbers_of(its) | {"arm": control.arm}})
        for one, its in zip(found, by_metric, strict=True)
    ]
    waiting = [its for its in by_metric if "p" not in its.details]
    if waiting:
        missing = max(its.details.get("missing", 1) for its in waiting)
        return [
            replace(
                with_words(one, f"but {name} has not been run completely", "undecided"),
                details={**one.details, "missing": missing},
            )
            for one in known
        ]
    passes = all(its.state == "holds" for its in by_metric)
    state: State = "not tested" if passes else "holds"
    found_words = [f"{name} has {interval_text(its)}" for its in by_metric]
    if passes:
        found_words = [f"but {words}, within it too" for words in found_words]
    return [with_words(one, words, state) for one, words in zip(known, found_words, strict=True)]


def numbers_of(control: Comparison) -> dict[str, Any]:
    """What is kept of a control's comparison."""
    return {name: getattr(control, name) for name in ("label", "state", "value", "interval", "level")}


def interval_text(one: Comparison) -> str:
    assert one.interval is not None and one.level is not None
    low, high = one.interval
    return f"{one.value:+.3f} ({one.level:.0%} interval {low:+.3f} to {high:+.3f})"


def tested(rule: Rule, found: Difference, metric: str) -> dict[str, Any]:
    """The numbers of the rule's own test."""
    margin = rule.margins[metric]
    power = power_of(rule, found, margin) if rule.kind in EQUALITIES else None
    p, against = p_of(rule, found, margin), p_against(rule, found, margin)
    return {"margin": margin, "p": p, "p_against": against, "power": power}


def power_of(rule: Rule, found: Difference, margin: float) -> float:
    """The probability that the rule shows equal arms to be equal, if their spread is the one found."""
    return statistics.equivalence_power(found.standard_error, found.degrees, margin, rule.alpha)


def described(these: Strata, those: Strata, count: int) -> dict[str, Any]:
    """Numbers that no verdict depends on: differences by environment, and two comparisons of ranks."""
    per_env = {env: float(np.mean(these[env]) - np.mean(those[env])) for env in these}
    ranks = statistics.van_elteren(these, those)
    return {
        "per_env": per_env,
        "mean_absolute_difference": sum(map(abs, per_env.values())) / len(per_env),
        "probability_of_improvement": float(statistics.probability_of_improvement(these, those)),
        "probability_interval": statistics.stratified_interval(
            statistics.probability_of_improvement, these, those
        ),
        "van_elteren_z": ranks.z,
        "van_elteren_p": ranks.p,
        "van_elteren_significant": ranks.p < VAN_ELTEREN_ALPHA / count,
    }


def without_result(label: str, *sides: Selection) -> Comparison | None:
    """The comparison of sides that cannot be compared yet, with the reason; None if they can be."""
    if any(side.is_untouched for side in sides):
        return Comparison(label=label, state="not run", sentence=f"{label}: not run yet.")
    reason = obstacle(*sides)
    if not reason:
        return None
    to_come: tuple[Lack, ...] = ("not run", "no scale")
    missing = sum(len(side.lacks.get(why, ())) for side in sides for why in to_come)
    sentence = f"{label}: {reason}."
    return Comparison(label=label, state="undecided", sentence=sentence, details={"missing": missing})


def with_finished_envs(
    unfinished: Comparison, these: Selection, those: Selection, *, level: float
) -> Comparison:
    """The comparison with the difference in the environments that are finished, if there are any.

    It stays undecided: the claim is about all environments.
    """
    finished = [env for env in these.scores if not obstacle(these.within([env]), those.within([env]))]
    if not finished:
        return unfinished
    found = statistics.difference(these.within(finished).scores, those.within(finished).scores)
    low, high = found.interval(level)
    where = f"in {len(finished)} of {len(these.scores)} environments"
    so_far = f"{where}, {found.mean:+.3f} ({level:.0%} interval {low:+.3f} to {high:+.3f})"
    return replace(
        unfinished,
        value=found.mean,
        interval=(low, high),
        level=level,
        sentence=f"{unfinished.sentence.removesuffix('.')}; so far, {so_far}.",
        details={**unfinished.details, "finished_envs": finished},
    )


def obstacle(*sides: Selection) -> str:
    """Why there is no verdict on cells yet; empty if there can be one."""
    reasons: dict[Lack, str] = {
        "failed": "failed",
        "not run": "no result yet",
        "no scale": "cannot be put on the scale until random play and all runs of the base there are done",
        "flat base": "cannot be put on a scale, because the base there is no better than random play",
    }
    for why, reason in reasons.items():
        names = list(dict.fromkeys(name for side in sides for name in side.lacks.get(why, ())))
        if names:
            has = "" if why != "not run" else " has" if len(names) == 1 else " have"
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            return f"{names[0]}{more}{has} {reason}"
    fewest = min(side.fewest_seeds for side in sides)
    if fewest < FEWEST_SEEDS:
        return f"an interval needs at least {FEWEST_SEEDS} seeds, but there is only {fewest}"
    return "all runs of both sides diverged" if all(side.all_diverged for side in sides) else ""


def missing_runs(counted: int, runs: int) -> str:
    """How many runs a number is from; empty if it is from all. The others failed, lack it or are not run."""
    return "" if counted == runs else f", from {counted} of {runs} runs"


def divergences(*sides: Selection) -> str:
    """How many runs of each side count as random play, since they diverged; empty if none did."""
    diverged = [sum(side.diverged.values()) for side in sides]
    if not any(diverged):
        return ""
    runs = [sum(map(len, side.scores.values())) for side in sides]
    counts = [f"{number} of {of}" for number, of in zip(diverged, runs, strict=True)]
    return f"; {' and '.join(counts)} runs diverged and count as random play"


def judged(rule: Rule, found: Difference, metric: str, count: int) -> tuple[State, str]:
    """The verdict on a difference.

    A rule holds if all of its comparisons hold, which needs no correction for their number. It fails if one
    fails, which does.
    """
    if rule.kind == "better" and found.mean and not found.standard_error:
        return "undecided", "but the seeds of each side are all alike, so that no test can be made"
    margin = rule.margins[metric]
    words = words_of(rule, found, margin)
    if p_of(rule, found, margin) <= rule.alpha:
        return "holds", words.holds
    p = p_against(rule, found, margin)
    if p <= rule.alpha / count:
        return "fails", words.fails
    if p <= rule.alpha:
        return "undecided", f"{words.fails} by itself, but not at the level of one of {count} comparisons"
    return "undecided", words.undecided


@dataclass(frozen=True)
class Words:
    """What each outcome of a comparison is called."""

    holds: str
    fails: str
    undecided: str


def words_of(rule: Rule, found: Difference, bound: float) -> Words:
    margin = f"{bound:g}"
    if rule.kind == "better" and not bound:
        return Words("better", "worse", "no significant difference")
    if rule.kind == "better":
        better = f"better by more than {margin}"
        return Words(better, f"not {better}", f"neither shown to be {better} nor shown not to be")
    if rule.kind == "not_worse":
        undecided = f"neither shown to be worse by {margin} nor shown not to be"
        return Words(f"not worse by {margin} or more", f"worse by more than {margin}", undecided)
    power = power_of(rule, found, bound)
    return Words(
        f"within ± {margin}",
        f"beyond ± {margin}",
        f"neither shown to be within nor beyond ± {margin}; with this spread, equal arms would be shown to "
        f"be within it with a probability of {probability_text(power)}",
    )


def p_of(rule: Rule, found: Difference, margin: float) -> float:
    """p of the hypothesis that the rule's claim is wrong: small if it holds."""
    if rule.kind == "better":
        return found.p_above(margin)
    if rule.kind == "not_worse":
        return found.p_above(-margin)
    return statistics.equivalence_p(found, margin)


def p_against(rule: Rule, found: Difference, margin: float) -> float:
    """p of the hypothesis that the rule's claim is right: small if it fails."""
    if rule.kind == "better":
        return found.p_below(margin)
    if rule.kind == "not_worse":
        return found.p_below(-margin)
    return min(found.p_above(margin), found.p_below(-margin))
