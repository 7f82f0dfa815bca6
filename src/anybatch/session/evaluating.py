"""Evaluating a policy: at the end of its training, or from a checkpoint."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from anybatch import envs, machine, seeding
from anybatch.acting import evaluation
from anybatch.acting.evaluation import Evaluation, InferencePolicy, Slots
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends import Actor
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import ConfigError
from anybatch.networks.q_network import QNetwork
from anybatch.runs.display import Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.runs.run import of_all_ranks
from anybatch.runs.stop import Stopped, stopping_at_once
from anybatch.session.custom import NOTHING_OWN, OwnParts
from anybatch.session.planning import set_threads
from anybatch.storage import state_fit
from anybatch.storage.checkpoint import Loaded


def evaluate_run(
    record: RunRecord,
    config: AnyConfig,
    *,
    output: Output,
    own: OwnParts = NOTHING_OWN,
    checkpoint: str = NEWEST,
) -> tuple[Evaluation, int]:
    """Evaluate a checkpoint of a run. Also returns the env steps it was trained for."""
    loaded = record.load_checkpoint(output.say, checkpoint, with_segments=False)
    with opened_env(config, own) as env:
        set_threads(config, algorithm_of(config).encoder_name(config, env.spec))
        played = play_episodes(config, trained_policy(loaded, config, env.spec, own), env, output)
    return played, loaded.env_steps


def evaluate_state(
    config: AnyConfig, state: AnyState, *, output: Output, own: OwnParts = NOTHING_OWN
) -> Evaluation:
    """Evaluate the policy at the end of its training."""
    return over_ranks(config, state, own, lambda policy, env: play_episodes(config, policy, env, output))


def evaluate_within_training(
    config: AnyConfig, state: AnyState, *, own: OwnParts, report: Callable[[int, int], None]
) -> Evaluation:
    """Evaluate a policy during training. `report` receives the number of finished episodes and their total.

    The episodes are always the same, and their envs and generator are separate from training.
    """

    def play(policy: InferencePolicy, env: VectorEnv) -> Evaluation:
        total = env.spec.num_envs * config.evaluation.episodes_per_env
        return play_reporting(config, policy, env, lambda slots: report(slots.num_finished, total))

    return over_ranks(config, state, own, play)


def over_ranks(
    config: AnyConfig,
    state: AnyState,
    own: OwnParts,
    play: Callable[[InferencePolicy, VectorEnv], Evaluation],
) -> Evaluation:
    """Let each rank run the episodes of some env slots, and join them in slot order.

    A signal on any rank ends the evaluation on all of them, once each has finished its episodes.
    """
    shard, stopped = evaluation_shard(config, own), None
    played = Evaluation(config.env, (), config.evaluation.greedy)
    if shard.count:
        try:
            with opened_env(config, own) as env, policy_of(config, state, shard) as policy:
                played = play(policy, env)
        except Stopped as signal:
            stopped = signal
    number = collectives.largest_over_ranks(stopped.signal if stopped else 0)
    if number:
        raise stopped or Stopped(number)
    if collectives.world_size() == 1:
        return played
    return replace(played, episodes=tuple(of_all_ranks(played.episodes)))


def evaluation_shard(config: AnyConfig, own: OwnParts) -> Shard:
    """The env slots of this rank.

    If slots run several episodes, a cap restarts all slots together: rank 0 then evaluates alone, as it does
    if there are too few slots.
    """
    settings = config.evaluation
    slots = (own.env.num_envs if own.env is not None else None) or settings.num_envs
    capped = settings.max_episode_steps is not None and evaluation_protocol(config) is None
    if (capped and settings.episodes_per_env > 1) or slots < collectives.world_size():
        return Shard.whole(slots) if collectives.rank() == 0 else Shard(0, 0, slots)
    return collectives.local_shard(slots)


@contextmanager
def opened_env(config: AnyConfig, own: OwnParts) -> Iterator[VectorEnv]:
    """The evaluation's environments, closed at the end."""
    env = evaluation_env(config, own)
    try:
        yield env
    finally:
        own.close(env)


@contextmanager
def policy_of(config: AnyConfig, state: AnyState, shard: Shard) -> Iterator[InferencePolicy]:
    """The policy of a state, temporarily exploring as a checkpoint's policy does."""
    with exploring_as_at_the_end(config, state.network):
        yield InferencePolicy(
            state.network,
            state.source.normalizer,
            state.device,
            evaluation_generator(config),
            config.evaluation.greedy,
            shard,
        )


@contextmanager
def exploring_as_at_the_end(config: AnyConfig, network: Actor) -> Iterator[None]:
    if config.final_epsilon is None or not isinstance(network, QNetwork):
        yield
        return
    before, network.epsilon = network.epsilon, config.final_epsilon
    try:
        yield
    finally:
        network.epsilon = before


def play_episodes(config: AnyConfig, policy: InferencePolicy, env: VectorEnv, output: Output) -> Evaluation:
    """Evaluate, showing progress. Raises Stopped at the first signal."""
    settings = config.evaluation
    total = env.spec.num_envs * settings.episodes_per_env
    cap = settings.max_episode_steps
    at_most = f" of at most {cap:,}" if cap is not None else ""
    title = f"evaluation on {config.env}"
    with output.display(total, title, unit="episodes", transient=True) as display:

        def show(slots: Slots) -> None:
            display.update(
                slots.num_finished,
                {},
                f"the longest in progress at step {slots.longest_under_way:,}{at_most}",
            )

        return play_reporting(config, policy, env, show)


def play_reporting(
    config: AnyConfig, policy: InferencePolicy, env: VectorEnv, report: Callable[[Slots], None]
) -> Evaluation:
    """Evaluate by the config. Raises Stopped at the first signal."""
    with stopping_at_once():
        return evaluation.evaluate(
            policy,
            env,
            episodes_per_env=config.evaluation.episodes_per_env,
            max_episode_steps=config.evaluation.max_episode_steps,
            protocol=evaluation_protocol(config),
            report=report,
        )


def evaluation_protocol(config: AnyConfig) -> str | None:
    """How an Atari game is evaluated; None for other environments, which have only one protocol."""
    protocol = config.evaluation.protocol
    if envs.is_atari(config.env, config.env_config):
        return protocol
    if protocol == "released":
        raise ConfigError(
            f"evaluation.protocol = {protocol} needs one of EnvPool's Atari games, "
            f"and {config.env} is not one of them"
        )
    return None


def evaluation_env(config: AnyConfig, own: OwnParts = NOTHING_OWN) -> VectorEnv:
    """Environments with evaluation seeds; an object of the program has a fixed number of env slots."""
    fixed = own.env.num_envs if own.env is not None else None
    slots = fixed or config.evaluation.num_envs
    seeds = seeding.env_seeds(config.seed, role="evaluation", num_envs=slots)
    shard = evaluation_shard(config, own)
    seeds = seeds[shard.envs]
    if own.env is not None:
        return own.env.make(config.env_config, seeds, shard.first)
    env_config, cap = config.env_config, config.evaluation.max_episode_steps
    if evaluation_protocol(config) == "released":
        env_config = replace(env_config, episodic_life=False, reward_clip=False)
    if envs.is_atari(config.env, env_config) and cap is not None:
        # Cut by the engine itself: a reset from outside, after a lost life, would not start a new game.
        env_config = replace(env_config, max_episode_steps=min(cap, env_config.max_episode_steps or cap))
    return envs.make(config.env, env_config, seeds=seeds, first_env=shard.first)


def evaluation_generator(config: AnyConfig) -> torch.Generator:
    return seeding.torch_generator(config.seed, role="evaluation")


def trained_policy(
    loaded: Loaded, config: AnyConfig, spec: EnvSpec, own: OwnParts = NOTHING_OWN
) -> InferencePolicy:
    """The policy of a checkpoint, without the parts that only training needs."""
    device = machine.usable_device(config.device)
    shared: object = loaded.tree.get("shared")
    factory = own.network_factory(config)
    with state_fit.naming(loaded.path):
        network, normalizer = algorithm_of(config).for_inference(
            config, spec, shared if isinstance(shared, dict) else {}, factory
        )
    return InferencePolicy(
        network.to(device=device, dtype=getattr(torch, config.dtype)),
        normalizer,
        device,
        evaluation_generator(config),
        config.evaluation.greedy,
    )
