"""Evaluating a policy: at the end of its training, or from a checkpoint."""

from dataclasses import replace

import torch

from anybatch import envs, machine, seeding
from anybatch.acting import evaluation
from anybatch.acting.evaluation import Evaluation, Player, Slots
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import ConfigError
from anybatch.runs import state_fit
from anybatch.runs.checkpoint import Loaded
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord
from anybatch.runs.stop import stopping_at_once
from anybatch.session.own import NOTHING_OWN, OwnParts
from anybatch.session.planning import encoder_for, set_threads


def evaluate_run(
    record: RunRecord, config: AnyConfig, *, output: Output, own: OwnParts = NOTHING_OWN
) -> tuple[Evaluation, int]:
    """Evaluate the newest good checkpoint of a run. Returns the env steps it was trained for as well."""
    loaded = record.load_checkpoint(output.say, with_segments=False)
    env = evaluation_env(config, own)
    try:
        set_threads(config, encoder_for(config, env.spec))
        played = play_episodes(config, trained_player(loaded, config, env.spec, own), env, output)
    finally:
        own.close(env)
    return played, loaded.env_steps


def evaluate_state(
    config: AnyConfig, state: AnyState, *, output: Output, own: OwnParts = NOTHING_OWN
) -> Evaluation:
    """Evaluate the policy at the end of its training."""
    env = evaluation_env(config, own)
    try:
        player = Player(
            state.network,
            state.source.collector.normalizer,
            state.device,
            evaluation_generator(config),
            config.evaluation.greedy,
        )
        return play_episodes(config, player, env, output)
    finally:
        own.close(env)


def play_episodes(config: AnyConfig, player: Player, env: VectorEnv, output: Output) -> Evaluation:
    """Evaluate, showing progress. Raises Stopped at the first signal."""
    settings = config.evaluation
    total = env.spec.num_envs * settings.episodes_per_env
    cap = settings.max_episode_steps
    at_most = f" of at most {cap:,}" if cap is not None else ""
    title = f"evaluation on {config.env}"
    with output.display(total, title, unit="episodes", transient=True) as display:

        def show(slots: Slots) -> None:
            display.update(
                slots.num_played, {}, f"the longest in progress at step {slots.longest_under_way:,}{at_most}"
            )

        with stopping_at_once():
            return evaluation.evaluate(
                player,
                env,
                episodes_per_env=settings.episodes_per_env,
                max_episode_steps=cap,
                protocol=evaluation_protocol(config),
                report=show,
            )


def evaluation_protocol(config: AnyConfig) -> str | None:
    """How an Atari game is evaluated; None for other environments, which know one way only."""
    protocol = config.evaluation.protocol
    if envs.is_atari(config.env, config.env_config):
        return protocol
    if protocol == "released":
        raise ConfigError(
            f"evaluation.protocol = {protocol} is for EnvPool's Atari games, "
            f"and {config.env} is not one of them"
        )
    return None


def evaluation_env(config: AnyConfig, own: OwnParts = NOTHING_OWN) -> VectorEnv:
    """Environments with seeds of their own; an object of the program has the env slots that it has."""
    fixed = own.env.num_envs if own.env is not None else None
    rank, slots = collectives.rank(), fixed or config.evaluation.num_envs
    seeds = seeding.env_seeds(config.seed, role="evaluation", rank=rank, num_envs=slots)
    if own.env is not None:
        return own.env.make(config.env_config, seeds)
    env_config, cap = config.env_config, config.evaluation.max_episode_steps
    if evaluation_protocol(config) == "released":
        env_config = replace(env_config, episodic_life=False, reward_clip=False)
    if envs.is_atari(config.env, env_config) and cap is not None:
        # By the engine itself: its reset within a game that goes on over lost lives starts no new game.
        env_config = replace(env_config, max_episode_steps=min(cap, env_config.max_episode_steps or cap))
    return envs.make(config.env, env_config, seeds=seeds)


def evaluation_generator(config: AnyConfig) -> torch.Generator:
    return seeding.torch_generator(config.seed, role="evaluation", rank=collectives.rank())


def trained_player(loaded: Loaded, config: AnyConfig, spec: EnvSpec, own: OwnParts = NOTHING_OWN) -> Player:
    """The policy of a checkpoint, without what only training needs."""
    device = machine.usable_device(config.device)
    shared: object = loaded.tree.get("shared")
    factory = own.network_factory(config)
    with state_fit.naming(loaded.path):
        network, normalizer = algorithm_of(config).for_playing(
            config, spec, shared if isinstance(shared, dict) else {}, factory
        )
    return Player(
        network.to(device=device, dtype=getattr(torch, config.dtype)),
        normalizer,
        device,
        evaluation_generator(config),
        config.evaluation.greedy,
    )
