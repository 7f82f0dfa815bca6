"""What a plan consists of: the batches of a run, and the hyperparameters that follow from them.

Plain data. `anybatch.dial` computes a plan; the config of each algorithm contributes what is its own.
"""

from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from anybatch import rules
from anybatch.config.groups import Batch, TunedAt
from anybatch.config.require import require
from anybatch.text import number_text

RESCALE_RULES = (
    "learning-rate",
    "proximal-ewma",
    "proximal-copy",
    "advantage-moments",
    "phase-length",
    "auxiliary-phase",
    "adam-betas",
)
DEFAULT_RESCALE_RULES = RESCALE_RULES[:-1]
LearningRateRule = Literal["square-root", "linear"]
LEARNING_RATE_FORMS: dict[str, LearningRateRule] = {
    f"learning-rate={form}": form for form in get_args(LearningRateRule)
}
Regime = Literal["kept", "minibatch", "minibatch limit", "iteration batch", "lag", "batch"]
"""What a hyperparameter follows at this batch: nothing; the minibatch; its limit, at which the hyperparameter
stays; the iteration batch; the lag of stale data. batch: it is no setting, but follows from the batch."""


@dataclass(frozen=True)
class RescaleRules:
    """Which numbers follow the batch of a run."""

    names: frozenset[str]
    learning_rate: LearningRateRule | None = None
    """How learning rates follow the minibatch; None: by the optimizer's own rule."""

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __bool__(self) -> bool:
        return bool(self.names)

    def ratio(self, name: str, ratio: float) -> float:
        """The ratio that the rule `name` uses: 1 if it is not asked for."""
        return ratio if name in self else 1.0


def rescale_rules(text: str) -> RescaleRules:
    """The rules in a list such as proximal-ewma,learning-rate=linear, or in `all` or `none`."""
    if text == "none":
        return RescaleRules(frozenset())
    names: set[str] = set()
    asked: set[LearningRateRule] = set()
    for part in (part.strip() for part in text.split(",")):
        if part == "all":
            names |= set(DEFAULT_RESCALE_RULES)
        elif part in LEARNING_RATE_FORMS:
            names.add("learning-rate")
            asked.add(LEARNING_RATE_FORMS[part])
        else:
            known = ", ".join(("all", "none", *RESCALE_RULES, *LEARNING_RATE_FORMS))
            sentence = f"rescale = {text!r}: {part!r} is not a rule; the rules are {known}"
            require(part in RESCALE_RULES, sentence)
            names.add(part)
    require(len(asked) <= 1, f"rescale = {text!r}: only one form of learning-rate can be given")
    return RescaleRules(frozenset(names), next(iter(asked), None))


@dataclass(frozen=True, kw_only=True)
class BatchSizes(Batch):
    """The three batches of a run. All but the microbatch are over all ranks."""

    microbatch: int

    def within(self, limit: "MinibatchLimit | None") -> "BatchSizes":
        """The same batch with enough minibatches per epoch to keep the minibatch within a limit."""
        if limit is None:
            return self
        minibatches = rules.minibatches_within(
            limit.samples,
            iteration_batch=self.iteration_batch,
            minibatches=1 if limit.choice == "keep" else self.minibatches_per_epoch,
            rounded=True,
        )
        return replace(self, minibatches_per_epoch=int(minibatches))


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Nominal batches of this run ÷ those tuned at. The paper's c is the inverse."""

    minibatch: float
    env_steps_per_gradient_step: float
    iteration_batch: float

    @property
    def are_one(self) -> bool:
        """Whether the batch is the tuned one."""
        return self.minibatch == self.iteration_batch == self.env_steps_per_gradient_step == 1


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The hyperparameters that depend on the batch."""

    learning_rate: float
    beta1: float
    beta2: float
    proximal_decay: float = 0.0
    """Decay of the proximal EWMA; 0 if there is none."""
    advantage_decay: float = 0.0
    """Decay of the advantage moments; 0 if there are no advantages."""
    proximal_copy_every: int = 0
    """Gradient steps between two copies of the weights as the proximal policy; 0 if there are none."""


@dataclass(frozen=True, kw_only=True)
class MinibatchLimit:
    """The largest minibatch of a run, and its effect."""

    choice: Literal["auto", "keep", "number", "noise-scale"]
    """The setting `minibatch`. keep: also the smallest minibatch, as long as a batch holds one."""
    samples: float
    ratio: float
    """Limit ÷ tuned minibatch."""
    reached: bool = False
    """Whether there are more or fewer minibatches than configured because of it."""
    holds_numbers: bool = False
    """Whether the hyperparameters that follow the minibatch are those of the limit. If a controller changes
    the batch without compensation, they may refer to another batch than the current one."""

    def grown(self, ratio: float, tuned_at: TunedAt) -> float:
        """How much larger than tuned another minibatch is that grows along, if the iteration batch is `ratio`
        times the tuned one."""
        if self.choice == "keep":
            return min(1.0, ratio * tuned_at.iteration_batch / self.samples)
        return min(ratio, 1.0 if self.choice == "auto" else self.ratio)


@dataclass(frozen=True, kw_only=True)
class StalePlan:
    """The lag of waiting data, and the proximal policies whose mean age is half of it."""

    iterations: int
    gradient_steps: int
    """Gradient steps that the policy takes while a rollout waits."""
    half_lag: float
    """Half of the lag, in gradient steps."""
    ewma_decay: float
    """Decay of an average of weights with that center of mass."""
    copy_every: int
    """Gradient steps between two copies of the weights with that mean age."""


@dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """A phase of PPG, over all ranks, including reset steps as in every nominal batch."""

    policy_iterations: int
    env_steps: int
    auxiliary_epochs: int
    auxiliary_minibatch: int
    """Samples behind one gradient step of the auxiliary phase."""
    auxiliary_minibatches: int
    """Gradient steps of an auxiliary epoch."""
    auxiliary_learning_rate: float
    obs_bytes: int | None
    """Bytes of one observation; None if no environment could be built."""

    @property
    def memory_bytes(self) -> int | None:
        """Memory of the observations, which are nearly all of a phase's data."""
        return None if self.obs_bytes is None else self.env_steps * self.obs_bytes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The batches of a run and the hyperparameters it uses with them."""

    batch: BatchSizes
    tuned_at: TunedAt
    ratios: Ratios
    hyperparameters: Hyperparameters
    phase: PhasePlan | None = None
    minibatch_limit: MinibatchLimit | None = None
    stale: StalePlan | None = None
    step_range: tuple[int, int] | None = None
    """The shortest and the longest rollout that a controller may choose; None if the length is fixed."""

    @property
    def minibatch_regime(self) -> Regime:
        """What hyperparameters of the minibatch follow at this batch."""
        limit = self.minibatch_limit
        return "minibatch limit" if limit is not None and limit.holds_numbers else "minibatch"

    def to_json(self) -> dict[str, object]:
        batches = {
            "iteration_batch": self.batch.iteration_batch,
            "minibatch": self.batch.minibatch,
            "env_steps_per_gradient_step": self.batch.env_steps_per_gradient_step,
        }
        return {
            "batch": asdict(self.batch) | batches,
            "tuned_at": asdict(self.tuned_at),
            "ratios": asdict(self.ratios),
            "hyperparameters": asdict(self.hyperparameters),
            "phase": asdict(self.phase) | {"memory_bytes": self.phase.memory_bytes} if self.phase else None,
            "minibatch_limit": asdict(self.minibatch_limit) if self.minibatch_limit else None,
            "stale": asdict(self.stale) if self.stale else None,
            "step_range": self.step_range,
        }


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a hyperparameter amounts to, where its rule is for that: the center of mass of a decay."""

    name: str
    tuned_at: str
    this_run: str


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *hyperparameter · tuned at · this run · rule*."""

    number: str
    """Name of the hyperparameter."""
    tuned_at: str
    this_run: str
    rule: str
    regime: Regime
    """What it follows at this batch."""
    meaning: Meaning | None = None

    @classmethod
    def by_rule(
        cls,
        name: str,
        asked: RescaleRules,
        *,
        number: str,
        tuned_at: str,
        this_run: str,
        rule: str,
        regime: Regime,
        meaning: Meaning | None = None,
    ) -> "PlanRow":
        """The row of a hyperparameter that follows the rule `name`, or is kept if --rescale leaves it out."""
        if name not in asked:
            rule, regime = f"kept (--rescale without {name})", "kept"
        return cls(
            number=number, tuned_at=tuned_at, this_run=this_run, rule=rule, regime=regime, meaning=meaning
        )


def ratio_text(ratio: float) -> str:
    """A ratio as people write it: 4, 1.5, or 1/256."""
    inverse = round(1 / ratio)
    return f"1/{inverse:,}" if inverse > 1 and abs(inverse * ratio - 1) < 1e-9 else number_text(ratio, 4)


def root_text(ratio: float) -> str:
    """√4, √1.5, or √(1/256)."""
    text = ratio_text(ratio)
    return f"√({text})" if "/" in text else f"√{text}"


def divided_by(ratio: float) -> str:
    """÷ 4, ÷ 1.5, or × 256 for a ratio of 1/256."""
    text = ratio_text(ratio)
    return f"× {text.removeprefix('1/')}" if "/" in text else f"÷ {text}"


def learning_rate_rule(ratio: float, batch: str, optimizer: str, asked: RescaleRules) -> str:
    """How a learning rate follows a batch: × √4 (minibatch)."""
    form = asked.learning_rate or rules.LEARNING_RATE_RULE[optimizer]
    factor = root_text(ratio) if form == "square-root" else ratio_text(ratio)
    requested = f", {asked.learning_rate} rule requested" if asked.learning_rate is not None else ""
    return f"× {factor} ({batch}){requested}"
