"""Controllers on recorded signals: what they promise for any of them, and the numbers of the papers' code."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anybatch import rules
from anybatch.config import CompleteController, ControllerConfig, schedule_points
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import controllers
from anybatch.dial.controllers import ControllerState, Decision, Signals
from anybatch.errors import ConfigError

ENVS = 128


def controller(**settings: Any) -> CompleteController:
    """A controller of numbers that were tuned at rollouts of 32 steps."""
    return ControllerConfig(**settings).completed(num_steps=32)


ABS = controller(kind="divergence")  # [16, 64], K = 50, thresholds 0.05 and 0.95
ABS_LARGE = replace(ABS, max_steps=128)
ABS_PPO = controller(
    kind="kl",
    min_steps=1024,
    max_steps=8192,
    every=10,
    low=0.01,
    high=0.1,
    rounding="released",
    multiple_of=32,
    epochs="proportional",
)
NOISE = controller(kind="noise_scale", noise_sets="minibatch", smoothing=1.0, every=1, max_steps=4096)

Row = dict[str, Any]
Step = tuple[ControllerState, Decision]


def signals(iteration: int, row: Row) -> Signals:
    return Signals(
        **({"iteration": iteration, "env_steps": 0, "samples_per_step": ENVS, "minibatches": 4} | row)
    )


def replay(
    config: CompleteController, rows: Sequence[Row], state: ControllerState | None = None, first: int = 1
) -> list[Step]:
    """State and decision after each iteration."""
    state = state or controllers.start(config)
    steps: list[Step] = []
    for iteration, row in enumerate(rows, first):
        state = controllers.decide(config, state, signals(iteration, row))
        steps.append((state, controllers.in_force(config, state)))
    return steps


def lengths(
    config: CompleteController, rows: Sequence[Row], state: ControllerState | None = None
) -> list[int]:
    """In use at the start and after each row, every one of which is an iteration that adapts."""
    config = replace(config, every=1, warmup=1)
    state = state or controllers.start(config)
    decisions = [controllers.in_force(config, state)] + [step[1] for step in replay(config, rows, state)]
    return [decision.num_steps or 0 for decision in decisions]


def through_json(state: ControllerState) -> ControllerState:
    return ControllerState.from_dict(json.loads(json.dumps(state.to_dict(), allow_nan=False)))


any_number = st.none() | st.floats() | st.floats(0, 1)


@st.composite
def configs(draw: st.DrawFn, *kinds: str) -> CompleteController:
    shortest = draw(st.integers(1, 60))
    longest = shortest + draw(st.integers(0, 300))
    multiple = draw(st.integers(1, 70))
    assume(longest // multiple * multiple >= shortest)
    window = draw(st.integers(1, 5))
    low = draw(st.floats(0.001, 0.5))
    kind: Any = draw(st.sampled_from(kinds or ("divergence", "kl", "noise_scale")))
    return controller(
        kind=kind,
        min_steps=shortest,
        max_steps=longest,
        start_steps=draw(st.just(0) | st.integers(shortest, longest)),
        multiple_of=multiple,
        every=draw(st.integers(1, 3)),
        window=window,
        warmup=draw(st.integers(1, window)),
        low=low,
        high=low * draw(st.floats(1.01, 1.99)),
        smoothing=draw(st.floats(0.01, 1.0)),
        rounding=draw(st.sampled_from(["float", "released"])),
        map=draw(st.sampled_from(["log", "linear", "exponential"])),
        noise_sets=draw(st.sampled_from(["minibatch", "iteration_batch"])),
    )


recorded = st.lists(
    st.fixed_dictionaries(
        {
            "divergence": any_number,
            "noise_trace": any_number,
            "noise_signal": any_number,
            "samples_per_step": st.integers(1, 2048),
            "minibatches": st.integers(1, 64),
        }
    ),
    max_size=12,
)


@given(config=configs(), rows=recorded)
def test_any_signals_keep_the_length_in_its_range_and_a_multiple(config: CompleteController, rows: list[Row]):
    start = controllers.start(config)
    for state, decision in [(start, controllers.in_force(config, start)), *replay(config, rows)]:
        assert config.min_steps <= state.length <= config.max_steps
        assert decision.num_steps is not None
        assert config.min_steps <= decision.num_steps <= config.max_steps
        assert decision.num_steps % config.multiple_of == 0
        assert config.step_range[0] <= decision.num_steps <= config.step_range[1]
        assert len(state.measurements) <= config.window
        assert through_json(state) == state


@given(config=configs(), rows=recorded, cut=st.integers(0, 12))
def test_a_replay_repeats_itself_also_when_cut_and_sent_through_json(
    config: CompleteController, rows: list[Row], cut: int
):
    whole = replay(config, rows)
    before = replay(config, rows[:cut])
    state = before[-1][0] if before else controllers.start(config)
    after = replay(config, rows[cut:], through_json(state), first=len(before) + 1)
    assert before + after == whole


RECORDED: list[Row] = [
    {
        "divergence": 0.3 + 0.29 * math.sin(0.3 * n) if n % 3 else None,
        "noise_trace": 900.0 * n,
        "noise_signal": math.cos(0.2 * n),
        "env_steps": 100 * n,
    }
    for n in range(1, 61)
]


@pytest.mark.parametrize(
    "config",
    [
        replace(ABS, every=2),
        replace(ABS, every=1, rounding="released", multiple_of=4, smoothing=0.5),
        replace(NOISE, every=4, smoothing=0.3),
        controller(kind="schedule", schedule=("0:16", "1500:32", "4000:8")),
    ],
    ids=["divergence", "released", "noise_scale", "schedule"],
)
def test_a_recorded_run_may_be_cut_anywhere(config: CompleteController):
    whole = replay(config, RECORDED)
    assert len({decision.num_steps for _, decision in whole}) > 2
    for cut in range(1, len(RECORDED)):
        rest = replay(config, RECORDED[cut:], through_json(whole[cut - 1][0]), first=cut + 1)
        assert rest == whole[cut:]


pairs = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 1500)), max_size=15)


@given(config=configs("divergence", "kl"), pairs=pairs)
def test_no_length_is_longer_where_the_policy_moved_more(
    config: CompleteController, pairs: list[tuple[int, int]]
):
    less = replay(config, [{"divergence": min(pair) / 1000} for pair in pairs])
    more = replay(config, [{"divergence": max(pair) / 1000} for pair in pairs])
    for (calm, long), (moved, short) in zip(less, more, strict=True):
        assert calm.length >= moved.length
        assert long.num_steps is not None and short.num_steps is not None
        assert long.num_steps >= short.num_steps


@given(config=configs("noise_scale"), pairs=pairs, signal=st.integers(-5, 50))
def test_no_length_is_shorter_where_the_noise_is_larger(
    config: CompleteController, pairs: list[tuple[int, int]], signal: int
):
    less = replay(config, [{"noise_trace": min(pair), "noise_signal": signal} for pair in pairs])
    more = replay(config, [{"noise_trace": max(pair), "noise_signal": signal} for pair in pairs])
    assert all(quiet[0].length <= noisy[0].length for quiet, noisy in zip(less, more, strict=True))


@pytest.mark.parametrize(
    ("divergence", "position", "to_64", "to_128"),
    [
        (math.sqrt(0.05 * 0.95), 0.5, 40.0, 72.0),
        (0.1, 0.2354, 52.70, 101.63),
        (0.3, 0.6085, 34.79, 59.85),
        (0.5, 0.7820, 26.46, 40.41),
        (0.05, 0.0, 64.0, 128.0),
        (0.95, 1.0, 16.0, 16.0),
        (0.0, 0.0, 64.0, 128.0),
        (1.0, 1.0, 16.0, 16.0),
    ],
)
def test_the_map_of_adaptive_batch_scaling(divergence: float, position: float, to_64: float, to_128: float):
    found = rules.divergence_position(divergence, 0.05, 0.95, "log")
    assert found == pytest.approx(position, abs=5e-5)
    for config, length in ((ABS, to_64), (ABS_LARGE, to_128)):
        assert rules.steps_at_position(found, 16, config.max_steps) == pytest.approx(length, abs=5e-3)
        at_once = replace(config, smoothing=1.0, every=1, warmup=1)
        ((state, decision),) = replay(at_once, [{"divergence": divergence}])
        assert state.length == pytest.approx(length, abs=5e-3)
        assert decision.num_steps == math.floor(length + 0.5)


@pytest.mark.parametrize("shape", ["log", "linear", "exponential"])
def test_every_map_falls_from_longest_to_shortest_and_is_clamped(shape: Any):
    inside = [0.05 + 0.9 * part / 200 for part in range(1, 200)]
    positions = [rules.divergence_position(value, 0.05, 0.95, shape) for value in inside]
    assert positions == sorted(set(positions)) and 0 < positions[0] < positions[-1] < 1
    for ends, position in (((-1.0, 0.0, 0.05), 0.0), ((0.95, 1.0, 7.0), 1.0)):
        assert {rules.divergence_position(value, 0.05, 0.95, shape) for value in ends} == {position}


def test_linear_is_the_position_and_exponential_the_mirror_image_of_log():
    low, high = 0.05, 0.95
    assert rules.divergence_position(0.275, low, high, "linear") == pytest.approx(0.25)
    for position in (0.1, 0.25, 0.5, 0.9):
        divergence = low + position * (high - low)
        convex = rules.divergence_position(divergence, low, high, "exponential")
        assert convex == pytest.approx((19**position - 1) / 18)
        assert convex < position < rules.divergence_position(divergence, low, high, "log")
        mirrored = rules.divergence_position(low + convex * (high - low), low, high, "log")
        assert mirrored == pytest.approx(position)


def test_the_map_that_is_configured_is_used():
    targets = {
        shape: lengths(replace(ABS, map=shape, smoothing=1.0), [{"divergence": 0.275}])[-1]
        for shape in ("log", "linear", "exponential")
    }
    assert targets == {"log": 36, "linear": 52, "exponential": 61}


def test_divergence_is_measured_on_iterations_divisible_by_every():
    for config in (ABS, replace(ABS, kind="kl")):
        assert [n for n in range(1, 201) if controllers.measures_at(config, n)] == [50, 100, 150, 200]
    for kind in ("fixed", "noise_scale"):
        assert not any(controllers.measures_at(replace(ABS, kind=kind), n) for n in range(1, 201))


def test_nothing_changes_before_ten_measurements():
    steps = replay(ABS, [{"divergence": 0.01}] * 500)
    assert all(decision == Decision(num_steps=16, has_changed=False) for _, decision in steps[:499])
    assert [len(steps[n - 1][0].measurements) for n in (49, 50, 449, 450, 499)] == [0, 1, 8, 9, 9]
    state, decision = steps[499]
    assert state.length == pytest.approx(0.9 * 16 + 0.1 * 64)
    assert decision == Decision(num_steps=21, has_changed=True)


def test_between_two_measurements_nothing_changes():
    steps = replay(ABS, [{"divergence": 0.01 if n % 50 == 0 else 0.9} for n in range(1, 600)])
    assert {state for state, _ in steps[499:549]} == {steps[499][0]}
    assert steps[549][0].length == pytest.approx(0.9 * 20.8 + 0.1 * 64)


def test_the_mean_is_over_the_last_twenty():
    at_once = replace(ABS, every=1, smoothing=1.0)
    divergences = [0.9] * 5 + [n / 40 for n in range(1, 21)]
    (*_, (state, _)) = replay(at_once, [{"divergence": value} for value in divergences])
    assert state.measurements == tuple(divergences[5:])
    mean = sum(range(1, 21)) / 40 / 20
    position = math.log(mean / 0.05) / math.log(19)
    assert state.length == pytest.approx(64 - 48 * position)


def test_the_mean_is_taken_before_the_map():
    steps = lengths(
        replace(ABS, smoothing=1.0, window=2, warmup=1), [{"divergence": 0.05}, {"divergence": 0.95}]
    )
    assert steps == [16, 64, 26]  # of 0.5, not the middle 40 of the two targets


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("config", [ABS, NOISE], ids=["divergence", "noise_scale"])
def test_what_was_not_measured_changes_nothing(config: CompleteController, value: float | None):
    config = replace(config, every=1, warmup=1)
    ((before, _),) = replay(config, [{"divergence": 0.2, "noise_trace": 900.0, "noise_signal": 1.0}])
    assert before != controllers.start(config)
    for part in ({"noise_trace": value, "noise_signal": 1.0}, {"noise_trace": 1.0, "noise_signal": value}):
        ((after, decision),) = replay(config, [{"divergence": value} | part], before)
        assert after == before
        assert decision == controllers.in_force(config, before)


@pytest.mark.parametrize(
    ("config", "beginning", "adaptations", "end"),
    [
        (ABS, [16, 20, 24, 28, 31, 34, 37, 39], 20, 55),
        (ABS_LARGE, [16, 27, 37, 46, 54, 61, 67, 73], 28, 119),
    ],
)
def test_released_rounding_stalls_below_the_longest(
    config: CompleteController, beginning: list[int], adaptations: int, end: int
):
    found = lengths(replace(config, rounding="released"), [{"divergence": 0.05}] * 60)
    assert found[:8] == beginning
    assert found[adaptations - 1] == end - 1
    assert set(found[adaptations:]) == {end}


@pytest.mark.parametrize(("target", "from_below"), [(40, 31), (32, 23)])
def test_released_rounding_stalls_from_below_and_arrives_from_above(target: int, from_below: int):
    divergence = 0.05 * 19 ** ((64 - target - 1e-6) / 48)  # a hair above the target, which is cut
    released = replace(ABS, rounding="released")
    assert lengths(released, [{"divergence": divergence}] * 100)[-1] == from_below
    above = replace(released, start_steps=64)
    assert lengths(above, [{"divergence": divergence}] * 100)[-1] == target


def test_released_multiples_of_32_stall_at_7904():
    assert lengths(ABS_PPO, [{"divergence": 0.01}] * 300)[-50:] == [7904] * 50
    to_the_nearest = replace(ABS_PPO, rounding="float")
    assert lengths(to_the_nearest, [{"divergence": 0.01}] * 300)[-1] == 8192


def test_released_rounding_is_the_arithmetic_of_the_released_code():
    config = replace(ABS_PPO, every=1)
    divergences = [0.03 * (1 + math.sin(1.7 * n)) for n in range(200)]
    steps = replay(config, [{"divergence": value} for value in divergences])
    length = 1024
    for count, (_, decision) in enumerate(steps, 1):
        if count >= 10:
            recent = divergences[max(0, count - 20) : count]
            mean = min(max(sum(recent) / len(recent), 0.01), 0.1)
            target = int(8192 - math.log10(mean / 0.01) * 7168)
            length = max(int(0.9 * length + 0.1 * target) // 32 * 32, 1024)
        assert decision.num_steps == length
    assert length > 2000


def test_released_rounding_cuts_the_target_too():
    assert rules.released_smoothed_steps(16, 19.9, 0.3) == 16  # of 16.9; uncut it would be 17.17


def length_after(config: CompleteController, env_steps: int) -> int:
    """The length in use once so many env steps are done by a policy that hardly moves."""
    state, done, iteration = controllers.start(config), 0, 0
    while done < env_steps:
        iteration += 1
        done += ENVS * (controllers.in_force(config, state).num_steps or 0)
        row = {"divergence": 0.02 if controllers.measures_at(config, iteration) else None, "env_steps": done}
        state = controllers.decide(config, state, signals(iteration, row))
    return controllers.in_force(config, state).num_steps or 0


@pytest.mark.parametrize(
    ("config", "env_steps", "length"),
    [
        (ABS, 1_000_000, 16),
        (ABS, 5_000_000, 55),
        (ABS, 10_000_000, 62),
        (ABS_LARGE, 20_000_000, 124),
        (replace(ABS, rounding="released"), 20_000_000, 55),
    ],
)
def test_how_far_the_length_is_after_so_many_env_steps(
    config: CompleteController, env_steps: int, length: int
):
    assert length_after(config, env_steps) == length


@pytest.mark.parametrize("config", [ABS, ABS_LARGE])
def test_a_real_length_arrives(config: CompleteController):
    assert lengths(config, [{"divergence": 0.05}] * 100)[-1] == config.max_steps


@pytest.mark.parametrize(
    ("rounding", "starts"),
    [
        ("float", {10: 32, 47: 32, 48: 64, 79: 64, 80: 96, 100: 96}),
        ("released", {10: 32, 63: 32, 64: 64, 95: 64}),
    ],
)
def test_the_multiple_in_use_is_the_nearest_or_that_below_but_in_the_range(
    rounding: Any, starts: dict[int, int]
):
    for start, length in starts.items():
        config = controller(
            kind="divergence",
            min_steps=10,
            max_steps=100,
            start_steps=start,
            multiple_of=32,
            rounding=rounding,
        )
        assert controllers.in_force(config, controllers.start(config)).num_steps == length
        assert config.step_range == (32, 96)


def test_the_run_starts_at_the_shortest_or_where_told():
    assert controllers.start(ABS) == ControllerState(length=16.0)
    assert controllers.start(replace(ABS, start_steps=32)) == ControllerState(length=32.0)


def test_kl_uses_the_same_rule_with_thresholds_of_its_own():
    at_once = replace(ABS_PPO, rounding="float", multiple_of=1, smoothing=1.0)
    kls = (0.001, 0.01, math.sqrt(0.001), 0.1, 3.0)
    targets = [lengths(at_once, [{"divergence": kl}])[-1] for kl in kls]
    assert targets == [8192, 8192, 4608, 1024, 1024]
    assert [n for n in range(1, 41) if controllers.measures_at(ABS_PPO, n)] == [10, 20, 30, 40]


@pytest.mark.parametrize(
    ("noise_sets", "length"),
    [("minibatch", 100_000 * 4 / ENVS), ("iteration_batch", 100_000 / ENVS)],
)
def test_the_batch_is_made_equal_to_the_noise_scale(noise_sets: Any, length: float):
    row = {"noise_trace": 50.0, "noise_signal": 0.0005}  # 100,000 samples
    config = replace(NOISE, noise_sets=noise_sets)
    ((state, decision),) = replay(config, [row])
    assert state.length == pytest.approx(length)
    assert decision.num_steps == math.floor(length + 0.5)
    batch = state.length * ENVS / (4 if noise_sets == "minibatch" else 1)
    assert batch == pytest.approx(100_000)


def test_the_released_code_cuts_the_noise_scale_to_whole_steps():
    config = replace(NOISE, noise_sets="iteration_batch", rounding="released")
    for noise_scale in (2047.9, 2048.0, 3000.0, 4095.9, 4096.5, 6143.99):
        ((_, decision),) = replay(config, [{"noise_trace": noise_scale, "noise_signal": 1.0}])
        assert decision.num_steps == max(int(noise_scale) // ENVS, 16)


@pytest.mark.parametrize("signal", [0.0, -0.0, -1e-9, -5.0, 5e-324])
@pytest.mark.parametrize("rounding", ["float", "released"])
def test_a_signal_that_noise_hides_means_the_largest_batch_but_the_smallest_in_the_paper(
    signal: float, rounding: Any
):
    config = replace(NOISE, rounding=rounding, start_steps=99)
    row = {"noise_trace": 3.0, "noise_signal": signal}
    ((_, decision),) = replay(replace(config, noise_estimator="sequences"), [row])
    assert decision.num_steps == 4096
    ((_, decision),) = replay(config, [row])
    assert decision.num_steps == (4096 if signal > 0 and rounding == "float" else 16)


def test_without_noise_the_batch_is_the_smallest():
    for trace in (0.0, -1e-12):
        large = replace(NOISE, start_steps=4096)
        ((_, decision),) = replay(large, [{"noise_trace": trace, "noise_signal": 1.0}])
        assert decision.num_steps == 16


def test_the_noise_scale_is_smoothed_and_read_every_so_often_without_a_warm_up():
    config = replace(NOISE, smoothing=0.1, every=3)
    steps = replay(config, [{"noise_trace": 3200.0, "noise_signal": 1.0}] * 6)  # a target of 100
    found = [state.length for state, _ in steps]
    assert found == pytest.approx([16, 16, 24.4, 24.4, 24.4, 31.96])
    assert all(not state.measurements for state, _ in steps)


def test_a_schedule_is_a_step_function_of_env_steps():
    config = controller(kind="schedule", schedule=("0:128", "1000:32", "5000:8"), multiple_of=5)
    start = controllers.start(config)
    assert controllers.in_force(config, start) == Decision(num_steps=128, has_changed=False)
    done = (0, 999, 1000, 1001, 4999, 5000, 10**9)
    steps = replay(config, [{"env_steps": n, "divergence": 0.5, "noise_trace": 1.0} for n in done])
    assert [decision.num_steps for _, decision in steps] == [128, 128, 32, 32, 32, 8, 8]
    assert [decision.has_changed for _, decision in steps] == [False] * 2 + [True] * 5
    assert config.step_range == (8, 128)
    assert not controllers.measures_at(config, 50)


def test_a_schedule_depends_on_env_steps_only():
    config = controller(kind="schedule", schedule=("0:16", "1000:32"))
    state = controllers.decide(config, ControllerState(length=99.0), signals(77, {"env_steps": 2000}))
    assert (state.length, controllers.in_force(config, state).num_steps) == (32.0, 32)


def test_fixed_leaves_the_length_to_the_run():
    config = controller(epochs="at_least")
    rows = [{"divergence": 0.01, "noise_trace": 1.0, "noise_signal": -1.0, "env_steps": 10**9}] * 1000
    assert set(replay(config, rows)) == {
        (controllers.start(config), Decision(num_steps=None, has_changed=False))
    }
    assert controllers.epochs(config, 3, 32, controllers.in_force(config, controllers.start(config))) == 3


def at(num_steps: int, has_changed: bool = True) -> Decision:
    return Decision(num_steps=num_steps, has_changed=has_changed)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("constant", {16: 2, 47: 2, 48: 2, 64: 2, 128: 2}),
        ("at_least", {16: 2, 32: 2, 47: 2, 48: 3, 63: 3, 64: 4, 96: 6, 119: 7, 128: 8}),
        ("proportional", {8: 1, 15: 1, 16: 1, 31: 1, 32: 2, 47: 2, 48: 3, 64: 4, 128: 8}),
    ],
)
def test_epochs_follow_the_length(rule: Any, expected: dict[int, int]):
    config = replace(ABS_LARGE, epochs=rule)
    assert {length: controllers.epochs(config, 2, 32, at(length)) for length in expected} == expected


def test_released_ppo_has_its_epochs_from_the_first_change_on():
    config = replace(ABS_PPO, every=1, warmup=2)
    kls = [0.01, 0.01, *[0.1] * 40, *[0.01] * 60]
    steps = replay(config, [{"divergence": kl} for kl in kls])
    found = [(decision.num_steps, controllers.epochs(config, 10, 2048, decision)) for _, decision in steps]
    assert controllers.epochs(config, 10, 2048, controllers.in_force(config, controllers.start(config))) == 10
    assert found[0] == (1024, 10)
    assert found[1] == (1728, 8)
    assert found[41] == (1024, 5)  # back where it started
    assert found[-1] == (7904, 38)
    assert controllers.epochs(config, 10, 2048, at(8192)) == 40


def test_at_least_does_not_wait_for_a_change():
    config = replace(ABS, start_steps=64, epochs="at_least")
    assert controllers.epochs(config, 2, 32, controllers.in_force(config, controllers.start(config))) == 4


def test_released_epochs_keep_gradient_steps_per_env_step():
    config = replace(ABS_LARGE, epochs="at_least")
    per_million = {
        length: round(1e6 * 4 * controllers.epochs(config, 2, 32, at(length)) / (length * ENVS))
        for length in (16, 32, 55, 64, 128)
    }
    assert per_million == {16: 3906, 32: 1953, 55: 1705, 64: 1953, 128: 1953}


def test_a_change_is_one_of_the_length_in_use():
    moved = replay(replace(ABS, every=1, warmup=1, max_steps=20), [{"divergence": 0.05}] * 2)
    assert [state.length for state, _ in moved] == pytest.approx([16.4, 16.76])
    assert [decision for _, decision in moved] == [at(16, False), at(17, True)]


def test_a_resume_in_a_smaller_range_is_in_it_at_once():
    state = through_json(ControllerState(length=60.0, measurements=(0.1,) * 20, has_changed=True))
    smaller = replace(ABS, max_steps=32, window=10, every=1)
    assert controllers.in_force(smaller, state).num_steps == 32
    ((after, _),) = replay(smaller, [{"divergence": 0.1}], state)
    assert after.length <= 32 and len(after.measurements) == 10


SCHEDULED = controller(kind="schedule", schedule=("0:16", "9:8"))


@pytest.mark.parametrize("config", [ControllerConfig(), ABS_PPO, NOISE, SCHEDULED])
def test_the_config_goes_through_json(config: ControllerConfig):
    assert config_from_dict(type(config), json.loads(json.dumps(config_to_dict(config)))) == config


def test_a_schedule_is_pairs_of_env_steps_and_length():
    assert schedule_points(SCHEDULED.schedule) == ((0, 16), (9, 8))


def test_another_schedule_at_a_resume_is_a_change_if_it_has_another_length_there():
    """Proportional epochs hold from the first change on."""
    for length, had_changed, has_changed in ((16.0, False, False), (32.0, False, True), (16.0, True, True)):
        before = ControllerState(length=length, has_changed=had_changed)
        resumed = controllers.resumed(SCHEDULED, before, env_steps=5)
        assert resumed == ControllerState(length=16.0, has_changed=has_changed)


REFUSED: list[tuple[Row, tuple[str, ...]]] = [
    ({"min_steps": 65}, ("min-steps = 65", "max-steps = 64")),
    ({"min_steps": 0}, ("min-steps = 0",)),
    ({"max_steps": 0}, ("max-steps = 0",)),
    ({"start_steps": 15}, ("start-steps = 15", "min-steps = 16", "max-steps = 64")),
    ({"start_steps": 65}, ("start-steps = 65", "max-steps = 64")),
    ({"start_steps": -1}, ("start-steps = -1",)),
    *[({name: 0}, (f"{name.replace('_', '-')} = 0",)) for name in ("every", "window", "warmup", "states")],
    ({"multiple_of": 0}, ("multiple-of = 0",)),
    ({"multiple_of": 65}, ("multiple-of = 65", "min-steps = 16", "max-steps = 64")),
    ({"min_steps": 33, "max_steps": 63, "multiple_of": 32}, ("multiple-of = 32",)),
    ({"warmup": 21}, ("warmup = 21", "window = 20")),
    ({"smoothing": 0.0}, ("smoothing = 0.0",)),
    ({"smoothing": 1.01}, ("smoothing = 1.01",)),
    ({"smoothing": math.nan}, ("smoothing = nan",)),
    ({"kind": "divergence", "low": 0.95}, ("low = 0.95", "high = 0.95", "kind = divergence")),
    ({"kind": "divergence", "low": 0.0}, ("low = 0.0", "high = 0.95")),
    ({"kind": "divergence", "high": 1.0}, ("low = 0.05", "high = 1.0")),
    ({"kind": "divergence", "low": math.nan}, ("low = nan",)),
    ({"kind": "kl", "low": 0.0}, ("low = 0.0", "kind = kl")),
    ({"kind": "kl", "low": 2.0, "high": 1.0}, ("low = 2.0", "high = 1.0")),
    ({"kind": "kl", "high": math.inf}, ("high = inf",)),
    ({"kind": "schedule"}, ("schedule = empty", "ENV_STEPS:NUM_STEPS")),
    *[
        ({"kind": "schedule", "schedule": ("0:16", text)}, (f"schedule = 0:16 {text}", "ENV_STEPS:NUM_STEPS"))
        for text in ("16", "9:", ":9", "9:8:7", "-9:8", "1.5:32", "9:8.5", "9:0", "")
    ],
    ({"kind": "schedule", "schedule": ("5:16",)}, ("schedule = 5:16", "0 env steps")),
    ({"kind": "schedule", "schedule": ("0:16", "9:8", "7:4")}, ("schedule = 0:16 9:8 7:4", "more env steps")),
    ({"kind": "schedule", "schedule": ("0:16", "0:8")}, ("schedule = 0:16 0:8", "more env steps")),
    *[
        ({"kind": kind, "schedule": ("0:16",)}, ("schedule = 0:16", "kind = schedule", kind))
        for kind in ("fixed", "divergence", "kl", "noise_scale")
    ],
    *[
        ({"compensate": "all", "epochs": epochs}, ("compensate = all", f"controller.epochs = {epochs}"))
        for epochs in ("at_least", "proportional")
    ],
]


@pytest.mark.parametrize(("settings", "fragments"), REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(settings: Row, fragments: tuple[str, ...]):
    with pytest.raises(ConfigError) as refusal:
        controller(**settings)
    sentence = str(refusal.value)
    assert sentence.startswith("controller.") and "\n" not in sentence
    assert all(fragment in sentence for fragment in fragments)


@pytest.mark.parametrize(
    "settings",
    [
        {"low": 0.9, "high": 0.1},
        {"kind": "noise_scale", "low": 0.9, "high": 0.1},
        {"kind": "kl", "low": 0.5, "high": 40.0},
        {"kind": "schedule", "schedule": ("0:1000", "1:1"), "low": 0.9, "high": 0.1},
        {"min_steps": 16, "max_steps": 16, "multiple_of": 16, "start_steps": 16},
        {"min_steps": 31, "max_steps": 33, "multiple_of": 32},
        {"window": 1, "warmup": 1, "smoothing": 1.0},
        {"compensate": "all"},
        {"epochs": "proportional"},
    ],
)
def test_what_another_kind_reads_is_not_refused(settings: Row):
    controller(**settings)
