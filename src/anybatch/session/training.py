"""A training run from start to end: start or resume, train, evaluate, return the outcome."""

import contextlib
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path

import torch

from anybatch import envs, user_modules
from anybatch.acting.evaluation import Evaluation
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.algorithms.arithmetic import native_threads
from anybatch.algorithms.schedules import Schedules
from anybatch.batch.plan import Plan
from anybatch.batch.table import plan_table
from anybatch.config import AnyConfig, PPOConfig
from anybatch.config.serialization import config_to_dict
from anybatch.distributed import collectives, group
from anybatch.errors import CheckpointError, ConfigError
from anybatch.runs import folder as run_folder
from anybatch.runs import state_fit
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.checkpoint import Loaded, Snapshot
from anybatch.runs.display import Output
from anybatch.runs.gathering import of_shard
from anybatch.runs.record import RESULT_FILE, RunRecord
from anybatch.runs.run import Run
from anybatch.runs.stop import Stopped
from anybatch.session import elastic
from anybatch.session.evaluating import evaluate_state, evaluation_protocol
from anybatch.session.failing import noting_evaluation, noting_training
from anybatch.session.own import NOTHING_OWN, OwnParts
from anybatch.session.periodic import PeriodicEvaluation, refuse_one_env_for_two
from anybatch.session.planning import encoder_for, leave_cores_to_native_code, set_threads

ShowPlan = Callable[[AnyConfig, Plan], None]


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    folder: Path
    env_steps: int
    saved_env_steps: int
    """Env steps of the newest checkpoint, from which a resume would continue."""
    finished: bool
    training_return: float | None
    """Mean over the last `training_episodes` training episodes."""
    evaluation: Evaluation | None
    training_episodes: int = 0
    stopped_by: signal.Signals | None = None
    """The signal that ended the training, or the evaluation after it."""

    best: BestCheckpoint | None = None
    """The best policy found by evaluations during training; None if there were none."""
    env_flag: tuple[str, ...] = ()
    """Flags that every command on this run needs, because the environment is in the working folder."""

    def command(self, name: str) -> str:
        """A command line for this run."""
        return shlex.join(["anybatch", name, str(self.folder), *self.env_flag])

    def how_to_continue(self) -> str:
        """The sentence for a person who stopped the run."""
        return (
            f"Stopped. Continue with: {self.command('resume')} (saved at {self.saved_env_steps:,} env steps)."
        )


def train(
    config: AnyConfig,
    *,
    preset: str,
    base: Path,
    show_plan: ShowPlan,
    output: Output,
    own: OwnParts = NOTHING_OWN,
    name: str | None = None,
    tag: str = "",
) -> Outcome:
    """A new run, in a new folder under `base`.

    The folder is called `name`, or after the environment, the preset, the `tag` of what differs from it, the
    seed and the time.
    """
    begun = elastic.begun_run(base)
    if begun is not None:  # ranks of this run were lost or have joined
        return elastic.to_its_end(
            base, lambda: resume(RunRecord(begun), config, show_plan=show_plan, output=output, own=own)
        )
    with contextlib.ExitStack() as stack:
        with group.failing_together():
            if name is not None:
                run_folder.refuse_unsafe(name)
            config = config.on_ranks(collectives.world_size()).completed()
            evaluation_protocol(config)  # refuse now what could not be evaluated after training
            refuse_one_env_for_two(config, own)
            state = stack.enter_context(started(config, own, output, env_steps=0))
            stem = name or run_folder.name_of(config.env, preset, config.seed, datetime.now(), tag)
            folder = run_folder.create(base, stem) if is_writing() else base
        folder = base / collectives.text_from_rank_0(folder.name)
        elastic.begin(base, folder)
        stack.enter_context(locked(folder))
        return elastic.to_its_end(
            base, lambda: run_to_end(config, state, folder, show_plan=show_plan, output=output, own=own)
        )


def is_writing() -> bool:
    """Whether this process writes the files of the run."""
    return collectives.rank() == 0


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the run for this process and the other ranks of it."""
    if not is_writing():
        return nullcontext()
    return run_folder.lock(folder, patience_seconds=elastic.PATIENCE_SECONDS if elastic.is_job() else 0.0)


def start(config: AnyConfig, own: OwnParts, output: Output, *, env_steps: int) -> AnyState:
    """A fresh state. `env_steps` are those that a resumed run has done."""
    factory = own.network_factory(config)
    if config.collection is None:
        env = own.training_env(config, env_steps=env_steps)
        with closing_on_failure(lambda: own.close(env)):
            set_threads(config, encoder_for(config, env.spec))
            state = algorithm_of(config).start(config, env, say=output.say, factory=factory)
            leave_cores_to_native_code(state)
            return state
    spec = own.spec_for_actors(config)
    set_threads(config, encoder_for(config, spec))  # actors use as many threads as the learner
    pool = own.actors(config, spec, env_steps=env_steps, say=output.say)
    try:
        return algorithm_of(config).start(config, pool, say=output.say, factory=factory)
    except BaseException:
        pool.engine.close()
        raise


@contextmanager
def started(config: AnyConfig, own: OwnParts, output: Output, *, env_steps: int) -> Iterator[AnyState]:
    """A fresh state, whose collection is always ended."""
    state = start(config, own, output, env_steps=env_steps)
    try:
        with closing_on_failure(lambda: own.close_source(state.source)):
            yield state
    finally:
        state.source.close()


@contextmanager
def closing_on_failure(close: Callable[[], None]) -> Iterator[None]:
    """Close environments if an error ends their use; an error of closing must not replace it.

    At a signal they stay open: one that hangs would keep the process from ending.
    """
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            close()
        raise


def resume(
    record: RunRecord,
    config: AnyConfig,
    *,
    show_plan: ShowPlan,
    output: Output,
    own: OwnParts = NOTHING_OWN,
) -> Outcome:
    """Continue a run from its newest good checkpoint, with the batch and numbers of `config`."""
    with contextlib.ExitStack() as stack:
        with group.failing_together():
            config, recorded = config.on_ranks(collectives.world_size()).completed(), record.config
            refuse_another_run(recorded, config)
            evaluation_protocol(config)
            refuse_one_env_for_two(config, own)
            # Before the checkpoint is read, so that no other process continues from it.
            stack.enter_context(locked(record.folder))
        with group.failing_together():
            loaded = record.load_checkpoint(output.say)
            refuse_finished(record, config, loaded.env_steps)
            state = stack.enter_context(started(config, own, output, env_steps=loaded.env_steps))
            restore(config, state, loaded, recorded, say=output.say)
        return run_to_end(
            config, state, record.folder, show_plan=show_plan, output=output, own=own, loaded=loaded
        )


def restore(
    config: AnyConfig, state: AnyState, loaded: Loaded, recorded: AnyConfig, *, say: Callable[[str], None]
) -> None:
    """Continue a fresh state from the part of a checkpoint that belongs to this rank.

    `recorded` is the run's recorded config, which may differ.
    """
    with state_fit.refusing_misfits(loaded.path):
        if "own" not in loaded.tree:
            raise CheckpointError("it holds a policy to evaluate, without the state that a resume needs")
        add_missing_parts(loaded, recorded)
        state.source.drop_episodes_of_another_engine(loaded.tree["own"]["rank"]["source"])
        refuse_unlike_start(loaded, state)
        snapshot = of_shard(snapshot_of(loaded), state.shard)
        algorithm_of(config).restore(state, snapshot, config, say)
        if state.env_steps != loaded.env_steps:
            raise CheckpointError(f"its state is of {state.env_steps:,} env steps")


def add_missing_parts(loaded: Loaded, recorded: AnyConfig) -> None:
    """Add to a checkpoint of an earlier version its run's schedules and the parts that are new since."""
    learner = loaded.tree["shared"]["learner"]
    learner.setdefault("schedules", Schedules.of(recorded).to_dict())
    learner["control"].setdefault("minibatch_limit", None)
    shared = loaded.tree["shared"]
    shared.setdefault("native", False)
    if isinstance(recorded, PPOConfig):
        shared.setdefault("periodic_copy", None)


def refuse_unlike_start(loaded: Loaded, fresh: AnyState) -> None:
    """Refuse a checkpoint whose parts are not those of a fresh state of this run."""
    like = fresh.snapshot()
    assert like is not None
    state_fit.refuse_unlike(loaded.tree.get("shared"), like.shared, "shared", may_lack=True)
    # Arrays of envs may have another number of envs, and may contain infinities.
    state_fit.refuse_unlike(
        loaded.tree.get("own"), like.own, "own", may_lack=True, any_length=True, finite=False
    )
    returns = loaded.tree["recent_returns"]
    state_fit.refuse_unlike(returns, [0.0] * len(returns), "recent_returns")


def snapshot_of(loaded: Loaded) -> Snapshot:
    """The state in a checkpoint."""
    return Snapshot(shared=loaded.tree["shared"], own=loaded.tree["own"], segments=loaded.segments)


def refuse_finished(record: RunRecord, config: AnyConfig, env_steps: int) -> None:
    """Refuse a run that is complete, including its evaluation: its record must not change."""
    result = record.result
    if env_steps < config.total_env_steps or result is None:
        return
    if result.get("env_steps") == env_steps and result.get("evaluation") is not None:
        raise ConfigError(
            f"this run has done its {env_steps:,} env steps; continue it with a larger --total-env-steps"
        )


def run_to_end(
    config: AnyConfig,
    state: AnyState,
    folder: Path,
    *,
    show_plan: ShowPlan,
    output: Output,
    own: OwnParts,
    loaded: Loaded | None = None,
) -> Outcome:
    spec = state.source.spec
    title = f"{spec.env_id} on {spec.engine}, {computed_by(state)}, seed {config.seed}"
    if config.device == "auto":
        output.say(f"device auto: {state.device}")
    if is_writing():
        record_facts(folder, config, state)
    show_plan(config, state.plan)
    with Run.open(folder, config, title=title, output=output) as run:
        if loaded is not None:
            run.continue_from(loaded)
        run.evaluate = periodic = PeriodicEvaluation.of_run(folder, config, own)
        try:
            with noting_training(state, run, resume_of(config, folder, own)):
                algorithm_of(config).train(config, state, run)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT, outcome_of(config, state, run).how_to_continue()) from None
    own.close_source(state.source)
    outcome = outcome_of(config, state, run)
    # Also before the evaluation: a run that is killed during it has been trained to its end.
    write_result(outcome)
    if outcome.finished and not run.is_to_stop:
        try:
            with noting_evaluation(resume_of(config, folder, own)):
                evaluation = evaluate_at_end(config, state, periodic, output=output, own=own)
        except Stopped as stopped:  # a resume repeats it
            return replace(outcome, stopped_by=stopped.signal)
        best = periodic.best if config.evaluation.every_env_steps > 0 else None
        outcome = replace(outcome, evaluation=evaluation, best=best)
        write_result(outcome)
    return outcome


def write_result(outcome: Outcome) -> None:
    if is_writing():
        run_folder.write_json(outcome.folder / RESULT_FILE, result_json(outcome))


def evaluate_at_end(
    config: AnyConfig, state: AnyState, periodic: PeriodicEvaluation, *, output: Output, own: OwnParts
) -> Evaluation:
    """The evaluation of the trained policy: the last one during training if nothing was learned since."""
    made = periodic.made_at(state.env_steps)
    if made is not None:
        return made
    evaluation = evaluate_state(config, state, output=output, own=own)
    if config.evaluation.every_env_steps > 0:
        periodic.take(evaluation, state)
    return evaluation


def outcome_of(config: AnyConfig, state: AnyState, run: Run) -> Outcome:
    """The result of training, before the evaluation."""
    return Outcome(
        folder=run.folder,
        env_steps=state.env_steps,
        saved_env_steps=run.saved_env_steps,
        finished=state.env_steps >= config.total_env_steps,
        training_return=run.recent_return,
        training_episodes=len(run.recent_returns),
        evaluation=None,
        stopped_by=run.stop.signal,
        env_flag=env_flag(config),
    )


def resume_of(config: AnyConfig, folder: Path, own: OwnParts) -> str:
    """What continues a run: a command, or code if only a Python program has its objects."""
    objects = ", ".join(f"{name}=…" for name in ("env", "network") if getattr(own, name) is not None)
    if objects:
        return f"anybatch.resume({str(folder)!r}, {objects})"
    return shlex.join(["anybatch", "resume", str(folder), *env_flag(config)])


def env_flag(config: AnyConfig) -> tuple[str, ...]:
    module = envs.user_module(config.env)
    return ("--env", config.env) if module is not None and user_modules.must_be_named(module) else ()


def record_facts(folder: Path, config: AnyConfig, state: AnyState) -> None:
    run_folder.write_json(
        folder / run_folder.CONFIG_FILE, {"algorithm": config.algorithm} | config_to_dict(config)
    )
    run_folder.write_json(
        folder / run_folder.PLAN_FILE, state.plan.to_json() | plan_table(config, state.plan).to_json()
    )
    facts = run_folder.facts(
        engine=state.source.spec.engine,
        device=str(state.device),
        native_code=state.kernel is not None,
        threads=torch.get_num_threads() if state.kernel is None else native_threads(config),
    )
    run_folder.add_facts(folder, facts | {"from_env_steps": state.env_steps})


def computed_by(state: AnyState) -> str:
    """What computes the networks, for display."""
    return f"{state.device} with native code" if state.kernel is not None else str(state.device)


def result_json(outcome: Outcome) -> dict[str, object]:
    return {
        "env_steps": outcome.env_steps,
        "finished": outcome.finished,
        "training_return": outcome.training_return,
        "evaluation": outcome.evaluation.to_json() if outcome.evaluation else None,
        **({"best": outcome.best.to_json()} if outcome.best else {}),
    }


def refuse_another_run(recorded: AnyConfig, config: AnyConfig) -> None:
    """Refuse to continue a checkpoint with another environment or network, naming the first difference."""
    for path in fixed_on_resume(config):
        there, here = recorded, config
        for name in path.split("."):
            there, here = getattr(there, name), getattr(here, name)
        if there != here:
            raise ConfigError(f"this run has {path} = {there}, not {here}: a resume cannot change that")


def fixed_on_resume(config: AnyConfig) -> list[str]:
    """The settings that a checkpoint depends on. All others may change from one resume to the next."""
    network = [f"network.{field.name}" for field in fields(config.network) if field.name != "log_std"]
    normalizers = ["normalize.observations", "normalize.rewards"] * isinstance(config, PPOConfig)
    return ["env", "dtype", *network, "optimizer.name", *normalizers]
