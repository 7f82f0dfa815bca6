"""Results of a study, in numbers and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

State = Literal["holds", "fails", "undecided", "measured", "not run", "not tested", "void"]
"""measured: the rule asks for a number, and nothing can hold or fail. not run: a side has no cell yet. not
tested: the claim passes its test, but its control does too. void: the study's reference did not learn."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One number of a verdict, with its interval."""

    label: str
    state: State
    clauses: tuple[str, ...]
    """What is said about it, in order."""
    value: float | None = None
    """On the normalized scale, unless details say otherwise; None if it cannot be computed yet."""
    interval: tuple[float, float] | None = None
    level: float | None = None
    """Confidence of the interval."""
    metric: str = ""
    """final or area, if it is about one of them."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Numbers behind it: p, power, margin, seeds, per_env and what the rule adds."""

    @property
    def words(self) -> str:
        """What is said about it, without a full stop."""
        return f"{self.label}: {'; '.join(self.clauses)}"

    @property
    def sentence(self) -> str:
        return f"{self.words}."

    def adding(
        self, clause: str, state: State | None = None, details: Mapping[str, Any] | None = None
    ) -> Self:
        """The same with one more clause, perhaps another state, and further details."""
        return replace(
            self,
            clauses=(*self.clauses, clause),
            state=state or self.state,
            details={**self.details, **(details or {})},
        )

    def to_json(self) -> dict[str, Any]:
        kept = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "clauses"}
        return kept | {"sentence": self.sentence}


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
    def is_open_by_correction(self) -> bool:
        """Whether it is undecided only since it was corrected for the number of claims."""
        return self.adjusted_p is not None and self.state == "undecided" != overall(self.comparisons)

    @property
    def sentence(self) -> str:
        return f"{self.claim} {self.state.capitalize()}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        comparisons = [comparison.to_json() for comparison in self.comparisons]
        return vars(self) | {"comparisons": comparisons, "sentence": self.sentence}


def interval_words(value: float | None, interval: tuple[float, float], level: float) -> str:
    """+0.012 (90% interval -0.031 to +0.055)"""
    low, high = interval
    return f"{value:+.3f} ({level:.0%} interval {low:+.3f} to {high:+.3f})"


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
