"""Whole numbers as people write them, in every integer flag."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anybatch.cli import main
from anybatch.config import ControllerConfig, schedule_points
from anybatch.config.require import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("0", 0),
        ("0e-99999999999", 0),
        ("1_000_000", 1_000_000),
        ("1e6", 1_000_000),
        ("1E6", 1_000_000),
        ("2.5e3", 2_500),
        ("1500e-2", 15),
        ("10k", 10_000),
        ("10K", 10_000),
        ("2.5M", 2_500_000),
        ("0.25k", 250),
        ("3b", 3_000_000_000),
        ("1.0", 1),
        ("9007199254740993", 2**53 + 1),
        ("9007199254740.993k", 2**53 + 1),
    ],
)
def test_what_is_a_whole_number(text: str, number: int):
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "many", "1.5", "1e-3", "0.1", "1.0005k", "1.", ".5k", "k", "0x10", "1__0", "10kk", "inf"),
        *("1,000", "256,256", "1e-999999999"),
    ],
)
def test_what_is_not_a_whole_number(text: str):
    with pytest.raises(ValueError, match="must be a whole number"):
        whole_number(text)


@pytest.mark.parametrize("text", ["1e40", "1e999999999", "9" * 5_000, f"1e{'9' * 5_000}"])
def test_a_number_that_would_fill_the_memory_is_refused(text: str):
    with pytest.raises(ValueError, match="must have at most 40 digits"):
        whole_number(text)


@given(st.integers(-(10**20), 10**20), st.integers(0, 9))
def test_moving_the_point_changes_nothing(number: int, places: int):
    digits = f"{abs(number):0{places + 1}d}"
    moved = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    assert whole_number(f"{'-' * (number < 0)}{moved}e{places}") == number


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, int]:
    main(["plan", "--preset=cartpole-ppo-ewma", "--json", *words])
    return json.loads(capsys.readouterr().out)["batch"]


def test_integer_flags_take_such_numbers_with_and_without_an_equals_sign(capsys: pytest.CaptureFixture[str]):
    assert planned(capsys, "--num-envs", "1e2", "--num-steps=1k")["iteration_batch"] == 100_000
    assert planned(capsys, "--microbatch=0.1k", "--total-env-steps", "2.5M")["microbatch"] == 100


@pytest.mark.parametrize(
    "words",
    [
        ["--env-config.max-episode-steps", "10k"],  # may be None
        ["--network.hidden-sizes", "1e1", "0.2k"],  # a list
        ["--update.noise-scale-every=1_000"],
    ],
)
def test_optional_and_listed_integers_take_them_too(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert planned(capsys, *words)["num_envs"] == 8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--num-envs", "1.5"], "--num-envs 1.5: must be a whole number"),
        (["--total-env-steps=1e-1"], "--total-env-steps 1e-1: must be a whole number"),
        (["--network.hidden-sizes", "1.5", "3"], "--network.hidden-sizes 1.5 3: must be whole numbers"),
        (["--microbatch=1e99"], "--microbatch 1e99: must have at most 40 digits"),
    ],
)
def test_other_numbers_are_refused_in_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(["plan", *words])
    assert refusal.value.code == 2 and capsys.readouterr().err == f"anybatch plan: {sentence}\n"


def test_a_schedule_takes_them():
    schedule = ("0:16", "1M:32", "2.5e6:1k")
    assert schedule_points(schedule) == ((0, 16), (1_000_000, 32), (2_500_000, 1_000))
    assert ControllerConfig(kind="schedule", schedule=schedule).completed(32).step_range == (16, 1_000)
