"""Evaluating a policy: while it trains, at the end of its training, or from a checkpoint."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from anybatch import envs, machine, seeding
from anybatch.acting import evaluation
from anybatch.acting.evaluation import Evaluation, InferencePolicy, Slots
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends.threads import set_threads
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import ConfigError
from anybatch.networks.q_network import QNetwork
from anybatch.runs import log
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.display import Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.runs.run import Run, of_all_ranks
from anybatch.runs.stop import Stopped, stopping_at_once
from anybatch.storage import state_fit
from anybatch.storage.checkpoint import Loaded
from anybatch.user_objects import NO_OBJECTS, UserObjects


@dataclass(frozen=True)
class PlayedRun:
    """A run, and the evaluation of one of its checkpoints."""

    run: str
    env_id: str
    env_steps: int
    """Those it was trained for."""
    evaluation: Evaluation

    def to_json(self) -> dict[str, object]:
        facts = {"run": self.run, "env": self.env_id, "env_steps": self.env_steps}
        return facts | self.evaluation.to_json()

    def text(self) -> str:
        return f"{self.run}\n{self.env_id} after {self.env_steps:,} env steps: {self.evaluation.sentence()}"


def evaluate_run(
    record: RunRecord,
    config: AnyConfig,
    *,
    output: Output,
    custom: UserObjects = NO_OBJECTS,
    checkpoint: str = NEWEST,
) -> PlayedRun:
    """Evaluate a checkpoint of a run."""
    loaded = record.load_checkpoint(checkpoint, with_segments=False)
    with opened_env(config, custom) as env:
        set_threads(config, algorithm_of(config).encoder_name(config, env.spec))
        played = play_episodes(config, trained_policy(loaded, config, env.spec, custom), env, output)
    return PlayedRun(str(record.folder), config.env, loaded.env_steps, played)


def evaluate_state(
    config: AnyConfig, state: AnyState, *, output: Output, custom: UserObjects = NO_OBJECTS
) -> Evaluation:
    """Evaluate the policy at the end of its training."""
    return over_ranks(config, state, custom, lambda policy, env: play_episodes(config, policy, env, output))


def over_ranks(
    config: AnyConfig,
    state: AnyState,
    custom: UserObjects,
    play: Callable[[InferencePolicy, VectorEnv], Evaluation],
) -> Evaluation:
    """Let each rank run the episodes of some env slots, and join them in slot order.

    A signal on any rank ends the evaluation on all of them, once each has finished its episodes.
    """
    shard, stopped = evaluation_shard(config, custom), None
    played = Evaluation(config.env, (), config.evaluation.greedy)
    if shard.count:
        try:
            with opened_env(config, custom) as env, policy_of(config, state, shard) as policy:
                played = play(policy, env)
        except Stopped as signal:
            stopped = signal
    number = collectives.largest_over_ranks(stopped.signal if stopped else 0)
    if number:
        raise stopped or Stopped(number)
    if collectives.world_size() == 1:
        return played
    return replace(played, episodes=tuple(of_all_ranks(played.episodes)))


def evaluation_shard(config: AnyConfig, custom: UserObjects) -> Shard:
    """The env slots of this rank.

    If slots run several episodes, a cap restarts all slots together: rank 0 then evaluates alone, as it does
    if there are too few slots.
    """
    settings = config.evaluation
    slots = (custom.env.num_envs if custom.env is not None else None) or settings.num_envs
    capped = settings.max_episode_steps is not None and evaluation_protocol(config) is None
    if (capped and settings.episodes_per_env > 1) or slots < collectives.world_size():
        return Shard.whole(slots) if collectives.rank() == 0 else Shard(0, 0, slots)
    return collectives.local_shard(slots)


@contextmanager
def opened_env(config: AnyConfig, custom: UserObjects) -> Iterator[VectorEnv]:
    """The evaluation's environments, closed at the end."""
    env = evaluation_env(config, custom)
    try:
        yield env
    finally:
        custom.close(env)


@contextmanager
def policy_of(config: AnyConfig, state: AnyState, shard: Shard) -> Iterator[InferencePolicy]:
    """The policy of a state, temporarily exploring as a checkpoint's policy does."""
    network, generator = state.network, seeding.torch_generator(config.seed, role="evaluation")
    policy = InferencePolicy(
        network, state.source.normalizer, state.device, generator, config.evaluation.greedy, shard
    )
    if config.final_epsilon is None or not isinstance(network, QNetwork):
        yield policy
        return
    before, network.epsilon = network.epsilon, config.final_epsilon
    try:
        yield policy
    finally:
        network.epsilon = before


def play_episodes(config: AnyConfig, policy: InferencePolicy, env: VectorEnv, output: Output) -> Evaluation:
    """Evaluate, showing progress. Raises Stopped at the first signal."""
    total, cap = env.spec.num_envs * config.evaluation.episodes_per_env, config.evaluation.max_episode_steps
    at_most = f" of at most {cap:,}" if cap is not None else ""
    title = f"evaluation on {config.env}"
    with output.display(total, title, unit="episodes", transient=True) as display:

        def show(slots: Slots) -> None:
            longest = f"the longest in progress at step {slots.longest_under_way:,}{at_most}"
            display.update(slots.num_finished, {}, longest)

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


def evaluation_env(config: AnyConfig, custom: UserObjects = NO_OBJECTS) -> VectorEnv:
    """Environments with evaluation seeds; an object of the program has a fixed number of env slots."""
    fixed = custom.env.num_envs if custom.env is not None else None
    slots = fixed or config.evaluation.num_envs
    seeds = seeding.env_seeds(config.seed, role="evaluation", num_envs=slots)
    shard = evaluation_shard(config, custom)
    seeds = seeds[shard.envs]
    if custom.env is not None:
        return custom.env.make(config.env_config, seeds, shard.first)
    env_config, cap = config.env_config, config.evaluation.max_episode_steps
    if evaluation_protocol(config) == "released":
        env_config = replace(env_config, episodic_life=False, reward_clip=False)
    if envs.is_atari(config.env, env_config) and cap is not None:
        # Cut by the engine itself: a reset from outside, after a lost life, would not start a new game.
        env_config = replace(env_config, max_episode_steps=min(cap, env_config.max_episode_steps or cap))
    return envs.make(config.env, env_config, seeds=seeds, first_env=shard.first)


def trained_policy(
    loaded: Loaded, config: AnyConfig, spec: EnvSpec, custom: UserObjects = NO_OBJECTS
) -> InferencePolicy:
    """The policy of a checkpoint, without the parts that only training needs."""
    device = machine.usable_device(config.device)
    shared: object = loaded.tree.get("shared")
    factory = custom.network_factory(config)
    with state_fit.naming(loaded.path):
        network, normalizer = algorithm_of(config).for_inference(
            config, spec, shared if isinstance(shared, dict) else {}, factory
        )
    return InferencePolicy(
        network.to(device=device, dtype=getattr(torch, config.dtype)),
        normalizer,
        device,
        seeding.torch_generator(config.seed, role="evaluation"),
        config.evaluation.greedy,
    )


@dataclass
class PeriodicEvaluation:
    """Evaluates a run every `evaluation.every_env_steps`, and at the end of its training."""

    config: AnyConfig
    custom: UserObjects
    best: BestCheckpoint
    evaluated_at: int
    """Env steps of the last evaluation; 0 before the first."""
    latest: Evaluation | None = None
    """The last evaluation, if this process made it."""

    @classmethod
    def of_run(cls, folder: Path, config: AnyConfig, custom: UserObjects) -> "PeriodicEvaluation":
        """For a new run, or for a resumed one whose log has been cut back to its checkpoint."""
        evaluated = [0]
        if collectives.rank() == 0:
            evaluated += [row["env_steps"] for row in log.read(folder) if "evaluation/return" in row]
        return cls(
            config, custom, BestCheckpoint(folder), evaluated_at=collectives.from_rank_0(max(evaluated))
        )

    def __call__(self, state: AnyState, run: Run) -> Mapping[str, float]:
        """Evaluate if it is due. A signal ends the evaluation at once, and the training as usual.

        The episodes are always the same, and their envs and generator are separate from training.
        """
        config, done = self.config, state.env_steps
        every, is_over = config.evaluation.every_env_steps, done >= config.total_env_steps
        is_due = every > 0 and (is_over or done // every > self.evaluated_at // every)
        if not is_due or run.should_stop:
            return {}

        def play(policy: InferencePolicy, env: VectorEnv) -> Evaluation:
            total = env.spec.num_envs * config.evaluation.episodes_per_env

            def show(slots: Slots) -> None:
                run.display.update(done, {}, f"evaluating: {slots.num_finished} of {total} episodes")

            return play_reporting(config, policy, env, show)

        try:
            with run.timer("evaluation"):
                evaluation = over_ranks(config, state, self.custom, play)
        except Stopped as stopped:
            signal.raise_signal(stopped.signal)  # the run's own handler takes over
            return {}
        self.take(evaluation, state)
        return {
            "evaluation/return": evaluation.mean_return,
            "evaluation/standard_error": evaluation.standard_error,
            "evaluation/length": evaluation.mean_length,
        }

    def at_end(self, state: AnyState, output: Output) -> Evaluation:
        """The evaluation of the trained policy: the last one during training if nothing was learned since."""
        if self.latest is not None and self.evaluated_at == state.env_steps:
            return self.latest
        evaluation = evaluate_state(self.config, state, output=output, custom=self.custom)
        if self.config.evaluation.every_env_steps > 0:
            self.take(evaluation, state)
        return evaluation

    def take(self, evaluation: Evaluation, state: AnyState) -> None:
        """Record an evaluation of a state, and keep its policy if it is the best."""
        self.latest, self.evaluated_at = evaluation, state.env_steps
        if collectives.rank() == 0:
            self.best.offer(evaluation.mean_return, state.env_steps, state.shared())


def validate_evaluation_env(config: AnyConfig, custom: UserObjects) -> None:
    """Refuse an object: it is in the middle of training episodes and cannot run others in between."""
    every = config.evaluation.every_env_steps
    if every > 0 and custom.env is not None and custom.env.is_object:
        raise ConfigError(
            f"evaluation.every-env-steps = {every} needs environments other than those in training, but "
            f"{custom.env.env_id} is one object: pass a function that makes it"
        )
