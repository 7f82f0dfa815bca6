"""Verdicts on made-up cells, whose answer is known. The tests of one metric are the same with two."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_studies
from hypothesis import given, settings
from hypothesis import strategies as st
from small_studies import before_both_metrics, made_up

from anybatch.lab import statistics, verdicts
from anybatch.lab.pages import study_parts
from anybatch.lab.studies.cells import Cell, LeftOut
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts import Comparison, Scores, State, Verdict, compare, sweeps
from anybatch.lab.verdicts.power import outlooks
from anybatch.lab.verdicts.rule import Rule, Selector
from anybatch.lab.verdicts.sweeps import left_one_out
from anybatch.lab.verdicts.verdict import overall

RATE = "optimizer.learning_rate"
FIVE = ("seeds = [1, 2]", "seeds = [1, 2, 3, 4, 5]")
KNOWN = ("[scales.cpu]", "[scales.cpu]")
"""Returns are normalized by 10, not by the best run of the base."""
EQUIVALENT = Rule(
    name="equal", claim="Equal.", kind="equivalent", this=(Selector(arm="all"),), margins={"area": 0.1}
)


def plan_of(*changes: tuple[str, str], **request: Any) -> StudyPlan:
    """A small plan with one metric, as they were before there were two."""
    return before_both_metrics(small_studies.plan_of(*changes, **request), ranges=KNOWN in changes)


def with_rule(*lines: str) -> tuple[str, str]:
    return (
        'rule = "equivalent"\nthis = { arm = "all", ratio = "1/4" }\nthat = { ratio = "1" }\n'
        'control = { arm = "none" }\nmargin = 0.1',
        "\n".join(lines),
    )


def noise(cell: Cell, spread: float) -> float:
    """Numbers of a seed with mean 0 over seeds 1 to 5."""
    return spread * (cell.seed - 3)


def judged(plan: StudyPlan, score: Callable[[Cell], float | None]) -> Verdict:
    (verdict,) = verdicts.judge(Scores(plan, made_up(plan, score)))
    return verdict


@pytest.mark.parametrize(
    ("shift", "spread", "state"),
    [
        (0.0, 0.1, "holds"),
        (-0.5, 0.1, "holds"),
        (3.0, 0.1, "holds"),
        (3.0, 1.0, "holds"),
        (-3.0, 0.1, "fails"),
        (-0.5, 1.0, "undecided"),
    ],
)
def test_being_not_worse_is_one_sided(shift: float, spread: float, state: str):
    rule = with_rule(
        'rule = "not_worse"',
        'this = { arm = "all", ratio = "1/4" }',
        'that = { ratio = "1" }',
        "margin = 0.1",
    )
    found = judged(
        plan_of(FIVE, KNOWN, rule),
        lambda cell: 5 + noise(cell, spread) + (shift if cell.ratio == "1/4" else 0),
    )
    assert found.state == state
    (comparison,) = found.comparisons
    assert comparison.value == pytest.approx(shift / 10) and comparison.interval is not None
    # It holds exactly where the interval is above minus the margin.
    assert (comparison.interval[0] > -0.1) == (state == "holds")


@pytest.mark.parametrize(
    ("shift", "spread", "state"),
    [
        (0.0, 0.1, "holds"),
        (0.5, 0.1, "holds"),
        (3.0, 0.1, "fails"),
        (-3.0, 0.1, "fails"),
        (0.5, 1.0, "undecided"),
    ],
)
def test_equivalence_holds_fails_or_is_undecided(shift: float, spread: float, state: str):
    found = judged(
        plan_of(FIVE, KNOWN),
        lambda cell: 5 + noise(cell, spread) + (shift if cell.ratio == "1/4" else 0),
    )
    assert found.state == state
    (comparison,) = found.comparisons
    assert comparison.value == pytest.approx(shift / 10)
    assert comparison.interval is not None and comparison.interval[0] < shift / 10 < comparison.interval[1]
    assert comparison.details["per_env"] == {"toy:Match": pytest.approx(shift / 10)}
    assert 0 <= comparison.details["power"] <= 1 and comparison.details["seeds"] == [5, 5]
    assert "all rules at ratio 1/4 against all rules at ratio 1" in found.sentence


def test_no_difference_among_few_noisy_seeds_proves_nothing():
    found = judged(plan_of(KNOWN), lambda cell: 5 + cell.seed)
    assert found.state == "undecided" and found.comparisons[0].value == 0
    assert found.comparisons[0].details["power"] < 0.1


def test_too_few_seeds_for_an_interval_are_said():
    found = judged(plan_of(KNOWN, seeds=1), lambda _: 5.0)
    assert found.state == "undecided"
    assert "an interval needs at least 2 seeds, but there is only 1" in found.comparisons[0].sentence


def test_missing_and_failed_cells_leave_a_claim_undecided():
    plan = plan_of(FIVE, KNOWN)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    missing = [result for result in results if result.cell.name != "toy-Match__all__r1-4__s3"]
    (verdict,) = verdicts.judge(Scores(plan, missing))
    assert verdict.state == "undecided" and "toy-Match__all__r1-4__s3 has no result" in verdict.sentence
    failed = [
        replace(result, failed="no such module", curve=()) if result.cell.seed == 3 else result
        for result in results
    ]
    (verdict,) = verdicts.judge(Scores(plan, failed))
    assert verdict.state == "undecided" and "s3 and 1 more failed." in verdict.sentence


def test_an_unfinished_claim_shows_the_difference_in_the_finished_environments():
    grid = 'ratios = ["1", "1/4"]'
    in_two_envs = f'{grid}\nenvs = ["toy:Match", "toy:Target"]'
    plan = plan_of(FIVE, KNOWN, (grid, in_two_envs))
    assert {cell.env for cell in plan.cells if cell.ratio == "1/4"} == {"toy:Match", "toy:Target"}
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1) + (cell.ratio == "1/4"))
    (verdict,) = verdicts.judge(
        Scores(plan, [result for result in results if result.cell.env == "toy:Match"])
    )
    (found,) = verdict.comparisons
    assert verdict.state == found.state == "undecided"  # although Match alone would decide it
    assert found.value == pytest.approx(0.1) and found.details["finished_envs"] == ["toy:Match"]
    assert "have no result yet; so far, in 1 of 2 environments, +0.100 (90% interval " in found.sentence


def test_a_claim_is_not_run_while_a_side_has_no_cell():
    plan = plan_of(FIVE, KNOWN)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    (verdict,) = verdicts.judge(Scores(plan, [result for result in results if result.cell.ratio == "1"]))
    assert verdict.state == "not run" and verdict.comparisons[0].sentence.endswith("ratio 1: not run yet.")
    rule = with_rule(
        'rule = "better"', 'this = { arm = "all", ratio = ["1", "1/4"] }', 'that = { arm = "none" }'
    )
    plan = plan_of(FIVE, KNOWN, rule)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1) + 2 * (cell.arm == "all"))
    (verdict,) = verdicts.judge(Scores(plan, [result for result in results if result.cell.ratio == "1"]))
    assert [one.state for one in verdict.comparisons] == ["holds", "not run"]
    assert verdict.state == "undecided" and "Undecided: all rules at ratio 1/4" in verdict.sentence


@pytest.mark.parametrize(
    "rule",
    [
        ('rule = "estimate"', 'metric = "batch/noise_scale"'),
        ('rule = "correlation"', 'metric = "losses/entropy"', 'others = ["losses/clipfrac"]'),
        ('rule = "foretold"', 'that = { ratio = "1" }', "margin = 0.1", "within = 2"),
    ],
)
def test_a_measurement_is_not_run_while_it_has_no_cell(rule: tuple[str, ...]):
    plan = plan_of(KNOWN, with_rule(*rule, 'this = { arm = "all", ratio = "1/4" }'))
    (verdict,) = verdicts.judge(Scores(plan, []))
    assert verdict.state == "not run"


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"arm": "all"}, True),
        ({"arm": "all", "base": "another"}, True),  # the claim is about any base
        ({"arm": "none"}, False),
        ({"arm": "all", "ratio": "1/640"}, False),
        ({"arm": "all", "point": {"staleness.iterations": 8}}, False),
    ],
)
def test_what_a_claim_names_but_the_plan_leaves_out_is_said(entry: dict[str, Any], named: bool):
    """Ratios that only other scales have are not missing."""
    rule = with_rule(
        'rule = "equivalent"',
        'this = { arm = "all", ratio = ["1/4", "1/64"] }',
        'that = { ratio = "1" }',
        "margin = 0.1",
    )
    part = {"env": "toy:Match", "base": "toy", "ratio": "1/64", "point": {}, "factors": {}}
    absent = LeftOut(**part | entry, cause="budget", reason="the budget is too small")
    plan = replace(plan_of(FIVE, KNOWN, rule), left_out=(absent,))
    assert "1/64" not in {cell.ratio for cell in plan.cells}
    found = judged(plan, lambda cell: 5 + noise(cell, 0.1))
    assert found.state == "holds" and len(found.comparisons) == 1
    assert found.sentence.endswith(" Left out, and not judged: all rules at ratio 1/64.") == named
    assert ("not judged" in found.sentence) == named


def test_a_return_without_a_scale_is_said_to_be_one():
    plan = plan_of(FIVE)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    (verdict,) = verdicts.judge(Scores(plan, [result for result in results if result.cell.arm != "random"]))
    assert verdict.state == "undecided"
    assert "s1 and 9 more cannot be put on the scale until random play" in verdict.sentence


def test_a_scale_that_may_still_move_decides_nothing():
    plan = plan_of(FIVE)
    # The last run of the base reaches ten times as much, and so would set another scale.
    results = made_up(
        plan, lambda cell: 100 if (cell.ratio, cell.seed) == ("1", 5) else 10 + noise(cell, 0.1)
    )
    last = next(one for one in results if one.cell.is_reference(plan.reference) and one.cell.seed == 5)
    (verdict,) = verdicts.judge(Scores(plan, [one for one in results if one is not last]))
    assert verdict.state == "undecided" and verdict.comparisons[0].details["missing"]


@pytest.mark.parametrize("final", [-1.0, 0.0, 0.15])  # random play has 0 ± 0.1
def test_a_base_that_learned_nothing_is_no_scale(final: float):
    results = made_up(plan := plan_of(FIVE), lambda _: final, evaluation={"standard_error": 0.1})
    (verdict,) = verdicts.judge(Scores(plan, results), gated=False)
    assert verdict.state == "undecided" and "the base there is no better than random play" in verdict.sentence
    learned = made_up(plan, lambda _: 0.25, evaluation={"standard_error": 0.1})
    assert verdicts.judge(Scores(plan, learned))[0].state == "holds"


def test_a_failed_run_is_not_one_to_wait_for():
    plan = plan_of(FIVE, KNOWN)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    ended = [replace(one, failed="no memory") if one.cell.seed == 2 else one for one in results]
    (verdict,) = verdicts.judge(Scores(plan, ended))
    assert verdict.state == "undecided" and "failed" in verdict.sentence
    assert not verdict.comparisons[0].details["missing"]


def test_seeds_that_are_equal_up_to_rounding_have_no_difference():
    equal = statistics.difference({"": [0.1 + 0.2] * 7}, {"": [0.3] * 4})
    assert equal.mean == pytest.approx(0, abs=1e-15) and equal.standard_error == 0
    third = 0.31183
    found = statistics.difference({"": [third] * 7}, {"": [third] * 4})
    assert found.mean == 0 and found.p_below(0) == 1


def test_better_needs_seeds_that_vary():
    rule = with_rule('rule = "better"', 'this = { arm = "all", ratio = "1/4" }', 'that = { ratio = "1" }')
    plan = plan_of(FIVE, KNOWN, rule)
    found = judged(plan, lambda cell: 9.9 if cell.ratio == "1/4" else 9.8)
    assert found.state == "undecided" and "no test can be made" in found.sentence


def test_a_verdict_quotes_the_comparison_that_is_the_least_certain():
    rule = with_rule(
        'rule = "better"', 'this = { arm = "all", ratio = ["1", "1/4"] }', 'that = { arm = "none" }'
    )
    plan = plan_of(FIVE, KNOWN, rule)
    without = {"1": 8.0, "1/4": 1.0}
    found = judged(plan, lambda cell: (9.0 if cell.arm == "all" else without[cell.ratio]) + noise(cell, 0.1))
    assert [one.state for one in found.comparisons] == ["holds", "holds"]
    assert "against no rule at ratio 1:" in found.sentence and found.sentence.endswith(
        "(the closest of 2 comparisons)."
    )


def test_an_unfinished_verdict_does_not_quote_a_comparison_that_holds():
    states: list[State] = ["undecided", "holds"]
    first, second = (Comparison(label=state, state=state, clauses=(state,)) for state in states)
    assert verdicts.deciding_comparison("undecided", [first, second]) is first
    not_run = replace(first, state="not run")
    assert verdicts.deciding_comparison("undecided", [not_run, second]) is not_run


def test_a_failure_that_several_comparisons_do_not_confirm_is_called_so():
    one, two = (
        compare.judged(EQUIVALENT, statistics.Difference(-0.19, 0.04, 8.0), "area", count) for count in (1, 2)
    )
    assert one == ("fails", "beyond ± 0.1")
    assert two == ("undecided", "beyond ± 0.1 by itself, but not at the level of one of 2 comparisons")


def test_arms_that_all_diverged_are_not_shown_to_be_equal():
    (found,) = verdicts.judge(
        Scores(plan := plan_of(FIVE, KNOWN), made_up(plan, lambda _: None)), gated=False
    )
    assert found.state == "undecided" and "all runs of both sides diverged" in found.sentence


def test_missing_cells_of_an_environment_that_only_one_side_has_do_not_matter():
    grid = 'ratios = ["1", "1/4"]'
    wider = f'{grid}\n\n[[scales.cpu.grid]]\narms = ["all"]\nratios = ["1"]\nenvs = ["toy:Target"]'
    plan = plan_of(FIVE, KNOWN, (grid, wider))
    assert {cell.env for cell in plan.cells if cell.ratio == "1/4"} == {"toy:Match"}
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    (verdict,) = verdicts.judge(
        Scores(plan, [result for result in results if result.cell.env == "toy:Match"])
    )
    assert verdict.state == "holds" and verdict.comparisons[0].details["seeds"] == [5, 5]


def test_cells_that_diverged_count_as_random_play():
    found = judged(plan_of(FIVE, KNOWN), lambda cell: None if cell.ratio == "1/4" else 5 + noise(cell, 0.1))
    assert found.state == "fails" and found.comparisons[0].value == pytest.approx(-0.5)
    assert found.comparisons[0].details["diverged"] == [5, 0]
    assert "; 5 of 5 and 0 of 5 runs diverged and count as random play." in found.sentence


@pytest.mark.parametrize(("shift", "state"), [(2.0, "holds"), (-2.0, "fails"), (0.0, "undecided")])
def test_better_holds_fails_or_is_undecided(shift: float, state: str):
    rule = with_rule(
        'rule = "better"', 'this = { arm = "all", ratio = ["1", "1/4"] }', 'that = { arm = "none" }'
    )
    found = judged(
        plan_of(FIVE, KNOWN, rule), lambda cell: 5 + noise(cell, 0.1) + (shift if cell.arm == "all" else 0)
    )
    assert found.state == state and len(found.comparisons) == 2
    assert found.comparisons[0].details["probability_of_improvement"] == pytest.approx(
        {2.0: 1.0, -2.0: 0.0, 0.0: 0.5}[shift]
    )
    assert np.sign(found.comparisons[0].details["van_elteren_z"]) == np.sign(shift)


def test_a_difference_that_is_not_shown_to_exceed_its_margin_may_still_be_significant():
    rule = with_rule('rule = "better"', 'this = { arm = "all" }', 'that = { arm = "none" }', "margin = 0.1")
    found = judged(
        plan_of(FIVE, KNOWN, rule), lambda cell: 5 + noise(cell, 0.4) + (1.2 if cell.arm == "all" else 0)
    )
    (comparison,) = found.comparisons
    assert found.state == "undecided" and comparison.interval is not None and comparison.interval[0] > 0
    assert "neither shown to be better by more than 0.1 nor shown not to be" in comparison.sentence


@pytest.mark.parametrize(("ratios", "state"), [('"1"', "fails"), ('["1", "1/4"]', "undecided")])
@pytest.mark.parametrize(("kind", "shift"), [("better", -2.0), ("equivalent", -3.0)])
def test_one_of_many_comparisons_fails_only_beyond_their_number(
    kind: str, shift: float, ratios: str, state: str
):
    """Student's t is 2.0 with 8 degrees of freedom: p = 0.04 is below 0.05 and above 0.05 ÷ 2."""
    rule = with_rule(
        f'rule = "{kind}"',
        f'this = {{ arm = "all", ratio = {ratios} }}',
        'that = { arm = "none" }',
        f"margin = {0.1 if kind == 'equivalent' else 0}",
    )
    found = judged(
        plan_of(FIVE, KNOWN, rule), lambda cell: 5 + noise(cell, 1.0) + (shift if cell.arm == "all" else 0)
    )
    assert found.state == state


@pytest.mark.parametrize(("ratios", "significant"), [('"1"', True), ('["1", "1/4"]', False)])
def test_ranks_are_significant_at_a_level_divided_by_the_comparisons(ratios: str, significant: bool):
    """All of 8 seeds above all of 8 others: p = 0.0008."""
    rule = with_rule(
        'rule = "better"', f'this = {{ arm = "all", ratio = {ratios} }}', 'that = { arm = "none" }'
    )
    eight = ("seeds = [1, 2]", "seeds = [1, 2, 3, 4, 5, 6, 7, 8]")
    found = judged(
        plan_of(eight, KNOWN, rule), lambda cell: (5 if cell.arm == "all" else 4) + cell.seed / 100
    )
    assert found.comparisons[0].details["van_elteren_p"] == pytest.approx(7.8e-4, rel=0.01)
    assert found.comparisons[0].details["van_elteren_significant"] is significant


def test_returns_are_normalized_by_random_play_and_the_best_of_the_base():
    plan = plan_of(FIVE)
    scores = Scores(plan, made_up(plan, lambda cell: 20 + cell.seed if cell.arm == "all" else 50))
    selected = scores.select(Selector(arm="none", ratio="1/4"))
    assert selected.scores == {"toy:Match": [2.0] * 5}


def test_a_point_of_a_sweep_that_has_not_been_started_keeps_no_verdict_waiting():
    plan = plan_of(FIVE)
    later = [
        replace(cell, name=f"{cell.name}-later", point={"num_steps": 9})
        for cell in plan.cells
        if cell.is_reference(plan.reference)
    ]
    both = replace(plan, cells=(*plan.cells, *later))
    results = made_up(both, lambda cell: 10 + noise(cell, 0.1))
    first = [one for one in results if not one.cell.point]
    assert verdicts.judge(Scores(both, first))[0].state == "holds"
    one_more = [*first, next(one for one in results if one.cell.point)]
    assert verdicts.judge(Scores(both, one_more))[0].state == "undecided"


def test_each_base_has_its_own_scale():
    plan = plan_of(FIVE)
    other = [
        replace(cell, name=f"{cell.name}-other", base="other") for cell in plan.cells if cell.arm == "all"
    ]
    both = replace(plan, cells=(*plan.cells, *other))
    results = made_up(both, lambda cell: 100 if cell.base == "other" else 10)
    without_other = [one for one in results if one.cell.base != "other"]
    for some in (results, without_other):  # runs of another base do not matter
        chosen = Scores(both, some).select(Selector(arm="all", ratio="1/4", base="toy"))
        assert chosen.scores == {"toy:Match (toy)": [1.0] * 5}


def test_a_base_that_learned_nothing_leaves_returns_as_they_are():
    plan = plan_of(FIVE)
    scores = Scores(plan, made_up(plan, lambda _: -3.0))
    assert scores.normalized(plan.cells[0], -3) == -3


@pytest.mark.parametrize(("best", "state"), [(1, "holds"), (2, "holds"), (4, "fails")])
def test_the_learning_rate_is_tuned_where_its_optimum_is_within_a_notch(best: float, state: str):
    plan = plan_of(
        (
            'factors = { "optimizer.learning_rate" = [0.5, 1, 2] }',
            'factors = { "optimizer.learning_rate" = [0.25, 0.5, 1, 2, 4] }',
        ),
        KNOWN,
        tune=True,
    )
    found = judged(
        plan, lambda cell: cell.seed / 1000 - abs(np.log2(cell.factors["optimizer.learning_rate"] / best))
    )
    assert found.state == state and found.comparisons[0].value == best


def test_an_optimum_with_a_probability_of_four_fifths_is_not_certain():
    plan = plan_of(
        (
            'factors = { "optimizer.learning_rate" = [0.5, 1, 2] }',
            'factors = { "optimizer.learning_rate" = [0.25, 0.5, 1, 2, 4] }',
        ),
        ("seeds = [101, 102]", "seeds = [101, 102, 103, 104, 105]"),
        KNOWN,
        tune=True,
    )

    def score(cell: Cell) -> float:
        if cell.factors["optimizer.learning_rate"] in (0.5, 1, 2):
            return 1.0
        # A mean of 0.7 ± 0.2: Student's t with 4 degrees of freedom exceeds 1.5 with a probability of 0.104.
        return 1.5 if cell.seed == 101 else 0.5

    (comparison,) = judged(plan, score).comparisons
    assert comparison.details["share_within"] == pytest.approx((1 - 0.104) ** 2, abs=0.01)
    assert comparison.state == "undecided"
    assert comparison.sentence.endswith(
        "; the optimum is within a factor of 2 of × 1 with a probability of 81%."
    )


def test_an_unfinished_sweep_decides_nothing_and_says_from_how_many_runs_its_optimum_is():
    plan = plan_of(
        (
            'factors = { "optimizer.learning_rate" = [0.5, 1, 2] }',
            'factors = { "optimizer.learning_rate" = [0.25, 0.5, 1, 2, 4] }',
        ),
        ("seeds = [101, 102]", "seeds = [101, 102, 103]"),
        KNOWN,
        tune=True,
    )
    results = made_up(
        plan, lambda cell: cell.seed / 1000 - abs(np.log2(cell.factors["optimizer.learning_rate"]))
    )
    complete, unfinished = [
        verdicts.judge(Scores(plan, some))[0].comparisons[0]
        for some in (results, [one for one in results if one.cell.seed < 103 or one.cell.factors[RATE] < 4])
    ]
    certain = "; the optimum is within a factor of 2 of × 1 with a probability of more than 99%"
    assert complete.state == "holds" and complete.sentence.endswith(f"{certain}.")
    assert unfinished.state == "undecided" and unfinished.sentence.endswith(f"{certain}, from 14 of 15 runs.")


FACTORS, NEAR = (0.25, 0.5, 1.0, 2.0, 4.0), [0.5, 1.0, 2.0]
"""A sweep and the factors within a notch of 1."""


def sweep_of(scores: np.ndarray) -> dict[float, dict[int, float]]:
    """Scores [factors, seeds] as a sweep."""
    return {
        factor: dict(enumerate(by_seed)) for factor, by_seed in zip(FACTORS, scores.tolist(), strict=True)
    }


def test_factors_that_are_equal_share_the_optimum():
    assert sweeps.share_within(sweep_of(np.ones((5, 2))), NEAR) == pytest.approx(3 / 5)


@given(
    seeds=st.integers(2, 5),
    middle=st.lists(st.floats(-0.2, 0.2), min_size=5, max_size=5),
    spread=st.floats(1e-3, 1e3),
    random=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_an_optimum_that_the_spread_of_seeds_hides_is_undecided(
    seeds: int, middle: list[float], spread: float, random: int
):
    noise = np.random.default_rng(random).standard_normal((5, seeds))
    noise = (noise - noise.mean(axis=1, keepdims=True)) / noise.std(axis=1, ddof=1, keepdims=True)
    scores = spread * (np.array(middle)[:, None] + noise)
    share = sweeps.share_within(sweep_of(scores), NEAR)
    assert 1 - sweeps.SURE < share < sweeps.SURE
    assert sweeps.share_within(sweep_of(3 * scores + 7), NEAR) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_seeds_that_say_nothing_about_the_optimum_rarely_decide(seeds: int):
    random = np.random.default_rng(seeds)
    shares = [sweeps.share_within(sweep_of(random.standard_normal((5, seeds))), NEAR) for _ in range(300)]
    assert np.mean([share >= sweeps.SURE or share <= 1 - sweeps.SURE for share in shares]) <= 0.06


RECORDED_OPTIMA = {
    "abs-tune": ["fails", "undecided"],
    "abs-tune-higher": ["undecided", "undecided"],
    "invariance-64-envs-tune": ["holds", "holds"],
    "invariance-64-envs-tune-spaceinvaders-freeway": ["undecided", "undecided"],
    "invariance-ppg-tune": ["undecided"],
    "invariance-ppg-tune-higher": ["undecided"],
    "invariance-to-one-env-tune": ["holds", "holds"],
    "invariance-tune": ["holds", "holds", "holds", "holds"],
    "proximal-age-tune": ["holds"],
}
"""The states of recorded sweeps by environment, as they were when the sweeps ended."""


def test_recorded_optima_are_decided_as_they_were():
    for name, expected in RECORDED_OPTIMA.items():
        path = Path(__file__).parents[3] / "results" / "studies" / f"{name}.jsonl.gz"
        (verdict,) = [one for one in study_parts.read(path).verdicts if one.rule == "optimum"]
        assert [comparison.state for comparison in verdict.comparisons] == expected


def test_tuning_seeds_tell_which_margin_can_be_decided():
    tuning = plan_of(("seeds = [101, 102]", "seeds = [101, 102, 103]"), KNOWN, tune=True)
    spread = 0.4  # of the scores 5, 9 and 13 divided by 10
    scores = Scores(tuning, made_up(tuning, lambda cell: 5 + 4 * (cell.seed - 101)))
    (found,) = outlooks(plan_of(FIVE, KNOWN), scores)
    error = spread * math.sqrt(2 / 5)
    assert (found.seeds, found.envs, found.margin) == (5, 1, 0.1)
    assert found.power == pytest.approx(statistics.equivalence_power(error, 8, 0.1, 0.05))
    assert statistics.equivalence_power(error, 8, found.decidable_margin, 0.05) == pytest.approx(0.8)
    assert "5 seeds in 1 environment would show equal arms to be within ± 0.1" in found.sentence()


def test_a_sweep_that_ends_within_a_notch_says_nothing_about_tuning():
    found = judged(plan_of(KNOWN, tune=True), lambda cell: cell.seed / 1000)
    assert found.state == "undecided" and "does not reach beyond a factor of 2" in found.sentence


def test_the_spread_of_seeds_does_not_include_the_difference_between_bases():
    grid = 'arms = ["all"]\nseeds = [101, 102]\nfactors = { "optimizer.learning_rate" = [0.5, 1, 2] }\n'
    two_bases = (
        ("[arms.all]", '[bases.other]\npreset = "cartpole-ppo-ewma"\n\n[arms.all]'),
        (grid, f'{grid}\n[[scales.cpu.tune]]\nbase = "other"\n{grid}'),
    )
    tuning = plan_of(*two_bases, KNOWN, tune=True)
    powers = []
    for difference in (0.0, 5.0):
        results = made_up(tuning, lambda cell, by=difference: cell.seed / 100 + by * (cell.base == "other"))
        (found,) = outlooks(plan_of(FIVE, KNOWN), Scores(tuning, results))
        powers.append(found.power)
    assert powers[0] == powers[1] > 0.9


REGRET = (
    with_rule(
        'rule = "regret"',
        'this = { arm = "all" }',
        'that = { arm = "none" }',
        'setting = "optimizer.learning_rate"',
        "margin = 0.1",
    ),
    (
        'arms = ["all", "none"]\nratios = ["1", "1/4"]',
        'arms = ["all"]\n\n[[scales.cpu.grid]]\narms = ["none"]\n'
        'factors = { "optimizer.learning_rate" = [0.5, 1, 2] }',
    ),
)


@pytest.mark.parametrize(("lost", "state"), [(0.2, "holds"), (4.0, "fails")])
def test_regret_is_what_the_best_factor_would_have_gained(lost: float, state: str):
    def score(cell: Cell) -> float:
        tuned = cell.factors.get("optimizer.learning_rate") == 2
        return 5 + noise(cell, 0.1) + (lost if tuned else 0)

    found = judged(plan_of(FIVE, KNOWN, *REGRET), score)
    assert found.state == state and found.comparisons[0].value == pytest.approx(lost / 10)


@pytest.mark.parametrize(("ratios", "state"), [('"1"', "fails"), ('["1", "1/4"]', "undecided")])
def test_one_of_many_regrets_fails_only_beyond_their_number(ratios: str, state: str):
    """Student's t is 2.5 with 4 degrees of freedom: p = 0.03 is below 0.05 and above 0.05 ÷ 2."""
    rule = with_rule(
        'rule = "regret"',
        f'this = {{ arm = "all", ratio = {ratios} }}',
        'that = { arm = "none" }',
        'setting = "optimizer.learning_rate"',
        "margin = 0.1",
    )
    both_ratios = 'ratios = ["1", "1/4"]'
    swept = (
        f'arms = ["all", "none"]\n{both_ratios}',
        f'arms = ["all"]\n{both_ratios}\n\n[[scales.cpu.grid]]\narms = ["none"]\n{both_ratios}\n'
        'factors = { "optimizer.learning_rate" = [1, 2] }',
    )

    def score(cell: Cell) -> float:
        tuned = cell.factors.get("optimizer.learning_rate") == 2
        return 5 + (2.8 if tuned else 0 if cell.factors else noise(cell, 1.0))

    found = judged(plan_of(FIVE, KNOWN, rule, swept), score)
    assert found.state == state


def test_a_regret_needs_seeds_that_both_sides_share():
    other_seeds = ('arms = ["none"]', 'arms = ["none"]\nseeds = [5, 6]')
    found = judged(plan_of(FIVE, KNOWN, *REGRET, other_seeds), lambda cell: 5 + noise(cell, 0.1))
    assert found.state == "undecided"
    assert "at least 2 seeds must be shared with all factors, not 1" in found.comparisons[0].sentence


def test_a_regret_does_not_wait_for_environments_that_only_one_side_has():
    wider = ('arms = ["all"]\n\n', 'arms = ["all"]\nenvs = ["toy:Match", "toy:Target"]\n\n')
    plan = plan_of(FIVE, KNOWN, *REGRET, wider)
    results = made_up(plan, lambda cell: 5 + noise(cell, 0.1))
    (verdict,) = verdicts.judge(
        Scores(plan, [result for result in results if result.cell.env == "toy:Match"])
    )
    assert verdict.state == "holds" and verdict.comparisons[0].details["per_env"].keys() == {"toy:Match"}


def test_the_best_of_noise_is_no_regret():
    rng = np.random.default_rng(0)
    regrets = []
    for _ in range(200):
        sweep = {factor: dict(enumerate(rng.normal(size=5))) for factor in (0.5, 1.0, 2.0)}
        regrets += left_one_out(sweep, dict(enumerate(rng.normal(size=5))))
    assert abs(np.mean(regrets)) < 0.1  # the best of three means on the same seeds would gain 0.38


def test_an_estimate_is_the_course_of_a_metric_and_the_envs_that_it_is_worth():
    rule = with_rule(
        'rule = "estimate"', 'this = { arm = "all" }', 'metric = "batch/noise_scale"', "share = 0.5"
    )
    plan = plan_of(FIVE, KNOWN, rule)
    metrics = {"batch/noise_scale": (1.0, 1.0, None, 64.0)}
    results = made_up(
        plan, lambda _: 5.0, metrics=metrics, plan={"batch": {"num_envs": 4, "minibatch": 16.0}}
    )
    (verdict,) = verdicts.judge(Scores(plan, results))
    assert verdict.state == "measured" and verdict.comparisons[0].value == 64
    assert verdict.comparisons[0].details["envs_worth_having"] == 16


def test_measurements_of_an_unfinished_study_say_from_how_many_runs_they_are():
    estimate = with_rule('rule = "estimate"', 'this = { arm = "all" }', 'metric = "batch/noise_scale"')
    correlation = with_rule(
        'rule = "correlation"',
        'this = { arm = "all" }',
        'metric = "batch/noise_scale"',
        'others = ["losses/entropy"]',
    )
    metrics = {name: tuple(map(float, range(9))) for name in ("batch/noise_scale", "losses/entropy")}
    for rule in (estimate, correlation):
        plan = plan_of(FIVE, KNOWN, rule)
        run_plan = {"batch": {"num_envs": 4, "minibatch": 16.0}}
        results = made_up(plan, lambda _: 5.0, metrics=metrics, plan=run_plan)
        (whole,) = verdicts.judge(Scores(plan, results))
        assert whole.state == "measured" and "runs" not in whole.comparisons[0].sentence
        (part,) = verdicts.judge(Scores(plan, [one for one in results if one.cell.seed < 3]))
        assert part.state == "measured" and ", from 2 of 5 runs" in part.comparisons[0].sentence


def test_an_environment_without_any_measurement_is_not_left_out():
    rule = with_rule('rule = "estimate"', 'this = { arm = "all" }', 'metric = "batch/noise_scale"')
    plan = plan_of(FIVE, KNOWN, rule, ('envs = ["toy:Match"]', 'envs = ["toy:Match", "toy:Lines"]'))
    metrics = {"batch/noise_scale": (64.0,)}
    results = made_up(
        plan, lambda _: 5.0, metrics=metrics, plan={"batch": {"num_envs": 4, "minibatch": 16.0}}
    )
    here = [one for one in results if one.cell.env == "toy:Match"]
    (verdict,) = verdicts.judge(Scores(plan, here))
    assert [one.state for one in verdict.comparisons] == ["measured", "not run"]
    lost = [replace(one, failed="no such module", metrics={}) for one in results if one not in here]
    (verdict,) = verdicts.judge(Scores(plan, here + lost))
    assert [one.state for one in verdict.comparisons] == ["measured", "undecided"]
    assert verdict.comparisons[1].sentence.endswith(
        "toy:Lines, all rules at ratio 1: not measured in any of 5 runs."
    )


def test_a_correlation_is_taken_along_each_run():
    rule = with_rule(
        'rule = "correlation"',
        'this = { arm = "all" }',
        'metric = "losses/entropy"',
        'others = ["losses/approx_kl", "losses/clipfrac"]',
    )
    plan = plan_of(FIVE, KNOWN, rule)
    falling, rising = tuple(float(9 - x) for x in range(9)), tuple(float(x * x) for x in range(9))
    metrics = {"losses/entropy": falling, "losses/approx_kl": rising, "losses/clipfrac": (1.0, None)}
    (verdict,) = verdicts.judge(Scores(plan, made_up(plan, lambda _: 5.0, metrics=metrics)))
    comparison, too_few = verdict.comparisons
    assert too_few.state == "undecided" and "not measured 8 times or more in any run" in too_few.sentence
    assert comparison.value == pytest.approx(-1)


def foretold(noise_scale: float | None, ends_at: float, unclear_at: float = 0) -> Verdict:
    rule = with_rule(
        'rule = "foretold"',
        'this = { arm = "all", ratio = ["2", "4", "8", "16"] }',
        'that = { ratio = "1" }',
        "margin = 0.1",
        "within = 2",
    )
    plan = plan_of(FIVE, KNOWN, rule, ('ratios = ["1", "1/4"]', 'ratios = ["1", "2", "4", "8", "16"]'))
    results = made_up(
        plan,
        lambda cell: (
            5
            + noise(cell, 2 if cell.ratio_value == unclear_at else 0.1)
            - (4 if cell.ratio_value >= ends_at else 0)
        ),
        metrics={"batch/noise_scale": (noise_scale,)},
        plan={"batch": {"num_envs": 4, "minibatch": 16.0}},
    )
    (verdict,) = verdicts.judge(Scores(plan, results))
    return verdict


def test_the_noise_scale_foretells_the_end_of_invariance_or_does_not():
    assert foretold(noise_scale=16 * 6, ends_at=8).state == "holds"  # equal up to 4, different from 8 on
    assert foretold(noise_scale=16 * 1, ends_at=8).state == "fails"
    assert foretold(noise_scale=16 * 40, ends_at=8).state == "fails"
    never = foretold(noise_scale=16 * 10, ends_at=99)
    assert never.state == "undecided" and "no ratio was shown to differ" in never.sentence


def test_without_a_noise_scale_there_is_no_prediction_but_a_verdict():
    found = foretold(noise_scale=None, ends_at=8)
    assert found.state == "undecided" and "no run has measured the noise scale" in found.sentence
    assert [one.state for one in found.comparisons[:-1]] == ["holds", "holds", "fails", "fails"]


def test_an_end_that_is_not_known_well_enough_leaves_the_prediction_undecided():
    *_, end = foretold(noise_scale=16 * 6, ends_at=8, unclear_at=2).comparisons
    assert (end.details["holds_up_to"], end.details["fails_from"]) == (1, 8)
    assert end.state == "undecided" and "not all ratios in between are within a factor of 2" in end.sentence


def test_equality_shown_far_beyond_the_prediction_contradicts_it():
    beyond = foretold(noise_scale=16 * 2, ends_at=99)
    assert beyond.state == "fails" and "equality was shown up to 16" in beyond.sentence


@pytest.mark.parametrize(("ratios", "state"), [('["4"]', "fails"), ('["4", "8"]', "undecided")])
def test_the_end_of_invariance_is_corrected_for_the_number_of_ratios(ratios: str, state: str):
    """Student's t is 2.0 with 8 degrees of freedom: p = 0.04 is below 0.05 and above 0.05 ÷ 2."""
    rule = with_rule(
        'rule = "foretold"',
        f'this = {{ arm = "all", ratio = {ratios} }}',
        'that = { ratio = "1" }',
        "margin = 0.1",
        "within = 2",
    )
    plan = plan_of(FIVE, KNOWN, rule, ('ratios = ["1", "1/4"]', 'ratios = ["1", "4", "8"]'))
    results = made_up(
        plan,
        lambda cell: 5 + noise(cell, 1.0) - (3 if cell.ratio == "4" else 0),
        metrics={"batch/noise_scale": (32.0,)},
        plan={"batch": {"num_envs": 4, "minibatch": 16.0}},
    )
    (verdict,) = verdicts.judge(Scores(plan, results))
    assert verdict.comparisons[0].state == state


def test_invariance_holds_up_to_the_first_ratio_that_is_not_clear():
    *_, clear = foretold(noise_scale=16 * 6, ends_at=16).comparisons
    *_, unclear = foretold(noise_scale=16 * 6, ends_at=16, unclear_at=4).comparisons
    assert (clear.details["holds_up_to"], clear.details["fails_from"]) == (8, 16)
    assert (unclear.details["holds_up_to"], unclear.details["fails_from"]) == (2, 16)


def test_a_claim_holds_where_all_comparisons_do_and_fails_where_one_does():
    def comparison(state: verdicts.State) -> Comparison:
        return Comparison(label="", state=state, clauses=())

    assert overall([comparison("holds"), comparison("holds")]) == "holds"
    assert overall([comparison("holds"), comparison("undecided")]) == "undecided"
    assert overall([comparison("undecided"), comparison("fails")]) == "fails"
    assert overall([comparison("holds"), comparison("not run")]) == "undecided"
    assert overall([comparison("not run"), comparison("measured")]) == "measured"


def test_claims_without_cells_at_a_scale_are_absent():
    plan = plan_of(FIVE, KNOWN, ('ratios = ["1", "1/4"]', 'ratios = ["1", "1/2"]'))
    assert verdicts.judge(Scores(plan, made_up(plan, lambda _: 5.0))) == []
