import json

import numpy as np

from anybatch.envs.episodes import Episode, EpisodeTracker, from_table, to_table
from anybatch.envs.protocol import EnvStep


def step(
    score: list[float], *, valid: list[bool], end: list[bool], truncated: list[bool] | None = None
) -> EnvStep:
    no = np.zeros(3, dtype=np.bool_)
    scores = np.array(score, dtype=np.float32)
    # Clipped rewards and lost lives must not matter: only score, valid, episode_end and truncated are read.
    cut = no if truncated is None else np.array(truncated)
    return EnvStep(scores, np.sign(scores), ~no, cut, np.array(valid), scores, np.array(end), None)


YES, NO = [True] * 3, [False] * 3


def taken(tracker: EpisodeTracker) -> list[Episode]:
    """The finished episodes, without the steps with which they ended."""
    return [episode._replace(step=0) for episode in tracker.take()]


def test_scores_and_decisions_are_summed_up_to_the_true_end():
    tracker = EpisodeTracker(3)
    tracker.update(step([7, 1, 2], valid=YES, end=NO))
    tracker.update(step([0, 1, 2], valid=[False, True, True], end=NO))
    tracker.update(step([5, 1, 2], valid=YES, end=[True, False, True]))
    assert taken(tracker) == [Episode(12.0, 2, 0), Episode(6.0, 3, 2)]
    assert taken(tracker) == []
    tracker.update(step([3, 1, 4], valid=YES, end=YES))
    assert taken(tracker) == [Episode(3.0, 1, 0), Episode(4.0, 4, 1), Episode(4.0, 1, 2)]


def test_an_end_on_a_reset_step_closes_what_was_open_and_nothing_else():
    tracker = EpisodeTracker(3)
    tracker.update(step([7, 1, 2], valid=YES, end=[False, True, False]))
    tracker.update(step([0, 0, 2], valid=[False, False, True], end=[True, True, False]))
    assert taken(tracker) == [Episode(1.0, 1, 1), Episode(7.0, 1, 0)]


def test_an_episode_knows_whether_a_step_limit_cut_it():
    tracker = EpisodeTracker(3)
    tracker.update(step([1, 1, 1], valid=YES, end=[True, True, False], truncated=[True, False, False]))
    tracker.update(step([0, 0, 1], valid=[False, False, True], end=[False, False, True]))
    assert [episode.truncated for episode in tracker.take()] == [True, False, False]


def test_an_episode_knows_the_step_it_ended_with_since_episodes_were_taken():
    tracker = EpisodeTracker(3)
    tracker.update(step([1, 1, 1], valid=YES, end=[False, True, False]))
    tracker.update(step([1, 1, 1], valid=YES, end=[True, False, False]))
    assert [(episode.env, episode.step) for episode in tracker.take()] == [(1, 1), (0, 2)]
    tracker.update(step([1, 1, 1], valid=YES, end=[False, False, True]))
    assert [(episode.env, episode.step) for episode in tracker.take()] == [(2, 1)]


def test_many_small_scores_do_not_lose_precision():
    tracker = EpisodeTracker(3)
    for _ in range(5000):
        tracker.update(step([0.1, 4096, 0], valid=YES, end=NO))
    tracker.update(step([0, 0.25, 0], valid=YES, end=YES))
    assert abs(tracker.take()[0].episode_return - 5000 * float(np.float32(0.1))) < 1e-6


def test_a_restored_tracker_continues():
    tracker = EpisodeTracker(3)
    tracker.update(step([7, 1, 2], valid=YES, end=[False, True, False]))
    ended = taken(tracker)
    state = tracker.state_dict()
    plain = {key: getattr(value, "tolist", lambda value=value: value)() for key, value in state.items()}
    restored = EpisodeTracker(3)
    restored.load_state_dict(json.loads(json.dumps(plain)))
    for each in (tracker, restored):
        each.update(step([1, 1, 1], valid=YES, end=YES))
    assert ended == [Episode(1.0, 1, 1)]
    assert taken(tracker) == taken(restored) == [Episode(8.0, 2, 0), Episode(1.0, 1, 1), Episode(3.0, 2, 2)]


def test_episodes_survive_a_round_trip_through_a_table():
    episodes = [Episode(1.5, 10, 2, True, 7), Episode(-0.25, 3, 0)]
    assert from_table(to_table(episodes)) == episodes
    assert to_table([]).shape == (0, 5) and from_table(to_table([])) == []
