"""Cells without a result, which are never dropped but written with the reason."""

import os
import platform
from pathlib import Path
from typing import Any

from anybatch.lab.studies import cells
from anybatch.lab.studies.cells import Cell, Origin, Result

PLAN_FACTS = ("anybatch", "git_commit", "source")


def failure(plan: Origin, cell: Cell, reason: str, *, diverged: bool = False) -> Result:
    """The record of a failed cell."""
    return Result(cell=cell, plan_hash=plan.hash, failed=reason, diverged=diverged, facts=facts(plan))


def result_after_death(out: Path, plan: Origin, cell: Cell, reason: str) -> Result:
    """The result of a cell whose process ended without an answer: the one it had stored, or a new failure."""
    stored = cells.read(out, cell.name)
    if stored is not None and stored.failed is None:
        return stored
    failed = failure(plan, cell, reason)
    cells.write(out, failed)
    return failed


def facts(plan: Origin) -> dict[str, Any]:
    """What a result depends on in addition to its plan. Nothing that identifies the owner of the machine."""
    known = {name: plan.facts.get(name) for name in PLAN_FACTS}
    return known | {"machine": platform.machine(), "cores": os.cpu_count()}
