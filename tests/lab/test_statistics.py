"""Statistics against scipy, published numbers, and cases whose answer is known."""

import math
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from anybatch.errors import UserError
from anybatch.lab import statistics
from anybatch.lab.statistics import smoothed

RNG = np.random.default_rng(5)
SCORES = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=2, max_size=7)


def drawn(*sizes: int, shift: float = 0.0) -> dict[str, list[float]]:
    return {str(place): list(RNG.normal(shift, 1, size)) for place, size in enumerate(sizes)}


def test_the_difference_in_one_stratum_is_welchs_t_test():
    this, that = drawn(5, shift=0.4), drawn(9)
    found = statistics.difference(this, that)
    scipys = stats.ttest_ind(this["0"], that["0"], equal_var=False)
    assert found.mean / found.standard_error == pytest.approx(scipys.statistic)
    assert found.degrees == pytest.approx(scipys.df)
    assert 2 * min(found.p_above(0), found.p_below(0)) == pytest.approx(scipys.pvalue)
    low, high = scipys.confidence_interval(0.9)
    assert found.interval(0.9) == pytest.approx((low, high))


def test_the_difference_over_strata_is_the_mean_of_theirs():
    this, that = drawn(4, 6, 3), drawn(5, 2, 7)
    found = statistics.difference(this, that)
    each = [statistics.difference({"0": this[env]}, {"0": that[env]}) for env in this]
    assert found.mean == pytest.approx(np.mean([one.mean for one in each]))
    assert found.standard_error == pytest.approx(math.hypot(*(one.standard_error for one in each)) / 3)


def test_the_interval_over_strata_covers_the_true_difference_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(800):
        this = {"a": rng.normal(0.3, 1, 5), "b": rng.normal(0.3, 3, 4)}
        that = {"a": rng.normal(0, 1, 5), "b": rng.normal(0, 1, 6)}
        low, high = statistics.difference(this, that).interval(0.9)
        covered += low <= 0.3 <= high
    assert covered / 800 == pytest.approx(0.9, abs=0.03)


def test_equivalence_is_two_one_sided_t_tests():
    this, that = drawn(6), drawn(8)
    p = statistics.equivalence_p(statistics.difference(this, that), 0.7)
    first, second = np.array(this["0"]), np.array(that["0"])
    above = stats.ttest_ind(first + 0.7, second, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(first - 0.7, second, equal_var=False, alternative="less").pvalue
    assert p == pytest.approx(max(above, below))


@given(SCORES, SCORES, st.floats(0.01, 3))
def test_equivalence_is_shown_exactly_where_the_90_percent_interval_is_within_the_margin(this, that, margin):
    found = statistics.difference({"env": this}, {"env": that})
    low, high = found.interval(0.9)
    if min(abs(low + margin), abs(high - margin)) > 1e-6:
        assert (statistics.equivalence_p(found, margin) <= 0.05) == (-margin < low and high < margin)


def test_scores_without_spread_are_equal_or_not():
    same = statistics.difference({"env": [2.0, 2.0]}, {"env": [2.0, 2.0]})
    assert statistics.equivalence_p(same, 0.1) == 0 and same.interval(0.9) == (0, 0)
    other = statistics.difference({"env": [3.0, 3.0]}, {"env": [2.0, 2.0]})
    assert statistics.equivalence_p(other, 0.1) == 1 and other.p_above(0.1) == 0


def test_power_is_that_of_the_published_sample_size():
    # Lakens 2017 (doi:10.1177/1948550617697177): 108 in each group for 80 % power at a margin of 0.4 SD.
    found = [statistics.equivalence_power(math.sqrt(2 / n), 2 * n - 2, 0.4, 0.05) for n in (106, 108)]
    assert found[0] < 0.8 < found[1] == pytest.approx(0.8, abs=0.005)


@pytest.mark.parametrize(
    ("seeds", "margin"), [(2, 2.0), (2, 6.0), (3, 1.0), (3, 2.5), (5, 1.0), (20, 0.6), (20, 0.9)]
)
def test_power_is_how_often_equal_arms_are_shown_to_be_equal(seeds: int, margin: float):
    rng = np.random.default_rng(1)
    first, second = rng.normal(0, 1, (2, 20_000, seeds))
    # With equal variances and numbers of seeds, and their pooled variance, the degrees of freedom are exact.
    error = np.sqrt((first.var(axis=1, ddof=1) + second.var(axis=1, ddof=1)) / seeds)
    reach = stats.t.ppf(0.95, 2 * seeds - 2) * error
    shown = np.abs(first.mean(axis=1) - second.mean(axis=1)) + reach < margin
    predicted = statistics.equivalence_power(math.sqrt(2 / seeds), 2 * seeds - 2, margin, 0.05)
    assert shown.mean() == pytest.approx(predicted, abs=0.01)


@pytest.mark.parametrize("degrees", [1, 3.7, 40, 3000])
def test_power_is_the_integral_over_the_estimated_standard_error(degrees: float):
    quantile = stats.t.ppf(0.95, degrees)

    def shown(u: float) -> float:
        return max(0.0, 2 * stats.norm.cdf(2.3 - quantile * u) - 1) * stats.chi.pdf(
            u, degrees, scale=degrees**-0.5
        )

    nodes = np.linspace(0, 4, 9)  # keep the peak in sight when there are many degrees of freedom
    expected = sum(integrate.quad(shown, a, b, limit=200)[0] for a, b in pairwise(nodes))
    assert statistics.equivalence_power(1.0, degrees, 2.3, 0.05) == pytest.approx(expected, abs=1e-5)


def test_power_with_many_degrees_of_freedom_is_that_of_a_known_error():
    known = statistics.equivalence_power(1.0, math.inf, 2.5, 0.05)
    assert known == pytest.approx(2 * stats.norm.cdf(2.5 - stats.norm.ppf(0.95)) - 1)
    assert statistics.equivalence_power(1.0, 900_000, 2.5, 0.05) == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize("degrees", [2, 8, math.inf])
def test_a_decidable_margin_has_the_power_asked_for(degrees: float):
    margin = statistics.decidable_margin(0.3, degrees, 0.05, 0.8)
    assert statistics.equivalence_power(0.3, degrees, margin, 0.05) == pytest.approx(0.8, abs=1e-5)
    assert statistics.decidable_margin(0.0, degrees, 0.05, 0.8) == 0


def test_the_interval_of_a_mean_is_students():
    values = list(RNG.normal(2, 3, 5))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert statistics.mean_interval({"env": values}, 0.95) == pytest.approx((expected.low, expected.high))
    assert statistics.mean_interval({"a": values, "b": [1.0]}, 0.95) is None


def test_the_interval_of_a_mean_over_strata_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(800):
        low, high = statistics.mean_interval({"a": rng.normal(0, 1, 3), "b": rng.normal(1, 2, 3)}, 0.95)
        covered += low <= 0.5 <= high
    assert covered / 800 == pytest.approx(0.95, abs=0.03)


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    scores = drawn(5, 9, 2, 7)
    flat = np.concatenate(list(scores.values()))
    assert statistics.interquartile_mean(scores) == pytest.approx(stats.trim_mean(flat, 0.25))
    assert statistics.interquartile_mean({"a": [0.0, 1.0], "b": [2.0, 99.0]}) == 1.5


def test_mean_and_median_are_over_the_means_of_strata():
    scores = {"a": [0.0, 2.0], "b": [4.0], "c": [10.0, 10.0, 13.0]}
    assert statistics.mean(scores) == pytest.approx((1 + 4 + 11) / 3)
    assert statistics.median(scores) == 4


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    assert statistics.performance_profile({"a": [0.0, 1.0], "b": [1.0, 2.0]}, [-1, 0, 1, 2]) == [
        1,
        0.75,
        0.25,
        0,
    ]


def test_the_probability_of_improvement_is_mann_whitneys():
    this, that = drawn(5, 4, shift=0.5), drawn(6, 3)
    expected = [
        stats.mannwhitneyu(this[env], that[env]).statistic / len(this[env]) / len(that[env]) for env in this
    ]
    assert statistics.probability_of_improvement(this, that) == pytest.approx(np.mean(expected))
    assert statistics.probability_of_improvement({"a": [1.0]}, {"a": [1.0]}) == 0.5


def test_bootstrap_intervals_are_those_of_scipy_and_the_same_every_time():
    values = list(RNG.normal(3, 2, 30))
    found = statistics.stratified_interval(statistics.mean, {"env": values}, resamples=4000)
    scipys = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(3)
    ).confidence_interval
    assert found == pytest.approx((scipys.low, scipys.high), abs=0.1)
    assert found == statistics.stratified_interval(statistics.mean, {"env": values}, resamples=4000)


@pytest.mark.parametrize(("seeds", "low", "high"), [(3, 0.72, 0.84), (5, 0.84, 0.93)])
def test_bootstrap_intervals_of_few_seeds_are_as_narrow_as_pages_say(seeds: int, low: float, high: float):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        scores = {str(env): rng.normal(0, 1, seeds) for env in range(2)}
        interval = statistics.stratified_interval(statistics.mean, scores, resamples=300)
        assert interval is not None
        covered += interval[0] <= 0 <= interval[1]
    assert low < covered / 400 < high


def test_runs_are_resampled_within_their_stratum():
    scores = {"a": [0.0, 0.0], "b": [10.0, 10.0, 10.0]}
    assert statistics.stratified_interval(statistics.mean, scores) == (5, 5)


def test_a_single_run_gives_no_interval():
    assert statistics.stratified_interval(statistics.mean, {"a": [1.0, 2.0], "b": [3.0]}) is None


def test_van_elteren_in_one_stratum_is_mann_whitneys_normal_approximation():
    for this, that in (
        (drawn(5), drawn(7)),
        ({"0": [1.0, 2, 2, 3]}, {"0": [2.0, 3, 3, 5, 6]}),
    ):  # with ties too
        found = statistics.van_elteren(this, that)
        scipys = stats.mannwhitneyu(this["0"], that["0"], method="asymptotic", use_continuity=False)
        assert found.p == pytest.approx(scipys.pvalue)


def test_van_elteren_has_the_papers_numbers():
    # 16 environments with 3 seeds each (arXiv:2110.00641, App. E): complete separation gives the largest Z.
    this, that = ({str(env): [shift, shift + 1, shift + 2] for env in range(16)} for shift in (3.0, 0.0))
    found = statistics.van_elteren(this, that)
    assert found.z == pytest.approx(7.856, abs=5e-4)
    assert statistics.van_elteren(that, this).z == -found.z
    # Its level of 0.1 %, divided by 16 hypotheses, is |Z| > 4.003.
    assert stats.norm.isf(0.001 / 16 / 2) == pytest.approx(4.003, abs=5e-4)


def test_van_elteren_weighs_strata_by_their_size():
    this, that = {"a": [1.0, 3.0], "b": [2.0, 5.0, 6.0]}, {"a": [2.0, 0.5], "b": [1.0, 3.0, 4.0, 7.0]}
    shift = variance = 0.0
    for env in this:
        n, m = len(this[env]), len(that[env])
        u = sum(x > y for x in this[env] for y in that[env])
        shift += (u - n * m / 2) / (n + m + 1)
        variance += n * m * (n + m + 1) / 12 / (n + m + 1) ** 2
    assert statistics.van_elteren(this, that).z == pytest.approx(shift / math.sqrt(variance))


def test_equal_scores_have_no_rank_difference():
    assert statistics.van_elteren({"a": [1.0, 1.0]}, {"a": [1.0, 1.0]}).p == 1


def test_rank_correlation_is_spearmans():
    first, second = RNG.normal(size=20), RNG.normal(size=20)
    assert statistics.rank_correlation(first, second) == pytest.approx(
        stats.spearmanr(first, second).statistic
    )
    assert statistics.rank_correlation([1, 2, 3], [4, 4, 4]) is None


def curves(runs: int, *, shift: float = 0.0, rng: np.random.Generator, points: int = 50) -> np.ndarray:
    """Learning curves that rise to 1, with noise that stays through a run and noise at each point."""
    rise = 1 - np.exp(-4 * np.arange(1, points + 1) / points)
    return (1 + shift + rng.normal(0, 0.1, (runs, 1))) * rise + rng.normal(0, 0.05, (runs, points))


@pytest.fixture
def fewer_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a rate over hundreds of tests, in a tenth of the time."""
    monkeypatch.setattr("anybatch.lab.statistics.PERMUTATIONS", 999)


@pytest.mark.usefixtures("fewer_permutations")
def test_the_same_curve_is_rarely_said_to_differ():
    """The test is exact: of equal curves, one in twenty has a p of at most 0.05."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        this, that = ({env: curves(seeds, rng=rng) for env, seeds in (("a", 5), ("b", 4))} for _ in range(2))
        found.append(statistics.curve_distance(this, that).p)
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(found) == pytest.approx(0.5, abs=0.05)


@pytest.mark.usefixtures("fewer_permutations")
@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, 0.0, 0.12), (0.1, 0.2, 0.75), (0.3, 0.97, 1.0)])
def test_curves_that_differ_are_said_to(shift: float, low: float, high: float):
    rng = np.random.default_rng(1)
    said = 0
    for _ in range(100):
        this = {env: curves(5, shift=shift, rng=rng) for env in "ab"}
        that = {env: curves(5, rng=rng) for env in "ab"}
        said += statistics.curve_distance(this, that).p <= 0.05
    assert low <= said / 100 <= high


def test_curves_that_cross_differ_although_their_areas_are_equal():
    rng, time = np.random.default_rng(2), np.linspace(-1, 1, 50)
    rising, falling = (sign * time + rng.normal(0, 0.1, (6, 50)) for sign in (1, -1))
    found = statistics.curve_distance({"env": rising}, {"env": falling})
    assert found.p < 0.01 and found.distance > 3 * found.expected
    areas = statistics.difference({"env": rising.mean(axis=1)}, {"env": falling.mean(axis=1)})
    assert statistics.equivalence_p(areas, 0.1) < 0.05


def test_the_permutation_test_in_one_stratum_is_scipys():
    rng = np.random.default_rng(3)
    this, that = curves(4, shift=0.15, rng=rng), curves(5, rng=rng)

    def distance(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
        # scipy permutes numbers: the places of runs, whose curves are looked up.
        runs = smoothed(np.concatenate([this, that]))
        means = (runs[places.astype(int)].mean(axis=-2) for places in (first, second))
        return np.abs(np.subtract(*means)).mean(axis=-1) if axis == -1 else np.array(np.nan)

    expected = stats.permutation_test(
        (np.arange(4.0), np.arange(4.0, 9.0)), distance, vectorized=True, alternative="greater"
    )  # all 126 assignments
    found = statistics.curve_distance({"env": this}, {"env": that})
    assert found.distance == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue, abs=0.015)
    assert found.expected == pytest.approx(expected.null_distribution.mean(), rel=0.02)


def test_a_smoothed_curve_is_a_running_mean_over_a_tenth_of_the_run():
    curve = np.random.default_rng(4).normal(size=(1, 40))
    expected = [curve[0, start : start + 4].mean() for start in range(37)]
    assert smoothed(curve)[0] == pytest.approx(np.array(expected))
    assert smoothed(np.array([[3.0]])) == 3.0


def test_curves_are_compared_in_the_same_way_every_time():
    this, that = ({"env": curves(3, rng=np.random.default_rng(seed))} for seed in (5, 6))
    assert statistics.curve_distance(this, that) == statistics.curve_distance(this, that)
    same = statistics.curve_distance(this, this)
    assert same.distance == pytest.approx(0, abs=1e-12) and same.p == 1


def test_holms_correction_by_hand():
    # 4 × 0.01 = 0.04; 3 × 0.012 = 0.036, not less than the one before; 2 × 0.03 = 0.06; 1 × 0.9.
    assert statistics.holm([0.03, 0.01, 0.9, 0.012]) == pytest.approx([0.06, 0.04, 0.9, 0.04])
    assert statistics.holm([0.02]) == [0.02] and statistics.holm([]) == []
    assert statistics.holm([0.5, 0.7]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_steps_reject(p: list[float]):
    """Step by step: the smallest p at α/m, the next at α/(m - 1), until one is too large."""
    alpha, rejected = 0.05, [False] * len(p)
    for step, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        if p[place] > alpha / (len(p) - step):
            break
        rejected[place] = True
    adjusted = statistics.holm(p)
    near = [abs(one - alpha) < 1e-9 for one in adjusted]
    assert all(
        close or (one <= alpha) == wanted for one, wanted, close in zip(adjusted, rejected, near, strict=True)
    )


def test_without_scipy_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    statistics.stats.cache_clear()
    with pytest.raises(UserError, match=r"need the package scipy: .* pip install 'anybatch\[lab\]'"):
        statistics.difference({"env": [1.0, 2.0]}, {"env": [1.0, 3.0]}).interval(0.9)
    statistics.stats.cache_clear()
