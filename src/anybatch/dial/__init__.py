"""The dial: from a config to its batches, the hyperparameters that follow them, and a table. No torch.

    config = presets.load("classic-ppo-ewma").config
    plan = dial.make_plan(replace(config, num_envs=64), encoder="mlp")
    plan.hyperparameters.learning_rate

`controllers` change the batch within a run, and `other_trainers` plan for other libraries.
"""

from anybatch.config.planned import (
    BatchSizes,
    Hyperparameters,
    MinibatchLimit,
    PhasePlan,
    Plan,
    PlanRow,
    Ratios,
    StalePlan,
)
from anybatch.dial.batch_control import BatchControl
from anybatch.dial.plan import automatic_microbatch, make_plan
from anybatch.dial.table import PlanTable, change_of_batch, plan_rows, plan_table

__all__ = [
    "BatchControl",
    "BatchSizes",
    "Hyperparameters",
    "MinibatchLimit",
    "PhasePlan",
    "Plan",
    "PlanRow",
    "PlanTable",
    "Ratios",
    "StalePlan",
    "automatic_microbatch",
    "change_of_batch",
    "make_plan",
    "plan_rows",
    "plan_table",
]
