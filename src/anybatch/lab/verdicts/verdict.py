"""Results of a study, in numbers and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["holds", "fails", "undecided", "measured", "not run", "not tested", "void"]
"""measured: the rule asks for a number, and nothing can hold or fail. not run: a side has no cell yet. not
tested: the claim passes its test, but its control does too. void: the study's reference did not learn."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One number of a verdict, with its interval."""

    label: str
    state: State
    sentence: str
    value: float | None = None
    """On the normalized scale, unless details say otherwise; None if it cannot be computed yet."""
    interval: tuple[float, float] | None = None
    level: float | None = None
    """Confidence of the interval."""
    metric: str = ""
    """final or area, if it is about one of them."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Numbers behind it: p, power, margin, seeds, per_env and what the rule adds."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim, and whether the cells support it."""

    name: str
    claim: str
    rule: str
    state: State
    reason: str
    """The comparison that decides it, and what was left out, in sentences."""
    comparisons: tuple[Comparison, ...]
    adjusted_p: float | None = None
    """p of a claim that something is better, corrected for the number of such claims in the study."""

    @property
    def sentence(self) -> str:
        return f"{self.claim} {self.state.capitalize()}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence}


def overall(comparisons: Sequence[Comparison]) -> State:
    """A claim about several comparisons holds if all of them hold, and fails if one does.

    A measurement is one as soon as one of its numbers is known. A claim of which a part is not tested is not
    tested, unless another part fails or is undecided.
    """
    states = {comparison.state for comparison in comparisons}
    for deciding in ("fails", "measured"):
        if deciding in states:
            return deciding
    if len(states) == 1:
        return comparisons[0].state
    return "not tested" if states == {"holds", "not tested"} else "undecided"
