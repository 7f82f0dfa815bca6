"""A cell without a result: never dropped, but written with the reason."""

import os
import platform
from typing import Any

from anybatch.studies.cells import Cell, Result
from anybatch.studies.plan import StudyPlan

PLAN_FACTS = ("anybatch", "git_commit", "source")


def failure(plan: StudyPlan, cell: Cell, reason: str, *, diverged: bool = False) -> Result:
    """The result of a cell that has none."""
    return Result(cell=cell, plan_hash=plan.hash, failed=reason, diverged=diverged, facts=facts(plan))


def facts(plan: StudyPlan) -> dict[str, Any]:
    """What a result depends on besides its plan. Nothing that tells whose machine it was."""
    known = {name: plan.facts.get(name) for name in PLAN_FACTS}
    return known | {"machine": platform.machine(), "cores": os.cpu_count()}
