"""What a study needs to say anything: a reference that learned. And what its reader should know about it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

from anybatch.lab.studies.cells import Cell, Result
from anybatch.lab.studies.configs import setting_at
from anybatch.lab.studies.curves import ENTROPY
from anybatch.lab.studies.plan import setting_name
from anybatch.lab.verdicts.rule import Selector
from anybatch.lab.verdicts.scores import CLEARLY, Scores
from anybatch.runs.advice import CLIPPED_LOW

CLIP_FRACTION, EXPLAINED_VARIANCE = "losses/clipfrac", "losses/explained_variance"
PLACE = ("env", "base", "arm", "ratio")
"""What a cell of a sweep has in common with the cells that it was made for."""
END = 0.2
"""The last part of a run, over which metrics are averaged here."""
LEAST_EXPLAINED_VARIANCE = 0.05
"""Below it, values say nothing about returns, and advantages are returns with noise."""
UNIFORM_SHARE = 0.99
"""Entropy ÷ largest entropy from which on a policy has not moved."""
COLLAPSED_SHARE = 0.1
"""Entropy ÷ largest entropy below which a policy hardly explores."""


def why_void(scores: Scores) -> str:
    """Why no verdict of a study can be trusted, in a sentence; empty if its reference learned everywhere.

    Environments whose reference has not been run completely are not judged yet.
    """
    for stratum, cells in scores.reference_cells().items():
        results = [scores.results[cell.name] for cell in cells if cell.name in scores.results]
        if len(results) < len(cells) or any(one.failed and not one.diverged for one in results):
            continue
        reason = why_unlearned(results, scores.random_play(cells[0].env))
        if reason:
            one = Selector(arm=cells[0].arm, ratio=cells[0].ratio, point=cells[0].point)
            words = f"its reference, {one.words(scores.plan)}, did not learn in {stratum}"
            return f"The study is void: {words}: {reason}."
    return ""


def why_unlearned(results: Sequence[Result], random: Result | None) -> str:
    """Why the runs of a reference do not show that it learned, in words; empty if they do."""
    if reason := not_above_random(results, random):
        return reason
    explained = over_runs(results, EXPLAINED_VARIANCE, END)
    if explained is not None and explained < LEAST_EXPLAINED_VARIANCE:
        return (
            f"the explained variance of its value function is {explained:.3f} at the end of its runs, below "
            f"{LEAST_EXPLAINED_VARIANCE:g}"
        )
    share = entropy_share(results, random)
    if share is not None and share >= UNIFORM_SHARE:
        return f"the entropy of its policy is {share:.1%} of its maximum at the end of its runs"
    return ""


def not_above_random(results: Sequence[Result], random: Result | None) -> str:
    """Whether a mean final return is no better than random play's, in words; empty if it is better."""
    if random is None or random.final_return is None:
        return ""
    returns = [random.final_return if one.diverged else one.final_return for one in results]
    known = [value for value in returns if value is not None]
    low, low_error = random.final_return, random.evaluation.get("standard_error") or 0.0
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    if fmean(known) > low + CLEARLY * math.hypot(error, low_error):
        return ""
    return (
        f"its final return, {fmean(known):.4g} ± {error:.2g}, is not above that of random play, {low:.4g} ± "
        f"{low_error:.2g} (± standard errors), by more than twice the standard error of their difference"
    )


def entropy_share(results: Sequence[Result], random: Result | None) -> float | None:
    """Entropy at the end of runs ÷ that of random play; None where one of them is not known."""
    entropy = over_runs(results, ENTROPY, END)
    largest = random.metrics.get(ENTROPY, (None,))[-1] if random is not None else None
    return entropy / largest if entropy is not None and largest else None


def over_runs(results: Sequence[Result], metric: str, share: float) -> float | None:
    """The mean of a metric over the last part of runs; None if none of them measured it there."""
    means: list[float] = []
    for result in results:
        values = result.metrics.get(metric, ())
        first = len(values) - max(1, round(share * len(values)))
        known = [value for value in values[max(0, first) :] if value is not None]
        means += [fmean(known)] if known else []
    return fmean(means) if means else None


def notes(scores: Scores) -> list[str]:
    """What does not void a study, but weakens it: a sentence for each."""
    found: list[str] = []
    for stratum, cells in scores.reference_cells().items():
        results = [scores.results[cell.name] for cell in cells if cell.name in scores.results]
        clipped = over_runs(results, CLIP_FRACTION, 1.0)
        clips = cells[0].config.get("objective", {}).get("clip") is not None
        if clips and clipped is not None and clipped < CLIPPED_LOW:
            found.append(
                f"In {stratum}, the base clips {clipped:.2%} of its samples, far below 1%: the proximal "
                "policy hardly restrains its updates."
            )
        share = entropy_share(results, scores.random_play(cells[0].env))
        if share is not None and share < COLLAPSED_SHARE:
            found.append(
                f"In {stratum}, the base's entropy has collapsed to {share:.1%} of its maximum at the end of "
                "its runs."
            )
    return found


def sweep_notes(scores: Scores, sweeps: Sequence[Scores]) -> list[str]:
    """What the sweeps of a study's base say against its settings: a sentence for each."""
    found: list[str] = []
    for stratum, cells in scores.reference_cells().items():
        like = cells[0]
        swept = [
            result
            for sweep in sweeps
            for result in sweep.results.values()
            if result.cell.factors
            and all(getattr(result.cell, name) == getattr(like, name) for name in PLACE)
        ]
        # The settings that a sweep multiplies, or replaces by numbers.
        settings = list(
            dict.fromkeys(
                name
                for one in swept
                for name, value in {**one.cell.factors, **one.cell.point}.items()
                if isinstance(value, int | float)
            )
        )
        areas: dict[Values, list[float]] = {}
        for result in swept:
            area = -math.inf if result.diverged else result.area
            if area is not None:
                areas.setdefault(values_of(result.cell, settings), []).append(area)
        found += [
            f"In {stratum}, {words}." for words in weaknesses(areas, settings, values_of(like, settings))
        ]
    return found


Values = tuple[float, ...]
"""Of the swept settings. Two sweeps may multiply different numbers, so values are compared, not factors."""


def weaknesses(
    areas: Mapping[Values, Sequence[float]], settings: Sequence[str], used: Values
) -> Iterator[str]:
    """What is weak about the best setting of a sweep, given the areas of its runs; `used` is the study's."""
    if not areas:
        return
    best = max(areas, key=lambda values: fmean(areas[values]))
    shown = ", ".join(f"{setting_name(name)} {value:.4g}" for name, value in zip(settings, best, strict=True))
    best_words = f"the best setting of the sweep, {shown},"
    for place, name in enumerate(settings):
        values = [one[place] for one in areas]
        if best[place] in (min(values), max(values)) and len(set(values)) > 1:
            yield f"{best_words} is at the edge of its range of {setting_name(name)}s"
    if len(areas[best]) == 1:
        yield f"{best_words} rests on a single seed"
    if best != used:
        yield f"{best_words} is not that of the study, {', '.join(f'{value:.4g}' for value in used)}"


def values_of(cell: Cell, settings: Sequence[str]) -> Values:
    """The values of settings of a cell, in six digits: factors are not exact."""
    return tuple(float(f"{setting_at(cell.config, path):.6g}") for path in settings)
