"""The rules of a study file: tables under [[verdicts]], checked before anything is run.

    name, claim     what is judged, strings
    rule            one of the rules below
    this, that      which cells: { arm, ratio, base, point, factors }. A list of arms or ratios, or of values
                    of a point in `this`, makes one comparison each. What `that` does not say is as in `this`;
                    `this` is at ratio 1 and without swept settings by default

    equivalent      this and that differ by less than `margin`, by two one-sided tests
    better          this is better than that by more than `margin`, by default 0
    not_worse       this is at most `margin` worse than that: non-inferior, by one one-sided test
    optimum         the best factor of `setting` is within one `notch` of 1, in each environment
    regret          this loses less than `margin` against the best factor of `setting` in the cells of that
    foretold        the ratio up to which this equals that, within `margin`, is the noise scale ÷ minibatch of
                    that, within a factor of `within`
    estimate        a number: the course of `metric` over the last `share` of the runs of this
    correlation     a number: the rank correlation of `metric` with each of `others` along the runs of this

Every comparison is made by the final return and by the area under the curve, and a claim holds if it holds by
both.

control     which cells must fail the test of equivalent and foretold: a table as `that`, and what it does not
            say is as in `this`. Where they pass too, the claim is not tested: the test would not notice a
            difference that is known to be there
margin      in units of the normalized return: a number, or { final, area }; by default 0.1 and 0.05
alpha       the error of each one-sided test: by default 0.025 for better, so that its intervals are of 95%,
            and 0.05 for all others. Claims by better are corrected for their number in the study, by Holm
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from anybatch.errors import ConfigError
from anybatch.lab.studies.cells import METRICS, Cell, LeftOut
from anybatch.lab.studies.curves import METRIC_CURVES, NOISE_SCALE
from anybatch.lab.studies.files import Grid, Study
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.studies.tables import Table

FIELDS = {
    "equivalent": ("that",),
    "better": ("that",),
    "not_worse": ("that",),
    "optimum": ("setting", "notch"),
    "regret": ("that", "setting"),
    "foretold": ("that", "within"),
    "estimate": ("metric",),
    "correlation": ("metric", "others"),
}
"""What each rule needs in addition to name, claim, rule and this."""
EQUALITIES = ("equivalent", "foretold")
"""Rules that show a difference to be small, and need a control that has a large one."""
OPTIONAL = {
    "equivalent": ("margin", "control"),
    "better": ("margin",),
    "not_worse": ("margin",),
    "regret": ("margin",),
    "foretold": ("margin", "control"),
    "estimate": ("share",),
}
MARGINS = {"final": 0.1, "area": 0.05}
"""Default margins by metric. Areas differ less than final returns do: a base has an area of about 0.5."""
ALPHA, SUPERIORITY_ALPHA = 0.05, 0.025


@dataclass(frozen=True, kw_only=True)
class Selector:
    """Selects the cells that agree with all given fields."""

    arm: str
    ratio: str = "1"
    base: str | None = None
    point: Mapping[str, Any] = field(default_factory=dict[str, Any])
    factors: Mapping[str, float] | None = field(default_factory=dict[str, float])
    """None: any factors."""

    def matches(self, cell: Cell | LeftOut) -> bool:
        same = (cell.arm, cell.ratio, dict(cell.point)) == (self.arm, self.ratio, dict(self.point))
        same_factors = self.factors is None or dict(cell.factors) == dict(self.factors)
        return same and same_factors and self.base in (None, cell.base)

    def words(self, plan: StudyPlan) -> str:
        """A short description, such as: all rules at ratio 1/16."""
        swept = plan.point_words(self.point, {})
        at_ratio = [f"at ratio {self.ratio}"] if plan.has_ratios else []
        with_settings = [f"with {', '.join(swept)}"] if swept else []
        return " ".join([plan.arms.get(self.arm, self.arm), *at_ratio, *with_settings])


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One entry of [[verdicts]]."""

    name: str
    claim: str
    kind: str
    this: tuple[Selector, ...]
    that: tuple[Mapping[str, Any], ...] = ({},)
    """How `that` differs from each of `this`, one comparison each."""
    control: Mapping[str, Any] | None = None
    """How the control differs from each of `this`; None for rules that need none."""
    alpha: float = ALPHA
    margins: Mapping[str, float] = field(default_factory=dict[str, float])
    """By metric."""
    setting: str = ""
    notch: float = 2.0
    within: float = 4.0
    metric: str = ""
    others: tuple[str, ...] = ()
    share: float = 0.5

    def pairs(self) -> Iterator[tuple[Selector, Selector]]:
        """Each selector of compared cells, and the one it is compared with."""
        for this in self.this:
            for other in self.that:
                yield this, replace(this, **other)

    def control_of(self, this: Selector) -> Selector | None:
        """The cells that must fail the test that `this` passes; None if the rule names none."""
        return None if self.control is None else replace(this, **self.control)


def parse(
    tables: Sequence[Mapping[str, Any]], where: str, *, metrics: tuple[str, ...] = METRICS
) -> list[Rule]:
    """The rules of a study. Missing, wrong or unknown entries are refused by name.

    `metrics` are those of its plan. Plans from before there were two of them are read as they were made:
    rules of equality need no control, margins have no default, and the error of each test is 0.05.
    """
    parsed = rule if metrics == METRICS else partial(rule_of_one_metric, metric=metrics[0])
    return [parsed(Table(dict(table), f"{where}.verdicts[{place}]")) for place, table in enumerate(tables, 1)]


def rule(table: Table) -> Rule:
    """A rule that is judged by both metrics."""
    kind = table.choice("rule", tuple(FIELDS))
    if kind in EQUALITIES and "control" not in table:
        raise ConfigError(
            f"{table.where}: rule = {kind} needs a control, cells that must fail the same test, such as "
            'control = { arm = "none" }'
        )
    margins = dict.fromkeys(METRICS, 0.0) if kind == "better" else MARGINS
    alpha = SUPERIORITY_ALPHA if kind == "better" else ALPHA
    return with_entries(table, kind, margins=margins_of(table, margins), alpha=alpha)


def rule_of_one_metric(table: Table, metric: str) -> Rule:
    """A rule of a plan from before there were two metrics."""
    kind = table.choice("rule", tuple(FIELDS))
    needs_margin = "margin" in OPTIONAL.get(kind, ()) and kind != "better"
    margin = table.number("margin", None if needs_margin else 0.0)
    return with_entries(table, kind, margins={metric: margin}, alpha=ALPHA)


def margins_of(table: Table, default: Mapping[str, float]) -> dict[str, float]:
    """The margin of each metric: a number for both, or a table."""
    if not isinstance(table.take("margin"), Mapping):
        return {name: table.number("margin", value) for name, value in default.items()}
    margins = table.table("margin")
    found = {name: margins.number(name, value) for name, value in default.items()}
    margins.validate_all_read()
    return found


def with_entries(table: Table, kind: str, *, margins: Mapping[str, float], alpha: float) -> Rule:
    """The rule of a table, whose other entries are those of its kind."""
    allowed = (*FIELDS[kind], *OPTIONAL.get(kind, ()))
    for name in FIELDS[kind]:
        if name not in table:
            raise ConfigError(f"{table.where}: {name} is missing; rule = {kind} needs it")
    for name in ("that", "margin", "control"):
        if name in table and name not in allowed:
            raise ConfigError(f"{table.where}: rule = {kind} does not take {name}")
    known: dict[str, Any] = {
        name: table.number(name) for name in ("notch", "within", "share") if name in allowed and name in table
    }
    known |= {name: table.text(name) for name in ("setting", "metric") if name in allowed}
    if "others" in allowed:
        known["others"] = tuple(table.texts("others"))
    if "control" in table:
        known["control"] = control(table.table("control"))
    found = Rule(
        name=table.text("name"),
        claim=table.words("claim"),
        kind=kind,
        this=tuple(selectors(table.table("this"), any_factors=kind == "optimum")),
        that=tuple(changes(table.table("that", {}), any_factors=kind == "regret")),
        margins=margins,
        alpha=table.number("alpha", alpha),
        **known,
    )
    table.validate_all_read()
    return found


def control(table: Table) -> dict[str, Any]:
    """How a control differs from the cells that it is the control of."""
    found = list(changes(table, any_factors=False))
    if len(found) > 1:
        raise ConfigError(f"{table.where}: a control is one arm at one ratio, not several")
    return found[0]


def selectors(table: Table, *, any_factors: bool) -> Iterator[Selector]:
    """Every combination of the lists in a table of cells."""
    arms, ratios = listed(table, "arm", table.take("arm")), listed(table, "ratio", table.take("ratio", "1"))
    base, point, factors = table.take("base"), table.plain("point"), table.plain("factors")
    table.validate_all_read()
    if arms == [None]:
        raise ConfigError(f"{table.where}: arm is missing")
    values_of_point = [listed(table, name, value) for name, value in point.items()]
    for arm, ratio, *values in product(arms, ratios, *values_of_point):
        yield Selector(
            arm=arm,
            ratio=lowest_terms(ratio, table.where),
            base=base,
            point=dict(zip(point, values, strict=True)),
            factors=None if any_factors else factors,
        )


def changes(table: Table, *, any_factors: bool) -> Iterator[dict[str, Any]]:
    """A table of cells as changes of a selector, for each of the arms and ratios it lists."""
    names = ("arm", "ratio", "base", "point", "factors")
    known = {name: value for name in names if (value := table.take(name)) is not None}
    known |= {name: table.plain(name) for name in ("point", "factors") if name in table}
    table.validate_all_read()
    if any_factors:
        known["factors"] = None
    arms, ratios = (listed(table, name, known.get(name)) for name in ("arm", "ratio"))
    for arm, ratio in product(arms, ratios):
        chosen = {"arm": arm, "ratio": ratio and lowest_terms(ratio, table.where)}
        yield known | {name: value for name, value in chosen.items() if value is not None}


def listed(table: Table, name: str, value: Any) -> list[Any]:
    """The values of an entry, of which a list has several."""
    if value == []:
        raise ConfigError(f"{table.where}: {name} = [] must name at least one")
    return value if isinstance(value, list) else [value]


def lowest_terms(ratio: Any, where: str) -> str:
    try:
        return str(Fraction(ratio))
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise ConfigError(f"{where}: the ratio {ratio!r} must be a fraction such as 1/16") from None


FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names of verdicts are names of files in a report."""


def validate_rules(study: Study) -> None:
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
    known = (*METRIC_CURVES, NOISE_SCALE)
    unknown = [name for name in (rule.metric, *rule.others) if name and name not in known]
    return f"cells keep no metric {unknown[0]}; they keep {', '.join(known)}" if unknown else ""


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
