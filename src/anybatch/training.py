"""A training run from start to end: start or resume, train, evaluate, return the outcome."""

import contextlib
import logging
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from anybatch import envs, presets, user_modules
from anybatch.acting.evaluation import Evaluation
from anybatch.acting.sources import QueueSource
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends.threads import native_threads, set_threads
from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict
from anybatch.dial import plan_table
from anybatch.distributed import collectives, group
from anybatch.envs import interface
from anybatch.envs.protocol import bounds_hint
from anybatch.errors import LostRankError, UserError, note_own_line, own_line
from anybatch.evaluating import (
    PeriodicEvaluation,
    evaluation_protocol,
    validate_evaluation_env,
)
from anybatch.networks import custom as custom_networks
from anybatch.presets.by_env import STARTING_POINTS
from anybatch.restoring import restore, validate_same_run, validate_unfinished, was_native
from anybatch.runs import folder as run_folder
from anybatch.runs import restarts
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.display import Output
from anybatch.runs.iteration import OnIteration
from anybatch.runs.record import RESULT_FILE, RunRecord
from anybatch.runs.run import Run
from anybatch.runs.stop import Stopped
from anybatch.storage.checkpoint import Loaded
from anybatch.user_objects import NO_OBJECTS, UserObjects, is_elsewhere

logger = logging.getLogger(__name__)

STAGES = {
    "rollout": "while it collected",
    "returns": "while it computed returns",
    "update": "while it learned",
    "auxiliary": "in an auxiliary phase",
    "evaluation": "in an evaluation",
    "callback": "in on_iteration",
}
"""What a run does in each section of its timer."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    folder: Path
    env_steps: int
    saved_env_steps: int
    """Env steps of the newest checkpoint, from which a resume would continue."""
    resume: str
    """What continues the run: a command, or code."""
    finished: bool
    training_return: float | None
    """Mean over the last `training_episodes` training episodes."""
    evaluation: Evaluation | None
    training_episodes: int = 0
    stopped_by: signal.Signals | None = None
    """The signal that ended the training, or the evaluation after it."""
    best: BestCheckpoint | None = None
    """The best policy found by evaluations during training; None if there were none."""
    naming: tuple[str, ...] = ()
    """Flags that every command on this run needs, because a run folder alone may not name these parts."""

    def command(self, name: str) -> str:
        """A command line for this run."""
        return shlex.join(["anybatch", name, str(self.folder), *self.naming])

    def how_to_continue(self) -> str:
        """The sentence for a person who stopped the run."""
        return f"Stopped. Continue with: {self.resume} (saved at {self.saved_env_steps:,} env steps)."

    def write(self) -> None:
        """Record the outcome in the run folder."""
        result = {
            "env_steps": self.env_steps,
            "finished": self.finished,
            "training_return": self.training_return,
            "evaluation": self.evaluation.to_json() if self.evaluation else None,
            **({"best": self.best.to_json()} if self.best else {}),
        }
        if is_writing():
            run_folder.write_json(self.folder / RESULT_FILE, result)


def train(
    config: AnyConfig,
    *,
    preset: str,
    base: Path,
    output: Output,
    custom: UserObjects = NO_OBJECTS,
    on_iteration: OnIteration | None = None,
    name: str | None = None,
    tag: str = "",
) -> Outcome:
    """A new run, in a new folder under `base`.

    The folder is called `name`, or after the environment, the preset, the `tag` of what differs from it, the
    seed and the time.
    """
    parts: Any = {"output": output, "custom": custom, "on_iteration": on_iteration}
    begun = restarts.begun_run(base)
    if begun is not None:  # ranks of this run were lost or have joined
        return restarts.to_its_end(base, lambda: resume(RunRecord(begun), config, **parts))
    with contextlib.ExitStack() as stack:
        with group.failing_together():
            if name is not None:
                run_folder.validate_name(name)
            config = config.on_ranks(collectives.world_size()).completed()
            evaluation_protocol(config)  # refuse now what could not be evaluated after training
            validate_evaluation_env(config, custom)
            state = stack.enter_context(started(config, custom, env_steps=0))
            if preset in STARTING_POINTS and (hint := bounds_hint(state.source.spec.actions)):
                logger.info(hint)
            stem = name or run_folder.name_of(config.env, preset, config.seed, datetime.now(), tag)
            folder = run_folder.create(base, stem) if is_writing() else base
        folder = base / collectives.text_from_rank_0(folder.name)
        restarts.begin(base, folder)
        stack.enter_context(locked(folder))
        return restarts.to_its_end(base, lambda: run_to_end(config, state, folder, **parts))


def resume(
    record: RunRecord,
    config: AnyConfig,
    *,
    output: Output,
    custom: UserObjects = NO_OBJECTS,
    on_iteration: OnIteration | None = None,
) -> Outcome:
    """Continue a run from its newest good checkpoint, with the batch and numbers of `config`."""
    with contextlib.ExitStack() as stack:
        with group.failing_together():
            config, recorded = config.on_ranks(collectives.world_size()).completed(), record.config
            validate_same_run(recorded, config)
            evaluation_protocol(config)
            validate_evaluation_env(config, custom)
            # Before the checkpoint is read, so that no other process continues from it.
            stack.enter_context(locked(record.folder))
        with group.failing_together():
            loaded = record.load_checkpoint()
            validate_unfinished(record, config, loaded.env_steps)
            earlier: Any = {"env_steps": loaded.env_steps, "was_native": was_native(loaded)}
            state = stack.enter_context(started(config, custom, **earlier))
            restore(config, state, loaded)
        return run_to_end(
            config,
            state,
            record.folder,
            output=output,
            custom=custom,
            on_iteration=on_iteration,
            loaded=loaded,
        )


def run_to_end(
    config: AnyConfig,
    state: AnyState,
    folder: Path,
    *,
    output: Output,
    custom: UserObjects,
    on_iteration: OnIteration | None = None,
    loaded: Loaded | None = None,
) -> Outcome:
    """Train, evaluate, and record the outcome. `loaded` is the checkpoint that a resumed run continues."""
    spec = state.source.spec
    device = f"{state.device} with native code" if state.backend.is_native else str(state.device)
    title = f"{spec.env_id} on {spec.engine}, {device}, seed {config.seed}"
    resume = resume_of(config, folder, custom)
    if config.device == "auto":
        found = "a GPU" if state.device.type == "cuda" else "no GPU"
        each = " for each rank" if collectives.world_size() > 1 else ""
        logger.info(f"device auto: {state.device}, since torch finds {found}{each}; --device changes it")
    if is_writing():
        record_facts(folder, config, state)
    output.show_plan(config, state.plan)
    with Run.open(folder, config, title=title, output=output) as run:
        if loaded is not None:
            run.continue_from(loaded)
        run.on_iteration = on_iteration
        if state.device.type == "cpu":
            run.cheaper_preset = presets.for_few_cores(config)
        run.evaluate = periodic = PeriodicEvaluation.of_run(folder, config, custom)
        try:
            with noting(lambda: interruption(state, run, resume)):
                algorithm_of(config).train(config, state, run)
        except KeyboardInterrupt as stop:
            number = stop.signal if isinstance(stop, Stopped) else signal.SIGINT
            raise Stopped(number, outcome_of(config, state, run, custom).how_to_continue()) from None
    custom.close_source(state.source)
    outcome = outcome_of(config, state, run, custom)
    # Also before the evaluation: a run that is killed during it has been trained to its end.
    outcome.write()
    if outcome.finished and not run.should_stop:
        try:
            with noting(
                lambda: (
                    "This error ended the evaluation after the training, which is complete and saved. "
                    f"Evaluate again with: {resume}"
                )
            ):
                evaluation = periodic.at_end(state, output)
        except Stopped as stopped:  # a resume repeats it
            return replace(outcome, stopped_by=stopped.signal)
        best = periodic.best if config.evaluation.every_env_steps > 0 else None
        outcome = replace(outcome, evaluation=evaluation, best=best)
        outcome.write()
    return outcome


def is_writing() -> bool:
    """Whether this process writes the files of the run."""
    return collectives.rank() == 0


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the run for this process and the other ranks of it."""
    if not is_writing():
        return nullcontext()
    return run_folder.lock(folder, patience_seconds=restarts.PATIENCE_SECONDS if restarts.is_job() else 0.0)


@contextmanager
def started(
    config: AnyConfig, custom: UserObjects, *, env_steps: int, was_native: bool | None = None
) -> Iterator[AnyState]:
    """A fresh state, whose collection is always ended.

    `env_steps` are those that a resumed run has done, `was_native` its backend.
    """
    algorithm = algorithm_of(config)
    parts: Any = {"factory": custom.network_factory(config), "was_native": was_native}
    with contextlib.ExitStack() as stack:
        if config.collection is None:
            env = custom.training_env(config, env_steps=env_steps)
            stack.enter_context(closing_on_failure(lambda: custom.close(env)))
            set_threads(config, algorithm.encoder_name(config, env.spec))
            state = algorithm.start(config, env, **parts)
            if state.backend.is_native:
                # Further threads of torch would keep the cores busy that native code needs. PPG's auxiliary
                # phase has those that were asked for (`NativeBackend.torch_threads`).
                torch.set_num_threads(1)
        else:
            spec = custom.spec_for_actors(config)
            # Actors use as many threads as the learner.
            set_threads(config, algorithm.encoder_name(config, spec))
            pool = custom.actors(config, spec, env_steps=env_steps)
            stack.callback(pool.transport.close)
            state = algorithm.start(config, pool, **parts)
        stack.callback(state.source.close)
        yield state


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


def record_facts(folder: Path, config: AnyConfig, state: AnyState) -> None:
    run_folder.write_json(
        folder / run_folder.CONFIG_FILE, {"algorithm": config.algorithm} | config_to_dict(config)
    )
    run_folder.write_json(
        folder / run_folder.PLAN_FILE, state.plan.to_json() | plan_table(config, state.plan).to_json()
    )
    if isinstance(state.source, QueueSource):  # actors have their environments in other processes
        with contextlib.suppress(TypeError):  # a space of a kind of its own: a load asks the environment
            spaces = interface.to_json(state.source.collector.env)
            run_folder.write_json(folder / run_folder.SPACES_FILE, spaces, compact=True)
    facts = run_folder.facts(
        engine=state.source.spec.engine,
        device=str(state.device),
        native_code=state.backend.is_native,
        threads=native_threads(config) if state.backend.is_native else torch.get_num_threads(),
    )
    run_folder.add_facts(folder, facts | {"backend": state.backend.reason, "from_env_steps": state.env_steps})


def outcome_of(config: AnyConfig, state: AnyState, run: Run, custom: UserObjects) -> Outcome:
    """The result of training, before the evaluation."""
    return Outcome(
        folder=run.folder,
        env_steps=state.env_steps,
        saved_env_steps=run.saved_env_steps,
        resume=resume_of(config, run.folder, custom),
        finished=state.env_steps >= config.total_env_steps,
        training_return=run.recent_return,
        training_episodes=len(run.recent_returns),
        evaluation=None,
        stopped_by=run.stop.signal,
        naming=naming_flags(config),
    )


def resume_of(config: AnyConfig, folder: Path, custom: UserObjects) -> str:
    """What continues a run: a command, or code if only a Python program has its objects."""
    objects = ", ".join(f"{name}=…" for name in ("env", "network") if getattr(custom, name) is not None)
    if objects:
        return f"anybatch.resume({str(folder)!r}, {objects})"
    cluster = ("--ray-address", config.ray_address) if is_elsewhere(config.ray_address) else ()
    return shlex.join(["anybatch", "resume", str(folder), *naming_flags(config), *cluster])


def naming_flags(config: AnyConfig) -> tuple[str, ...]:
    """The flags that name an environment and a network again, where a run folder may not name them alone."""
    flags: list[str] = []
    module, factory = envs.user_module(config.env), config.network.factory
    if module is not None and user_modules.must_be_named(module):
        flags += ["--env", config.env]
    if factory is not None and custom_networks.must_be_named(factory):
        flags += [f"--{user_modules.NETWORK_FACTORY}", factory]
    return tuple(flags)


def interruption(state: AnyState, run: Run, resume: str) -> str:
    """Where an error ended a run, and what continues it: `resume` is code or a command."""
    stage = STAGES.get(run.timer.failed or "", "between two iterations")
    return (
        f"This error ended the run at {state.env_steps:,} env steps, {stage}. "
        f"Continue with: {resume} (saved at {run.saved_env_steps:,} env steps)."
    )


@contextmanager
def noting(sentence: Callable[[], str]) -> Iterator[None]:
    """Note a sentence with an error that may be that of a user's code, and the line to look at first.

    Our own errors are sentences already, and so are those about files. An environment or a network that has
    been named with an error is where to look.
    """
    try:
        yield
    except Exception as error:
        has_notes = bool(getattr(error, "__notes__", ()))
        is_about_file = isinstance(error, OSError) and error.filename is not None
        is_users = has_notes or own_line(error) is not None
        if not isinstance(error, UserError | LostRankError) and (is_users or not is_about_file):
            if not has_notes:
                note_own_line(error)
            error.add_note(sentence())
        raise
