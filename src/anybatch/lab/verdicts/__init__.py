"""Verdicts: what the cells of a study say about its claims, by rules fixed before they ran."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anybatch.lab import statistics
from anybatch.lab.studies.plan import StudyPlan, by_setting
from anybatch.lab.verdicts import compare, gates, measures, sweeps
from anybatch.lab.verdicts.rule import Rule, parse, validate_rules
from anybatch.lab.verdicts.scores import Scores
from anybatch.lab.verdicts.verdict import Comparison, State, Verdict, overall

__all__ = ["Comparison", "Rule", "Scores", "State", "Verdict", "judge", "parse", "validate_rules"]

RULES: dict[str, Callable[[Rule, Scores], list[Comparison]]] = {
    "equivalent": compare.comparisons,
    "better": compare.comparisons,
    "not_worse": compare.comparisons,
    "optimum": sweeps.optima,
    "regret": sweeps.regrets,
    "foretold": measures.foretold,
    "estimate": measures.estimates,
    "correlation": measures.correlations,
}
TUNED: dict[str, Any] = {
    "name": "tuned",
    "claim": "The base's learning rate is within one notch of its optimum.",
    "rule": "optimum",
    "setting": "optimizer.learning_rate",
}
"""The verdict rule of a `--tune` plan, except `this` and `notch`, which come from its sweep."""


def judge(scores: Scores, *, gated: bool = True) -> list[Verdict]:
    """The verdicts of a study on its finished cells. Claims without a cell at this scale are absent.

    With `gated`, a study whose reference did not learn is void.
    """
    plan = scores.plan
    tables = [tuned(plan)] if plan.tune else plan.verdicts
    rules = parse(tables, f"study {plan.study['name']}", metrics=plan.metrics)
    judged = [(rule, found) for rule in rules if (found := RULES[rule.kind](rule, scores))]
    verdicts = [verdict(rule, found, plan) for rule, found in judged]
    if len(plan.metrics) > 1:
        verdicts = corrected([rule for rule, _ in judged], verdicts)
    reason = gates.why_void(scores) if gated and not plan.tune else ""
    return [voided(one, reason) for one in verdicts] if reason else verdicts


def voided(one: Verdict, reason: str) -> Verdict:
    """A verdict of a study that is void; one without a cell is still not run."""
    if one.state == "not run":
        return one
    comparisons = tuple(replace(comparison, state="void") for comparison in one.comparisons)
    return replace(one, state="void", reason=reason, comparisons=comparisons)


def corrected(rules: Sequence[Rule], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, where the claims that something is better are corrected for their number, by Holm.

    A claim holds if all of its comparisons hold, so that its p is the largest of theirs. It fails if one of n
    fails, so that the p against it is n times the smallest. Claims that are not finished have a p of 1.
    """
    places = [place for place, rule in enumerate(rules) if rule.kind == "better"]
    found = list(verdicts)
    claims = [found[place].comparisons for place in places]
    shown = statistics.holm([max(one.details.get("p", 1.0) for one in claim) for claim in claims])
    against_claims = [
        min(1.0, len(claim) * min(one.details.get("p_against", 1.0) for one in claim)) for claim in claims
    ]
    refuted = statistics.holm(against_claims)
    for place, p, against in zip(places, shown, refuted, strict=True):
        one = found[place]
        decisive = {"holds": p, "fails": against}.get(one.state)
        if decisive is None:
            found[place] = replace(one, adjusted_p=p)
            continue
        correction = f"Holm's correction for {len(places)} such claims, p = {compare.p_text(decisive)}"
        if decisive > rules[place].alpha:
            reason = f"{one.reason} But after {correction}, which is more than {rules[place].alpha:g}."
            found[place] = replace(one, adjusted_p=decisive, state="undecided", reason=reason)
        else:
            reason = f"{one.reason} After {correction}." if len(places) > 1 else one.reason
            found[place] = replace(one, adjusted_p=decisive, reason=reason)
    return found


def tuned(plan: StudyPlan) -> dict[str, Any]:
    """The rule that judges a `--tune` plan: the notch is the step of its sweep next to 1."""
    factors = sorted({value for cell in plan.cells for value in cell.factors.values() if value > 1})
    arms = list(dict.fromkeys(cell.arm for cell in plan.cells if cell.factors))
    ratios = list(dict.fromkeys(cell.ratio for cell in plan.cells if cell.factors))
    points = by_setting(cell.point for cell in plan.cells)  # the optimum at each value of other settings
    return TUNED | {
        "this": {"arm": arms, "ratio": ratios, "point": points},
        "notch": factors[0] if factors else 2.0,
    }


def verdict(rule: Rule, found: list[Comparison], plan: StudyPlan) -> Verdict:
    """The verdict of one rule on its comparisons."""
    # A prediction is one number; the other comparisons are shown, but do not decide.
    state = overall(found[-1:] if rule.kind == "foretold" else found)
    deciding = deciding_comparison(state, found)
    several = state == "holds" and len(found) > 1 and deciding.details.get("p") is not None
    closest = f" (the closest of {len(found)} comparisons)" if several else ""
    return Verdict(
        name=rule.name,
        claim=rule.claim,
        rule=rule.kind,
        state=state,
        reason=f"{deciding.words}{closest}.{not_judged(rule, plan)}",
        comparisons=tuple(found),
    )


def not_judged(rule: Rule, plan: StudyPlan) -> str:
    """A sentence on what the claim names, but this plan had to leave out; empty if it has everything.

    What only other scales have is not missing.
    """
    named = {side.words(plan): side for pair in rule.pairs() for side in pair}
    absent = [
        words
        for words, side in named.items()
        if any(map(side.matches, plan.left_out)) and not any(map(side.matches, plan.cells))
    ]
    return f" Left out, and not judged: {'; '.join(absent)}." if absent else ""


def deciding_comparison(state: State, found: list[Comparison]) -> Comparison:
    """The comparison that a verdict quotes: the least certain if all hold, else the last that decides it."""
    of_state = [one for one in found if one.state == state] or [one for one in found if one.state != "holds"]
    if state == "holds":
        return max(of_state, key=lambda one: one.details.get("p") or 0.0)
    return (of_state or found)[-1]
