"""The files of a study: one plan, and one small JSON file for each cell.

    OUT/plan.json           what is run, fixed before the first cell
    OUT/cells/NAME.json     a finished or failed cell
    OUT/runs/NAME/          the run folder of a cell in progress; removed when the cell has been written,
                            unless its training failed or diverged
    OUT/source/anybatch/    the package as it was when the plan was made; all cells run from this copy

A cell is one training run: a point of the grid, and a seed. Both files are JSON objects. `recorded.py` packs
them into one file.

plan.json:

    schema      1
    hash        SHA-256 of all that decides the results: every key except hash, study, arms, request and facts
    study       name, title, claim, source: strings of the study file
    scale       smoke, cpu or paper
    tune        true for the plan of `--tune`: another learning rate per cell, on separate seeds
    metric      both: verdicts compare the final returns and the areas of cells. Plans from before this was so
                have area or final
    bins        points of every curve
    threads     threads of torch in each cell
    arms        {arm: title}; the arm `random` is random play, one cell for each env
    reference   {"arm", "ratio"} and, in a sweep, "point": the cells that others are compared with, the base
                at the tuned batch
    verdicts    the rules of the study file, unchanged: see anybatch.lab.verdicts
    ranges      {env: [low, high]}: returns that normalize to 0 and 1, fixed beforehand. Environments that
                are absent have a published range, or (in plans of --tune, and in plans from before ranges had
                to be fixed) are normalized by random play and the best final return of the reference's runs
    left_out    parts of the grid that are not run: env, base, arm, ratio, point and factors as in a cell,
                cause and reason. The cause is "ratio", one that the base cannot reach, such as a quarter of
                one env, or "budget"; the reason is the same in words
    cells       [cell, …]
    request     the user's request: study, scale, envs, preset, seeds, budget_seconds, tune
    facts       anybatch, git_commit, source (SHA-256 of the copy), python, torch

A cell of the plan, and the same keys in its own file:

    name        of the file, from the keys below
    part        number of the grid in the study file, in whose order cells are run; 0 for random play
    env         id of the environment
    base        name of the base in the study file
    arm         name of the arm: what differs from the base
    ratio       number of envs ÷ that of the base, as text: "1", "1/16", "8". Where an arm changes neither the
                rollout length nor the number of minibatches, it is the ratio of both batches
    point       {setting: value}: the settings that the grid sweeps, such as {"staleness.iterations": 8}
    factors     {setting: factor}: those that it multiplies, such as {"optimizer.learning_rate": 0.5}
    seed        seed of the run
    config      all settings of the run, with `algorithm` and `tuned_at`

cells/NAME.json adds:

    schema      2
    plan_hash   hash of the plan that the cell belongs to
    status      done; failed; or diverged, which is failed because the loss or the gradient became non-finite
                and counts in comparisons, as random play
    reason      null, or why there is no result, in a sentence. What follows, except facts, is absent then
    curve       [[env steps, mean return], …], one point for each of `bins` equal parts of the run; env steps
                is the end of the part, the return the mean over the episodes that ended within it, null
                where none did. A single point at 0 for random play, whose entropy (in metrics) is the largest
                that a policy of discrete actions can have
    final_return  mean of the curve over the last tenth of the run
    area        mean of the curve over the whole run. A part without episodes counts as the part after it.
                Both are computed from the curve when a cell is read; they are stored for other readers
    episodes    number of training episodes
    evaluation  {"mean_return", "standard_error", "episodes", "greedy"} of the trained policy
    plan        numbers of the run's plan: batch, tuned_at, ratios, hyperparameters, phase, step_range, rows,
                warnings, as `anybatch plan --json` prints them
    metrics     {name: [value or null, …]}, a value for each part of the run, means within it: those of
                curves.METRIC_CURVES that the run measured. Older cells have medians of a batch/noise_scale
                that was measured within one minibatch
    facts       seconds (of training, summed over interruptions), interruptions, anybatch, git_commit, source,
                python, torch, engine, device, threads, machine, cores. Only these may differ between two
                undisturbed runs of one plan on one machine

All numbers are finite; returns have six significant digits, metrics four.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Self

from anybatch.errors import UserError
from anybatch.lab.studies import curves
from anybatch.rules import noise_scale
from anybatch.runs import folder as run_folder
from anybatch.storage.json_text import is_number
from anybatch.storage.safe_files import Folder

CELL_SCHEMA = 2
PLAN_FILE, CELLS, RUNS, SOURCE = "plan.json", "cells", "runs", "source"

BINS = 100
"""Points of a curve."""

RANDOM_ARM = "random"
"""Random play: what a reference must be better than, and the zero of a scale that is not fixed beforehand."""

BOTH = "both"
METRICS: tuple[str, ...] = ("final", "area")
"""The numbers of a cell that verdicts compare: the papers' metric, and the mean over the whole run."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run of a study, as planned."""

    name: str
    part: int
    env: str
    base: str
    arm: str
    ratio: str
    seed: int
    config: Mapping[str, Any]
    point: Mapping[str, Any] = field(default_factory=dict[str, Any])
    factors: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def ratio_value(self) -> float:
        return float(Fraction(self.ratio))

    @property
    def group(self) -> str:
        """The name without the seed: cells of one group differ only by chance."""
        return self.name.removesuffix(f"__s{self.seed}")

    def is_same(self, other: "Cell") -> bool:
        """Whether both are the same point of the grid, with the same seed."""
        keys = ("name", "env", "base", "arm", "ratio", "seed")
        return all(getattr(self, key) == getattr(other, key) for key in keys)

    def is_reference(self, reference: Mapping[str, Any]) -> bool:
        """Whether it is one of the cells that others are compared with: no setting is multiplied."""
        same = (self.arm, self.ratio) == (reference["arm"], reference["ratio"])
        at_point = not self.point or reference.get("point", self.point) == self.point
        return same and at_point and all(factor == 1 for factor in self.factors.values())

    @property
    def total_env_steps(self) -> int:
        """Env steps of the training; none for random play."""
        return 0 if self.arm == RANDOM_ARM else int(self.config["total_env_steps"])

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CELL_KEYS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: data[name] for name in CELL_KEYS})


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A part of the grid that a plan does not run. Its cells would differ only in their seeds."""

    env: str
    base: str
    arm: str
    ratio: str
    point: Mapping[str, Any]
    factors: Mapping[str, float]
    cause: Literal["ratio", "budget"]
    """ratio: the base cannot reach it. budget: it takes too long."""
    reason: str
    """The cause in words."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the result of a cell takes from its plan, which is that of a study or of a tuning."""

    hash: str
    bins: int
    facts: Mapping[str, Any]

    def result_facts(self) -> dict[str, Any]:
        """What a result depends on beside the plan. Nothing that identifies the owner of the machine."""
        known = {name: self.facts.get(name) for name in ("anybatch", "git_commit", "source")}
        return known | {"machine": platform.machine(), "cores": os.cpu_count()}

    def failure(self, cell: Cell, reason: str, *, diverged: bool = False) -> "Result":
        """The record of a cell without a result, which is never dropped but written with the reason."""
        facts = self.result_facts()
        return Result(cell=cell, plan_hash=self.hash, failed=reason, diverged=diverged, facts=facts)


CELL_KEYS = ("name", "part", "env", "base", "arm", "ratio", "point", "factors", "seed", "config")
"""Keys of a cell, in the plan and in its own file."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A cell that has been run."""

    cell: Cell
    plan_hash: str
    facts: Mapping[str, Any]
    failed: str | None = None
    """Why there is no result; None if there is one."""
    diverged: bool = False
    """Whether it failed because the loss or the gradient became non-finite."""
    curve: tuple[tuple[int, float | None], ...] = ()
    episodes: int = 0
    evaluation: Mapping[str, Any] = field(default_factory=dict[str, Any])
    plan: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metrics: Mapping[str, tuple[float | None, ...]] = field(
        default_factory=dict[str, tuple[float | None, ...]]
    )

    @property
    def final_return(self) -> float | None:
        return curves.final_return(value for _, value in self.curve)

    @property
    def area(self) -> float | None:
        return curves.area(value for _, value in self.curve)

    def course(self, metric: str) -> tuple[float | None, ...]:
        """A metric over the run; the noise scale from its parts, infinite where noise hides the signal."""
        if metric != curves.NOISE_SCALE or curves.TRACE not in self.metrics:
            return self.metrics.get(metric, ())
        return tuple(None if pair is None else noise_scale(*pair) for pair in self.noise())

    def noise(self) -> tuple[tuple[float, float] | None, ...]:
        """Trace and signal of the gradient over the run; empty if they were not kept."""
        both = zip(self.metrics.get(curves.TRACE, ()), self.metrics.get(curves.SIGNAL, ()), strict=True)
        return tuple(None if trace is None or signal is None else (trace, signal) for trace, signal in both)

    def score(self, metric: str) -> float:
        """The number that verdicts compare, `area` or `final`. The cell must not have failed."""
        value = self.area if metric == "area" else self.final_return
        assert value is not None, self.cell.name
        return value

    @property
    def status(self) -> str:
        return DONE if self.failed is None else DIVERGED if self.diverged else FAILED

    def to_json(self) -> dict[str, Any]:
        outcome = {name: getattr(self, name) for name in OUTCOME_KEYS} if self.failed is None else {}
        status = {"status": self.status, "reason": self.failed}
        return self.cell.to_json() | status | outcome | {"facts": self.facts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], plan_hash: str) -> Self:
        kept = [name for name in OUTCOME_KEYS if name not in DERIVED_KEYS]
        outcome = {name: data[name] for name in kept} if data["status"] == DONE else {}
        if outcome:
            outcome["curve"] = tuple((int(steps), value) for steps, value in outcome["curve"])
            outcome["metrics"] = {name: tuple(values) for name, values in outcome["metrics"].items()}
        return cls(
            cell=Cell.from_json(data),
            plan_hash=plan_hash,
            facts=data["facts"],
            failed=data["reason"],
            diverged=data["status"] == DIVERGED,
            **outcome,
        )


DONE, FAILED, DIVERGED = "done", "failed", "diverged"
"""The status of a cell that has been run."""
OUTCOME_KEYS = ("curve", "final_return", "area", "episodes", "evaluation", "plan", "metrics")
"""Keys of a result that a failed cell does not have."""
DERIVED_KEYS = ("final_return", "area")
"""Keys whose values follow from others."""


def wrong_entries(data: Mapping[str, Any]) -> list[str]:
    """The entries of a cell's file that a report could not compute with."""
    tables, done = ("facts", "evaluation", "plan", "metrics"), data["status"] == DONE
    fits = {name: isinstance(data.get(name, {}), Mapping) for name in tables}
    fits["status"] = data["status"] in (DONE, FAILED, DIVERGED)
    fits["reason"] = data["reason"] is None if done else isinstance(data["reason"], str)
    if not all(fits.values()):
        return [name for name, does_fit in fits.items() if not does_fit]
    fits["facts.seconds"] = is_number(data["facts"].get("seconds") or 0)
    wrong_metrics: list[str] = []
    if done:
        ends, returns = zip(*data["curve"], strict=True) if data["curve"] else ((), ())
        fits["curve"] = (
            all(map(is_number, ends))
            and are_numbers(list(returns))
            and any(value is not None for value in returns)
        )
        metrics = data["metrics"].items()
        wrong_metrics = [name for name, values in metrics if not are_numbers(values, len(ends))]
        fits["plan"] = data["arm"] == RANDOM_ARM or is_run_plan(data["plan"])
    return [*(name for name, does_fit in fits.items() if not does_fit), *wrong_metrics]


def is_run_plan(plan: Mapping[str, Any]) -> bool:
    """Whether these are the numbers and rows of a run's plan, as far as a report reads them."""
    try:
        batch, rows = plan["batch"], plan["rows"]
        sizes, rate = (batch["num_envs"], batch["minibatch"]), plan["hyperparameters"]["learning_rate"]
        words = [row[name] for row in rows for name in ("number", "tuned_at", "this_run", "rule")]
    except (KeyError, TypeError):
        return False
    numbers = is_number(rate) and all(is_number(size) and size > 0 for size in sizes)
    return numbers and all(isinstance(word, str) for word in words)


def are_numbers(values: object, length: int | None = None) -> bool:
    """Whether this is a list of finite numbers, with null where there is none, and of this length."""
    if not isinstance(values, list) or length not in (None, len(values)):
        return False
    return all(value is None or is_number(value) for value in values)


def path_of(out: Path, name: str) -> Path:
    """The file of a cell."""
    return out / CELLS / f"{name}.json"


def write(out: Path, result: Result) -> None:
    """Write the file of a cell in one step."""
    path = path_of(out, result.cell.name)
    data = {"schema": CELL_SCHEMA, "plan_hash": result.plan_hash} | result.to_json()
    run_folder.write_json(path, data, within=out, compact=True, all_finite=True)


def remove(out: Path, name: str) -> None:
    """Remove the file of a cell, so that it is run again."""
    path = path_of(out, name)
    with Folder.opened(path.parent, within=out) as place:
        place.remove(path.name)


def read(out: Path, name: str) -> Result | None:
    """The result of a cell; None if it has not been run. A damaged file is refused by name."""
    path = path_of(out, name)
    if not path.exists():
        return None
    data = run_folder.read_json(path)
    try:
        schema, plan_hash = data["schema"], data["plan_hash"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: it is not a cell of a study ({error!r})") from None
    if schema != CELL_SCHEMA:
        raise UserError(f"{path} has schema {schema}; this version reads schema {CELL_SCHEMA}")
    return parsed(data, plan_hash, where=str(path))


def parsed(data: Mapping[str, Any], plan_hash: str, *, where: str) -> Result:
    """The result that a cell's entries describe. Damaged ones are refused; `where` names the cell."""
    try:
        if wrong := wrong_entries(data):
            raise UserError(f"{where} is damaged: a study does not write such {' or '.join(wrong)}")
        return Result.from_json(data, plan_hash)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{where} is damaged: it is not a cell of a study ({error!r})") from None


def validate_curve_length(result: Result, bins: int, *, where: str) -> None:
    """Refuse the curve of a run that has not as many points as the plan says."""
    if result.failed is None and result.cell.arm != RANDOM_ARM and len(result.curve) != bins:
        raise UserError(f"{where} is damaged: its curve has {len(result.curve)} points instead of {bins}")
