"""What is collected: bootstraps, reset steps, log-probabilities and actions, on every engine."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_runs import changed, collect, differences, prepare, start, start_from, toy_config

from anybatch.acting.collector import Collector
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import Rollout
from anybatch.algorithms import ppo
from anybatch.backends import TorchActing
from anybatch.config import PPOConfig
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, EnvStep, VectorEnv
from anybatch.equations.moments import PRIOR_COUNT
from anybatch.errors import EnvError

DISCOUNT = 0.9
NO_NORMALIZATION = {"discount": DISCOUNT, "advantage_normalization": "none"}

# Reward 1 at every step and no end but the limit; CartPole cannot fall in three steps.
TRUNCATED = {
    "toy": {"env": "toy:Constant", "num_steps": 13},
    "toy same step": {
        "env": "toy:Constant",
        "num_steps": 13,
        "env_config": {"options": {"reset": "same_step"}},
    },
    "envpool": {"env": "envpool:CartPole-v1", "num_steps": 11, "env_config": {"max_episode_steps": 3}},
    "gymnasium": {"env": "gym:CartPole-v1", "num_steps": 11, "env_config": {"max_episode_steps": 3}},
    "gymnasium same step": {
        "env": "gym:CartPole-v1",
        "num_steps": 11,
        "env_config": {"max_episode_steps": 3, "options": {"reset": "same_step"}},
    },
}
PHANTOMS = {"env": "toy:Match", "num_steps": 31, "env_config": {"max_episode_steps": 5}}


def with_constant_value(config: PPOConfig, monkeypatch: pytest.MonkeyPatch) -> tuple[Rollout, Tensor]:
    """Advantages where every observation is worth what it is worth if the reward stays 1 forever."""
    state = start(changed(config, native="off"))  # native code would not call what replaces the network's
    monkeypatch.setattr(state.network, "value", lambda obs: torch.full((len(obs),), 1 / (1 - DISCOUNT)))
    data = state.source.collector.collect(state.network, config.num_steps)
    state.source.collector.env.close()
    return data, prepare(data, state, config).advantage.view(data.valid.shape)


@pytest.mark.parametrize("engine", TRUNCATED)
def test_truncated_episodes_bootstrap_from_their_last_observation(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(objective=NO_NORMALIZATION, **TRUNCATED[engine])
    data, advantage = with_constant_value(config, monkeypatch)
    assert data.truncated.any() and not data.terminated.any()
    assert (~data.valid).any() == ("same step" not in engine)
    assert (data.reward[data.valid] == 1).all()
    assert float(advantage[data.valid].abs().max()) < 1e-4


@pytest.mark.parametrize("engine", TRUNCATED)
def test_a_time_limit_that_is_terminal_does_not_bootstrap(engine: str, monkeypatch: pytest.MonkeyPatch):
    config = toy_config(objective=NO_NORMALIZATION | {"gae_lambda": 0.0}, **TRUNCATED[engine])
    config = changed(config, env_config={"time_limit": "terminal"})
    data, advantage = with_constant_value(config, monkeypatch)
    assert torch.equal(data.terminated, data.truncated) and data.terminated.any()
    expected = torch.where(data.terminated, 1 - 1 / (1 - DISCOUNT), 0.0)
    torch.testing.assert_close(advantage[data.valid], expected[data.valid], atol=1e-4, rtol=0)


def test_a_termination_does_not_bootstrap(monkeypatch: pytest.MonkeyPatch):
    config = toy_config(num_steps=31, objective=NO_NORMALIZATION | {"gae_lambda": 0.0})
    data, advantage = with_constant_value(config, monkeypatch)
    ended = data.terminated & ~data.truncated
    assert ended.any()
    torch.testing.assert_close(advantage[ended], data.reward[ended] - 1 / (1 - DISCOUNT))


@pytest.mark.parametrize(
    ("env", "limit"), [("toy:Constant", 5), ("envpool:CartPole-v1", 3), ("gym:CartPole-v1", 3)]
)
def test_an_end_on_the_last_row_makes_the_first_row_of_the_next_rollout_a_reset_step(env: str, limit: int):
    state = start(toy_config(env=env, num_steps=limit, env_config={"max_episode_steps": limit}))
    first, second = (state.source.collector.collect(state.network, limit) for _ in range(2))
    state.source.collector.env.close()
    assert first.valid.all() and first.truncated[-1].all()
    assert not second.valid[0].any() and second.valid[1:].all()
    assert torch.equal(first.obs[-1], second.obs[0])
    assert (first.num_valid, second.num_valid) == (3 * limit, 3 * (limit - 1))


def test_the_coming_reset_step_survives_a_checkpoint():
    config = toy_config(env="toy:Constant", num_steps=5, native="off")
    whole, restored = start(config), start(changed(config, seed=2))
    there, here = whole.source.collector, restored.source.collector
    there.collect(whole.network, 5)
    assert here.load_state_dict(there.state_dict())
    data = here.collect(whole.network, 5)
    assert not data.valid[0].any()
    assert not differences(vars(there.collect(whole.network, 5)), vars(data))


@pytest.mark.parametrize("rewards", ["none", "step", "iteration"])
def test_reset_steps_reach_no_loss_and_no_statistic(rewards: str):
    config = toy_config(**PHANTOMS, normalize={"rewards": rewards}, proximal={"policy": "ewma"})
    outcomes = []
    for disturb in (False, True):
        state = start(config)
        data = state.source.collector.collect(state.network, config.num_steps)
        if disturb:
            disturb_reset_steps(data)
        samples = prepare(data, state, config)
        if disturb:
            invalid = ~samples.valid.flatten()
            for tensor in (samples.obs, samples.advantage, samples.value_target, samples.behavior_logp):
                tensor[invalid] = torch.nan
        metrics = ppo.update_policy(samples, state, config, 1e-2)
        outcomes.append({"state": vars(state.snapshot()), "metrics": metrics})
    assert not differences(*outcomes)


def disturb_reset_steps(data: Rollout) -> None:
    invalid = ~data.valid
    assert invalid.any()
    data.obs[:-1][invalid] = 1e3
    data.action[invalid] = 4
    data.reward[invalid] = -1e5
    data.value[invalid] = 1e5
    data.next_value[invalid] = -1e4
    data.policy_params[invalid] = 7.0
    data.behavior_logp[invalid] = -50.0


def test_reset_steps_are_no_env_steps():
    data = collect(toy_config(**PHANTOMS))
    assert data.num_valid == int(data.valid.sum()) < data.valid.numel()
    lengths = sum(episode.length for episode in data.episodes)
    last_end = [int(ends.nonzero()[-1]) for ends in data.episode_end.T]
    assert lengths == sum(int(data.valid[: end + 1, env].sum()) for env, end in enumerate(last_end))


def greedy_start(config: PPOConfig) -> Any:
    """A state whose policy leaves nothing to chance: the noise of sampling is far below its preferences."""
    state = start(config)
    with torch.no_grad():
        state.network.policy.head.weight.mul_(1e6)
    return state


def settle(normalizer: ObservationNormalizer) -> None:
    """Statistics of so many observations that further ones do not move them."""
    ones = np.ones_like(normalizer.mean)
    normalizer.load_state_dict({"count": 1e12, "mean": 0.3 * ones, "square_sum": 0.04e12 * ones})


@pytest.mark.parametrize("normalize", ["none", "step"])
@pytest.mark.parametrize("game", ["Match", "Corridor", "Constant"])
def test_both_ways_to_reset_give_the_same_targets_for_the_same_transitions(game: str, normalize: str):
    per_env: list[list[list[tuple[float, ...]]]] = []
    for reset in ("next_step", "same_step"):
        config = toy_config(
            env=f"toy:{game}",
            num_steps=41,
            objective={"advantage_normalization": "none"},
            env_config={"max_episode_steps": 7, "options": {"reset": reset}},
            normalize={"observations": normalize},
        )
        state = greedy_start(config)
        if normalize == "step":
            settle(state.observation_normalizer)
            state.source.collector.obs = state.observation_normalizer.normalize(
                state.source.collector.env.reset()
            )
        data = state.source.collector.collect(state.network, config.num_steps)
        target = prepare(data, state, config).value_target.view(data.valid.shape)
        columns = (data.reward, data.value, data.next_value, data.terminated, data.truncated, target)
        per_env.append([finished_rows(data, columns, env) for env in range(3)])
    for next_step, same_step in zip(*per_env, strict=True):
        assert len(next_step) > 10
        np.testing.assert_allclose(next_step, same_step[: len(next_step)], rtol=1e-5, atol=1e-6)


def finished_rows(data: Rollout, columns: tuple[Tensor, ...], env: int) -> list[tuple[float, ...]]:
    """The valid rows of an env up to its last episode end: later targets depend on the rollout's length."""
    last_end = int(data.episode_end[:, env].nonzero()[-1])
    rows = [t for t in range(last_end + 1) if data.valid[t, env]]
    return [tuple(float(column[t, env]) for column in columns) for t in rows]


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("heads", ["dual", "shared"])
def test_behavior_logp_and_values_are_those_of_the_network_that_acted(env: str, heads: str):
    config = toy_config(env=env, num_steps=31, network={"heads": heads, "log_std": -0.7})
    state = start(config)
    data = state.source.collector.collect(state.network, config.num_steps)
    with torch.no_grad():
        policy, value = state.network(data.obs[:-1].flatten(0, 1))
        next_value = state.network.value(data.obs[1:].flatten(0, 1))
        logp = policy.log_prob(data.action.flatten(0, 1))
    torch.testing.assert_close(data.behavior_logp.flatten(), logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(data.value.flatten(), value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(data.next_value.flatten(), next_value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(data.policy_params.flatten(0, 1), policy.params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("env", ["toy:Target", "HalfCheetah-v4"])
def test_actions_of_ten_times_the_bound_are_stored_as_they_were_drawn(env: str):
    config = toy_config(env=env, num_steps=11, network={"log_std": float(np.log(20.0))})
    state = start(config)
    data = state.source.collector.collect(state.network, config.num_steps)
    state.source.collector.env.close()
    assert float(data.action.abs().max()) > 10
    assert float(data.action.std()) == pytest.approx(20, rel=0.3)
    # The env got them clipped: an unclipped action would cost 0.1 · 6 · 20² = 240 on HalfCheetah.
    assert float(data.reward.min()) > -20


def test_observation_statistics_count_what_is_decided_upon_and_nothing_else():
    config = toy_config(env="toy:Constant", num_steps=13)  # its observations do not depend on the actions
    plain = collect(config)
    decided = np.concatenate([plain.obs[:-1][plain.valid].numpy(), plain.obs[-1].numpy()])
    state = start(changed(config, normalize={"observations": "step"}))
    seen = state.source.collector.collect(state.network, config.num_steps)
    normalizer = state.source.collector.normalizer
    assert (~plain.valid).any() and not plain.episode_end[-1].any()
    assert normalizer.count == pytest.approx(PRIOR_COUNT + len(decided))
    np.testing.assert_allclose(normalizer.mean, decided.mean(0), rtol=1e-4)
    np.testing.assert_allclose(normalizer.square_sum / normalizer.count, decided.var(0), rtol=1e-3)
    assert not torch.equal(seen.obs, plain.obs)


def test_terminations_stay_terminal_where_time_limits_are_too():
    config = toy_config(env="native:CartPole-v1", num_steps=60, env_config={"max_episode_steps": 20})
    plain = collect(config)
    terminal = collect(changed(config, env_config={"time_limit": "terminal"}))
    assert plain.terminated.any() and plain.truncated.any()
    assert torch.equal(terminal.terminated, plain.terminated | plain.truncated)


def test_statistics_of_an_iteration_count_what_its_steps_returned_and_not_the_first_observations():
    """Those are returned by a reset: after a resume that starts fresh episodes, they would count twice."""
    config = toy_config(env="toy:Constant", num_steps=13)
    plain = collect(config)
    decided = plain.obs[1:][~plain.episode_end].numpy()
    state = start(changed(config, normalize={"observations": "iteration"}))
    state.source.collector.collect(state.network, config.num_steps)
    normalizer = state.source.collector.normalizer
    assert normalizer.count == pytest.approx(PRIOR_COUNT + len(decided))
    np.testing.assert_allclose(normalizer.mean, decided.mean(0), rtol=1e-4)
    np.testing.assert_allclose(normalizer.square_sum / normalizer.count, decided.var(0), rtol=1e-3)


@pytest.mark.parametrize("env", ["toy:Match", "gym:CartPole-v1"])
def test_the_noise_of_actions_goes_on_also_where_episodes_are_fresh(env: str):
    config = toy_config(env=env)
    saved = start(config)
    saved.source.collector.collect(saved.network, config.num_steps)
    restored = start_from(config, saved.snapshot())
    drawn = [torch.rand(5, generator=state.source.collector.generator) for state in (saved, restored)]
    assert torch.equal(*drawn)


def test_fresh_episodes_of_a_resumed_run_are_seen_with_the_restored_statistics():
    config = toy_config(env="toy:Constant", num_steps=11, normalize={"observations": "step"})
    saved = start(config)
    for _ in range(5):
        saved.source.collector.collect(saved.network, config.num_steps)
    fresh = start_from(changed(config, num_envs=1), saved.snapshot()).source.collector
    raw = start(changed(config, num_envs=1, normalize={"observations": "none"})).source.collector.env
    expected = fresh.normalizer.normalize(raw.reset())
    np.testing.assert_allclose(fresh.obs, expected, rtol=1e-6)
    assert np.abs(fresh.obs).max() > 0.1  # normalized by itself alone it would be 0


class Disturbed:
    """A vector env that returns a bad number in one env once another env has ended its episode."""

    def __init__(self, env: VectorEnv, bad_env: int, field: str) -> None:
        self._env, self._bad_env, self._field = env, bad_env, field

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    def reset(self) -> np.ndarray:
        return self._env.reset()

    def step(self, action: np.ndarray) -> EnvStep:
        step = self._env.step(action)
        ended = step.terminated | step.truncated
        if not (ended[: self._bad_env].any() and not ended[self._bad_env]):
            return step
        disturbed = getattr(step, self._field).copy()
        disturbed[self._bad_env] = np.nan
        return step._replace(**{self._field: disturbed})

    def close(self) -> None:
        self._env.close()


@pytest.mark.parametrize("normalize", ["step", "none"])
@pytest.mark.parametrize(
    ("field", "said"), [("obs", "a non-finite observation"), ("reward", "a non-finite reward")]
)
def test_what_is_not_a_number_is_refused_with_the_env_it_came_from(field: str, said: str, normalize: str):
    config = toy_config(**PHANTOMS, normalize={"observations": normalize})
    state = start(config)
    collector = Collector(
        Disturbed(state.source.collector.env, 2, field),
        shard=Shard(5, config.num_envs, 5 + config.num_envs),  # the part of a second rank
        generator=torch.Generator().manual_seed(1),
        normalizer=state.source.collector.normalizer,
        time_limit_is_terminal=False,
        chunk=64,
        device=torch.device("cpu"),
        acting=TorchActing(torch.device("cpu")),
    )
    with pytest.raises(EnvError, match=f"environment 7 returned {said}"):
        collector.collect(state.network, config.num_steps)


def test_images_stay_bytes():
    data = collect(toy_config(env="toy:Pixels", network={"impala_channels": [2], "impala_features": 5}))
    assert data.obs.dtype == torch.uint8
