"""Verdicts by final return and area: controls, Holm's correction, and the curves themselves."""

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_studies import plan_of

from anybatch.lab import verdicts
from anybatch.lab.pages import studies as study_page
from anybatch.lab.pages import study_parts
from anybatch.lab.studies.cells import BOTH, RANDOM_ARM, Cell, Result
from anybatch.lab.studies.curves import filled
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts import Scores, Verdict
from anybatch.lab.verdicts.rule import Selector

FIVE = ("seeds = [1, 2]", "seeds = [1, 2, 3, 4, 5]")
WRITTEN = """rule = "equivalent"
this = { arm = "all", ratio = "1/4" }
that = { ratio = "1" }
control = { arm = "none" }
margin = 0.1
"""
DEFAULT_MARGINS = ("margin = 0.1\n", "")
POINTS = 100

Ends = tuple[float, float]
"""What a made-up curve has in its first nine tenths and in its last one, in normalized units."""


def results_of(plan: StudyPlan, ends: Callable[[Cell], Ends | None], spread: float = 0.01) -> list[Result]:
    """Curves of two levels, whose runs differ by `spread` from seed to seed; None diverges."""
    found: list[Result] = []
    for cell in plan.cells:
        known: dict[str, Any] = {"cell": cell, "plan_hash": plan.hash, "facts": {}}
        if cell.arm == RANDOM_ARM:
            found.append(Result(**known, curve=((0, 0.0),)))
            continue
        levels = ends(cell)
        if levels is None:
            found.append(Result(**known, failed="the gradient is non-finite", diverged=True))
            continue
        start, end = (10 * (level + spread * (cell.seed - 3)) for level in levels)
        returns = [start] * (POINTS - POINTS // 10) + [end] * (POINTS // 10)
        found.append(Result(**known, curve=tuple(enumerate(returns, 1))))
    return found


def judged(plan: StudyPlan, ends: Callable[[Cell], Ends | None], spread: float = 0.01) -> Verdict:
    (verdict,) = verdicts.judge(Scores(plan, results_of(plan, ends, spread)))
    return verdict


def levels(all_rules: Ends = (0.5, 1.0), none: Ends = (0.2, 0.4)) -> Callable[[Cell], Ends]:
    """The levels of both arms at 1/4 of the batch; the base has 0.5 and 1."""
    small = {"all": all_rules, "none": none}
    return lambda cell: (0.5, 1.0) if cell.ratio == "1" else small[cell.arm]


def test_a_claim_of_equality_is_compared_by_both_metrics_with_their_own_margins():
    plan = plan_of(FIVE, DEFAULT_MARGINS)
    assert plan.metric == BOTH and plan.metrics == ("final", "area")
    verdict = judged(plan, levels())
    final, area = verdict.comparisons
    assert (final.metric, area.metric) == ("final", "area") and verdict.state == "holds"
    assert (final.details["margin"], area.details["margin"]) == (0.1, 0.05)
    assert final.level == area.level == pytest.approx(0.9)
    assert final.label.endswith("ratio 1, final return") and area.label.endswith(
        "ratio 1, area under the curve"
    )


@pytest.mark.parametrize(
    ("small", "states", "state"),
    [
        ((0.5, 1.0), ("holds", "holds"), "holds"),
        ((0.5, 0.7), ("fails", "holds"), "fails"),  # the area hardly sees the end of the run
        ((0.4, 1.0), ("holds", "fails"), "fails"),
        ((0.457, 1.0), ("holds", "undecided"), "undecided"),
    ],
)
def test_a_claim_holds_only_by_both_metrics(small: Ends, states: tuple[str, ...], state: str):
    verdict = judged(plan_of(FIVE, DEFAULT_MARGINS), levels(small))
    assert tuple(one.state for one in verdict.comparisons) == states and verdict.state == state


def test_margins_may_be_given_for_both_or_for_each():
    def margins(text: str) -> list[float]:
        verdict = judged(plan_of(FIVE, ("margin = 0.1", text)), levels())
        return [one.details["margin"] for one in verdict.comparisons]

    assert margins("margin = 0.2") == [0.2, 0.2]
    assert margins("margin = { final = 0.3 }") == [0.3, 0.05]
    assert margins("margin = { final = 0.3, area = 0.2 }") == [0.3, 0.2]


def test_a_comparison_reports_whether_the_curves_are_the_same():
    same = judged(plan_of(FIVE), levels())
    assert same.comparisons[0].details["curve_p"] == same.comparisons[1].details["curve_p"] == 1
    assert "the curves are 0.000 apart, where equal ones would be 0.0" in same.comparisons[0].sentence
    other = judged(plan_of(FIVE), levels((0.3, 1.0)))
    assert other.comparisons[0].details["curve_distance"] == pytest.approx(0.2 * 0.89, abs=0.01)
    assert "(permutation test, p = 0.0" in other.comparisons[0].sentence


# --- controls ---------------------------------------------------------------------------------------------


def test_an_equality_that_its_control_passes_too_is_not_tested():
    verdict = judged(plan_of(FIVE), levels(none=(0.51, 1.0)))
    assert verdict.state == "not tested" and {one.state for one in verdict.comparisons} == {"not tested"}
    assert "but the control, no rule at ratio 1/4, has +0.009 (90% interval " in verdict.sentence
    assert verdict.sentence.endswith("within it too.")
    assert verdict.comparisons[1].details["control"]["value"] == pytest.approx(0.009)


def test_a_page_of_a_claim_that_is_not_tested_says_so_first():
    plan = plan_of(FIVE)
    view = study_parts.StudyView(plan, results_of(plan, levels(none=(0.51, 1.0))))
    page = html.unescape(study_page.report(view, []).page)
    lead = page.partition('class="lead">')[2].partition("</p>")[0]
    assert lead.startswith("Holds on toy:Match, and without the rules too") and "not needed" in lead
    assert "– not tested</span>" in page and ">curve p<" in page
    assert "0 and 1 are the fixed returns 0 and 10." in page


def test_a_page_of_a_claim_that_holds_says_how_it_is_without_the_rules():
    plan = plan_of(FIVE)
    view = study_parts.StudyView(plan, results_of(plan, levels(none=(0.2, 0.4))))
    assert view.verdicts[0].state == "holds"
    lead = study_page.lead(view)
    assert lead.startswith("Holds on toy:Match") and "Without the rules, it does not." in lead


@pytest.mark.parametrize("none", [(0.2, 0.4), (0.5, 0.6), (0.2, 1.0)])
def test_a_control_that_fails_by_one_metric_fails(none: Ends):
    verdict = judged(plan_of(FIVE), levels(none=none))
    assert verdict.state == "holds"
    assert "; the control, no rule at ratio 1/4, has " in verdict.comparisons[0].sentence


def test_a_control_says_nothing_about_a_claim_that_fails():
    verdict = judged(plan_of(FIVE), levels((0.2, 0.4), none=(0.5, 1.0)))
    assert verdict.state == "fails" and "control" not in verdict.sentence


def test_a_control_that_has_not_been_run_leaves_a_claim_undecided():
    plan = plan_of(FIVE)
    results = results_of(plan, levels())
    lacking = [one for one in results if (one.cell.arm, one.cell.ratio, one.cell.seed) != ("none", "1/4", 2)]
    (verdict,) = verdicts.judge(Scores(plan, lacking))
    assert verdict.state == "undecided" and verdict.comparisons[0].details["missing"] == 1
    assert "but the control, no rule at ratio 1/4, has not been run completely" in verdict.sentence


def test_a_control_that_the_plan_lacks_leaves_a_claim_untested():
    elsewhere = (
        'ratios = ["1", "1/4"]\n',
        'ratios = ["1"]\n\n[[scales.cpu.grid]]\narms = ["all"]\nratios = ["1/4"]\n\n'
        '[scales.other]\nbase = "toy"\nenvs = ["toy:Match"]\nseeds = [1]\n\n'
        '[[scales.other.grid]]\narms = ["all", "none"]\nratios = ["1", "1/4"]\n\n',
    )
    moved = ("[[scales.cpu.tune]]", "[[scales.other.tune]]")
    verdict = judged(plan_of(FIVE, elsewhere, moved), levels())
    assert verdict.state == "not tested"
    assert "the control, no rule at ratio 1/4, is not part of this plan in toy:Match" in verdict.sentence


def test_a_control_may_have_a_ratio_of_its_own():
    plan = plan_of(FIVE, ('control = { arm = "none" }', 'control = { arm = "none", ratio = "1" }'))
    verdict = judged(plan, lambda cell: (0.5, 1.0) if cell.arm == "all" else (0.1, 0.1))
    assert (
        verdict.state == "holds"
        and "; the control, no rule at ratio 1, has -0.900" in verdict.comparisons[0].sentence
    )


@pytest.mark.parametrize(("p", "state"), [(0.02, "fails"), (0.03, "undecided")])
def test_failing_by_one_of_two_metrics_is_corrected_for_both(p: float, state: str):
    verdict = judged(plan_of(FIVE, DEFAULT_MARGINS), levels((0.5, 0.9 - with_p(p))))
    final, area = verdict.comparisons
    assert (final.state, area.state, verdict.state) == (state, "holds", state)
    assert ("not at the level of one of 2 comparisons" in final.sentence) == (state == "undecided")


# --- superiority ------------------------------------------------------------------------------------------


def better(*claims: str) -> tuple[str, str]:
    """Claims that all rules are better than none, at the named ratios."""
    first, *others = claims
    more = "".join(
        f'\n[[verdicts]]\nname = "more-{place}"\nclaim = "Better."\nrule = "better"\n{text}\n'
        for place, text in enumerate(others)
    )
    return WRITTEN, f'rule = "better"\n{first}\n{more}'


AT_A_QUARTER = 'this = { arm = "all", ratio = "1/4" }\nthat = { arm = "none" }'
AT_THE_BASE = 'this = { arm = "all" }\nthat = { arm = "none" }'


def test_being_better_has_95_percent_intervals():
    verdict = judged(plan_of(FIVE, better(AT_A_QUARTER)), levels())
    assert verdict.state == "holds" and {one.level for one in verdict.comparisons} == {0.95}
    assert "(95% interval " in verdict.sentence and "Holm" not in verdict.sentence


def test_being_better_by_one_metric_only_is_undecided():
    verdict = judged(plan_of(FIVE, better(AT_A_QUARTER)), levels(none=(0.2, 1.0)))
    assert [one.state for one in verdict.comparisons] == [
        "undecided",
        "holds",
    ] and verdict.state == "undecided"


def with_p(p: float, spread: float = 0.01, seeds: int = 5) -> float:
    """The difference between two arms of five seeds 1 to 5, each times `spread`, that has this p."""
    error = spread * np.std([1, 2, 3, 4, 5], ddof=1) * np.sqrt(2 / seeds)
    return float(stats.t.isf(p, 2 * seeds - 2) * error)


@pytest.mark.parametrize(("p", "state"), [(0.011, "holds"), (0.02, "undecided"), (0.5, "undecided")])
def test_claims_of_superiority_are_corrected_for_their_number(p: float, state: str):
    """Of two claims, the smaller p is doubled; the other claim here shows nothing."""
    shift = with_p(p)
    plan = plan_of(FIVE, better(AT_A_QUARTER, AT_THE_BASE))
    small = {"all": (0.5 + shift, 1.0 + shift), "none": (0.5, 1.0)}
    results = results_of(plan, lambda cell: (0.5, 1.0) if cell.ratio == "1" else small[cell.arm])
    first, second = verdicts.judge(Scores(plan, results))
    assert [one.details["p"] for one in first.comparisons] == pytest.approx([p, p], rel=1e-3)
    assert first.adjusted_p == pytest.approx(min(1.0, 2 * p), rel=1e-3) and first.state == state
    assert second.state == "undecided" and second.adjusted_p == pytest.approx(max(0.5, min(1.0, 2 * p)))
    if p < 0.025:
        assert " Holm's correction for 2 such claims, p = " in first.reason
    if (p, state) == (0.02, "undecided"):
        assert {one.state for one in first.comparisons} == {"holds"}
        assert first.reason.endswith(
            "But after Holm's correction for 2 such claims, p = 0.04, which is more than 0.025."
        )


def test_the_second_of_two_claims_is_not_corrected_once_the_first_holds():
    plan = plan_of(FIVE, better(AT_A_QUARTER, AT_THE_BASE))
    shifts = {"1/4": with_p(0.001), "1": with_p(0.02)}
    results = results_of(
        plan,
        lambda cell: (0.5, 1.0) if cell.arm == "none" else (0.5 + shifts[cell.ratio], 1 + shifts[cell.ratio]),
    )
    first, second = verdicts.judge(Scores(plan, results))
    assert (first.adjusted_p, second.adjusted_p) == (
        pytest.approx(0.002, rel=1e-3),
        pytest.approx(0.02, rel=1e-3),
    )
    assert first.state == second.state == "holds"


def test_being_worse_is_corrected_too():
    """The p against a claim is that of one of its two comparisons, times two; of two claims, times four."""
    plan = plan_of(FIVE, better(AT_A_QUARTER, AT_THE_BASE))
    states = {}
    for p in (0.005, 0.01):
        shift = with_p(p)
        small = {"all": (0.5 - shift, 1.0 - shift), "none": (0.5, 1.0)}
        results = results_of(
            plan, lambda cell, small=small: (0.5, 1.0) if cell.ratio == "1" else small[cell.arm]
        )
        states[p] = verdicts.judge(Scores(plan, results))[0].state
    assert states == {0.005: "fails", 0.01: "undecided"}


def test_a_claim_that_is_not_finished_counts_in_the_correction():
    plan = plan_of(FIVE, better(AT_A_QUARTER, AT_THE_BASE))
    shift = with_p(0.02)
    small = {"all": (0.5 + shift, 1.0 + shift), "none": (0.5, 1.0)}
    results = results_of(plan, lambda cell: (0.5, 1.0) if cell.ratio == "1" else small[cell.arm])
    lacking = [one for one in results if (one.cell.arm, one.cell.ratio) != ("none", "1")]
    first, second = verdicts.judge(Scores(plan, lacking))
    assert (
        second.state == "not run"
        and first.adjusted_p == pytest.approx(0.04, rel=1e-3)
        and first.state == "undecided"
    )


# --- recorded cells ---------------------------------------------------------------------------------------

RANGES = {
    "minatar:Asterix": (0.41, 7.25),
    "minatar:Breakout": (0.31, 14.93),
    "minatar:Freeway": (0.43, 36.0),
    "minatar:SpaceInvaders": (4.07, 32.49),
}
EQUAL = {
    "name": "equal",
    "claim": "The small batch equals the base.",
    "rule": "equivalent",
    "this": {"arm": "all", "ratio": ["1/8", "1/4"]},
    "that": {"ratio": "1"},
    "control": {"arm": "none"},
}


def by_numpy(sides: Sequence[Sequence[np.ndarray]], level: float) -> tuple[float, tuple[float, float]]:
    """The mean difference over environments of two sides' scores, and its interval."""
    variances = [np.var(values, ddof=1) / len(values) for pair in sides for values in pair]
    sizes = [len(values) for pair in sides for values in pair]
    error = np.sqrt(np.sum(variances)) / len(sides)
    degrees = np.sum(variances) ** 2 / np.sum([v**2 / (n - 1) for v, n in zip(variances, sizes, strict=True)])
    mean = float(np.mean([np.mean(this) - np.mean(that) for this, that in sides]))
    reach = float(stats.t.ppf(0.5 + level / 2, degrees) * error)
    return mean, (mean - reach, mean + reach)


@pytest.fixture(scope="module")
def recorded() -> study_parts.StudyView:
    return study_parts.read(Path(__file__).parents[3] / "results" / "studies" / "invariance.jsonl.gz")


def test_verdicts_on_recorded_cells_are_those_of_plain_numpy(recorded: study_parts.StudyView):
    plan = replace(recorded.plan, metric=BOTH, ranges=RANGES, verdicts=(EQUAL,))
    (verdict,) = verdicts.judge(Scores(plan, recorded.results.values()))
    cells = [one for one in recorded.results.values() if one.cell.arm != RANDOM_ARM and not one.cell.factors]
    expected = []
    for ratio in ("1/8", "1/4"):
        for points in (10, 100):  # the last tenth of the run, and all of it
            sides = []
            for env, (low, high) in RANGES.items():
                scores = {
                    wanted: np.array(
                        [
                            (np.mean(filled(value for _, value in one.curve)[-points:]) - low) / (high - low)
                            for one in cells
                            if (one.cell.env, one.cell.arm, one.cell.ratio) == (env, "all", wanted)
                        ]
                    )
                    for wanted in (ratio, "1")
                }
                sides.append((scores[ratio], scores["1"]))
            expected.append(by_numpy(sides, 0.9))
    for one, (mean, interval) in zip(verdict.comparisons, expected, strict=True):
        assert one.value == pytest.approx(mean, abs=1e-5) and one.interval == pytest.approx(
            interval, abs=1e-5
        )
        margin = {"final": 0.1, "area": 0.05}[one.metric]
        within = -margin < interval[0] and interval[1] < margin
        assert (one.state == "holds") == within


def test_recorded_final_returns_on_the_scale_of_that_time(recorded: study_parts.StudyView):
    """With 1 at the best run of the base; numbers that were computed by another program."""
    rule = {name: value for name, value in EQUAL.items() if name != "control"} | {"margin": 0.1}
    plan = replace(recorded.plan, metric="final", verdicts=(rule,))
    (verdict,) = verdicts.judge(Scores(plan, recorded.results.values()))
    found = [(one.value, *one.interval) for one in verdict.comparisons if one.interval is not None]
    assert found == [
        pytest.approx((0.038, -0.064, 0.141), abs=1e-3),
        pytest.approx((0.066, -0.027, 0.159), abs=1e-3),
    ]
    assert {one.state for one in verdict.comparisons} == {"undecided"}


def test_recorded_curves_are_as_far_apart_as_another_program_says(recorded: study_parts.StudyView):
    plan = replace(recorded.plan, metric=BOTH, verdicts=(EQUAL,))
    (verdict,) = verdicts.judge(Scores(plan, recorded.results.values()))
    eighth, quarter = (one.details for one in verdict.comparisons[::2])
    assert (eighth["curve_distance"], eighth["curve_distance_expected"]) == pytest.approx(
        (0.047, 0.047), abs=1e-3
    )
    assert (eighth["curve_p"], quarter["curve_p"]) == pytest.approx((0.49, 0.73), abs=0.02)


def test_recorded_doing_nothing_at_a_quarter_of_the_batch_passes_as_well(recorded: study_parts.StudyView):
    """What was recorded as equality at 1/4 said nothing about the rules."""
    rule = EQUAL | {"this": {"arm": "all", "ratio": "1/4"}, "margin": {"area": 0.1, "final": 0.3}}
    plan = replace(recorded.plan, metric=BOTH, verdicts=(rule,))
    (verdict,) = verdicts.judge(Scores(plan, recorded.results.values()))
    assert verdict.state == "not tested"
    at_an_eighth = replace(plan, verdicts=(rule | {"this": {"arm": "all", "ratio": "1/8"}},))
    (verdict,) = verdicts.judge(Scores(at_an_eighth, recorded.results.values()))
    assert verdict.state == "holds"


def test_the_scale_of_a_plan_is_said():
    plan = plan_of(FIVE)
    assert Scores(plan, []).unit_words() == "0 and 1 are the fixed returns 0 and 10"
    before = replace(plan, ranges={})
    assert Scores(before, []).unit_words() == (
        "0 is random play and 1 the best final return of the base's own runs"
    )
    published = plan_of(FIVE, ('envs = ["toy:Match"]', 'envs = ["toy:Match", "procgen:bigfish"]'))
    assert Scores(published, []).unit_words() == (
        "in toy:Match, 0 and 1 are the fixed returns 0 and 10; in procgen:bigfish, 0 and 1 are those of the "
        "published range"
    )


def test_curves_of_runs_that_diverged_are_random_play():
    plan = plan_of(FIVE)
    results = results_of(plan, lambda cell: None if cell.seed == 2 else (0.5, 1.0))
    curves = Scores(plan, results).curves(Selector(arm="all"))["toy:Match"]
    assert curves.shape == (5, POINTS) and not curves[1].any() and curves[0][0] == pytest.approx(0.48)
