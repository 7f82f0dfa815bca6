"""What a run's metrics are said to mean, each with its number and the flag that changes it."""

from typing import Any

import pytest
from toy_runs import changed, toy_config, toy_pqn_config

from anybatch import planning, presets
from anybatch.config import AnyConfig
from anybatch.rules import center_of_mass
from anybatch.runs.advice import Advice, advise


def only(config: AnyConfig, **metrics: Any) -> Advice:
    """The one finding in a run whose rows all have these metrics."""
    (found,) = advise(rows(**metrics), config)
    return found


def rows(**metrics: Any) -> list[dict[str, Any]]:
    return [{name.replace("__", "/"): value for name, value in metrics.items()}] * 40


@pytest.mark.parametrize(
    ("epochs", "share", "flag"),
    [
        (1, 0.001, "--proximal.ewma-decay"),
        (3, 0.001, "--proximal.ewma-decay"),
        (1, 0.16, "--optimizer.learning-rate"),
        (3, 0.31, "--optimizer.learning-rate"),
    ],
)
def test_clipping_far_from_the_range_of_the_paper_is_said(epochs: int, share: float, flag: str):
    found = only(toy_config(update={"epochs": epochs}), losses__clipfrac=share)
    assert f"{share:.2%} of the ratios are clipped with {epochs} epoch" in found.measured
    assert flag in found.flag


@pytest.mark.parametrize(("epochs", "share"), [(1, 0.005), (1, 0.1), (3, 0.2)])
def test_clipping_within_the_range_is_not(epochs: int, share: float):
    assert not advise(rows(losses__clipfrac=share), toy_config(update={"epochs": epochs}))


def test_the_advice_for_little_clipping_knows_whether_there_is_an_average():
    plain = only(toy_config(), losses__clipfrac=0.0)
    averaged = only(toy_config(proximal={"policy": "ewma"}), losses__clipfrac=0.0)
    assert "--proximal.policy ewma" in plain.flag
    assert "--proximal.policy" not in averaged.flag and "--proximal.ewma-decay" in averaged.flag


@pytest.mark.parametrize(("swing", "said"), [(9.0, False), (11.0, True)])
def test_an_advantage_deviation_that_swings_tenfold_within_some_iterations_is_said(swing: float, said: bool):
    deviations = [{"advantage/std": 1.0 if number % 2 else swing} for number in range(40)]
    found = advise(deviations, toy_config())
    assert bool(found) == said
    if said:
        assert "swings by 11 ×" in found[0].measured and found[0].flag == "--objective.advantage-decay"


def test_a_deviation_that_drifts_over_a_long_run_is_no_swing():
    drift = [{"advantage/std": 1.05**number} for number in range(100)]
    assert drift[-1]["advantage/std"] > 100 and not advise(drift, toy_config())


@pytest.mark.parametrize("iterations", [5, 19, 21, 59])
def test_a_swing_in_a_window_that_is_not_full_counts(iterations: int):
    deviations = [{"advantage/std": 1000.0 if number % 2 else 1.0} for number in range(iterations)]
    assert [advice.flag for advice in advise(deviations, toy_config())] == ["--objective.advantage-decay"]


def test_few_effective_samples_are_said():
    stale = only(toy_config(staleness={"iterations": 8}), importance__effective_samples=0.1)
    assert stale.flag.startswith("--staleness.iterations")
    found = only(toy_config(), importance__effective_samples=0.3)
    assert "30% of the samples effective" in found.measured and "--update.epochs" in found.flag
    assert not advise(rows(importance__effective_samples=0.6), toy_config())


@pytest.mark.parametrize(("age", "word"), [(16, "young"), (10_000, "old")])
def test_a_proximal_policy_of_another_age_than_iterations_have_is_said(age: float, word: str):
    config = toy_config(proximal={"policy": "ewma"}, num_envs=12)
    found = only(config, proximal__age_env_steps=age, batch__iteration=84)
    assert found.measured == (
        f"the proximal policy is {age:,} env steps old on average, "
        f"{age / 84:.3g} iterations of the tuned batch"
    )
    assert word in found.meaning and found.flag == "--proximal.ewma-decay"
    assert not advise(rows(proximal__age_env_steps=84, batch__iteration=84), config)


@pytest.mark.parametrize("envs", [1, 16, 256, 4096])
def test_the_age_that_the_rule_keeps_is_right_at_any_batch(envs: int):
    config = changed(presets.load("procgen-ppg-ewma").config, num_envs=envs, minibatch="scaled")
    age = center_of_mass(planning.plan(config).hyperparameters.proximal_decay) * 65_536 / 8 * envs / 256
    assert age == pytest.approx(65_536)
    assert not advise(rows(proximal__age_env_steps=age, batch__iteration=256 * envs), config)


def test_a_minibatch_above_the_noise_scale_is_said_for_every_algorithm():
    for config in (toy_config(), toy_pqn_config()):
        found = only(config, batch__minibatch=512, noise__trace=230, noise__signal=1)
        assert "minibatch of 512 samples is above the measured noise scale of 230" in found.measured
        assert found.flag == "--minibatch 230"
        small = only(config, batch__minibatch=512, noise__trace=8, noise__signal=1)  # 10.5 are tuned at
        assert small.flag == "--update.minibatches-per-epoch"
        assert not advise(rows(batch__minibatch=200, noise__trace=230, noise__signal=1), config)


def test_a_noise_scale_is_the_mean_trace_over_the_mean_signal_with_its_error():
    signals = [1.0, 3.0, -1.0, 5.0] * 10  # none is left out
    measured = [{"batch/minibatch": 512, "noise/trace": 200.0, "noise/signal": signal} for signal in signals]
    not_measured = [{"batch/minibatch": 512}] * 100
    found = advise(measured + not_measured, toy_config())[0]
    assert "noise scale of 100 (standard error 18)" in found.measured
    assert not advise([row | {"batch/minibatch": 130} for row in measured], toy_config())  # within two errors


def test_nothing_is_advised_after_a_single_iteration():
    one = rows(losses__clipfrac=0.9)[:1]
    assert not advise(one, toy_config()) and advise(one * 2, toy_config())


def test_a_larger_batch_is_advised_by_environments_not_by_longer_rollouts():
    found = only(toy_config(), losses__clipfrac=0.0)
    assert "--num-envs" in found.flag and "--num-steps" not in found.flag


def test_noise_that_hides_the_signal_is_above_every_minibatch():
    hidden = [{"batch/minibatch": 256, "noise/trace": 100.0, "noise/signal": (-1.0) ** n} for n in range(9)]
    assert not advise(hidden, toy_config())


def test_gradients_that_are_often_clipped_are_said_where_the_dial_turns():
    found = only(toy_config(), losses__grad_clip_fraction=0.5, batch__minibatch=21)
    assert "clipped in 50% of the steps" in found.measured and found.flag == "--optimizer.max-grad-norm"
    unscaled = toy_config(rescale="none")
    assert not advise(rows(losses__grad_clip_fraction=0.5, batch__minibatch=21), unscaled)
    tuned = rows(losses__grad_clip_fraction=0.5, batch__minibatch=10.5)
    assert not advise(tuned, toy_config())  # at the batch tuned at no rule changes anything


def test_what_is_measured_after_the_task_was_solved_is_left_out():
    learning = [{"losses/clipfrac": 0.05, "charts/episodic_return": 5.0 * number} for number in range(100)]
    solved = rows(losses__clipfrac=0.0, charts__episodic_return=499.0) * 50
    assert not advise(learning + solved, toy_config())
    lost = [{"losses/clipfrac": 0.0, "charts/episodic_return": 100.0}]
    assert advise(learning + solved + lost, toy_config())
    assert advise(solved, toy_config())  # nothing says that this was learned
