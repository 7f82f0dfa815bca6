"""The plan of a run: its batches and every hyperparameter that follows from them. The dial.

A plan consists of numbers; `table.py` puts it into words. It is always computed from the tuned-at numbers,
never from another plan.
"""

import math
from dataclasses import replace

from anybatch import machine
from anybatch.config import RunConfig
from anybatch.config.planned import BatchSizes, Plan
from anybatch.dial.sizes import automatic_microbatch, batch_ratios, limit_of


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
    ratios, stale = batch_ratios(followed, tuned_at), config.plan_stale_data(followed)
    return Plan(
        batch=batch,
        tuned_at=tuned_at,
        ratios=ratios,
        hyperparameters=config.rescaled(ratios, stale),
        phase=config.plan_phase(
            batch,
            ratios.iteration_batch,
            obs_bytes=obs_bytes,
            largest_share=limit.ratio if limit else math.inf,
        ),
        minibatch_limit=limit,
        stale=stale,
        step_range=None if config.controller.kind == "fixed" else config.step_range,
    )
