"""Rules that compare two groups of cells: equivalent, better, and not worse."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.statistics import Difference
from anybatch.lab.verdicts.rule import EQUALITIES, Rule, Selector
from anybatch.lab.verdicts.scores import Lack, Scores, Selection
from anybatch.lab.verdicts.verdict import Comparison, State, interval_words
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
    label = f"{this.words(scores.plan)} against {that.words(scores.plan)}{by(metric, scores)}"
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
    interval = found.interval(level)
    margin = rule.margins[metric]
    p, against = p_of(rule, found, margin)
    details = {
        "margin": margin,
        "p": p,
        "p_against": against,
        "power": power_of(rule, found, margin) if needs_unit else None,
        "envs": both,
        "seeds": [these.fewest_seeds, those.fewest_seeds],
        "diverged": [sum(side.diverged.values()) for side in (these, those)],
    }
    one = Comparison(
        label=label,
        state=state,
        value=found.mean,
        interval=interval,
        level=level,
        metric=metric,
        clauses=(f"{interval_words(found.mean, interval, level)}, {ending}",),
        details=details | described(these.scores, those.scores, count),
    )
    if not any(details["diverged"]):
        return one
    runs = [sum(map(len, side.scores.values())) for side in (these, those)]
    counts = [f"{number} of {of}" for number, of in zip(details["diverged"], runs, strict=True)]
    return one.adding(f"{' and '.join(counts)} runs diverged and count as random play")


def by(metric: str, scores: Scores) -> str:
    """The metric, for a label of a plan that has several."""
    return f", {METRIC_NAMES[metric]}" if len(scores.plan.metrics) > 1 else ""


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
    first, *others = found
    with_numbers = [replace(one, details={**one.details, **numbers}) for one in others]
    return [first.adding(words, details=numbers), *with_numbers]


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
        return [one.adding(words, "not tested") for one in found]
    controls = [compared(rule, scores, control, that, one.metric, count=1, within=envs) for one in found]
    passes = all(its.state == "holds" for its in controls)
    missing = [its.details.get("missing", 1) for its in controls if "p" not in its.details]
    judged: list[Comparison] = []
    for one, its in zip(found, controls, strict=True):
        kept = {name: getattr(its, name) for name in ("label", "state", "value", "interval", "level")}
        kept |= {"arm": control.arm}
        if missing:
            words = f"but {name} has not been run completely"
            judged.append(one.adding(words, "undecided", {"control": kept, "missing": max(missing)}))
            continue
        assert its.interval is not None and its.level is not None
        words = f"{name} has {interval_words(its.value, its.interval, its.level)}"
        if passes:
            judged.append(one.adding(f"but {words}, within it too", "not tested", {"control": kept}))
        else:
            judged.append(one.adding(words, details={"control": kept}))
    return judged


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


def not_run(label: str) -> Comparison:
    return Comparison(label=label, state="not run", clauses=("not run yet",))


def undecided(label: str, reason: str, **details: Any) -> Comparison:
    """A comparison that cannot be made, and why."""
    return Comparison(label=label, state="undecided", clauses=(reason,), details=details)


def without_result(label: str, *sides: Selection) -> Comparison | None:
    """The comparison of sides that cannot be compared yet, with the reason; None if they can be."""
    if any(side.is_untouched for side in sides):
        return not_run(label)
    reason = obstacle(*sides)
    if not reason:
        return None
    to_come: tuple[Lack, ...] = ("not run", "no scale")
    missing = sum(len(side.lacks.get(why, ())) for side in sides for why in to_come)
    return undecided(label, reason, missing=missing)


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
    interval = found.interval(level)
    where = f"in {len(finished)} of {len(these.scores)} environments"
    so_far = f"so far, {where}, {interval_words(found.mean, interval, level)}"
    shown = replace(unfinished, value=found.mean, interval=interval, level=level)
    return shown.adding(so_far, details={"finished_envs": finished})


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
    all_diverged = all(len(side.scores[env]) == side.diverged[env] for side in sides for env in side.scores)
    return "all runs of both sides diverged" if all_diverged else ""


def missing_runs(counted: int, runs: int) -> str:
    """How many runs a number is from; empty if it is from all. The others failed, lack it or are not run."""
    return "" if counted == runs else f", from {counted} of {runs} runs"


def judged(rule: Rule, found: Difference, metric: str, count: int) -> tuple[State, str]:
    """The verdict on a difference.

    A rule holds if all of its comparisons hold, which needs no correction for their number. It fails if one
    fails, which does.
    """
    if rule.kind == "better" and found.mean and not found.standard_error:
        return "undecided", "but the seeds of each side are all alike, so that no test can be made"
    margin = rule.margins[metric]
    holds, fails, undecided = words_of(rule, found, margin)
    p, against = p_of(rule, found, margin)
    if p <= rule.alpha:
        return "holds", holds
    if against <= rule.alpha / count:
        return "fails", fails
    if against <= rule.alpha:
        return "undecided", f"{fails} by itself, but not at the level of one of {count} comparisons"
    return "undecided", undecided


def words_of(rule: Rule, found: Difference, margin: float) -> tuple[str, str, str]:
    """What a comparison is called that holds, that fails and that is undecided."""
    if rule.kind == "better" and not margin:
        return "better", "worse", "no significant difference"
    if rule.kind == "better":
        better = f"better by more than {margin:g}"
        return better, f"not {better}", f"neither shown to be {better} nor shown not to be"
    if rule.kind == "not_worse":
        undecided = f"neither shown to be worse by {margin:g} nor shown not to be"
        return f"not worse by {margin:g} or more", f"worse by more than {margin:g}", undecided
    power = probability_text(power_of(rule, found, margin))
    undecided = (
        f"neither shown to be within nor beyond ± {margin:g}; with this spread, equal arms would be shown to "
        f"be within it with a probability of {power}"
    )
    return f"within ± {margin:g}", f"beyond ± {margin:g}", undecided


def power_of(rule: Rule, found: Difference, margin: float) -> float:
    """The probability that the rule shows equal arms to be equal, if their spread is the one found."""
    return statistics.equivalence_power(found.standard_error, found.degrees, margin, rule.alpha)


def p_of(rule: Rule, found: Difference, margin: float) -> tuple[float, float]:
    """p of the hypotheses that the rule's claim is wrong, and that it is right.

    The first is small if the claim holds, the second if it fails.
    """
    if rule.kind == "better":
        return found.p_above(margin), found.p_below(margin)
    if rule.kind == "not_worse":
        return found.p_above(-margin), found.p_below(-margin)
    return statistics.equivalence_p(found, margin), min(found.p_above(margin), found.p_below(-margin))
