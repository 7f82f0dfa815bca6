"""What the page of the dial is made of: settings of presets, recorded learning curves, and its words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from anybatch.config import AnyConfig
from anybatch.dial import controllers
from anybatch.lab.charts.chart import Chart, Series
from anybatch.lab.pages.study_charts import with_common_scale
from anybatch.lab.pages.study_curves import RETURN_LABEL, return_line
from anybatch.lab.pages.study_parts import WITHOUT_RULES, Part, StudyView
from anybatch.lab.verdicts import gates
from anybatch.text import counted, number_text

Settings = dict[str, Any]


def settings_of(config: AnyConfig) -> Settings:
    """The settings that decide a config's plan, with `algorithm` and the facts of its controller."""
    update, optimizer, tuned_at = config.update, config.optimizer, config.tuned_batch()
    return {
        "algorithm": config.algorithm,
        "num-envs": config.num_envs,
        "num-steps": config.num_steps,
        "total-env-steps": config.total_env_steps,
        "rescale": config.rescale,
        "minibatch": config.minibatch,
        "update.minibatches-per-epoch": update.minibatches_per_epoch,
        "update.epochs": update.epochs,
        "update.target-kl": update.target_kl,
        "optimizer.name": optimizer.name,
        "optimizer.learning-rate": optimizer.learning_rate,
        "optimizer.beta1": optimizer.beta1,
        "optimizer.beta2": optimizer.beta2,
        "optimizer.max-grad-norm": optimizer.max_grad_norm,
        "optimizer.anneal-to": optimizer.anneal_to,
        "optimizer.anneal-until": optimizer.anneal_until,
        "tuned-at.num-envs": tuned_at.num_envs,
        "tuned-at.num-steps": tuned_at.num_steps,
        "tuned-at.minibatches-per-epoch": tuned_at.minibatches_per_epoch,
        "tuned-at.epochs": tuned_at.epochs,
        **config.plan_settings,
        **_of_controller(config),
    }


def _of_controller(config: AnyConfig) -> Settings:
    """The rollout lengths of a controller; `start` is that of the first iteration."""
    kind = {"controller.kind": config.controller.kind}
    if config.controller.kind == "fixed":
        return kind
    complete = config.complete_controller
    shortest, longest = config.step_range
    return kind | {
        "controller.compensate": complete.compensate,
        "controller.epochs": complete.epochs,
        "controller.shortest": shortest,
        "controller.longest": longest,
        "controller.start": controllers.in_force(complete, controllers.start(complete)).num_steps,
    }


MOST_POINTS = 50
"""Points of a line: enough for the width of a figure, and half of what cells keep."""


@dataclass(frozen=True)
class Record:
    """The curves of one environment, with a chart for each recorded batch."""

    env: str
    base: str
    """What was trained at the tuned batch, in words."""
    seeds: int
    charts: dict[str, Chart]
    """By ratio, such as 1/4."""


def records_of(view: StudyView) -> list[Record]:
    """The environments of a study with finished cells of its reference arm; none of a study that is void."""
    reference = view.reference
    if reference is None or gates.why_void(view.scores):
        return []
    found: list[Record] = []
    for number, stratum in enumerate(view.strata, 1):
        cells = [cell for cell in reference.cells if view.scores.stratum(cell) == stratum]
        charts = charts_of(view, reference, stratum, f"record-{view.plan.hash[:8]}-{number}")
        if cells and charts:
            found.append(Record(cells[0].env, base_words(cells[0].config), len(cells), charts))
    return found


def base_words(config: Mapping[str, Any]) -> str:
    """Describe recorded settings: this version may not know all of them."""
    is_averaged = config.get("proximal", {}).get("policy") == "ewma"
    algorithm = f"{config['algorithm'].upper()}{'-EWMA' if is_averaged else ''}"
    update, epochs = config["update"], config["update"]["epochs"]
    minibatch = config["num_envs"] * config["num_steps"] / update["minibatches_per_epoch"]
    return (
        f"{algorithm}, tuned at {config['num_envs']:,} environments × "
        f"{config['num_steps']:,} steps, minibatch {number_text(minibatch, 6)}, "
        f"{counted(epochs, 'epoch')}"
    )


def charts_of(view: StudyView, reference: Part, stratum: str, name: str) -> dict[str, Chart]:
    """A chart for each ratio at which the reference arm was run, all with the same axes."""
    arms = {
        (part.arm, part.ratio): part
        for part in view.parts
        if part.base == reference.base and not part.point and part.is_untouched
    }
    ratios = sorted((ratio for arm, ratio in arms if arm == reference.arm), key=Fraction)
    found: dict[str, Chart] = {}
    for ratio in ratios:
        lines = [
            return_line(view, reference, stratum, label="tuned batch", color="gray", dashed=ratio != "1")
        ]
        share = f"{ratio} of it" if Fraction(ratio) < 1 else f"{ratio} × it"
        for arm, words, color in ((reference.arm, "all rules", "blue"), (WITHOUT_RULES, "no rule", "orange")):
            part = arms.get((arm, ratio)) if ratio != reference.ratio else None
            if part is not None:
                lines.append(return_line(view, part, stratum, label=f"{share}, {words}", color=color))
        series = tuple(thinned(line) for line in lines if line is not None)
        if series and (len(series) > 1 or ratio == reference.ratio):
            found[ratio] = Chart(
                name=f"{name}-{ratio.replace('/', 'of')}",
                title=stratum,
                y_label=f"{RETURN_LABEL}, recorded at {shown_ratio(ratio)}",
                series=series,
                x_includes=(0,),
            )
    return dict(zip(found, with_common_scale(list(found.values())), strict=True))


def shown_ratio(ratio: str) -> str:
    if ratio == "1":
        return "the tuned batch"
    return f"{ratio} of the tuned batch" if Fraction(ratio) < 1 else f"{ratio} × the tuned batch"


def thinned(line: Series) -> Series:
    """The same line with fewer points; the last one stays."""
    every = -(-len(line.x) // MOST_POINTS)

    def kept(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(values[(len(values) - 1) % every :: every]) if values else ()

    return replace(line, x=kept(line.x), y=kept(line.y), low=kept(line.low), high=kept(line.high))


# The words of the page. Its scripts choose among them, and put numbers into {placeholders}.

FAR_AS_BEFORE = "Many small steps should take the weights as far as one large step."
AS_OLD_AS_BEFORE = (
    "The policy that each update has to stay close to should be as old as before, in env steps."
)

ROWS: dict[str, dict[str, str]] = {
    "iteration-batch": {"number": "iteration batch", "rule": "{envs} × {steps} (environments × steps)"},
    "minibatch": {
        "number": "minibatch",
        "rule": "{samples} ÷ {minibatches} (minibatches per epoch); {minibatches} × {epochs} = "
        "{gradient_steps} gradient steps per iteration",
    },
    "minibatches-limited": {
        "number": "minibatches per epoch",
        "rule": "iteration batch ÷ {limit}, rounded up",
        "why": "The minibatch stays, so their number follows the batch.",
    },
    "minibatches-configured": {
        "number": "minibatches per epoch",
        "rule": "as configured",
    },
    "learning-rate-linear": {
        "number": "learning rate",
        "rule": "× {ratio} (minibatch)",
        "why": FAR_AS_BEFORE,
    },
    "learning-rate-square-root": {
        "number": "learning rate",
        "rule": "× √{ratio} (minibatch)",
        "why": f"{FAR_AS_BEFORE} Adam divides by the size of the gradient, which is mostly noise and falls "
        "with the root of the minibatch, so only the root of the factor remains.",
    },
    "adam-beta1": {
        "number": "Adam β₁",
        "rule": "power {ratio} (minibatch), at least 0.5",
        "why": "Adam's averages should reach equally many samples back.",
    },
    "adam-beta2": {"number": "Adam β₂", "rule": "power {ratio} (minibatch), at least 0.9"},
    "proximal-ewma": {
        "number": "proximal EWMA decay",
        "meaning": "center of mass {meaning}",
        "rule": "center of mass ÷ {ratio} (env steps per gradient step)",
        "why": AS_OLD_AS_BEFORE,
    },
    "proximal-copy": {
        "number": "proximal copy every, gradient steps",
        "meaning": "mean age {meaning}",
        "rule": "mean age ÷ {ratio} (env steps per gradient step)",
        "why": AS_OLD_AS_BEFORE,
    },
    "advantage-moments": {
        "number": "advantage-statistics EWMA decay",
        "meaning": "effective window, iterations: {meaning}",
        "rule": "window ÷ {ratio} (iteration batch), at least 1",
        "why": "The scale of the advantages should come from the same number of samples as before.",
    },
    "proximal-age": {
        "number": "age of proximal policy, env steps",
        "rule": "mean age × env steps per gradient step",
    },
    "proximal-age-up-to": {
        "number": "age of proximal policy, env steps",
        "meaning": "at most",
        "rule": "× {ratio} (iteration batch), no setting for it",
    },
    "phase-length": {
        "number": "iterations per phase",
        "rule": "÷ {ratio} (iteration batch), at least 1",
        "why": "An auxiliary phase should come after the same number of env steps as before.",
    },
    "auxiliary-minibatch": {
        "number": "auxiliary minibatch",
        "rule": "× {ratio} (iteration batch), at least a quarter",
        "why": "It grows with the batch as the minibatch does; far smaller ones would take too long.",
    },
    "auxiliary-learning-rate-linear": {
        "number": "auxiliary learning rate",
        "rule": "× {ratio} (auxiliary minibatch)",
        "why": "The same as for the learning rate, with the auxiliary minibatch.",
    },
    "auxiliary-learning-rate-square-root": {
        "number": "auxiliary learning rate",
        "rule": "× √{ratio} (auxiliary minibatch)",
        "why": "The same as for the learning rate, with the auxiliary minibatch.",
    },
}
"""Rows of the table: their number, what its value means, its rule, and why the rule is as it is."""

LINES: dict[str, tuple[str, str]] = {
    "kept-above": (
        "minibatch kept",
        "{limit} samples above the tuned batch: minibatches per epoch {minibatches}, and what follows the "
        "minibatch stays the same",
    ),
    "kept": (
        "minibatch kept",
        "{limit} samples: minibatches per epoch {minibatches}, and what follows the minibatch stays the "
        "same, down to {ratio} of the tuned batch, where an iteration is one minibatch",
    ),
    "kept-not": (
        "minibatch kept",
        "not below {limit} samples, {ratio} of the tuned batch: an iteration cannot hold one such "
        "minibatch, so it is one, and what follows the minibatch is rescaled",
    ),
    "limit-reached": (
        "minibatch limit",
        "{limit} samples, {ratio} × tuned: reached, so there are more minibatches per epoch, and what "
        "follows the minibatch stays the same",
    ),
    "limit-not-reached": (
        "minibatch limit",
        "{limit} samples, {ratio} × tuned: not reached, so the minibatch follows the iteration batch",
    ),
    "limit-measured": ("noise scale", "as soon as the run has measured it, the noise scale is the limit"),
    "controller": (
        "controller",
        "{shortest} to {longest} steps: iteration batch {smallest_batch} to {largest_batch} samples, "
        "minibatch {smallest_minibatch} to {largest_minibatch}",
    ),
    "phase": (
        "phase",
        "{iterations} × {samples} = {env_steps} env steps, then {epochs} × {gradient_steps} auxiliary "
        "gradient steps",
    ),
}
"""Lines below the table: a label and a sentence."""

NOTES: dict[str, str] = {
    "larger-minibatch": "The minibatch is {ratio} times the tuned one: in our studies less was learned from "
    "minibatches of 128 to 512 samples on.",
    "max-grad-norm": "Gradients are clipped to a norm of {norm}; how often depends on the minibatch, and no "
    "rule corrects that.",
    "proximal-age": "The age of the proximal policy ({policy}) in env steps follows the iteration batch, "
    "here × {ratio}, and no setting corrects that; ewma keeps it.",
    "epochs": "The rules assume one policy epoch; {epochs} epochs make them approximate.",
    "num-steps": "{steps} steps per environment instead of the tuned {tuned} also change how far returns "
    "look before they bootstrap; the number of environments does not.",
    "anneal-until": "The learning rate reaches 0 at {until} env steps, before the run ends at {total}.",
    "advantage-normalization": "Advantages that are normalized over a minibatch depend on it in a way that "
    "no rule corrects; normalized over the iteration, they do not.",
    "target-kl": "A target KL of {target} ends iterations early, by an amount that depends on the batch.",
    "young-average": "The center of mass of the proximal EWMA is {center} gradient steps: below 1 it hardly "
    "holds the update back.",
    "young-copy": "The proximal copy is {age} gradient steps old on average: below 1 it hardly holds the "
    "update back.",
    "one-sample": "An iteration of one sample has a normalized advantage of 0: a decay of the advantage "
    "moments above 0 compares it with earlier ones.",
    "phase-length": "A phase would be {exact} iterations; {iterations} is the nearest possible.",
}
"""Reasons why the rules may not hold in a run."""

REFUSALS: dict[str, str] = {
    "count": "{setting} = {value}: must be a whole number of at least 1",
    "too-large": "{setting} = {value}: must not exceed {largest}",
    "positive": "{setting} = {value}: must be positive",
    "decay": "{setting} = {value}: must be in [0, 1)",
    "rules": "rescale = {text}: must be all, none or a list of rules, with at most one form of the learning "
    "rate",
    "advantage-decay": "objective.advantage-decay = {decay} needs moments kept across iterations, but "
    "objective.advantage-normalization = {normalization}",
    "limit-below": "minibatch = {limit} is below the tuned minibatch of {minibatch} samples; more "
    "minibatches per epoch make minibatches smaller",
    "limit-controller": "minibatch = noise-scale and controller.kind = {kind} both change the "
    "minibatch within a run: use one of them; a number works with every controller",
    "keep-controller": "controller.kind = noise_scale changes the minibatch, which minibatch = keep does not "
    "allow",
    "controller-steps": "num-steps = {steps} does not fit controller.kind = {kind}, which sets the rollout "
    "length itself: keep the tuned {tuned}",
    "uncountable": "an iteration batch is too large to count",
    "ratio": "the batch is {ratio} times the tuned one: must be within a factor of {largest}",
}
"""Reasons why settings cannot be planned."""

PAGE: dict[str, str] = {
    "kept": "kept: its rule is turned off",
    "at limit": "; minibatch kept or at its limit",
    "while changing": "; kept while the batch changes",
    "the tuned batch": "the tuned batch",
    "part": "{ratio} of the tuned batch",
    "times": "{ratio} × the tuned batch",
    "summary": "Environments: {envs}, {share}. Learning rate: {rate} instead of {tuned}.",
    "summary, same rate": "Environments: {envs}, {share}. Learning rate: {rate}, as tuned.",
    "slider": "environments: {envs}",
    "mark": "tuned at {tuned}",
    "nearest": "Here: {share}. Each figure shows the nearest recorded batch.",
    "preset": "{description}. Numbers from: {source}.",
    "copied": "Copied",
    "selected": "Selected: press Ctrl+C",
}
"""Words around the table."""

COLUMNS = ("hyperparameter", "tuned at", "this run", "rule")

WORDS = {
    "rows": ROWS,
    "lines": LINES,
    "notes": NOTES,
    "refusals": REFUSALS,
    "page": PAGE,
    "columns": COLUMNS,
}
