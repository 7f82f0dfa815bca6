"""A training run from start to end: start or resume, train, evaluate, return the outcome."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from anybatch.acting.evaluation import Evaluation
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends.threads import native_threads
from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict
from anybatch.dial import Plan, plan_table
from anybatch.distributed import collectives, group
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.record import RESULT_FILE, RunRecord
from anybatch.runs.run import Run
from anybatch.runs.stop import Stopped
from anybatch.session import elastic
from anybatch.session.custom import NOTHING_OWN, OwnParts
from anybatch.session.evaluating import evaluate_state, evaluation_protocol
from anybatch.session.failing import noting_evaluation, noting_training
from anybatch.session.outcome import Outcome, outcome_of, result_json, resume_of
from anybatch.session.periodic import PeriodicEvaluation, refuse_one_env_for_two
from anybatch.session.planning import leave_cores_to_native_code, set_threads
from anybatch.session.restoring import refuse_another_run, refuse_finished, restore, was_native
from anybatch.storage.checkpoint import Loaded

ShowPlan = Callable[[AnyConfig, Plan], None]


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


def start(
    config: AnyConfig, own: OwnParts, output: Output, *, env_steps: int, was_native: bool | None = None
) -> AnyState:
    """A fresh state. `env_steps` are those that a resumed run has done, `was_native` its backend."""
    algorithm = algorithm_of(config)
    parts: Any = {"say": output.say, "factory": own.network_factory(config), "was_native": was_native}
    if config.collection is None:
        env = own.training_env(config, env_steps=env_steps)
        with closing_on_failure(lambda: own.close(env)):
            set_threads(config, algorithm.encoder_name(config, env.spec))
            state = algorithm.start(config, env, **parts)
            leave_cores_to_native_code(state)
            return state
    spec = own.spec_for_actors(config)
    set_threads(config, algorithm.encoder_name(config, spec))  # actors use as many threads as the learner
    pool = own.actors(config, spec, env_steps=env_steps, say=output.say)
    try:
        return algorithm.start(config, pool, **parts)
    except BaseException:
        pool.transport.close()
        raise


@contextmanager
def started(
    config: AnyConfig, own: OwnParts, output: Output, *, env_steps: int, was_native: bool | None = None
) -> Iterator[AnyState]:
    """A fresh state, whose collection is always ended."""
    state = start(config, own, output, env_steps=env_steps, was_native=was_native)
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
            earlier: Any = {"env_steps": loaded.env_steps, "was_native": was_native(loaded)}
            state = stack.enter_context(started(config, own, output, **earlier))
            restore(config, state, loaded, say=output.say)
        return run_to_end(
            config, state, record.folder, show_plan=show_plan, output=output, own=own, loaded=loaded
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
            raise Stopped(signal.SIGINT, outcome_of(config, state, run, own).how_to_continue()) from None
    own.close_source(state.source)
    outcome = outcome_of(config, state, run, own)
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
        native_code=state.backend.is_native,
        threads=native_threads(config) if state.backend.is_native else torch.get_num_threads(),
    )
    run_folder.add_facts(folder, facts | {"backend": state.backend.reason, "from_env_steps": state.env_steps})


def computed_by(state: AnyState) -> str:
    """What computes the networks, for display."""
    return f"{state.device} with native code" if state.backend.is_native else str(state.device)
