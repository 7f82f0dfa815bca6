"""A training run from its first line to its last: start or resume, train, evaluate, say what came out."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from anybatch import controllers, envs, evaluation, networks, train_state
from anybatch.algorithms import ppg, ppo, pqn
from anybatch.batch_plan import Resolved
from anybatch.config import CONFIGS, AnyConfig, PPOConfig, PQNConfig
from anybatch.distributed import collectives
from anybatch.envs import procgen
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import CheckpointError, ConfigError, UserError
from anybatch.evaluation import Evaluation, Player
from anybatch.runs import folder as run_folder
from anybatch.runs import seeding, sinks
from anybatch.runs.checkpoint import Checkpoints, Loaded
from anybatch.runs.config_record import config_from_dict, config_to_dict
from anybatch.runs.log import MetricLog
from anybatch.runs.progress import Progress
from anybatch.runs.run import Run
from anybatch.runs.stop import GracefulStop
from anybatch.train_state import TrainState

RESULT_FILE = "result.json"
ALGORITHMS: dict[str, Any] = {"ppo": ppo, "ppg": ppg, "pqn": pqn}
"""By the config's name: modules with `start(config, say=…, env_steps=…)`, `train(config, state, run)` and
`for_playing(config, spec, saved)`, which gives the network and the observation normalizer of a checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    folder: Path
    env_steps: int
    saved_env_steps: int
    """Of the newest checkpoint, from which a resume would go on."""
    finished: bool
    training_return: float | None
    """Mean over the last training episodes."""
    evaluation: Evaluation | None


def train(config: AnyConfig, *, preset: str, base: Path, show_plan: Callable[[Resolved], None]) -> Outcome:
    """A new run, in a new folder under `base`."""
    set_threads(config)
    evaluation_protocol(config)  # what cannot be evaluated is refused now, not after the training
    state = ALGORITHMS[config.algorithm].start(config, say=print)
    folder = run_folder.create(base, config.env, preset, config.seed, datetime.now())
    with run_folder.lock(folder):
        return run_to_end(config, state, folder, show_plan=show_plan, loaded=None)


def resume(folder: Path, config: AnyConfig, *, show_plan: Callable[[Resolved], None]) -> Outcome:
    """Go on with the newest good checkpoint of a run, with the batch and numbers that `config` now has."""
    refuse_another_run(recorded_config(folder), config)
    evaluation_protocol(config)
    set_threads(config)
    with run_folder.lock(folder):  # before the checkpoint is read: no other process may train on from it
        loaded = load_checkpoint(folder)
        refuse_finished(folder, config, loaded.env_steps)
        state = ALGORITHMS[config.algorithm].start(config, say=print, env_steps=loaded.env_steps)
        state.load_state_dict(loaded.tree["train"], loaded.segments, say=print)
        return run_to_end(config, state, folder, show_plan=show_plan, loaded=loaded)


def refuse_finished(folder: Path, config: AnyConfig, env_steps: int) -> None:
    """Nothing is left to do for a run that has its evaluation too, and its record must stay as it is."""
    if env_steps < config.total_env_steps or not (folder / RESULT_FILE).exists():
        return
    result = run_folder.read_json(folder / RESULT_FILE)
    if not isinstance(result, dict):
        raise UserError(f"{folder / RESULT_FILE} is damaged: it is no result")
    if result.get("env_steps") == env_steps and result.get("evaluation") is not None:
        raise ConfigError(
            f"this run has done its {env_steps:,} env steps; --total-env-steps with a larger number "
            "lets it go on"
        )


def run_to_end(
    config: AnyConfig,
    state: TrainState,
    folder: Path,
    *,
    show_plan: Callable[[Resolved], None],
    loaded: Loaded | None,
) -> Outcome:
    spec = state.collector.env.spec
    title = f"{spec.env_id} on {spec.engine}, seed {config.seed}"
    with ExitStack() as stack:
        record_facts(folder, config, state)
        show_plan(state.resolved)
        progress = stack.enter_context(Progress(config.total_env_steps, title))
        stop = stack.enter_context(GracefulStop(progress.say))
        outputs = sinks.open_sinks(config.record, folder, config_to_dict(config), progress.say)
        log = MetricLog(folder, outputs)
        stack.callback(log.close)
        run = Run(folder, config.record, log=log, progress=progress, stop=stop, env_id=config.env)
        if loaded is not None:
            log.truncate_after(state.env_steps)
            run.recent_returns.extend(loaded.tree["recent_returns"])
            run.checkpoints.go_on_from(loaded)
        ALGORITHMS[config.algorithm].train(config, state, run)
        finished = state.env_steps >= config.total_env_steps
    played = evaluate_state(config, state) if finished else None
    recent = run.recent_returns
    outcome = Outcome(
        folder=folder,
        env_steps=state.env_steps,
        saved_env_steps=run.saved_env_steps,
        finished=finished,
        training_return=sum(recent) / len(recent) if recent else None,
        evaluation=played,
    )
    run_folder.write_json(folder / RESULT_FILE, result_json(outcome))
    state.collector.env.close()
    return outcome


def record_facts(folder: Path, config: AnyConfig, state: TrainState) -> None:
    run_folder.write_json(
        folder / run_folder.CONFIG_FILE, {"algorithm": config.algorithm} | config_to_dict(config)
    )
    run_folder.write_json(folder / run_folder.PLAN_FILE, state.resolved.to_json())
    facts = run_folder.facts(engine=state.collector.env.spec.engine, threads=torch.get_num_threads())
    run_folder.add_facts(folder, facts | {"from_env_steps": state.env_steps})


def result_json(outcome: Outcome) -> dict[str, object]:
    return {
        "env_steps": outcome.env_steps,
        "finished": outcome.finished,
        "training_return": outcome.training_return,
        "evaluation": outcome.evaluation.to_json() if outcome.evaluation else None,
    }


def evaluate_run(folder: Path, config: AnyConfig) -> tuple[Evaluation, int]:
    """The newest good checkpoint of a run at play, and the env steps it was trained for."""
    set_threads(config)
    loaded = load_checkpoint(folder, with_segments=False)
    env = evaluation_env(config)
    try:
        player = trained_player(loaded, config, env.spec)
        played = play_episodes(config, player, env)
    finally:
        env.close()
    return played, loaded.env_steps


def evaluate_state(config: AnyConfig, state: TrainState) -> Evaluation:
    env = evaluation_env(config)
    try:
        player = Player(
            state.network,
            state.collector.normalizer,
            state.device,
            evaluation_generator(config),
            config.evaluation.greedy,
        )
        return play_episodes(config, player, env)
    finally:
        env.close()


def play_episodes(config: AnyConfig, player: Player, env: VectorEnv) -> Evaluation:
    episodes = config.evaluation.episodes_per_env
    return evaluation.evaluate(player, env, episodes_per_env=episodes, protocol=evaluation_protocol(config))


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


def evaluation_env(config: AnyConfig) -> VectorEnv:
    rank, slots = collectives.rank(), config.evaluation.num_envs
    seeds = seeding.env_seeds(config.seed, role="evaluation", rank=rank, num_envs=slots)
    env_config = config.env_config
    if evaluation_protocol(config) == "released":
        env_config = replace(env_config, episodic_life=False, reward_clip=False)
    return envs.make(config.env, env_config, seeds=seeds)


def evaluation_generator(config: AnyConfig) -> torch.Generator:
    return seeding.torch_generator(config.seed, role="evaluation", rank=collectives.rank())


def trained_player(loaded: Loaded, config: AnyConfig, spec: EnvSpec) -> Player:
    """The policy of a checkpoint, without what only training needs."""
    device = train_state.usable_device(config.device)
    network, normalizer = ALGORITHMS[config.algorithm].for_playing(config, spec, loaded.tree["train"])
    return Player(
        network.to(device), normalizer, device, evaluation_generator(config), config.evaluation.greedy
    )


def recorded_config(folder: Path) -> AnyConfig:
    data = run_folder.read_json(folder / run_folder.CONFIG_FILE)
    algorithm = data.pop("algorithm", None) if isinstance(data, dict) else None
    if algorithm not in CONFIGS:
        raise ConfigError(f"{folder} is a run of {algorithm!r}, which this version does not know")
    return config_from_dict(CONFIGS[algorithm], data, where=folder.name)


def has_checkpoint(folder: Path) -> bool:
    return Checkpoints(folder, keep=1).exist()


def load_checkpoint(folder: Path, *, with_segments: bool = True) -> Loaded:
    loaded = Checkpoints(folder, keep=1).load_latest(
        lambda sentence: print(sentence, file=sys.stderr), with_segments=with_segments
    )
    if loaded is None:
        raise CheckpointError(f"{folder} has no checkpoint yet")
    return loaded


def refuse_another_run(recorded: AnyConfig, config: AnyConfig) -> None:
    """A checkpoint cannot go on as a run of another environment or network: name the first difference."""
    for path in fixed_on_resume(config):
        there, here = recorded, config
        for name in path.split("."):
            there, here = getattr(there, name), getattr(here, name)
        if there != here:
            raise ConfigError(f"this run has {path} = {there}, not {here}: a resume cannot change that")


def fixed_on_resume(config: AnyConfig) -> list[str]:
    """What a checkpoint is made for. Everything else may change from one resume to the next."""
    network = [f"network.{field.name}" for field in fields(config.network) if field.name != "log_std"]
    normalizers = ["normalize.observations", "normalize.rewards"] * isinstance(config, PPOConfig)
    return ["env", *network, "optimizer.name", *normalizers]


def set_threads(config: AnyConfig) -> None:
    """Small networks lose more to waking threads than they gain; convolutions use every core."""
    if config.threads:
        torch.set_num_threads(config.threads)
        return
    convolutions = encoder_of(config) in ("nature", "impala")
    torch.set_num_threads((os.cpu_count() or 1) if convolutions else 1)


def encoder_of(config: AnyConfig) -> str:
    """The encoder that a run will have. An automatic one depends on what the environment shows: one is built.

    Where it cannot be, this says mlp, and the run will be refused with the reason.
    """
    if config.network.encoder != "auto":
        return config.network.encoder
    spec = envs.spec_of_one(config.env, config.env_config)
    if spec is None:
        return "mlp"
    if isinstance(config, PQNConfig):
        return networks.q_encoder_name(config.network, layout=spec.obs_layout)
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def plan(config: AnyConfig) -> Resolved:
    """The plan without training. One env is built where only it knows what an observation is."""
    procgen.engine_id(config.env)  # refuses games that do not exist; other ids only their engines know
    obs_bytes = envs.observation_bytes(config.env, config.env_config) if config.algorithm == "ppg" else None
    return train_state.planner(config, encoder_of(config), obs_bytes)(controllers.start(config.controller))
