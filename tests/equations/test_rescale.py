import pytest
from hypothesis import given
from hypothesis import strategies as st

from anybatch.equations import rescale, schedules

# arXiv:2110.00641: batches divided by c, and the numbers that follow from those at c = 1.
SWEEP = [
    # c, learning rate, β_prox, advantage decay, N_π, Adam β₁, β₂ (App. D, as printed)
    (1, 5e-4, 8 / 9, 0.0, 32, 0.9, 0.999),
    (4, 2.5e-4, 32 / 33, 0.6, 128, 0.974004, 0.99974991),
    (16, 1.25e-4, 128 / 129, 15 / 17, 512, 0.993437, 0.99993747),
    (64, 6.25e-5, 512 / 513, 63 / 65, 2048, 0.998355, 0.99998437),
    (256, 3.125e-5, 2048 / 2049, 255 / 257, 8192, 0.999589, 0.99999609),
]
decays = st.floats(0.0, 0.9999)
ratios = st.floats(1 / 256, 256)


@pytest.mark.parametrize(("c", "learning_rate", "proximal", "advantage", "phase", "beta1", "beta2"), SWEEP)
def test_the_sweep_of_the_paper(
    c: int,
    learning_rate: float,
    proximal: float,
    advantage: float,
    phase: int,
    beta1: float,
    beta2: float,
) -> None:
    ratio = 1 / c
    assert rescale.rescaled_learning_rate(5e-4, ratio, "adam") == pytest.approx(learning_rate, rel=1e-12)
    assert rescale.rescaled_proximal_decay(8 / 9, ratio) == pytest.approx(proximal, rel=1e-12)
    assert rescale.rescaled_advantage_decay(0.0, ratio) == pytest.approx(advantage, rel=1e-12)
    assert rescale.rescaled_phase_iterations(32, ratio) == phase
    assert rescale.rescaled_adam_beta(0.9, ratio) == pytest.approx(beta1, abs=5e-7)
    assert rescale.rescaled_adam_beta(0.999, ratio) == pytest.approx(beta2, abs=5e-9)


def test_center_of_mass_is_not_effective_sample_size() -> None:
    assert rescale.center_of_mass(8 / 9) == pytest.approx(8)
    assert rescale.effective_sample_size(8 / 9) == pytest.approx(17)
    assert rescale.center_of_mass(0.6) == pytest.approx(1.5)
    assert rescale.effective_sample_size(0.6) == pytest.approx(4)


@given(decays)
def test_a_center_of_mass_gives_its_decay_back(decay: float) -> None:
    center = rescale.center_of_mass(decay)
    assert rescale.decay_from_center_of_mass(center) == pytest.approx(decay, rel=1e-9, abs=1e-9)


@given(decays, ratios)
def test_the_decays_keep_age_and_sample_size(decay: float, ratio: float) -> None:
    proximal = rescale.rescaled_proximal_decay(decay, ratio)
    assert rescale.center_of_mass(proximal) * ratio == pytest.approx(rescale.center_of_mass(decay), rel=1e-6)
    size = rescale.effective_sample_size(rescale.rescaled_advantage_decay(decay, ratio))
    assert size * ratio == pytest.approx(rescale.effective_sample_size(decay), rel=1e-6)


RULES = {
    "proximal": rescale.rescaled_proximal_decay,
    "advantage": rescale.rescaled_advantage_decay,
    "copy": rescale.rescaled_copy_every,
    "phase": rescale.rescaled_phase_iterations,
    "adam": lambda number, ratio: rescale.rescaled_learning_rate(number, ratio, "adam"),
    "sgd": lambda number, ratio: rescale.rescaled_learning_rate(number, ratio, "sgd"),
}


@pytest.mark.parametrize("name", list(RULES))
@given(number=decays, first=ratios, second=ratios)
def test_rules_compose_and_invert(name: str, number: float, first: float, second: float) -> None:
    rule = RULES[name]
    at_once = rule(number, first * second)
    assert rule(rule(number, first), second) == pytest.approx(at_once, rel=1e-6, abs=1e-9)
    assert rule(rule(number, first), 1 / first) == pytest.approx(number, rel=1e-6, abs=1e-9)


@given(st.floats(0.9, 0.9999), st.floats(1 / 256, 4), st.floats(1 / 256, 4))
def test_adam_betas_compose_and_invert(beta: float, first: float, second: float) -> None:
    rule = rescale.rescaled_adam_beta
    assert rule(rule(beta, first), second) == pytest.approx(rule(beta, first * second), rel=1e-9)
    assert rule(rule(beta, first), 1 / first) == pytest.approx(beta, rel=1e-9)


@given(decays)
def test_a_ratio_of_one_changes_no_bit(decay: float) -> None:
    assert rescale.rescaled_proximal_decay(decay, 1.0) == decay
    assert rescale.rescaled_advantage_decay(decay, 1.0, floor=True) == decay
    assert rescale.rescaled_adam_beta(decay, 1.0) == decay
    assert rescale.rescaled_copy_every(17, 1.0, rounded=True) == 17
    assert rescale.rescaled_phase_iterations(32, 1.0, rounded=True) == 32
    assert rescale.rescaled_learning_rate(decay, 1.0, "adam") == decay


@pytest.mark.parametrize(
    ("ratio", "copy_every", "age"), [(1 / 16, 257, 128), (1 / 4, 65, 32), (1, 17, 8), (4, 5, 2), (16, 2, 0.5)]
)
def test_a_periodic_copy_is_as_old_as_the_average_of_the_same_age(
    ratio: float, copy_every: int, age: float
) -> None:
    assert rescale.rescaled_copy_every(17, ratio, rounded=True) == copy_every
    assert rescale.mean_copy_age(copy_every) == age
    assert rescale.center_of_mass(rescale.rescaled_proximal_decay(8 / 9, ratio)) == pytest.approx(age)
    assert rescale.copy_every_from_mean_age(age) == copy_every


def test_a_copy_is_taken_at_least_after_every_gradient_step() -> None:
    assert rescale.rescaled_copy_every(17, 64.0) == 1.25
    assert rescale.rescaled_copy_every(17, 64.0, rounded=True) == 1
    assert rescale.rescaled_copy_every(17, 3.0, rounded=True) == 6  # of 6.33


def test_learning_rate_follows_the_root_for_adam_and_the_batch_for_sgd() -> None:
    assert rescale.rescaled_learning_rate(1.0, 16.0, "adam") == 4.0
    assert rescale.rescaled_learning_rate(1.0, 16.0, "radam") == 4.0
    assert rescale.rescaled_learning_rate(1.0, 16.0, "sgd") == 16.0


def test_floors_come_last_and_only_when_asked() -> None:
    assert rescale.rescaled_advantage_decay(0.0, 4.0) == pytest.approx(-0.6)
    assert rescale.rescaled_advantage_decay(0.0, 4.0, floor=True) == 0.0
    assert rescale.rescaled_phase_iterations(32, 64.0) == 0.5
    assert rescale.rescaled_phase_iterations(32, 64.0, rounded=True) == 1.0
    assert rescale.rescaled_phase_iterations(32, 3.0, rounded=True) == 11.0


def test_linear_schedule_is_clamped() -> None:
    assert [schedules.linear(4.0, 2.0, x) for x in (-1.0, 0.0, 0.25, 1.0, 9.0)] == [4.0, 4.0, 3.5, 2.0, 2.0]


def test_progress_is_linear_in_env_steps_between_its_ends() -> None:
    steps = (0, 250, 999, 1000, 1010)
    assert [schedules.progress(t, until=1000) for t in steps] == [0.0, 0.25, 0.999, 1.0, 1.0]
    later = [schedules.progress(t, since=500, start=0.5, until=1500) for t in (0, 500, 1000, 1500, 1600)]
    assert later == [0.5, 0.5, 0.75, 1.0, 1.0]
    assert schedules.progress(600, since=500, start=0.5, until=400) == 1.0  # an end that has passed


def test_a_rule_replaces_the_optimizers_own() -> None:
    assert rescale.rescaled_learning_rate(1e-3, 0.0625, "adam", "linear") == 6.25e-5
    assert rescale.rescaled_learning_rate(1e-3, 0.0625, "sgd", "square-root") == 2.5e-4
    assert rescale.rescaled_learning_rate(1e-3, 0.0625, "radam") == 2.5e-4
