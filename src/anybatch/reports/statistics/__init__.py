"""Statistics of studies, in numpy. Scores are by environment: {env: [a number for each seed]}."""

from anybatch.reports.statistics.aggregates import (
    Aggregated,
    interquartile_mean,
    mean,
    median,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from anybatch.reports.statistics.differences import (
    Difference,
    decidable_margin,
    difference,
    equivalence_p,
    equivalence_power,
    mean_interval,
)
from anybatch.reports.statistics.ranks import VanElteren, rank_correlation, van_elteren
from anybatch.reports.statistics.student import t_probability, t_quantile

__all__ = [
    "Aggregated",
    "Difference",
    "VanElteren",
    "decidable_margin",
    "difference",
    "equivalence_p",
    "equivalence_power",
    "interquartile_mean",
    "mean",
    "mean_interval",
    "median",
    "performance_profile",
    "probability_of_improvement",
    "rank_correlation",
    "stratified_interval",
    "t_probability",
    "t_quantile",
    "van_elteren",
]
