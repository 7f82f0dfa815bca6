"""Data that waits: which policies its loss names, what is of collection time and what is of now."""

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import rows
from torch.distributions import Categorical, Distribution, Independent, Normal, kl_divergence
from toy_runs import (
    changed,
    collect,
    differences,
    evaluate,
    in_float64,
    newest_state,
    prepare,
    resume,
    sample_losses,
    start,
    start_from,
    start_in_float64,
    toy_config,
    toy_pqn_config,
    train,
    without_episodes,
)

from anybatch.acting import sources as staleness
from anybatch.acting.collector import Collector
from anybatch.acting.rollout import Origin, Rollout
from anybatch.acting.sources import QueueSource
from anybatch.algorithms import ppo
from anybatch.algorithms.ppo import Samples
from anybatch.algorithms.ppo_state import PPOState
from anybatch.cli import main
from anybatch.config import AnyConfig, PPOConfig
from anybatch.errors import ConfigError
from anybatch.networks.weight_average import EwmaNetwork, PeriodicCopy

STEPS, ENVS, ACTIONS = 7, 3, 5
DECOUPLED = {"policy": "iteration_start", "importance": "behavior"}
BEHAVIOR_ANCHORED = {"policy": "behavior", "importance": "behavior"}
RECENT_ANCHORED = {"policy": "iteration_start", "importance": "recent"}
DECOUPLED_EWMA = {"policy": "ewma", "importance": "behavior"}
LOSSES = [DECOUPLED, BEHAVIOR_ANCHORED, RECENT_ANCHORED]
DECOUPLED_PERIODIC = {"policy": "periodic", "importance": "behavior"}
ALL_PAIRS = [*LOSSES, DECOUPLED_EWMA, DECOUPLED_PERIODIC]
# Everything that must survive a resume.
BUSY: dict[str, Any] = {
    "normalize": {"observations": "step", "rewards": "iteration"},
    "objective": {"advantage_decay": 0.5, "entropy_coefficient": 0.01},
    "optimizer": {"learning_rate": 1e-2},
    "env_config": {"max_episode_steps": 5},
}


def trained_state(config: PPOConfig, base: Path) -> dict[str, Any]:
    return newest_state(train(config, base).folder)["shared"]


@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma", "periodic"])
def test_without_delay_a_run_is_the_plain_loop_to_the_bit(policy: str, tmp_path: Path):
    config = toy_config(proximal={"policy": policy}, total_env_steps=100, **BUSY)
    run = trained_state(config, tmp_path)
    state = start(config)
    while state.env_steps < 100:
        data = state.source.collector.collect(state.network, STEPS)
        ppo.update_policy(prepare(data, state, config), state, config, 1e-2)
        state.learner.iterations += 1
        state.learner.env_steps += data.num_valid
    assert not differences(run["learner"]["network"], dict(state.network.state_dict()))
    assert run["ewma"] is None or not differences(run["ewma"], state.backend.average.state_dict())
    copy = run["periodic_copy"]
    assert copy is None or not differences(copy, state.backend.average.state_dict())


def test_without_delay_the_three_losses_are_one_to_the_bit(tmp_path: Path):
    decoupled, behavior, recent = (
        trained_state(toy_config(proximal=pair, **BUSY), tmp_path / str(number))
        for number, pair in enumerate(LOSSES)
    )
    assert not differences(decoupled, behavior)
    assert not differences(decoupled, recent)


def test_fresh_data_use_the_log_probabilities_that_were_stored():
    config = toy_config(proximal=DECOUPLED)
    state = start(config)
    data = state.source.collector.collect(state.network, STEPS)
    state.backend.flat.values.add_(1.0)  # the policy now is another one, which must not be asked
    samples = ppo.prepare(data, state, config)
    assert torch.equal(samples.proximal_logp, data.behavior_logp.flatten())
    assert torch.equal(samples.behavior_logp, data.behavior_logp.flatten())


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_what_is_used_at_an_iteration_was_collected_so_many_before(delay: int):
    state = start(toy_config())
    source = QueueSource(state.source.collector, delay)
    for iteration in range(6):
        origin = Origin(iteration=iteration, gradient_steps=11 * iteration, version=17 * iteration)
        due = source.next(state.network, STEPS, origin)
        if iteration < delay:
            assert due is None
        else:
            before = iteration - delay
            again = collect(toy_config(), iterations=before + 1)
            assert torch.equal(due.obs, again.obs) and due.episodes == again.episodes
            assert due.origin == Origin(iteration=before, gradient_steps=11 * before, version=17 * before)


def test_a_run_trains_on_the_rollout_of_three_iterations_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = toy_config(staleness={"iterations": 3}, total_env_steps=130)
    used: list[Samples] = []
    improve = ppo.update_policy

    def remember(samples: Samples, *rest: Any) -> Any:
        used.append(samples)
        return improve(samples, *rest)

    monkeypatch.setattr(ppo, "update_policy", remember)
    train(config, tmp_path)
    # The policy does not move before the first update: these rollouts can be collected again.
    for iteration in range(4):
        again = collect(config, iterations=iteration + 1)
        assert torch.equal(used[iteration].obs, again.obs[:-1].flatten(0, 1))
        assert torch.equal(used[iteration].behavior_logp, again.behavior_logp.flatten())


def test_while_the_queue_fills_nothing_is_counted_or_learned(tmp_path: Path):
    config = toy_config(staleness={"iterations": 3}, total_env_steps=110)
    table = rows(train(config, tmp_path).folder)
    assert [row["charts/iterations"] for row in table] == list(range(4, len(table) + 4))
    assert [row["charts/gradient_steps"] for row in table] == [4 * n for n in range(1, len(table) + 1)]
    env_steps = [0, *(row["env_steps"] for row in table)]
    assert all(0 < late - early <= STEPS * ENVS for early, late in pairwise(env_steps))


def count_episodes(table: list[dict[str, Any]]) -> list[int]:
    return [row.get("charts/episodes", 0) for row in table]


def test_env_steps_and_episodes_are_counted_when_their_rollout_is_trained_on(tmp_path: Path):
    """The first four rollouts are by the policy that the run started with, whatever the delay."""
    config = toy_config(staleness={"iterations": 3}, total_env_steps=110, env_config={"max_episode_steps": 5})
    table = rows(train(config, tmp_path).folder)
    again = [collect(config, iterations=number + 1) for number in range(4)]
    env_steps = [0, *(row["env_steps"] for row in table)]
    assert [late - early for early, late in pairwise(env_steps)][:4] == [data.num_valid for data in again]
    assert count_episodes(table)[:4] == [len(data.episodes) for data in again]
    assert sum(count_episodes(table)) > 0


def test_what_an_iteration_decides_depends_on_the_rollouts_up_to_the_one_it_trains_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Rollouts whose rewards are changed: the metrics of the iterations before they are due stay."""
    config = toy_config(
        staleness={"iterations": 2},
        total_env_steps=170,
        optimizer={"anneal": "linear"},
        update={"noise_scale_every": 1},
        controller={"kind": "kl", "every": 1, "warmup": 1, "min_steps": 4, "max_steps": 9},
    )
    plain = rows(train(config, tmp_path / "plain").folder)
    collect_plainly = Collector.collect

    def collect_disturbed(self: Collector, network: Any, num_steps: int, origin: Origin) -> Rollout:
        data = collect_plainly(self, network, num_steps, origin)
        return data if origin.iteration < 4 else replace(data, reward=data.reward + 1)

    monkeypatch.setattr(Collector, "collect", collect_disturbed)
    disturbed = rows(train(config, tmp_path / "disturbed").folder)
    assert plain[:4] == disturbed[:4]  # iterations 2 to 5, which train on rollouts 0 to 3
    assert plain[4] != disturbed[4]


@pytest.mark.parametrize("make_config", [toy_config, toy_pqn_config], ids=["ppo", "pqn"])
def test_age_is_told_in_iterations_and_in_gradient_steps(
    make_config: Callable[..., AnyConfig], tmp_path: Path
):
    config = make_config(staleness={"iterations": 2}, total_env_steps=150)
    learning = rows(train(config, tmp_path).folder)
    assert len(learning) >= 4
    assert {row["staleness/iterations"] for row in learning} == {2.0}
    # Four gradient steps an iteration, none before the queue was full.
    assert [row["staleness/gradient_steps"] for row in learning] == [0, 4, 8, *[8] * (len(learning) - 3)]


# A tiny network written out, so that nothing below leans on the code that it checks.


def logits_by_hand(state: PPOState, obs: torch.Tensor, prefix: str = "policy") -> torch.Tensor:
    network = state.network if prefix == "policy" else state.backend.average.policy
    weights = network.state_dict()
    name = "policy." if prefix == "policy" else ""
    hidden = torch.tanh(
        obs @ weights[f"{name}encoder.layers.0.weight"].T + weights[f"{name}encoder.layers.0.bias"]
    )
    return hidden @ weights[f"{name}head.weight"].T + weights[f"{name}head.bias"]


def value_by_hand(state: PPOState, obs: torch.Tensor) -> torch.Tensor:
    weights = state.network.state_dict()
    hidden = torch.tanh(
        obs @ weights["value_encoder.layers.0.weight"].T + weights["value_encoder.layers.0.bias"]
    )
    return (hidden @ weights["value_head.weight"].T + weights["value_head.bias"]).squeeze(-1)


def logp_by_hand(logits: torch.Tensor, action: torch.Tensor) -> list[float]:
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    return [math.log(probabilities[i, a]) for i, a in enumerate(action.tolist())]


def moved(state: PPOState, seed: int, size: float) -> None:
    values = state.backend.flat.values
    noise = torch.Generator().manual_seed(seed)
    values += size * torch.randn(values.shape, generator=noise, dtype=values.dtype)


def stale(proximal: dict[str, str], env: str = "toy:Match") -> tuple[PPOConfig, PPOState, Rollout]:
    """A rollout of two iterations ago, and a state whose policy and value have moved since."""
    config = toy_config(
        env=env,
        proximal=proximal,
        objective={"advantage_normalization": "none", "kl_penalty": 0.3, "entropy_coefficient": 0.01},
    )
    data = in_float64(collect(config, iterations=2))
    data.terminated[-1], data.truncated[-1] = False, False
    data.terminated[-1, 0], data.truncated[-1, 1] = True, True  # the third env goes on
    state = start_in_float64(config)
    state.learner.iterations = 2
    moved(state, seed=1, size=0.3)
    if isinstance(state.backend.average, EwmaNetwork):
        state.backend.average.update(0.5)
    if isinstance(state.backend.average, PeriodicCopy):
        # Taken between the policy that acted and the current one.
        state.backend.average.update(1)
        moved(state, seed=4, size=0.2)
    return config, state, data


@pytest.mark.parametrize("proximal", ALL_PAIRS, ids=lambda pair: "-".join(pair.values()))
def test_each_loss_by_hand(proximal: dict[str, str]):
    config, state, data = stale(proximal)
    obs, action = data.obs[:-1].flatten(0, 1), data.action.flatten(0, 1)
    stored = data.behavior_logp.flatten().tolist()
    recent = logp_by_hand(logits_by_hand(state, obs), action)
    samples = ppo.prepare(data, state, config)
    moved(state, seed=2, size=0.2)  # as if within the iteration
    now = logits_by_hand(state, obs)
    logp = logp_by_hand(now, action)
    kept = logp_by_hand(logits_by_hand(state, obs, "proximal"), action) if state.backend.average else []

    behavior = recent if proximal is RECENT_ANCHORED else stored
    anchors = {"behavior": stored, "iteration_start": recent, "ewma": kept, "periodic": kept}
    anchor = anchors[proximal["policy"]]
    named = [stored, recent, logp, kept] if kept else [stored, recent, logp]
    for one, other in combinations(named, 2):  # else the test could not tell which of them was used
        assert all(abs(a - b) > 1e-5 for a, b in zip(one, other, strict=True))

    indices = samples.valid.flatten().nonzero().squeeze(1)
    loss, _ = sample_losses(samples, indices, state, config)
    probabilities = now.softmax(-1)
    for position, i in enumerate(indices.tolist()):
        advantage = float(samples.advantage[i])
        weight = math.exp(logp[i] - behavior[i])
        ratio = math.exp(logp[i] - anchor[i])
        held = min(max(ratio, 0.8), 1.2) * math.exp(anchor[i] - behavior[i])
        gain = min(weight * advantage, held * advantage) - 0.3 * 0.5 * (logp[i] - anchor[i]) ** 2
        entropy = -sum(p * math.log(p) for p in probabilities[i].tolist())
        error = float(value_by_hand(state, obs[i : i + 1])) - float(samples.value_target[i])
        by_hand = 0.5 * error**2 - gain - 0.01 * entropy
        assert loss[position].item() == pytest.approx(by_hand, abs=1e-12)


def policy_by_hand(weights: dict[str, torch.Tensor], obs: torch.Tensor) -> Distribution:
    """The policy of the weights, whose names begin with "policy." in a whole network."""
    own = {name.removeprefix("policy."): weight.clone() for name, weight in weights.items()}
    hidden = torch.tanh(obs @ own["encoder.layers.0.weight"].T + own["encoder.layers.0.bias"])
    params = hidden @ own["head.weight"].T + own["head.bias"]
    if "log_std" in own:
        return Independent(Normal(params, own["log_std"].exp()), 1)
    return Categorical(logits=params)


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("proximal", ALL_PAIRS, ids=lambda pair: "-".join(pair.values()))
def test_the_exact_penalty_is_the_divergence_of_the_current_policy_from_the_proximal_one(
    proximal: dict[str, str], env: str
):
    config, state, data = stale(proximal, env)
    exact = changed(config, objective={"kl": "exact"})
    obs = data.obs[:-1].flatten(0, 1)
    behavior = policy_by_hand(start_in_float64(config).network.state_dict(), obs)
    recent = policy_by_hand(state.network.state_dict(), obs)
    samples = ppo.prepare(data, state, exact)
    moved(state, seed=2, size=0.2)  # as if within the iteration
    current = policy_by_hand(state.network.state_dict(), obs)
    policies = {"behavior": behavior, "iteration_start": recent}
    if state.backend.average is not None:
        policies[proximal["policy"]] = policy_by_hand(state.backend.average.policy.state_dict(), obs)

    indices = samples.valid.flatten().nonzero().squeeze(1)
    losses = [
        sample_losses(samples, indices, state, other)[0]
        for other in (exact, changed(exact, objective={"kl_penalty": 0.0}))
    ]
    penalty = (losses[0] - losses[1]).detach()
    found = {name: 0.3 * kl_divergence(policy, current)[indices] for name, policy in policies.items()}
    expected = found.pop(proximal["policy"])
    torch.testing.assert_close(penalty, expected, rtol=1e-5, atol=1e-8)  # rollouts were collected in float32
    # Neither another policy nor the other direction could be taken for it.
    backwards = 0.3 * kl_divergence(current, policies[proximal["policy"]])[indices]
    for other in (*found.values(), backwards):
        assert ((other - expected).abs() > 1e-3 * expected).all()


def test_values_are_of_collection_time_but_the_bootstrap_at_the_end_is_of_now():
    config, state, data = stale(DECOUPLED)
    samples = ppo.prepare(data, state, config)
    now = value_by_hand(state, data.obs[-1]).tolist()
    assert all(abs(now[n] - float(data.next_value[-1, n])) > 1e-3 for n in range(ENVS))
    discount, trace = config.objective.discount, config.objective.discount * config.objective.gae_lambda
    for n in range(ENVS):
        # Terminated: nothing follows. Truncated: the final observation as it was valued then.
        advantage, bootstrap = 0.0, [0.0, float(data.next_value[-1, 1]), now[2]][n]
        for t in reversed(range(STEPS)):
            ended = bool(data.terminated[t, n] | data.truncated[t, n])
            following = bootstrap if t == STEPS - 1 else float(data.next_value[t, n] * ~data.terminated[t, n])
            error = float(data.reward[t, n]) + discount * following - float(data.value[t, n])
            advantage = error + trace * advantage * (not ended)
            sample = t * ENVS + n
            assert float(samples.advantage[sample]) == pytest.approx(advantage, abs=1e-12)
            target = advantage + float(data.value[t, n])
            assert float(samples.value_target[sample]) == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("policy", ["behavior", "ewma", "periodic"])
def test_other_pairs_of_proximal_and_importance_are_refused(policy: str):
    with pytest.raises(ConfigError, match=f"importance = recent .*iteration_start, not {policy}"):
        toy_config(proximal={"policy": policy, "importance": "recent"})


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_bad_staleness_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    flags = ["train", "--env=toy:Match", f"--run-dir={tmp_path}"]
    said = refused(capsys, *flags, "--staleness.iterations=-1")
    assert "staleness.iterations = -1: must not be negative" in said
    said = refused(capsys, *flags, "--proximal.policy=ewma", "--proximal.importance=recent")
    assert "proximal.importance = recent" in said
    assert not list(tmp_path.iterdir())


def test_a_queue_beyond_memory_is_refused_with_its_numbers_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Observations of 20 bytes, 8 rows of 3 envs: 480 bytes a rollout, 5 that wait and 2 in use.
    monkeypatch.setattr(staleness, "available_bytes", lambda: 7 * 480 - 1)
    config = toy_config(staleness={"iterations": 5})
    with pytest.raises(ConfigError) as error:
        train(config, tmp_path)
    assert str(error.value) == (
        "staleness.iterations = 5 needs 7 rollouts of 480 bytes in memory, 3.36 kB in all; "
        "3.36 kB are available"
    )
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(staleness, "available_bytes", lambda: 7 * 480)
    train(config, tmp_path)


@pytest.mark.parametrize("config", [toy_config(), toy_pqn_config()], ids=["ppo", "pqn"])
def test_rollouts_beyond_memory_are_refused_without_a_queue_too(
    config: AnyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(staleness, "available_bytes", lambda: 2 * 480 - 1)
    with pytest.raises(ConfigError, match=r"^num-envs and num-steps need 2 rollouts of 480 bytes in memory"):
        train(config, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("proximal", ALL_PAIRS, ids=lambda pair: "-".join(pair.values()))
def test_a_resume_with_data_that_wait_ends_as_if_it_had_not_been_interrupted(
    proximal: dict[str, str], tmp_path: Path
):
    config = toy_config(proximal=proximal, staleness={"iterations": 3}, total_env_steps=110, **BUSY)
    whole = train(config, tmp_path / "whole").folder
    until = rows(whole)[1]["env_steps"]
    part = train(changed(config, total_env_steps=until), tmp_path / "part").folder
    assert len(newest_state(part)["local"]["rank"]["source"]["waiting"]) == 3
    resume(part, config)
    assert not differences(newest_state(whole), newest_state(part))
    assert rows(whole) == rows(part)


def test_a_run_that_is_stopped_while_the_queue_fills_continues_with_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(staleness={"iterations": 3}, total_env_steps=110, **BUSY)
    whole = train(config, tmp_path / "whole").folder
    collect_plainly = Collector.collect

    def collect_and_stop(self: Collector, network: Any, num_steps: int, origin: Origin) -> Rollout:
        if origin.iteration == 1:
            signal.raise_signal(signal.SIGTERM)
        return collect_plainly(self, network, num_steps, origin)

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "collect", collect_and_stop)
        part = train(config, tmp_path / "part").folder
    assert len(newest_state(part)["local"]["rank"]["source"]["waiting"]) == 2
    resume(part, config)
    assert not differences(newest_state(whole), newest_state(part))
    assert rows(whole) == rows(part)


def test_a_resume_at_another_batch_fills_the_queue_anew_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(staleness={"iterations": 2}, total_env_steps=100, **BUSY)
    folder = train(config, tmp_path).folder
    done = len(rows(folder))
    resume(folder, changed(config, num_envs=2, total_env_steps=170))
    assert (
        "The waiting data has another shape than this run's batch: the queue is filled again"
        in capsys.readouterr().out
    )
    after = rows(folder)[done:]
    assert after[0]["charts/iterations"] == rows(folder)[done - 1]["charts/iterations"] + 3
    assert {row["staleness/iterations"] for row in after} == {2.0}


@pytest.mark.parametrize(("delay", "said"), [(1, "staleness.iterations is now 1: the 2 oldest"), (4, "")])
def test_a_resume_with_another_delay_has_data_of_that_age(
    delay: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(staleness={"iterations": 3}, total_env_steps=100)
    folder = train(config, tmp_path).folder
    done = len(rows(folder))
    capsys.readouterr()
    resume(folder, changed(config, staleness={"iterations": delay}, total_env_steps=170))
    assert said in capsys.readouterr().out
    ages = {row["staleness/iterations"] for row in rows(folder)[done:]}
    assert ages == {float(delay)}


def test_returns_under_way_belong_to_the_data_that_wait():
    config = toy_config(staleness={"iterations": 1}, normalize={"rewards": "iteration"})
    saved = start(config)
    data = saved.source.collector.collect(saved.network, STEPS)
    ppo.prepare(data, saved, config)
    assert saved.reward_normalizer.running_return.any()
    due = saved.source.next(saved.network, STEPS, Origin(iteration=1))
    assert due is None and saved.source.segments()
    resumed = start_from(config, without_episodes(saved.snapshot()))
    assert resumed.source.segments().keys() == saved.source.segments().keys()
    assert (
        resumed.reward_normalizer.running_return.tolist() == saved.reward_normalizer.running_return.tolist()
    )


def test_an_evaluation_reads_no_data_that_wait(tmp_path: Path):
    config = toy_config(staleness={"iterations": 3})
    outcome = train(config, tmp_path)
    for segment in (outcome.folder / "segments").iterdir():
        segment.write_bytes(b"damaged")
    played = evaluate(outcome.folder, config)
    assert (played.evaluation, played.env_steps) == (outcome.evaluation, outcome.env_steps)


def test_a_rollout_survives_its_segment():
    origin = Origin(iteration=3, gradient_steps=5, version=7)
    for env in ("toy:Match", "toy:Target"):
        data = replace(collect(toy_config(env=env, env_config={"max_episode_steps": 3})), origin=origin)
        again = Rollout.from_tensors(data.tensors(), data.origin)
        assert data.episodes and vars(again) == vars(data)
