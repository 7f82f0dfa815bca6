"""The growing table of trials: a row for each finished trial."""

import logging

from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.trials import Trial

logger = logging.getLogger(__name__)

NARROWEST = 9
"""Width of a column of numbers."""


class TrialTable:
    """Prints a header, then a row for each finished trial."""

    def __init__(self, plan: TuningPlan) -> None:
        self._widths = {one.name: max(len(one.name), NARROWEST) for one in plan.ranges}
        self._begun = False

    def add(self, trial: Trial, best: Trial | None) -> None:
        if not self._begun:
            headers = [f"{name:>{width}}" for name, width in self._widths.items()]
            logger.info("  ".join(["trial", f"{'area':>{NARROWEST}}", *headers, ""]).rstrip())
            self._begun = True
        numbers = [f"{trial.point[name]:>{width}.4g}" for name, width in self._widths.items()]
        is_best = best is not None and best.number == trial.number
        ending = "best so far" if is_best else "" if trial.is_finished else trial.state
        logger.info(
            "  ".join([f"{trial.number:>5}", f"{trial.shown_value:>{NARROWEST}}", *numbers, ending]).rstrip()
        )
