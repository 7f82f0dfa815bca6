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
from anybatch.studies import cells, runner
from anybatch.studies import plan as plans
from anybatch.studies.plan import StudyPlan

Kept = tuple[Path, StudyPlan]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """The folder of a study of which one cell has been run."""
    plan = plan_of(made_studies.STALE)
    plans.write(tmp_path, plan)
    cells.write(tmp_path, result_of(plan, plan.cells[-1]))
    return tmp_path, plan


def change(kept: Kept, **entries: Any) -> None:
    folder, plan = kept
    path = cells.path_of(folder, plan.cells[-1].name)
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("area", None),
        ("area", "high"),
        ("final_return", math.nan),
        ("curve", [[100, "high"]]),
        ("curve", [[100, math.inf]]),
        ("metrics", []),
        ("facts", None),
        ("plan", None),
        ("failed", 3),
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


def test_a_number_that_is_not_finite_is_not_written(kept: Kept):
    folder, plan = kept
    before = cells.read(folder, plan.cells[-1].name)
    with pytest.raises(ValueError, match="not JSON compliant"):
        cells.write(folder, replace(result_of(plan, plan.cells[-1]), area=math.nan))
    assert cells.read(folder, plan.cells[-1].name) == before


def test_a_cell_under_the_name_of_another_is_refused(kept: Kept):
    assert len(runner.results(*kept)) == 1
    change(kept, env="toy:Target")
    with pytest.raises(UserError, match="the plan has another cell of that name"):
        runner.results(*kept)


def test_a_plan_without_the_title_of_its_study_is_refused(kept: Kept):
    folder, _ = kept
    path = folder / cells.PLAN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"study": {"name": "stale"}}))
    with pytest.raises(UserError, match=r"is not the plan of a study \(KeyError\('title'\)\)"):
        plans.read(folder)
