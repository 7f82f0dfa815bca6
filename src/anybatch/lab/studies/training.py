"""Running one cell: train it, or continue it, and keep what a report needs. Or measure how long it takes."""

import math
import shutil
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anybatch import envs, presets, training
from anybatch.config import AnyConfig, PPOConfig
from anybatch.envs.protocol import Actions, BoxActions, DiscreteActions, MultiDiscreteActions, RestorableEnv
from anybatch.errors import DiskError, TrainingError, UserError
from anybatch.evaluating import evaluate_state
from anybatch.lab.studies import curves
from anybatch.lab.studies.cells import RANDOM_ARM, RUNS, Cell, Origin, Result
from anybatch.lab.studies.configs import config_of
from anybatch.runs import folder as run_folder
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord
from anybatch.runs.stop import Stopped
from anybatch.storage import safe_files
from anybatch.storage.safe_files import Folder
from anybatch.user_objects import NO_OBJECTS

RANDOM_EPISODES = 100
RUN_FACTS = ("python", "torch", "engine", "device", "threads")
KEPT_OF_EVALUATION = ("mean_return", "standard_error", "episodes", "greedy")
PROBE_ITERATIONS = 6
PROBE_ENV_STEPS = 4096
"""Smallest number of env steps that are timed: an iteration of a single env would be too short."""


def run_cell(out: Path, origin: Origin, cell: Cell) -> Result:
    """The result of a cell, even if it fails. Raises Stopped at a signal, DiskError at a full disk."""
    try:
        if cell.arm == RANDOM_ARM:
            return random_play(origin, cell)
        folder = trained(out, cell)
    except (Stopped, DiskError):
        raise
    except Exception as error:
        if not isinstance(error, UserError):
            traceback.print_exception(error)  # for the log; the cell stores the sentence
        return origin.failure(cell, sentence(error), diverged=isinstance(error, TrainingError))
    return collected(folder, origin, cell)


def remove_finished_run(out: Path, cell: Cell) -> None:
    """Remove the run folder of a cell, once its result is stored: a kill must not lose both."""
    folder = out / RUNS / cell.name
    if folder.exists() and is_complete(RunRecord(folder)):
        safe_files.remove_tree(folder, within=out)


def trained(out: Path, cell: Cell) -> Path:
    """The run folder of a cell, trained to its end and evaluated."""
    folder, config = out / RUNS / cell.name, config_of(cell.config, cell.name)
    with Folder.opened(out / RUNS, within=out, make=True) as runs:
        if runs.exists(cell.name) and not can_continue(folder, config):
            runs.remove_tree(cell.name)
        is_begun = runs.exists(cell.name)
        if is_begun:
            with runs.inner(cell.name):
                pass  # neither this folder nor the run in it is a link
    if not is_begun:
        outcome = trained_as(cell.name, config, out, cell)
    elif is_complete(RunRecord(folder)):
        return folder
    else:
        outcome = training.resume(RunRecord(folder), config, output=QUIET)
    if outcome.stopped_by is not None:
        raise Stopped(outcome.stopped_by)
    return outcome.folder


def trained_as(name: str, config: AnyConfig, out: Path, cell: Cell) -> training.Outcome:
    """A new run in a folder of this name."""
    base = out / RUNS
    return training.train(config, preset=cell.base, base=base, name=name, output=QUIET)


def can_continue(folder: Path, config: AnyConfig) -> bool:
    """Whether an interrupted cell gives the same result as an uninterrupted one.

    It does if the environment can be restored. Otherwise a resume would start other episodes, so the cell is
    restarted.
    """
    try:
        record = RunRecord(folder)
        if is_complete(record):
            return True
        if not record.has_checkpoint:
            return False
    except UserError:  # killed before its first file was complete
        return False
    env = envs.make(config.env, config.env_config, seeds=[0])
    env.close()
    return isinstance(env, RestorableEnv)


def is_complete(record: RunRecord) -> bool:
    result = record.result or {}
    return bool(result.get("finished")) and result.get("evaluation") is not None


def collected(folder: Path, origin: Origin, cell: Cell) -> Result:
    """What a cell keeps of its run folder."""
    record = RunRecord(folder)
    rows, total = record.rows, cell.total_env_steps
    curve = curves.return_curve(rows, total, origin.bins)
    if all(value is None for _, value in curve):
        return origin.failure(cell, f"no episode ended within {total:,} env steps")
    run_facts = run_folder.read_json(folder / run_folder.FACTS_FILE)
    evaluation = (record.result or {})["evaluation"]
    if not math.isfinite(evaluation["mean_return"]):
        return origin.failure(cell, f"the evaluation has a mean return of {evaluation['mean_return']}")
    return Result(
        cell=cell,
        plan_hash=origin.hash,
        curve=curve,
        episodes=int(sum(row.get(curves.EPISODES) or 0 for row in rows)),
        evaluation={key: evaluation[key] for key in KEPT_OF_EVALUATION},
        plan=run_folder.read_json(folder / run_folder.PLAN_FILE),
        metrics=curves.metric_curves(rows, total, origin.bins),
        facts=origin.result_facts()
        | {key: run_facts[key] for key in RUN_FACTS}
        | {"seconds": rows[-1]["wall_seconds"], "interruptions": len(run_facts["earlier"])},
    )


def random_play(origin: Origin, cell: Cell) -> Result:
    """The return of an untrained policy, whose actions are nearly uniformly random."""
    config = untrained(config_of(cell.config, cell.name))
    with training.started(config, NO_OBJECTS, env_steps=0) as state:
        played = evaluate_state(config, state, output=QUIET)
        NO_OBJECTS.close_source(state.source)
    if not math.isfinite(played.mean_return):  # rewards are checked only while learning
        return origin.failure(cell, f"random play has a mean return of {played.mean_return}")
    mean, entropy = curves.rounded(played.mean_return), largest_entropy(state.source.spec.actions)
    return Result(
        cell=cell,
        plan_hash=origin.hash,
        curve=((cell.total_env_steps, mean),),
        episodes=len(played.episodes),
        evaluation={key: played.to_json()[key] for key in KEPT_OF_EVALUATION},
        metrics={} if entropy is None else {curves.ENTROPY: (curves.rounded(entropy),)},
        facts=origin.result_facts(),
    )


def largest_entropy(actions: Actions) -> float | None:
    """The entropy of uniformly random actions; None for continuous ones, which have no maximum."""
    match actions:
        case DiscreteActions():
            return math.log(actions.count)
        case MultiDiscreteActions():
            return sum(math.log(count) for count in actions.counts)
        case BoxActions():
            return None


def untrained(config: AnyConfig) -> PPOConfig:
    """A config whose untrained policy gives nearly the same probability to every action."""
    evaluation = {"num_envs": RANDOM_EPISODES, "episodes_per_env": 1, "greedy": False}
    return PPOConfig(
        env=config.env,
        env_config=config.env_config,
        seed=config.seed,
        threads=config.threads,
        num_envs=1,
        evaluation=type(config.evaluation)(**(vars(config.evaluation) | evaluation)),
    )


def sentence(error: Exception) -> str:
    """The message of an error: the sentence of our own errors, otherwise with the name of the type."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def seconds_per_env_step(out: Path, cell: Cell) -> float:
    """Seconds per env step, measured on the first iterations of a cell in a temporary run folder.

    Raises Stopped at a signal.
    """
    iteration = cell.config["num_envs"] * cell.config["num_steps"]
    steps = max(PROBE_ITERATIONS * iteration, PROBE_ENV_STEPS)
    settings = presets.overlaid(dict(cell.config), probe_settings(cell.config, steps))
    name = f"probe-{cell.name}"[:100]
    try:
        outcome = trained_as(name, config_of(settings, cell.name), out, cell)
        if outcome.stopped_by is not None:
            raise Stopped(outcome.stopped_by)
        rows = RunRecord(outcome.folder).rows
    finally:
        shutil.rmtree(out / RUNS / name, ignore_errors=True)
    return timed(rows, auxiliary_share(cell.config))


def probe_settings(config: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A short run with fresh data and without phases, whose evaluation takes no time."""
    settings: dict[str, Any] = {
        "total_env_steps": steps,
        "evaluation": {"num_envs": 1, "episodes_per_env": 1, "max_episode_steps": 1},
        "record": {"checkpoint_every_iterations": 0},
    }
    if "staleness" in config:
        settings["staleness"] = {"iterations": 0}
    if "phase" in config:
        settings["phase"] = {"policy_iterations": steps}
    return settings


def auxiliary_share(config: Mapping[str, Any]) -> float:
    """Work of the auxiliary phase per unit of work of the policy phase."""
    return config["phase"]["auxiliary_epochs"] / config["update"]["epochs"] if "phase" in config else 0.0


def timed(rows: Sequence[Mapping[str, Any]], auxiliary: float) -> float:
    """Seconds per env step of a run; `auxiliary` adds to the time of its updates.

    The first iteration compiles and warms up: it counts only if there is no other. An iteration may have no
    env step at all, if every env is reset in it.
    """
    counted = rows[1:] or rows
    before = rows[0]["env_steps"] if len(rows) > 1 else 0
    update = sum(row["time/update"] for row in counted)
    whole = sum(value for row in counted for name, value in row.items() if name.startswith("time/"))
    return (whole + auxiliary * update) / (counted[-1]["env_steps"] - before)
