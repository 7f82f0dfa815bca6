"""A study whose reference did not learn is void; what weakens one is noted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_studies import write_study
from small_studies import before_both_metrics, plan_of

from anybatch.lab import verdicts
from anybatch.lab.pages import studies as study_page
from anybatch.lab.pages import study_parts
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.studies.cells import RANDOM_ARM, Cell, Result
from anybatch.lab.studies.curves import ENTROPY
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts import Scores, gates

FIVE = ("seeds = [1, 2]", "seeds = [1, 2, 3, 4, 5]")
RECORDED = Path(__file__).parents[3] / "results" / "studies"
VALUES, CLIPPED = gates.EXPLAINED_VARIANCE, gates.CLIP_FRACTION
LEARNED = {VALUES: (0.0, 0.4), ENTROPY: (1.6, 0.8), CLIPPED: (0.05, 0.05)}
"""Metrics of a run over its first and its second half."""


def results_of(
    plan: StudyPlan,
    *,
    returns: Callable[[Cell], float] = lambda cell: 5 + 0.1 * cell.seed,
    error: float = 0.1,
    **metrics: Any,
) -> list[Result]:
    """Cells that learned, with other returns or metrics. Random play has 1 ± `error`; its entropy is 1.6."""
    found: list[Result] = []
    for cell in plan.cells:
        random = cell.arm == RANDOM_ARM
        found.append(
            Result(
                cell=cell,
                plan_hash=plan.hash,
                facts={},
                curve=((1, 1.0),) if random else tuple((place, returns(cell)) for place in range(plan.bins)),
                evaluation={"standard_error": error} if random else {},
                metrics={ENTROPY: (1.6,)} if random else {**LEARNED, **metrics},
            )
        )
    return found


def void(plan: StudyPlan, **changes: Any) -> str:
    """Why a study is void; empty if it is not. All of its verdicts have to agree."""
    judged = verdicts.judge(Scores(plan, results_of(plan, **changes)))
    reasons = {one.reason if one.state == "void" else "" for one in judged}
    assert len(reasons) == 1 and judged
    return reasons.pop()


def test_a_study_whose_reference_learned_is_not_void():
    assert void(plan_of(FIVE)) == ""


@pytest.mark.parametrize(
    ("base", "error", "is_void"), [(1.0, 0.0, True), (1.15, 0.1, True), (1.3, 0.1, False), (0.5, 0.1, True)]
)
def test_a_reference_must_be_better_than_random_play_by_more_than_the_error(
    base: float, error: float, is_void: bool
):
    found = void(plan_of(FIVE), returns=lambda cell: base + 0.01 * (cell.seed - 3), error=error)
    assert ("is not above that of random play, 1 ± " in found) == is_void == bool(found)


def test_the_error_of_the_reference_counts_as_well():
    def score(spread: float) -> Callable[[Cell], float]:
        return lambda cell: 1.5 + spread * (cell.seed - 3)

    assert void(plan_of(FIVE), returns=score(0.1)) == ""
    assert void(plan_of(FIVE), returns=score(0.5)).startswith(
        "The study is void: its reference, all rules at ratio 1, did not learn in toy:Match: its final "
        "return, 1.5 ± 0.35, is not above"
    )


@pytest.mark.parametrize(("explained", "is_void"), [(0.0, True), (0.049, True), (0.051, False), (-0.5, True)])
def test_values_must_explain_something(explained: float, is_void: bool):
    found = void(plan_of(FIVE), **{VALUES: (0.9, explained)})
    assert ("the explained variance of its value function is" in found) == is_void == bool(found)


@pytest.mark.parametrize(("entropy", "is_void"), [(1.6, True), (1.59, True), (1.5, False)])
def test_a_policy_must_have_moved_away_from_uniform(entropy: float, is_void: bool):
    found = void(plan_of(FIVE), **{ENTROPY: (0.0, entropy)})
    assert ("of its maximum at the end of its runs" in found) == is_void == bool(found)


def test_algorithms_without_values_and_entropy_are_judged_by_their_return():
    plan = plan_of(FIVE)
    bare = [replace(one, metrics={}) for one in results_of(plan)]
    assert {one.state for one in verdicts.judge(Scores(plan, bare))} != {"void"}
    low = [replace(one, metrics={}) for one in results_of(plan, returns=lambda _: 1.0)]
    assert {one.state for one in verdicts.judge(Scores(plan, low))} == {"void"}


def test_only_the_reference_has_to_learn():
    plan = plan_of(FIVE)
    results = results_of(plan, returns=lambda cell: 5.0 if (cell.arm, cell.ratio) == ("all", "1") else 1.0)
    assert {one.state for one in verdicts.judge(Scores(plan, results))} == {"fails"}


def test_one_environment_in_which_the_reference_did_not_learn_voids_the_study():
    two = ('envs = ["toy:Match"]', 'envs = ["toy:Match", "toy:Lines"]')
    found = void(plan_of(FIVE, two), returns=lambda cell: 5.0 if cell.env == "toy:Match" else 1.0)
    assert "did not learn in toy:Lines" in found


def test_a_reference_that_is_not_finished_is_not_judged_yet():
    plan = plan_of(FIVE)
    results = results_of(plan, returns=lambda _: 1.0)
    unfinished = [one for one in results if one.cell.name != "toy-Match__all__r1__s5"]
    (verdict,) = verdicts.judge(Scores(plan, unfinished))
    assert verdict.state == "undecided" and "has no result yet" in verdict.sentence


def test_a_reference_that_diverged_counts_as_random_play():
    plan = plan_of(FIVE)
    results = [
        replace(one, failed="the gradient is non-finite", diverged=True, curve=())
        if one.cell.is_reference(plan.reference)
        else one
        for one in results_of(plan)
    ]
    (verdict,) = verdicts.judge(Scores(plan, results))
    assert verdict.state == "void" and "its final return, 1 ± 0, is not above" in verdict.reason


def test_in_a_sweep_the_reference_is_its_named_point():
    sweep = ('ratios = ["1", "1/4"]', 'ratios = ["1", "1/4"]\nsweep = { "staleness.iterations" = [32, 0] }')
    rule = (
        'this = { arm = "all", ratio = "1/4" }',
        'this = { arm = "all", ratio = "1/4", point = { "staleness.iterations" = 0 } }',
    )
    named = ('{ arm = "all" }', '{ arm = "all", point = { "staleness.iterations" = 0 } }')

    def learned_fresh(cell: Cell) -> float:
        return 5.0 if cell.point["staleness.iterations"] == 0 else 1.0

    assert void(plan_of(FIVE, sweep, rule, named), returns=learned_fresh) == ""
    assert "with iterations=32, did not learn" in void(plan_of(FIVE, sweep, rule), returns=learned_fresh)


def test_a_sweep_and_the_check_of_a_tuning_are_never_void():
    plan = plan_of(FIVE)
    unlearned = results_of(plan, returns=lambda _: 1.0)
    assert {one.state for one in verdicts.judge(Scores(plan, unlearned), gated=False)} != {"void"}
    tuning = plan_of(tune=True)
    assert {
        one.state for one in verdicts.judge(Scores(tuning, results_of(tuning, returns=lambda _: 1.0)))
    } != {"void"}


def test_plans_from_before_there_were_gates_are_held_to_them():
    plan = before_both_metrics(plan_of(FIVE))
    assert void(plan) == ""
    assert "explained variance" in void(plan, **{VALUES: (0.0, 0.0)})


def test_of_the_recorded_studies_the_one_whose_values_explain_nothing_is_void():
    found = {
        path.name.removesuffix(".jsonl.gz"): {one.state for one in study_parts.read(path).verdicts}
        for path in sorted(RECORDED.glob("*.jsonl.gz"))
    }
    assert {name for name, states in found.items() if "void" in states} == {"invariance-ppg"}
    assert found["invariance-ppg"] == {"void"}


def test_a_void_study_says_so_first_and_draws_no_comparison():
    plan = plan_of(FIVE)
    view = StudyView(plan, results_of(plan, **{VALUES: (0.0, 0.0)}))
    page = study_page.report(view, [])
    lead = page.page.partition('class="lead">')[2].partition("</p>")[0]
    assert lead.startswith(
        "The study is void: its reference, all rules at ratio 1, did not learn in toy:Match"
    )
    assert "– void</span>" in page.page and not [one for one in page.drawings if "verdict" in one.name]


# --- notes ------------------------------------------------------------------------------------------------


def noted(plan: StudyPlan, **changes: Any) -> list[str]:
    return gates.notes(Scores(plan, results_of(plan, **changes)))


def test_a_base_that_hardly_clips_is_noted_but_not_void():
    assert noted(plan_of(FIVE)) == []
    (note,) = noted(plan_of(FIVE), **{CLIPPED: (0.001, 0.001)})
    assert note.startswith("In toy:Match, the base clips 0.10% of its samples, far below 1%")
    assert void(plan_of(FIVE), **{CLIPPED: (0.001, 0.001)}) == ""
    unclipped = ("num_steps = 8", 'num_steps = 8\nobjective = { clip = "none", kl_penalty = 1.0 }')
    assert noted(plan_of(FIVE, unclipped), **{CLIPPED: (0.0, 0.0)}) == []


def test_a_collapsed_entropy_is_noted_but_not_void():
    (note,) = noted(plan_of(FIVE), **{ENTROPY: (1.6, 0.08)})
    assert note == (
        "In toy:Match, the base's entropy has collapsed to 5.0% of its maximum at the end of its runs."
    )
    assert noted(plan_of(FIVE), **{ENTROPY: (1.6, 0.3)}) == []


RATE = "optimizer.learning_rate"


def sweep_notes(best: float, *, seeds: str = "seeds = [101, 102]", factors: str = "[0.5, 1, 2]") -> list[str]:
    """The notes on a study from a sweep whose best factor is this."""
    tuning = plan_of(
        ("seeds = [101, 102]", seeds), ("[0.5, 1, 2]", factors), ("seeds = [1, 2]", "seeds = [1]"), tune=True
    )
    results = results_of(tuning, returns=lambda cell: 5.0 - abs(cell.factors.get(RATE, best) - best))
    study = plan_of(FIVE)
    return gates.sweep_notes(Scores(study, results_of(study)), [Scores(tuning, results)])


def test_a_base_at_the_best_setting_of_its_sweep_has_no_note():
    assert sweep_notes(1) == []


def test_a_best_setting_at_the_edge_of_its_sweep_is_noted():
    edge, other = sweep_notes(2)
    assert edge == (
        "In toy:Match, the best setting of the sweep, learning rate 0.001, is at the edge of its range of "
        "learning rates."
    )
    assert other.endswith("is not that of the study, 0.0005.")
    (inside,) = sweep_notes(2, factors="[0.5, 1, 2, 4]")
    assert "edge" not in inside and "is not that of the study" in inside


def test_a_best_setting_that_rests_on_a_single_seed_is_noted():
    (note,) = sweep_notes(1, seeds="seeds = [101]")
    assert note.endswith("learning rate 0.0005, rests on a single seed.")


def test_a_setting_at_which_a_seed_diverged_is_not_the_best_of_a_sweep():
    tuning, study = plan_of(tune=True), plan_of(FIVE)
    results = [
        replace(one, failed="the gradient is non-finite", diverged=True, curve=())
        if one.cell.factors.get(RATE) == 2 and one.cell.seed == 101
        else one
        for one in results_of(tuning, returns=lambda cell: cell.factors.get(RATE, 0))
    ]
    assert gates.sweep_notes(Scores(study, results_of(study)), [Scores(tuning, results)]) == []


def test_only_the_sweep_of_the_reference_speaks_about_it():
    both = ('arms = ["all"]\nseeds = [101, 102]', 'arms = ["all", "none"]\nseeds = [101, 102]')
    tuning, study = plan_of(both, tune=True), plan_of(FIVE)
    results = results_of(
        tuning,
        returns=lambda cell: (
            9.0 * cell.factors[RATE] if cell.arm == "none" else 5 - abs(cell.factors[RATE] - 1)
        ),
    )
    assert gates.sweep_notes(Scores(study, results_of(study)), [Scores(tuning, results)]) == []


def test_a_sweep_may_have_two_settings():
    """The learning rate by factors, and the age of the proximal policy by values."""
    ages = '[0.5, 1, 2] }\nsweep = { "proximal.ewma_decay" = [0.8, 0.9, 0.99] }'
    tuning, study = plan_of(("[0.5, 1, 2] }", ages), tune=True), plan_of(FIVE)
    results = results_of(
        tuning,
        returns=lambda cell: (
            5 - abs(cell.factors.get(RATE, 1) - 1) + cell.point.get("proximal.ewma_decay", 0)
        ),
    )
    notes = gates.sweep_notes(Scores(study, results_of(study)), [Scores(tuning, results)])
    assert "learning rate 0.0005, ewma decay 0.99, is at the edge of its range of ewma decays" in notes[0]
    assert "is not that of the study, 0.0005, 0.8889" in notes[1] and len(notes) == 2
    (verdict,) = verdicts.judge(Scores(tuning, results))
    assert len(verdict.comparisons) == 2 * 3  # by both metrics, at each age
    assert {one.value for one in verdict.comparisons} == {1.0}


def test_two_sweeps_of_one_base_are_one():
    """Their cells have the same names, since they multiply different numbers by the same factors."""
    study, tuning = plan_of(FIVE), plan_of(tune=True)
    higher = plan_of(("num_steps = 8", "num_steps = 8\noptimizer = { learning_rate = 2e-3 }"), tune=True)
    scores = [
        Scores(
            plan,
            results_of(plan, returns=lambda cell: 5 - abs(cell.config["optimizer"]["learning_rate"] - 1e-3)),
        )
        for plan in (tuning, higher)
    ]
    for sweeps in (scores, scores[::-1]):  # 0.00025 to 0.001, and 0.001 to 0.004
        (note,) = gates.sweep_notes(Scores(study, results_of(study)), sweeps)
        assert "learning rate 0.001, is not that of the study, 0.0005" in note


def test_sweeps_are_found_beside_their_study(tmp_path: Path):
    write_study(plan_of(), tmp_path / "mine")
    write_study(plan_of(tune=True), tmp_path / "mine-tune")
    write_study(plan_of(), tmp_path / "mine-tune-not")
    assert [one.plan.tune for one in study_parts.read(tmp_path / "mine").sweeps] == [True]
    assert study_parts.read(tmp_path / "mine-tune").sweeps == []


def test_recorded_sweeps_say_what_is_weak_about_their_bases():
    notes = study_parts.read(RECORDED / "invariance-mujoco.jsonl.gz").notes
    assert any(
        "the best setting of the sweep, learning rate 0.002, is not that of the study, 0.001" in note
        for note in notes
    )
