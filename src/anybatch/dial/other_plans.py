"""Another trainer's configuration at another batch: the dial's arithmetic between the trainer's own keys.

The number of gradient steps per iteration stays the same. All batches then change by one ratio ρ, the
learning rate follows the minibatch, and numbers that should follow but have no setting are named.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from anybatch import rules
from anybatch.config.planned import PlanRow, ratio_text, root_text
from anybatch.config.require import LARGEST_COUNT, LARGEST_FLOAT
from anybatch.dial.other_trainers import RLLIB, RSL_RL, Settings, Trainer, shown
from anybatch.errors import UserError
from anybatch.text import number_text

SCHEDULED = "lin_"
"""Prefix of a learning rate that falls linearly to 0, in configurations of the RL Zoo."""
OPTIMIZERS: dict[str, Literal["adam", "sgd"]] = {"adam": "adam", "adamw": "adam", "sgd": "sgd"}
"""Optimizers by the rule that their learning rate follows."""
ADAPTIVE = "where it starts: the schedule adapts it"
FEWEST_STEPS = 8
"""Shorter rollouts are not suggested: advantages over fewer steps are little more than the value function."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The batches of another trainer's configuration, over all of its learners."""

    num_envs: int
    num_steps: float
    """Steps per env; may be fractional if the trainer sets the iteration batch instead."""
    iteration_batch: int
    minibatch: float

    def product(self) -> str:
        return f"{self.num_envs:,} × {number_text(self.num_steps, 6)} = {self.iteration_batch:,}"


@dataclass(frozen=True, kw_only=True)
class OtherPlan:
    """A trainer's configuration at another batch."""

    trainer: Trainer
    tuned_at: Sizes
    this_run: Sizes
    settings: Settings
    """All settings that were given or changed, with their values for this run, by the trainer's keys."""
    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...]
    """What the trainer cannot express, and where the rules may not hold."""

    def to_json(self) -> dict[str, object]:
        return {
            "trainer": self.trainer.name,
            "tuned_at": asdict(self.tuned_at),
            "this_run": asdict(self.this_run),
            "settings": as_json(self.settings),
            "rows": [asdict(row) for row in self.rows],
            "notes": list(self.notes),
        }


def as_json(value: Any) -> Any:
    """A setting for JSON, which has no infinity: it is text there."""
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in cast("Settings", value).items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in cast("list[Any]", value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plan_for(trainer: Trainer, given: Settings, *, num_envs: int) -> OtherPlan:
    """The settings `given`, tuned at the batch they describe, for `num_envs` environments."""
    complete = trainer.complete(given)
    tuned_at = sizes_of(trainer, complete)
    if not 1 <= num_envs <= LARGEST_COUNT:
        raise UserError(f"--num-envs {num_envs}: must be from 1 to {LARGEST_COUNT:,}")
    changed = batch_settings(trainer, complete, tuned_at, num_envs)
    this_run = sizes_of(trainer, complete | changed)
    ratio = this_run.minibatch / tuned_at.minibatch
    rate = complete[trainer.learning_rate]
    changed[trainer.learning_rate] = rescaled_rate(trainer, rate, ratio, optimizer_of(trainer, complete))
    run = complete | changed
    return OtherPlan(
        trainer=trainer,
        tuned_at=tuned_at,
        this_run=this_run,
        settings={key: run[key] for key in run if key in given or key in trainer.read},
        rows=rows(trainer, complete, run, tuned_at, this_run),
        notes=notes(trainer, complete, tuned_at.iteration_batch, this_run.iteration_batch),
    )


def sizes_of(trainer: Trainer, settings: Settings) -> Sizes:
    """The batches that the settings describe, or an error if they do not fit together."""
    at_least = 0 if trainer.zero_means_one else 1
    num_envs = 1
    for key in trainer.num_envs:
        num_envs *= max(1, whole(settings, key, at_least=at_least))
    whole(settings, trainer.epochs)
    learners = max(1, whole(settings, trainer.num_learners, at_least=0)) if trainer.num_learners else 1
    if trainer.iteration_batch is not None:
        iteration_batch = whole(settings, trainer.iteration_batch) * learners
    else:
        assert trainer.num_steps is not None
        iteration_batch = num_envs * whole(settings, trainer.num_steps)
    if trainer.minibatch is not None:
        minibatch = float(whole(settings, trainer.minibatch) * learners)
        key = trainer.minibatch
    else:
        assert trainer.minibatches is not None
        minibatch, key = iteration_batch / whole(settings, trainer.minibatches), trainer.minibatches
    if not 1 <= minibatch <= iteration_batch:
        raise UserError(
            f"{key} = {settings[key]} does not fit the {iteration_batch:,} samples of an iteration: "
            f"a minibatch would be {number_text(minibatch, 4)} samples"
        )
    return Sizes(
        num_envs=num_envs,
        num_steps=iteration_batch / num_envs,
        iteration_batch=iteration_batch,
        minibatch=minibatch,
    )


def batch_settings(trainer: Trainer, settings: Settings, tuned_at: Sizes, num_envs: int) -> Settings:
    """The settings for the batch of `num_envs` envs, with the same number of gradient steps per iteration."""
    *others, last = trainer.num_envs
    beside = 1
    for key in others:
        beside *= max(1, settings[key])
    if num_envs % beside:
        raise UserError(f"--num-envs {num_envs}: must be a multiple of {' × '.join(others)} = {beside}")
    changed: Settings = {last: num_envs // beside}
    ratio = num_envs / tuned_at.num_envs
    if trainer.iteration_batch is not None:
        changed[trainer.iteration_batch] = max(1, round(settings[trainer.iteration_batch] * ratio))
    if trainer.minibatch is not None:
        changed[trainer.minibatch] = max(1, round(settings[trainer.minibatch] * ratio))
    return changed


def rescaled_rate(trainer: Trainer, rate: Any, ratio: float, optimizer: str) -> Any:
    """The learning rate for a minibatch `ratio` times as large, in the given form."""

    def scaled(number: float) -> float:
        return float(f"{rules.rescaled_learning_rate(number, ratio, OPTIMIZERS[optimizer]):.6g}")

    if isinstance(rate, str) and rate.startswith(SCHEDULED):
        return f"{SCHEDULED}{scaled(positive(trainer, rate.removeprefix(SCHEDULED))):.6g}"
    if isinstance(rate, list | tuple):  # pairs of env steps and learning rate
        return [[steps, scaled(positive(trainer, number))] for steps, number in pairs(trainer, rate)]
    return scaled(positive(trainer, rate))


def pairs(trainer: Trainer, rate: Any) -> list[tuple[Any, Any]]:
    entries = cast("list[list[Any]]", rate)
    points = [(entry[0], entry[1]) for entry in entries if type(entry) in (list, tuple) and len(entry) == 2]
    if not points or len(points) != len(entries):
        raise UserError(
            f"{trainer.learning_rate} = {shown(rate)}: a schedule must be pairs of env steps and number"
        )
    return points


def positive(trainer: Trainer, value: Any) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 < number <= LARGEST_FLOAT:
        raise UserError(
            f"{trainer.learning_rate} = {shown(value)}: must be a positive number, at most {LARGEST_FLOAT:g}"
        )
    return number


def whole(settings: Settings, key: str, *, at_least: int = 1) -> int:
    value = settings[key]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not at_least <= value <= LARGEST_COUNT:
        raise UserError(
            f"{key} = {shown(value)}: must be a whole number from {at_least} to {LARGEST_COUNT:,}"
        )
    return value


def optimizer_of(trainer: Trainer, settings: Settings) -> str:
    name = settings.get(trainer.optimizer, "adam") if trainer.optimizer else "adam"
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise UserError(
            f"{trainer.optimizer} = {shown(name)}: there are rules only for {', '.join(OPTIMIZERS)}"
        )
    return name


def rows(
    trainer: Trainer, tuned: Settings, run: Settings, tuned_at: Sizes, this_run: Sizes
) -> tuple[PlanRow, ...]:
    """The table *hyperparameter · tuned at · this run · rule*."""
    ratio, minibatch_ratio = (
        this_run.iteration_batch / tuned_at.iteration_batch,
        this_run.minibatch / tuned_at.minibatch,
    )
    is_root = rules.LEARNING_RATE_RULE[OPTIMIZERS[optimizer_of(trainer, tuned)]] == "square-root"
    factor = root_text(minibatch_ratio) if is_root else ratio_text(minibatch_ratio)
    rate = trainer.learning_rate
    return (
        PlanRow(
            number="iteration batch (envs × steps)",
            tuned_at=tuned_at.product(),
            this_run=this_run.product(),
            rule=f"× {ratio_text(ratio)}",
            regime="iteration batch",
        ),
        PlanRow(
            number=f"minibatch ({trainer.minibatch or trainer.minibatches})",
            tuned_at=number_text(tuned_at.minibatch, 6),
            this_run=number_text(this_run.minibatch, 6),
            rule=f"× {ratio_text(minibatch_ratio)}, as many gradient steps per iteration",
            regime="iteration batch",
        ),
        PlanRow(
            number=f"learning rate ({rate})",
            tuned_at=f"{tuned[rate]}",
            this_run=f"{run[rate]}",
            rule=ADAPTIVE if trainer is RSL_RL and adapts(tuned) else f"× {factor} (minibatch)",
            regime="minibatch",
        ),
        PlanRow(
            number="age of proximal policy, env steps",
            tuned_at=f"up to {tuned_at.iteration_batch:,}",
            this_run=f"up to {this_run.iteration_batch:,}",
            rule="should stay the same, but no setting for it",
            regime="iteration batch",
        ),
    )


def notes(trainer: Trainer, settings: Settings, tuned: int, run: int) -> tuple[str, ...]:
    """Sentences about settings tuned at iteration batches of `tuned` samples and used at `run`."""
    if tuned == run:
        return ()
    sentences = [
        proximal(trainer, tuned, run),
        shorter_rollouts(trainer, settings, tuned, run),
        epochs(trainer, settings),
        normalization(trainer, settings, tuned, run),
        early_stop(settings),
        adaptation(trainer, settings),
        trainer.measured if run > tuned else "",
    ]
    return tuple(sentence for sentence in sentences if sentence)


def proximal(trainer: Trainer, tuned: int, run: int) -> str:
    times = number_text(max(run / tuned, tuned / run), 4)
    older = f"{times} times as old" if run > tuned else f"{times} times younger"
    return (
        f"{trainer.title} keeps updates close to the policy that collected the data, which is {older} in env "
        "steps at this batch. No setting corrects that; PPO-EWMA does: anybatch train --proximal.policy ewma."
    )


def shorter_rollouts(trainer: Trainer, settings: Settings, tuned: int, run: int) -> str:
    """How to have more envs and still the tuned batch, which such a trainer does better with."""
    steps = settings[trainer.num_steps] if trainer.num_steps is not None else 0
    if run % tuned or steps % (run // tuned) or steps * tuned // run < FEWEST_STEPS:
        return ""
    return (
        f"{trainer.num_steps} = {steps * tuned // run} keeps the iteration batch at {tuned:,} samples with "
        "these envs: then every other number stays as it was tuned, and only the rollouts are shorter."
    )


def epochs(trainer: Trainer, settings: Settings) -> str:
    count = settings[trainer.epochs]
    return (
        f"The rule assumes one policy epoch; {trainer.epochs} = {count} makes it approximate."
        if count > 1
        else ""
    )


def normalization(trainer: Trainer, settings: Settings, tuned: int, run: int) -> str:
    """A sentence about the normalization of advantages."""
    key = trainer.normalizes_minibatches
    if key is True:
        return f"{trainer.title} normalizes advantages within each minibatch, which no rule corrects."
    if key and settings.get(key):
        return f"{key} = {settings[key]} normalizes advantages within each minibatch, which no rule corrects."
    if trainer.normalizes_iterations and run < tuned:
        return (
            "Advantages are normalized over one iteration, which has fewer samples at this batch; "
            f"{trainer.title} has no average over several iterations."
        )
    return ""


def early_stop(settings: Settings) -> str:
    target = settings.get("target_kl")
    if target is None:
        return ""
    return f"target_kl = {target} ends iterations early, by an amount that depends on the batch."


def adapts(settings: Settings) -> bool:
    """Whether RSL-RL changes the learning rate by itself."""
    return settings.get("schedule") == "adaptive" and settings.get("desired_kl") is not None


def adaptation(trainer: Trainer, settings: Settings) -> str:
    if trainer is RSL_RL and adapts(settings):
        return (
            f"schedule = adaptive changes learning_rate at every minibatch to keep the KL divergence near "
            f"desired_kl = {settings['desired_kl']}: the number here is only its initial value."
        )
    if trainer is RLLIB and settings.get("use_kl_loss"):
        return (
            "use_kl_loss = True adapts kl_coeff once per iteration: in env steps, that is less often at a "
            "larger batch and more often at a smaller one."
        )
    return ""
