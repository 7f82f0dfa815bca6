"""A trial: the numbers tried, and the result."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from anybatch.text import number_text

State = Literal["running", "finished", "pruned", "failed"]
"""pruned: stopped early, because half of the trials had done better by then, or because it diverged."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One point of the search, trained on all tuning seeds."""

    number: int
    """Counted from 0; 0 is the preset itself."""
    point: Mapping[str, float]
    state: State
    value: float | None = None
    """Area under the curve, mean over seeds; for a pruned trial, up to where it was stopped."""
    reports: Mapping[int, float] = field(default_factory=dict[int, float])
    """Mean return so far, by tenths of its env steps."""

    @property
    def name(self) -> str:
        """The name of its runs, without their seed."""
        return f"trial-{self.number:04}"

    @property
    def is_finished(self) -> bool:
        return self.state == "finished"

    @property
    def shown_value(self) -> str:
        """Its value as text, a dash if it has none."""
        return "–" if self.value is None else number_text(self.value, 4)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "reports"}


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The finished trial with the largest area, the first of equals; None if none has finished."""
    finished = [trial for trial in trials if trial.is_finished and trial.value is not None]
    return max(finished, key=lambda trial: (trial.value or 0.0, -trial.number)) if finished else None
