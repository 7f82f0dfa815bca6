"""The plan of a run: its batches and every number that follows from them. The dial.

A plan consists of numbers; `table.py` puts it into words. It is always computed from the tuned-at numbers,
never from another plan.
"""

import math
from dataclasses import asdict, dataclass, replace

from anybatch import machine
from anybatch.batch.minibatch_limit import MinibatchLimit, limit_of
from anybatch.batch.phase import PhasePlan, plan_phase
from anybatch.batch.rescaling import Hyperparameters, Ratios, batch_ratios, rescaled
from anybatch.batch.sizes import BatchSizes, automatic_microbatch
from anybatch.batch.stale import StalePlan, plan_stale_data
from anybatch.config import PPGConfig, RunConfig, TunedAt


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The batches of a run and the numbers it uses with them."""

    batch: BatchSizes
    tuned_at: TunedAt
    ratios: Ratios
    hyperparameters: Hyperparameters
    phase: PhasePlan | None = None
    minibatch_limit: MinibatchLimit | None = None
    stale: StalePlan | None = None
    step_range: tuple[int, int] | None = None
    """The shortest and the longest rollout that a controller may choose; None if the length is fixed."""

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


def make_plan(
    config: RunConfig,
    *,
    encoder: str,
    obs_bytes: int | None = None,
    num_steps: int | None = None,
    epochs: int | None = None,
    measured_limit: float | None = None,
) -> Plan:
    """The plan of a run.

    `encoder` determines the automatic microbatch; `obs_bytes`, if known, the memory of a phase. `num_steps`
    and `epochs` are those that a controller chose; the other numbers follow them only with compensation.
    `measured_limit` is the minibatch limit that the run's noise scale has set so far.
    """
    configured = BatchSizes(
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        minibatches_per_epoch=config.update.minibatches_per_epoch,
        epochs=config.update.epochs,
        microbatch=config.microbatch or automatic_microbatch(encoder, machine.device_name(config.device)),
    )
    batch = replace(
        configured, num_steps=num_steps or configured.num_steps, epochs=epochs or configured.epochs
    )
    followed = batch if config.controller.compensate == "all" else configured
    tuned_at = config.tuned_batch()
    limit = limit_of(config, tuned_at, batch=batch, followed=followed, measured=measured_limit)
    if limit is not None:
        batch, followed = batch.within(limit.samples), followed.within(limit.samples)
    ratios, stale = batch_ratios(followed, tuned_at), plan_stale_data(config, followed)
    return Plan(
        batch=batch,
        tuned_at=tuned_at,
        ratios=ratios,
        hyperparameters=rescaled(config, ratios, stale),
        phase=plan_phase(config, batch, ratios, obs_bytes, limit.ratio if limit else math.inf)
        if isinstance(config, PPGConfig)
        else None,
        minibatch_limit=limit,
        stale=stale,
        step_range=None if config.controller.kind == "fixed" else config.step_range,
    )
