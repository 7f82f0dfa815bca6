"""Run configuration: one frozen dataclass per concern. A field's docstring is its command-line help.

Numbers that depend on the batch (learning rate, EWMA decay, advantage decay) refer to the batch they were
tuned at, `TunedAt`. A run derives its own with `batch.plan.make_plan`; the config is never edited.
"""

from anybatch.config.controller import CompleteController, ControllerConfig, schedule_points
from anybatch.config.groups import (
    DelayConfig,
    EnvConfig,
    EvaluationConfig,
    NetworkConfig,
    NormalizeConfig,
    ObsKind,
    OptimizerConfig,
    RecordConfig,
    TunedAt,
    UpdateConfig,
)
from anybatch.config.planned import DEFAULT_RESCALE_RULES, RESCALE_RULES, RescaleRules, rescale_rules
from anybatch.config.ppg import PhaseConfig, PPGConfig
from anybatch.config.ppo import ObjectiveConfig, PPOConfig, ProximalConfig, StalenessConfig
from anybatch.config.pqn import ExplorationConfig, PQNConfig, QLearningConfig, QNetworkConfig
from anybatch.config.run import RunConfig

AnyConfig = PPOConfig | PPGConfig | PQNConfig
CONFIGS: dict[str, type[AnyConfig]] = {kind.algorithm: kind for kind in (PPOConfig, PPGConfig, PQNConfig)}
"""The config of each algorithm, by its name in presets and run folders."""

__all__ = [
    "CONFIGS",
    "DEFAULT_RESCALE_RULES",
    "RESCALE_RULES",
    "AnyConfig",
    "CompleteController",
    "ControllerConfig",
    "DelayConfig",
    "EnvConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "NetworkConfig",
    "NormalizeConfig",
    "ObjectiveConfig",
    "ObsKind",
    "OptimizerConfig",
    "PPGConfig",
    "PPOConfig",
    "PQNConfig",
    "PhaseConfig",
    "ProximalConfig",
    "QLearningConfig",
    "QNetworkConfig",
    "RecordConfig",
    "RescaleRules",
    "RunConfig",
    "StalenessConfig",
    "TunedAt",
    "UpdateConfig",
    "rescale_rules",
    "schedule_points",
]
