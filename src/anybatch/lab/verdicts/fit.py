"""Whether the verdict rules of a study file fit the rest of it, checked before anything is run.

A misspelled arm would otherwise be noticed only when the study has ended and a verdict is missing.
"""

import re
from collections.abc import Mapping
from typing import Any

from anybatch.errors import ConfigError
from anybatch.lab.studies.curves import METRIC_CURVES
from anybatch.lab.studies.files import Grid, Study
from anybatch.lab.verdicts.rule import EQUALITIES, Rule, Selector, parse

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names of verdicts are names of files in a report."""


def refuse_unfit(study: Study) -> None:
    """Refuse a rule with a number out of range, or about arms, settings or metrics that do not exist."""
    where = f"study {study.name}"
    names: list[str] = []
    for place, rule in enumerate(parse(study.verdicts, where), 1):
        fault = (
            wrong_name(rule, names) or wrong_number(rule) or wrong_metric(rule) or wrong_cells(rule, study)
        )
        if fault:
            raise ConfigError(f"{where}.verdicts[{place}]: {fault}")
        names.append(rule.name)
    for name, scale in study.scales.items():
        for place, grid in enumerate(scale.tune, 1):
            if not grid.factors:
                fault = "factors are missing; --tune looks for the best of them"
                raise ConfigError(f"{where}.scales.{name}.tune[{place}]: {fault}")


def wrong_name(rule: Rule, taken: list[str]) -> str:
    if rule.name in taken:
        return f"another verdict has the name {rule.name!r}"
    if not FILE_NAME.fullmatch(rule.name):
        return (
            f"the name {rule.name!r} must consist of letters, digits, - and _, since files are named after it"
        )
    return ""


def wrong_number(rule: Rule) -> str:
    """What is wrong with a number of a rule; empty if nothing is."""
    if not 0 < rule.alpha < 0.5:
        return f"alpha = {rule.alpha:g} must be between 0 and 0.5"
    if rule.kind in EQUALITIES and 0 in rule.margins.values():
        return "margin = 0 must be positive, since no two arms can be shown to be exactly equal"
    if not 0 < rule.share <= 1:
        return f"share = {rule.share:g} must be above 0 and at most 1"
    for name, factor in (("notch", rule.notch), ("within", rule.within)):
        if factor <= 1:
            return f"{name} = {factor:g} must be a factor above 1"
    return ""


def wrong_metric(rule: Rule) -> str:
    unknown = [name for name in (rule.metric, *rule.others) if name and name not in METRIC_CURVES]
    return f"cells keep no metric {unknown[0]}; they keep {', '.join(METRIC_CURVES)}" if unknown else ""


def wrong_cells(rule: Rule, study: Study) -> str:
    """Why a rule could never compare any cells; empty if it can."""
    needs_that = rule.kind not in ("optimum", "estimate", "correlation")
    pairs = list(rule.pairs()) if needs_that else [(this, this) for this in rule.this]
    controls = [(control, that) for this, that in pairs if (control := rule.control_of(this)) is not None]
    for selector in (one for pair in (*pairs, *controls) for one in pair):
        for what, name, known in (("arm", selector.arm, study.arms), ("base", selector.base, study.bases)):
            if name is not None and name not in list(known):
                return f"there is no {what} {name!r}; the names are {', '.join(known)}"
    if needs_that and any(this == that for this, that in pairs):
        return "this and that are the same cells"
    if any(control in (this, that) for (control, that), (this, _) in zip(controls, pairs, strict=False)):
        return "the control is one of the two sides that it is to be the control of"
    grids = [grid for scale in study.scales.values() for grid in scale.grid]
    lacking = [missing_side(rule, grids, *pair) for pair in pairs]
    if all(lacking):
        return f"no grid of any scale has the cells of {lacking[0]}"
    without = [missing_side(rule, grids, *pair) for pair in controls]
    return (
        f"no grid of any scale has the cells of its control, {without[0]}" if without and all(without) else ""
    )


def missing_side(rule: Rule, grids: list[Grid], this: Selector, that: Selector) -> str:
    """The side of a comparison that no grid has cells of, in words; empty if both are there."""
    swept = {"optimum": this, "regret": that}.get(rule.kind)
    for selector in (this, that):
        setting = rule.setting if selector is swept else ""
        if not any(is_in(grid, selector) and (not setting or setting in grid.factors) for grid in grids):
            points = [f"{path} = {value}" for path, value in selector.point.items()]
            factors = [f"factors of {setting}"] if setting else []
            return ", ".join([f"arm {selector.arm} at ratio {selector.ratio}", *points, *factors])
    return ""


def is_in(grid: Grid, selector: Selector) -> bool:
    """Whether a grid has cells of a selector."""
    named = selector.arm in grid.arms and selector.ratio in grid.ratios
    factors = selector.factors is None or is_among(selector.factors, grid.factors)
    return named and selector.base in (None, grid.base) and is_among(selector.point, grid.sweep) and factors


def is_among(values: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> bool:
    """Whether each value is in the list of its name, and each list has a value."""
    return values.keys() == lists.keys() and all(values[name] in lists[name] for name in lists)
