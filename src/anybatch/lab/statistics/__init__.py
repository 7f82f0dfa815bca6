"""Statistics of studies, with numpy and scipy. Scores are by environment: {env: [a number for each seed]}."""

from anybatch.lab.statistics.aggregates import (
    Aggregated,
    interquartile_mean,
    mean,
    median,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from anybatch.lab.statistics.curves import CurveDistance, curve_distance
from anybatch.lab.statistics.differences import (
    Difference,
    decidable_margin,
    difference,
    equivalence_p,
    equivalence_power,
    holm,
    mean_interval,
)
from anybatch.lab.statistics.rank_tests import VanElteren, rank_correlation, van_elteren
from anybatch.lab.statistics.scipy_stats import stats

__all__ = [
    "Aggregated",
    "CurveDistance",
    "Difference",
    "VanElteren",
    "curve_distance",
    "decidable_margin",
    "difference",
    "equivalence_p",
    "equivalence_power",
    "holm",
    "interquartile_mean",
    "mean",
    "mean_interval",
    "median",
    "performance_profile",
    "probability_of_improvement",
    "rank_correlation",
    "stats",
    "stratified_interval",
    "van_elteren",
]
