"""`anybatch report` on studies: what its figures, tables and sentences are made of."""

import csv
import math
from pathlib import Path
from statistics import fmean

import made_studies
import numpy as np
import pytest
from made_studies import plan_of, result_of, write_study

from anybatch.cli.main import main
from anybatch.lab import verdicts
from anybatch.lab.charts.chart import Intervals, Panels
from anybatch.lab.pages import studies as study_page
from anybatch.lab.pages import study_charts, study_curves, study_parts, study_text
from anybatch.lab.pages import verdicts as verdict_page
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.studies import duration, files
from anybatch.lab.studies.plan import Request, make_plan


def view_of(text: str) -> StudyView:
    plan = plan_of(text)
    return StudyView(plan, [result_of(plan, cell) for cell in plan.cells])


@pytest.fixture(scope="module")
def sweep() -> StudyView:
    return view_of(made_studies.SWEEP)


@pytest.fixture(scope="module")
def stale() -> StudyView:
    return view_of(made_studies.STALE)


@pytest.fixture(scope="module")
def invariance() -> StudyView:
    """The study of the package at its real size, with one seed less in the last part of its grid."""
    plan = make_plan(files.load("invariance"), Request(study="invariance", scale="cpu", seeds=2))
    return StudyView(plan, [result_of(plan, cell) for cell in plan.cells[:-1]])


def panels(view: StudyView, name: str) -> Panels:
    (found,) = [one for one in study_charts.score_drawings(view) if one.name == name]
    assert isinstance(found, Panels)
    return found


def test_a_part_is_the_cells_that_differ_in_environment_and_seed(stale: StudyView):
    assert [stale.label(part) for part in stale.parts] == [
        "decoupled, iterations 0",
        "decoupled, iterations 2",
        "decoupled, iterations 8",
        "anchored to the behavior policy, iterations 0",
        "anchored to the behavior policy, iterations 2",
        "anchored to the behavior policy, iterations 8",
    ]
    assert {(cell.env, cell.seed) for cell in stale.parts[0].cells} == {
        (env, seed) for env in ("toy:Match", "toy:Corridor") for seed in (1, 2)
    }


def test_points_of_a_figure_are_means_of_normalized_scores(stale: StudyView):
    drawn = panels(stale, "score-staleness-iterations")
    first, *others = drawn.charts
    assert first.title == "mean over 2 environments" and len(others) == 2
    assert first.x_names == ("0", "2", "8") and first.x_places == (0, 1, 2)
    by_env: dict[str, list[float]] = {}
    for cell in stale.parts[1].cells:
        score = stale.scores.normalized(cell, stale.results[cell.name].score("final"))
        assert score is not None
        by_env.setdefault(cell.env, []).append(score)
    assert first.series[0].y[1] == pytest.approx(fmean(map(fmean, by_env.values())))
    assert first.series[0].low[1] <= first.series[0].y[1] <= first.series[0].high[1]
    assert len({tuple(chart.y_axis().ticks) for chart in drawn.charts}) == 1


@pytest.mark.parametrize(
    ("setting", "values", "names"),
    [
        ("optimizer.max_grad_norm", '["none", 0.5]', ("none", "0.5")),
        ("network.hidden_sizes", "[[16], [8], [8, 8]]", ("[16]", "[8]", "[8, 8]")),
        ("optimizer.anneal", '["none", "linear"]', ("none", "linear")),
        ("proximal.ewma_decay", "[0.9, 0.5]", ("0.5", "0.9")),
        ("proximal.ewma_decay", "[0.99991, 0.9, 0.99992]", ("0.9", "0.99991", "0.99992")),
    ],
)
def test_swept_values_of_any_kind_are_drawn_and_numbers_are_sorted(
    setting: str, values: str, names: tuple[str, ...]
):
    swept = made_studies.STALE.replace('"staleness.iterations" = [0, 2, 8]', f'"{setting}" = {values}')
    view = view_of(swept.partition("[[verdicts]]")[0])
    drawn = panels(view, f"score-{study_charts.file_part(setting)}")
    assert drawn.charts[0].x_names == names
    assert [round(x) for x in drawn.charts[0].series[0].x] == list(range(len(names)))
    first = study_curves.curve_panels(view)[0].charts[0]
    assert len({series.color for series in first.series}) == len(names)
    assert study_page.report(view, []).page


def test_lines_over_the_batch_are_those_of_arms_at_several(invariance: StudyView):
    drawn = panels(invariance, "score-ratio")
    mean, *by_env = drawn.charts
    assert [series.label for series in by_env[0].series] == [
        "all rules",
        "no rule",
        "coupled PPO with all rules",
    ]
    assert mean.x_names == ("1/8", "1/4", "1", "4")
    assert mean.x_places == (-3, -2, 0, 2), "a factor of two is as far everywhere"
    assert [round(x) for x in mean.series[0].x] == [-3, -2, 0, 2]
    assert [mean.x_name(x) for x in mean.series[1].x] == ["1/8", "1/4"]
    # Coupled PPO has two of four games: a mean over them would be one over other games.
    assert [series.label for series in mean.series] == ["all rules", "no rule"]
    reference = invariance.reference
    assert reference is not None and mean.level == pytest.approx(
        study_parts.mean_of(invariance.normalized(reference)).value
    )


def test_arms_at_one_batch_are_below_each_other(invariance: StudyView):
    (drawn,) = [one for one in study_charts.score_drawings(invariance) if isinstance(one, Intervals)]
    assert drawn.name == "arms-1-8" and "minatar:Asterix, minatar:Breakout." in drawn.note
    labels = [row.label for row in drawn.rows]
    assert "linear instead of √ rule of the learning rate" in labels and len(labels) == 8


def test_arms_of_several_bases_are_below_each_other_over_their_own_environments():
    unswept = 'arms = ["decoupled", "behavior"]\nratios = ["1"]\n'
    study = made_studies.STALE[: made_studies.STALE.index("[[scales.smoke.grid]]")]
    study += f"[[scales.smoke.grid]]\n{unswept}[[verdicts]]"
    view = view_of(with_another_base(study, unswept + 'envs = ["toy:Match"]').removesuffix("[[verdicts]]"))
    (drawn,) = [one for one in study_charts.score_drawings(view) if isinstance(one, Intervals)]
    assert [row.label for row in drawn.rows] == [view.title(part) for part in view.parts]
    for row, part in zip(drawn.rows, view.parts, strict=True):
        assert row.value == study_parts.mean_of(view.normalized(part)).value
    assert len(view.normalized(view.parts[0])) == 2 and len(view.normalized(view.parts[-1])) == 1


def test_a_sweep_is_drawn_over_the_value_of_the_run_and_over_that_tuned_at(sweep: StudyView):
    (lines,) = study_charts.sweep_drawings(sweep)
    assert isinstance(lines, Panels)
    of_run, tuned_at = lines.charts
    assert [series.label for series in of_run.series] == [
        "all rules, ratio 1/16",
        "all rules, ratio 1/4",
        "all rules, ratio 1",
    ]
    assert np.allclose(of_run.series[0].x, np.array(tuned_at.series[0].x) / 4)  # × √(1/16)
    assert of_run.series[2].x == tuned_at.series[2].x


def test_a_profile_is_the_share_of_runs_above_each_score(invariance: StudyView):
    (drawn,) = [one for one in study_charts.score_drawings(invariance) if one.name == "profiles"]
    assert isinstance(drawn, Panels)
    for chart in drawn.charts:
        for series in chart.series:
            (part,) = [
                part
                for part in invariance.parts
                if not part.factors
                and (invariance.title(part), f"ratio {part.ratio}") == (series.label, chart.title)
            ]
            runs = [run for runs in invariance.normalized(part).values() for run in runs]
            middle = len(series.x) // 2
            assert series.y[middle] == fmean(run > series.x[middle] for run in runs)
            assert series.y[0] == 1 and series.y[-1] == 0
            assert list(series.y) == sorted(series.y, reverse=True)


def test_curves_of_one_arm_share_a_panel_with_the_reference_beside_them(invariance: StudyView):
    drawn = study_curves.curve_panels(invariance)
    assert [one.title for one in drawn] == [f"Learning curves, {env}" for env in invariance.strata]
    first, second, *_ = drawn[0].charts
    assert [series.label for series in first.series] == ["ratio 4", "ratio 1", "ratio 1/4", "ratio 1/8"]
    assert second.series[-1].label == "reference: all rules, ratio 1" and second.series[-1].dashed
    colors = [
        series.color for chart in drawn[0].charts for series in chart.series if series.label == "ratio 1/8"
    ]
    assert len(set(colors)) == 1 and len({series.color for series in first.series}) == 4


def test_a_curve_is_the_mean_over_seeds(stale: StudyView):
    chart = study_curves.curve_panels(stale)[0].charts[0]
    part = stale.parts[0]
    values = [[value for _, value in result.curve] for result in stale.finished(part, "toy:Match")]
    assert np.allclose(chart.series[0].y, np.mean(values, axis=0))  # type: ignore[arg-type]
    assert np.allclose(chart.series[0].high, np.max(values, axis=0))  # type: ignore[arg-type]


def test_a_course_is_drawn_between_its_first_and_its_last_value_only():
    course = (None, 1.0, None, 3.0, None, None)
    assert study_curves.without_gaps(course).tolist() == pytest.approx(
        [math.nan, 1.0, 2.0, 3.0, math.nan, math.nan], nan_ok=True
    )
    assert np.isnan(study_curves.without_gaps((None, None))).all()


def test_metrics_that_verdicts_are_about_are_drawn(sweep: StudyView):
    (drawn,) = study_curves.metric_panels(sweep)
    (chart,) = drawn.charts
    assert chart.title == "Gradient noise scale" and chart.y_scale == "log" and len(chart.series) == 1


def test_intervals_of_a_verdict_are_its_comparisons(stale: StudyView):
    (verdict,) = stale.verdicts
    drawn = verdict_page.intervals_of(verdict)
    assert [one.name for one in drawn] == ["verdict-flat-final", "verdict-flat-area"]
    for by_metric, metric in zip(drawn, ("final", "area"), strict=True):
        comparisons = [one for one in verdict.comparisons if one.metric == metric]
        assert by_metric.margin == (-0.2, 0.2) and len(comparisons) == 2
        assert [row.value for row in by_metric.rows] == [one.value for one in comparisons]
        assert [(row.low, row.high) for row in by_metric.rows] == [one.interval for one in comparisons]


def test_the_page_names_the_ratios_that_its_batch_cannot_reach():
    asked = Request(study="invariance", scale="smoke", envs=("Acrobot-v1",), seeds=2, ranges=(-500, -80))
    view = StudyView(make_plan(files.load("invariance"), asked), [])
    assert study_page.limits(view)[2:] == [
        "Left out: ratio 1/32, since 1/32 of 16 envs is not a whole number."
    ]
    assert study_page.lead(view).startswith("Not run yet on Acrobot-v1: ")


def test_the_page_answers_in_its_first_sentence(stale: StudyView):
    page = study_page.report(stale, ["anybatch", "report", "x"]).page
    lead = page.partition('class="lead">')[2].partition("</p>")[0]
    (verdict,) = stale.verdicts
    deciding = verdicts.deciding_comparison(verdict.state, list(verdict.comparisons))
    assert lead.startswith(study_page.ANSWERS[verdict.state].partition("{")[0])
    assert "toy:Match, toy:Corridor" in lead and verdict.claim in lead and deciding.words in lead
    for shown in (
        "Stale data",
        "Study made",
        "smoke scale",
        "toy:Match, toy:Corridor",
        "anybatch study made",
    ):
        assert shown in page


def test_cells_that_failed_or_are_missing_are_named_with_their_reason(tmp_path: Path):
    plan = plan_of(
        made_studies.STALE.replace("sweep =", 'factors = { "optimizer.learning_rate" = [1, 2] }\nsweep =')
    )
    failed, missing = plan.cells[-1].name, plan.cells[-2].name
    out = write_study(plan, tmp_path / "study", failed=(failed,), missing=(missing,))
    main(["report", str(out)])
    page = (out / "report" / "index.html").read_text()
    wanted = len(plan.cells) - 2  # random play is not of the grid
    assert f"{wanted - 1} of {wanted} cells have been run" in page and "; 1 failed." in page
    assert f"<th>{failed}</th>" in page and "the gradient became non-finite" in page
    part = "anchored to the behavior policy, iterations 8, learning rate × 2"
    assert f'<th>{part}</th><td data-label="reason">1 of 4 not run yet</td>' in page
    rows = list(csv.DictReader((out / "report" / "data" / "cells.csv").read_text().splitlines()))
    by_name = {row["cell"]: row for row in rows}
    assert by_name[failed]["failed"] == "the gradient became non-finite"
    assert by_name[missing]["failed"] == "not run yet" and len(rows) == len(plan.cells)


def test_the_page_explains_its_statistics(stale: StudyView):
    page = study_page.report(stale, []).page
    assert "how often a run of the first arm beats one of the second" in page
    assert "It fails if one fails, at a level that is divided by their number" in page
    assert "They are too narrow with few" in page


def unfinished_view(*, of_reference: int) -> StudyView:
    """The study of stale data with fresh data on some seeds and none of the older data."""
    plan = plan_of(made_studies.STALE)
    fresh = [cell for cell in plan.cells if cell.point == {"staleness.iterations": 0}][:of_reference]
    random = [cell for cell in plan.cells if cell.arm == "random"]
    return StudyView(plan, [result_of(plan, cell) for cell in (*random, *fresh)])


def test_the_page_of_an_unfinished_study_begins_with_what_is_missing():
    begun = StudyView(
        plan_of(made_studies.STALE),
        [result for result in view_of(made_studies.STALE).results.values() if result.cell.seed == 1],
    )
    assert study_page.lead(begun).startswith("Not finished on toy:Match, toy:Corridor: ")
    assert study_page.limits(begun)[1] == "Cells not run yet: 12 of 24."
    waiting = unfinished_view(of_reference=2)
    assert study_page.lead(waiting) == (
        f"Not run yet on toy:Match, toy:Corridor: {waiting.verdicts[0].claim}"
    )
    assert study_page.limits(waiting)[1] == "Cells not run yet: 22 of 24; no verdict yet on 1 of 1 claim."


def test_claims_that_have_not_been_run_are_only_listed(capsys: pytest.CaptureFixture[str]):
    view = unfinished_view(of_reference=2)
    page = study_page.report(view, []).page
    assert "<li>Data eight iterations old is as good as fresh data.</li>" in page
    assert 'class="verdict"' not in page and "<th>decoupled, iterations 8</th><td>0 of 2</td>" not in page
    study_text.show_results(Path("there"), view)
    assert "not run yet: flat\n" in capsys.readouterr().out


def test_too_few_seeds_for_an_interval_are_said():
    view = view_of(made_studies.STALE.replace("seeds = [1, 2]", "seeds = [1]"))
    page = study_page.report(view, []).page
    assert "an interval needs at least 2 seeds" in page and "which need two seeds or more" in page


def test_what_was_left_out_is_named():
    view = view_of(made_studies.SWEEP.replace('"1/16"]\nfactors', '"1/128"]\nfactors'))
    page = study_page.report(view, []).page
    assert "left out: 1/128 of 64 envs is not a whole number" in page
    assert "all rules at ratio 1/128, learning_rate×0.25" in page
    assert "Left out: ratio 1/128, since 1/128 of 64 envs is not a whole number." in page


def test_what_the_budget_left_out_is_named_in_words(capsys: pytest.CaptureFixture[str]):
    grid = 'ratios = ["1"]\nsweep = { "staleness.iterations" = [0, 2, 8] }\n'
    both = f'arms = ["decoupled", "behavior"]\n{grid}'
    assert both in made_studies.STALE
    one_each = f'arms = ["decoupled"]\n{grid}[[scales.smoke.grid]]\narms = ["behavior"]\n{grid}'
    plan = plan_of(made_studies.STALE.replace(both, one_each)).within(parts=1, seeds=2)
    title = plan_of(made_studies.STALE).arms["behavior"]
    named = "; ".join(f"{title} at ratio 1, iterations={age}" for age in (0, 2, 8))
    view = StudyView(plan, [result_of(plan, cell) for cell in plan.cells])
    assert f"Left out: {named}, since the budget is too small." in study_page.report(view, []).page
    study_text.show_plan(plan)
    assert f"Left out: {named}, since the budget is too small." in capsys.readouterr().out


def test_a_plan_shows_every_length_of_an_arms_runs(capsys: pytest.CaptureFixture[str]):
    longer = '[[scales.smoke.grid]]\narms = ["decoupled"]\nenvs = ["toy:Walk"]\ntotal_env_steps = 20_000\n'
    longer += 'sweep = { "staleness.iterations" = [0] }\n'
    study_text.show_plan(plan_of(made_studies.STALE.replace("[[verdicts]]", f"{longer}[[verdicts]]")))
    assert "10,000 or 20,000" in capsys.readouterr().out


def with_another_base(study: str, grid: str) -> str:
    """A study with another grid, of another base."""
    base = '[bases.other]\npreset = "cartpole-ppo"\nsettings = { num_envs = 64 }\n'
    changed = study.replace("[bases.toy]", f"{base}[bases.toy]")
    return changed.replace("[[verdicts]]", f'[[scales.smoke.grid]]\nbase = "other"\n{grid}\n[[verdicts]]', 1)


def test_bases_have_rows_of_their_own_in_the_terminal(capsys: pytest.CaptureFixture[str]):
    grid = 'arms = ["decoupled"]\nsweep = { "staleness.iterations" = [0] }'
    view = view_of(with_another_base(made_studies.STALE, grid))
    study_text.show_plan(view.plan)
    study_text.show_results(Path("there"), view)
    plan_text, results_text = capsys.readouterr().out.split(" thread each\n", 1)
    for text in (plan_text, results_text):
        assert "decoupled (toy)" in text and "decoupled (other)" in text


def test_a_study_and_a_run_are_not_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = write_study(plan_of(made_studies.STALE), tmp_path / "study")
    with pytest.raises(SystemExit) as exit_:
        main(["report", str(out), str(tmp_path)])
    assert exit_.value.code == 2 and "is a study" in capsys.readouterr().err
    (out / "plan.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["report", str(out)])
    assert "plan.json is not the plan of a study" in capsys.readouterr().err


def test_the_command_of_a_study_is_what_was_asked_for():
    request = Request(
        study="upward", scale="cpu", envs=("Acrobot-v1",), seeds=3, budget_seconds=1200.0, tune=True
    )
    assert " ".join(study_page.study_words(request)) == (
        "anybatch study upward --scale cpu --env Acrobot-v1 --seeds 3 --budget 1200s --tune"
    )


@pytest.mark.parametrize("budget", ["12d", "20m", "1.5s", "0.00001s", "11d13h46m39s"])
def test_the_budget_of_the_command_is_the_one_that_was_given(budget: str):
    given = duration.seconds(budget)
    *_, shown = study_page.study_words(Request(study="upward", budget_seconds=given))
    assert duration.seconds(shown) == given and ("." in shown) == (given % 1 > 0)
