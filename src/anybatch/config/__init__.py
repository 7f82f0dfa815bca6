"""What a run is told. One frozen dataclass per concern; a field's docstring is its command-line help.

Numbers that belong to a batch (learning rate, EWMA decay, advantage decay) are those of the batch they were
tuned at, `TunedAt`. What a run uses follows from them by `batch_plan.resolve`, never by editing a config.
"""

from anybatch.config.groups import (
    EnvConfig,
    EvaluationConfig,
    NetworkConfig,
    NormalizeConfig,
    OptimizerConfig,
    RecordConfig,
    TunedAt,
    UpdateConfig,
)
from anybatch.config.ppg import PhaseConfig, PPGConfig
from anybatch.config.ppo import ObjectiveConfig, PPOConfig, ProximalConfig, StalenessConfig
from anybatch.config.run import DEFAULT_RESCALE_RULES, RESCALE_RULES, RunConfig, rescale_rules

CONFIGS: dict[str, type[PPOConfig]] = {kind.algorithm: kind for kind in (PPOConfig, PPGConfig)}
"""The config of each algorithm, by its name in presets and run folders."""

__all__ = [
    "CONFIGS",
    "DEFAULT_RESCALE_RULES",
    "RESCALE_RULES",
    "EnvConfig",
    "EvaluationConfig",
    "NetworkConfig",
    "NormalizeConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PPGConfig",
    "PPOConfig",
    "PhaseConfig",
    "ProximalConfig",
    "RecordConfig",
    "RunConfig",
    "StalenessConfig",
    "TunedAt",
    "UpdateConfig",
    "rescale_rules",
]
