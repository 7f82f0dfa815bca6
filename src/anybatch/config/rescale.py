"""The rules that `--rescale` names."""

from dataclasses import dataclass
from typing import Literal, get_args

from anybatch.config.require import require

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
