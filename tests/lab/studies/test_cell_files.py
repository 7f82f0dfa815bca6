"""Files of cells that are damaged: one sentence about each, before anything is computed from it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_studies
import pytest
from made_studies import plan_of, result_of

from anybatch.errors import UserError
from anybatch.lab.studies import cells, runner
from anybatch.lab.studies.plan import StudyPlan

Kept = tuple[Path, StudyPlan]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """The folder of a study of which one cell has been run."""
    plan = plan_of(made_studies.STALE)
    plan.write(tmp_path)
    cells.write(tmp_path, result_of(plan, plan.cells[-1]))
    return tmp_path, plan


def change(kept: Kept, **entries: Any) -> None:
    folder, plan = kept
    path = cells.path_of(folder, plan.cells[-1].name)
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("curve", []),
        ("curve", [[100, None]]),
        ("curve", [[100, True]]),
        ("curve", [[100, 10**400]]),
        ("curve", [[100, "high"]]),
        ("curve", [[100, math.inf]]),
        ("curve", [[math.inf, 1.0]]),
        ("metrics", []),
        ("facts", None),
        ("plan", None),
        ("plan", {}),
        ("plan", {"batch": None}),
        ("status", "not run"),
        ("status", ["done"]),
        ("reason", "it failed"),
    ],
)
def test_an_entry_that_a_study_does_not_write_is_named(kept: Kept, entry: str, value: object):
    change(kept, **{entry: value})
    with pytest.raises(UserError, match=f"is damaged: a study does not write such {entry}"):
        runner.results(*kept)


def test_wrong_values_of_a_metric_and_of_the_time_are_named(kept: Kept):
    change(kept, metrics={"batch/noise_scale": "abc"}, facts={"seconds": "long"})
    with pytest.raises(UserError, match=r"such facts\.seconds or batch/noise_scale"):
        runner.results(*kept)


def test_curves_of_another_length_are_refused(kept: Kept):
    folder, plan = kept
    path = cells.path_of(folder, plan.cells[-1].name)
    whole = json.loads(path.read_text())
    change(kept, metrics={"batch/noise_scale": [1.0] * 99})
    with pytest.raises(UserError, match="does not write such batch/noise_scale"):
        runner.results(*kept)
    change(kept, metrics={}, curve=whole["curve"][:99])
    with pytest.raises(UserError, match="is damaged: its curve has 99 points instead of 100"):
        runner.results(*kept)


def test_areas_and_final_returns_are_those_of_the_curve(kept: Kept):
    """Cells of earlier versions stored areas with gaps filled by the value before them."""
    folder, plan = kept
    path = cells.path_of(folder, plan.cells[-1].name)
    gaps = [[1, None], [2, 4.0]] * (plan.bins // 2)
    change(kept, curve=gaps, area=3.0, final_return=3.0)
    (found,) = runner.results(*kept)
    assert (found.area, found.final_return) == (4.0, 4.0)
    cells.write(folder, found)
    written = json.loads(path.read_text())
    assert (written["area"], written["final_return"]) == (4.0, 4.0)


def test_a_number_that_is_not_finite_is_not_written(kept: Kept):
    folder, plan = kept
    before = cells.read(folder, plan.cells[-1].name)
    with pytest.raises(ValueError, match="not JSON compliant"):
        cells.write(folder, replace(result_of(plan, plan.cells[-1]), curve=((100, math.nan),)))
    assert cells.read(folder, plan.cells[-1].name) == before


def test_a_cell_under_the_name_of_another_is_refused(kept: Kept):
    assert len(runner.results(*kept)) == 1
    change(kept, env="toy:Target")
    with pytest.raises(UserError, match="the plan has another cell of that name"):
        runner.results(*kept)


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"study": {"name": "stale"}}, "KeyError('title')"),
        (
            {"study": {"name": "stale", "title": 3, "claim": "", "source": ""}},
            "TypeError('title is not a string')",
        ),
        ({"arms": {"decoupled": "decoupled"}}, "KeyError('behavior')"),
        ({"arms": {"decoupled": None, "behavior": ""}}, "TypeError('decoupled is not a string')"),
        ({"facts": []}, "TypeError('facts is not a table')"),
        ({"ranges": {"toy:Match": [1, 2, 3]}}, "ValueError('too many values to unpack (expected 2)')"),
        (
            {"request": {"study": "stale", "envs": [], "budget_seconds": "1h"}},
            "TypeError('the request has values of another kind')",
        ),
    ],
)
def test_a_plan_with_an_entry_that_no_page_could_show_is_refused(
    kept: Kept, entries: dict[str, Any], error: str
):
    folder, _ = kept
    path = folder / cells.PLAN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    with pytest.raises(UserError) as refused:
        StudyPlan.read(folder)
    assert str(refused.value) == f"{path} is damaged: it is not the plan of a study ({error})"
