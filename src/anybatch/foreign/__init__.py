"""The dial for other trainers: their configuration at another batch, in their own settings."""

from anybatch.foreign.plan import ForeignPlan, plan_for
from anybatch.foreign.settings import read_settings
from anybatch.foreign.trainers import TRAINERS, Trainer, trainer_named

__all__ = ["TRAINERS", "ForeignPlan", "Trainer", "plan_for", "read_settings", "trainer_named"]
