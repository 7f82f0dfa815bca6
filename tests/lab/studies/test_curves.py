"""What a cell keeps of the rows of its run."""

import pytest

from anybatch.errors import ConfigError
from anybatch.lab.studies import curves, duration


def row(env_steps: int, episodes: int | None = None, mean: float = 0.0, **metrics: float) -> dict[str, float]:
    ended = {} if episodes is None else {"charts/episodes": episodes, "charts/episodic_return": mean}
    return {"env_steps": env_steps, **ended, **metrics}


def test_the_end_of_a_part_belongs_to_it():
    found = curves.parts([row(10), row(11), row(40), row(45)], total_env_steps=40, bins=4)
    assert [[one["env_steps"] for one in part] for part in found] == [[10], [11], [], [40, 45]]


def test_a_point_is_the_mean_over_the_episodes_of_its_part():
    rows = [row(5, 1, 4.0), row(10, 3, 8.0), row(20), row(30, 2, 1.0)]
    assert curves.return_curve(rows, 40, 4) == ((10, 7.0), (20, None), (30, 1.0), (40, None))


def test_gaps_take_the_value_after_and_the_end_the_last_one():
    assert curves.filled([None, 2.0, None, 3.0, None]) == [2, 2, 3, 3, 3]
    assert curves.area([None, 2.0, None, 3.0, None]) == pytest.approx(13 / 5)
    assert curves.filled([None, None]) == [] and curves.area([None]) is None


@pytest.mark.parametrize("iteration", [1, 2, 10, 30])
def test_the_size_of_iterations_does_not_change_the_area(iteration: int):
    """An episode ends at each env step, and its return is the number of env steps so far."""
    rows = [
        row(end, iteration, sum(range(end - iteration + 1, end + 1)) / iteration)
        for end in range(iteration, 121, iteration)
    ]
    curve = [value for _, value in curves.return_curve(rows, 120, 12)]
    assert curves.area(curve) == pytest.approx(60.5)


def test_the_final_return_is_the_mean_of_the_last_tenth():
    assert curves.final_return([float(value) for value in range(20)]) == 18.5
    assert curves.final_return([1.0, 2.0, 3.0]) == 3


def test_metrics_are_means_within_a_part():
    rows = [row(1, **{"losses/entropy": 1.0, "noise/signal": signal}) for signal in (1.0, 2.0, -6.0)]
    rows.append(row(8, **{"losses/entropy": 3.0}))
    found = curves.metric_curves(rows, 8, 2)
    assert found == {"losses/entropy": (1.0, 3.0), "noise/signal": (-1.0, None)}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800)]
)
def test_durations_are_written_as_people_do(text: str, seconds: float):
    assert duration.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "20 minutes", "-3m", "1h 30m", "h"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="must be a duration such as 20m"):
        duration.seconds(text)


@pytest.mark.parametrize("text", ["90s", "14d", "1.5s", "100000d"])
def test_durations_are_written_as_they_are_read(text: str):
    seconds = duration.seconds(text)
    assert duration.seconds(duration.written(seconds)) == seconds


def test_a_budget_that_is_no_time_is_refused_by_its_name():
    assert duration.of_budget(None) is None and duration.of_budget("2m") == 120
    with pytest.raises(ConfigError, match="--budget 0h: must be longer than 0"):
        duration.of_budget("0h")
    with pytest.raises(ConfigError, match="--budget: 'soon' must be a duration"):
        duration.of_budget("soon")
