"""The schedules of a run, in env steps: their progress, and how a resume continues them.

A resume may move the end of a run. A schedule then continues from its current value to the new end, so that
neither the learning rate nor the exploration jumps up. Only a learning rate that has already reached 0, at
which a longer run would learn nothing, takes the value that a run of the new length has at this point. One
that has reached a share above 0 stays there.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from anybatch.config import RunConfig
from anybatch.equations import schedules


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Progress from 0 to 1, linear in env steps."""

    until: float
    """Env steps at which it ends."""
    since: int = 0
    """Env steps at which this line starts."""
    start: float = 0.0
    """Progress at `since`."""
    end: float = 0.0
    """What is left of the learning rate at the end, as a share of it. ε has an end of its own."""

    def progress(self, env_steps: int) -> float:
        return schedules.progress(env_steps, since=self.since, start=self.start, until=self.until)

    def ending_at(self, until: float, env_steps: int) -> "Schedule":
        """A schedule with the same progress at `env_steps` and another end."""
        if until == self.until:
            return self
        return replace(self, until=until, since=env_steps, start=self.progress(env_steps))

    def share(self, env_steps: int) -> float:
        """What is left of the learning rate, as a share of it."""
        return schedules.linear(1.0, self.end, self.progress(env_steps))

    def falling_to(self, end: float, env_steps: int) -> "Schedule":
        """A schedule with the same share at `env_steps` that ends at another one, at the latest now."""
        if end == self.end:
            return self
        start = min((1.0 - self.share(env_steps)) / (1.0 - end), 1.0)
        return Schedule(until=self.until, since=env_steps, start=start, end=end)


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """The numbers that a run changes with its env steps."""

    learning_rate: Schedule | None
    """None: the learning rate is not annealed."""
    exploration: Schedule | None
    """None: the algorithm has no ε."""

    @classmethod
    def of(cls, config: RunConfig) -> "Schedules":
        """The schedules of a run from its start."""
        return cls(
            learning_rate=whole_annealing(config) if anneals(config) else None,
            exploration=Schedule(until=config.explores_until) if config.exploration_range else None,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schedules":
        learning_rate, exploration = (
            None if data[name] is None else Schedule(**data[name])
            for name in ("learning_rate", "exploration")
        )
        return cls(learning_rate=learning_rate, exploration=exploration)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def continued(self, config: RunConfig, env_steps: int) -> "Schedules":
        """The schedules of a resume at `env_steps` with `config`."""
        exploration = self.exploration
        if exploration is not None:
            exploration = exploration.ending_at(config.explores_until, env_steps)
        return Schedules(
            learning_rate=continued_annealing(self.learning_rate, config, env_steps), exploration=exploration
        )

    def annealed(self, learning_rate: float, env_steps: int) -> float:
        """The learning rate at `env_steps`, given the full one."""
        if self.learning_rate is None:
            return learning_rate
        lowest = learning_rate * self.learning_rate.end
        return schedules.linear(learning_rate, lowest, self.learning_rate.progress(env_steps))

    def epsilon(self, config: RunConfig, env_steps: int) -> float:
        """The share of random actions at `env_steps`."""
        assert self.exploration is not None and config.exploration_range is not None
        return schedules.linear(*config.exploration_range, self.exploration.progress(env_steps))


def anneals(config: RunConfig) -> bool:
    return config.optimizer.anneal == "linear"


def annealed_until(config: RunConfig) -> int:
    return config.optimizer.anneal_until or config.total_env_steps


def whole_annealing(config: RunConfig) -> Schedule:
    """The annealing of a run from its start."""
    return Schedule(until=annealed_until(config), end=config.optimizer.anneal_to)


def continued_annealing(saved: Schedule | None, config: RunConfig, env_steps: int) -> Schedule | None:
    """The annealing of a resume. If the config states an end, the line begins at the run's start."""
    if not anneals(config):
        return None
    whole = whole_annealing(config)
    if saved is None:  # not annealed so far: it starts now, from the full rate
        return replace(whole, since=env_steps)
    if saved.until != whole.until:
        if config.optimizer.anneal_until is not None or saved.share(env_steps) == 0:
            return whole
        saved = saved.ending_at(whole.until, env_steps)
    return saved.falling_to(whole.end, env_steps)


def changes(
    before: Schedules, now: Schedules, config: RunConfig, env_steps: int, learning_rate: float
) -> Iterator[str]:
    """One sentence for each schedule that a resume changes; `learning_rate` is the full one."""
    if now.learning_rate != before.learning_rate:
        yield change_of_learning_rate(before, now, env_steps, learning_rate)
    exploration = now.exploration
    if exploration not in (None, before.exploration) and exploration.progress(env_steps) < 1:
        yield (
            f"Exploration continues from ε = {now.epsilon(config, env_steps):.4g} and reaches "
            f"{config.final_epsilon:.4g} at {exploration.until:,.0f} env steps."
        )


def change_of_learning_rate(before: Schedules, now: Schedules, env_steps: int, learning_rate: float) -> str:
    was, is_now = (schedule.annealed(learning_rate, env_steps) for schedule in (before, now))
    if math.isclose(was, is_now):
        moves = f"continues from {is_now:.4g}"
    else:
        moves = f"{'rises' if is_now > was else 'drops'} from {was:.4g} to {is_now:.4g}"
    if now.learning_rate is None or now.learning_rate.progress(env_steps) == 1:
        return f"The learning rate {moves} and stays there."
    lowest = learning_rate * now.learning_rate.end
    return (
        f"The learning rate {moves} and reaches {lowest:.4g} at {now.learning_rate.until:,.0f} env steps; "
        "optimizer.anneal-until sets another end."
    )
