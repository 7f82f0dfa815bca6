"""On-policy deep RL in which the batch size is a dial: tune once, train at any batch size.

    import anybatch

    run = anybatch.train("classic-ppo-ewma", num_envs=16, total_env_steps=50_000)
    run.returns()                        # env steps and mean returns, to plot
    agent = anybatch.load(run.folder)
    action = agent.act(observation)

Names are imported when they are first used: `import anybatch` itself imports nothing heavy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anybatch.acting.evaluation import Evaluation
    from anybatch.api import (
        Agent,
        Curve,
        PlanView,
        TrainedRun,
        advise,
        check_env,
        evaluate,
        load,
        plan,
        resume,
        train,
        tune,
    )
    from anybatch.config import (
        ControllerConfig,
        EnvConfig,
        EvaluationConfig,
        ExplorationConfig,
        NetworkConfig,
        NormalizeConfig,
        ObjectiveConfig,
        OptimizerConfig,
        PhaseConfig,
        PPGConfig,
        PPOConfig,
        PQNConfig,
        ProximalConfig,
        QLearningConfig,
        QNetworkConfig,
        RecordConfig,
        StalenessConfig,
        TunedAt,
        UpdateConfig,
    )
    from anybatch.envs.protocol import (
        BoxActions,
        DiscreteActions,
        EnvSpec,
        EnvStep,
        MultiDiscreteActions,
        VectorEnv,
    )
    from anybatch.errors import CheckpointError, ConfigError, DiskError, EnvError, TrainingError, UserError
    from anybatch.lab.tuning.outcome import Outcome as TunedPreset
    from anybatch.networks.actor_critic import ActorCritic, Policy
    from anybatch.networks.q_network import QNetwork
    from anybatch.runs.iteration import Iteration
    from anybatch.weight_average import WeightAverage

__version__ = "0.1.0"

__all__ = [
    "ActorCritic",
    "Agent",
    "BoxActions",
    "CheckpointError",
    "ConfigError",
    "ControllerConfig",
    "Curve",
    "DiscreteActions",
    "DiskError",
    "EnvConfig",
    "EnvError",
    "EnvSpec",
    "EnvStep",
    "Evaluation",
    "EvaluationConfig",
    "ExplorationConfig",
    "Iteration",
    "MultiDiscreteActions",
    "NetworkConfig",
    "NormalizeConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PPGConfig",
    "PPOConfig",
    "PQNConfig",
    "PhaseConfig",
    "PlanView",
    "Policy",
    "ProximalConfig",
    "QLearningConfig",
    "QNetwork",
    "QNetworkConfig",
    "RecordConfig",
    "StalenessConfig",
    "TrainedRun",
    "TrainingError",
    "TunedAt",
    "TunedPreset",
    "UpdateConfig",
    "UserError",
    "VectorEnv",
    "WeightAverage",
    "__version__",
    "advise",
    "check_env",
    "evaluate",
    "load",
    "plan",
    "resume",
    "train",
    "tune",
]

_MODULES = {
    "Agent Curve PlanView TrainedRun": "anybatch.api",
    "advise check_env evaluate load plan resume train tune": "anybatch.api",
    "BoxActions DiscreteActions EnvSpec EnvStep MultiDiscreteActions VectorEnv": "anybatch.envs.protocol",
    "ActorCritic Policy": "anybatch.networks.actor_critic",
    "Evaluation": "anybatch.acting.evaluation",
    "Iteration": "anybatch.runs.iteration",
    "QNetwork": "anybatch.networks.q_network",
    "TunedPreset": "anybatch.lab.tuning.outcome",
    "WeightAverage": "anybatch.weight_average",
}
"""Where names are from, except for errors and configs."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'anybatch' has no attribute {name!r}")
    modules = (module for names, module in _MODULES.items() if name in names.split())
    default = "anybatch.errors" if name.endswith("Error") else "anybatch.config"
    found = importlib.import_module(next(modules, default))
    value = found.Outcome if name == "TunedPreset" else getattr(found, name)
    globals()[name] = value  # so that the next access bypasses this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
