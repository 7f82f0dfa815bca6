import time

import pytest

from anybatch.runs.timer import Timer


def test_seconds_accumulate_per_section_and_the_rest_is_other():
    timer = Timer()
    for _ in range(2):
        with timer("rollout"):
            time.sleep(0.02)
    with timer("update"):
        time.sleep(0.01)
    time.sleep(0.03)
    seconds = timer.take()
    assert list(seconds) == ["rollout", "update", "other"]
    assert seconds["rollout"] >= 0.04 and seconds["update"] >= 0.01 and seconds["other"] >= 0.03


def test_sections_and_other_add_up_to_the_time_that_passed():
    start = time.perf_counter()
    timer = Timer()
    with timer("rollout"):
        time.sleep(0.01)
    total = sum(timer.take().values())
    assert 0.01 <= total <= time.perf_counter() - start


def test_take_starts_again_from_zero():
    timer = Timer()
    with timer("rollout"):
        time.sleep(0.02)
    timer.take()
    assert timer.take()["rollout"] == 0.0


def test_a_section_that_raises_is_still_counted():
    timer = Timer()
    with pytest.raises(ValueError), timer("rollout"):
        time.sleep(0.01)
        raise ValueError
    assert timer.take()["rollout"] >= 0.01


def test_the_section_that_failed_is_the_one_that_an_error_ended_last():
    timer = Timer()
    with timer("rollout"):
        pass
    assert timer.failed is None
    with pytest.raises(ValueError), timer("update"):
        raise ValueError
    assert timer.failed == "update"
    with timer("update"):
        pass
    assert timer.failed is None
