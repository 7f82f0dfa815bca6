"""The result of a run, and what continues it."""

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from anybatch import envs, user_modules
from anybatch.acting.evaluation import Evaluation
from anybatch.algorithms import AnyState
from anybatch.config import AnyConfig
from anybatch.networks import custom as custom_networks
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.run import Run
from anybatch.session.custom import OwnParts, is_elsewhere


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    folder: Path
    env_steps: int
    saved_env_steps: int
    """Env steps of the newest checkpoint, from which a resume would continue."""
    resume: str
    """What continues the run: a command, or code."""
    finished: bool
    training_return: float | None
    """Mean over the last `training_episodes` training episodes."""
    evaluation: Evaluation | None
    training_episodes: int = 0
    stopped_by: signal.Signals | None = None
    """The signal that ended the training, or the evaluation after it."""

    best: BestCheckpoint | None = None
    """The best policy found by evaluations during training; None if there were none."""
    naming: tuple[str, ...] = ()
    """Flags that every command on this run needs, because a run folder alone may not name these parts."""

    def command(self, name: str) -> str:
        """A command line for this run."""
        return command_line(name, self.folder, self.naming)

    def how_to_continue(self) -> str:
        """The sentence for a person who stopped the run."""
        return f"Stopped. Continue with: {self.resume} (saved at {self.saved_env_steps:,} env steps)."


def outcome_of(config: AnyConfig, state: AnyState, run: Run, own: OwnParts) -> Outcome:
    """The result of training, before the evaluation."""
    return Outcome(
        folder=run.folder,
        env_steps=state.env_steps,
        saved_env_steps=run.saved_env_steps,
        resume=resume_of(config, run.folder, own),
        finished=state.env_steps >= config.total_env_steps,
        training_return=run.recent_return,
        training_episodes=len(run.recent_returns),
        evaluation=None,
        stopped_by=run.stop.signal,
        naming=naming_flags(config),
    )


def result_json(outcome: Outcome) -> dict[str, object]:
    return {
        "env_steps": outcome.env_steps,
        "finished": outcome.finished,
        "training_return": outcome.training_return,
        "evaluation": outcome.evaluation.to_json() if outcome.evaluation else None,
        **({"best": outcome.best.to_json()} if outcome.best else {}),
    }


def resume_of(config: AnyConfig, folder: Path, own: OwnParts) -> str:
    """What continues a run: a command, or code if only a Python program has its objects."""
    objects = ", ".join(f"{name}=…" for name in ("env", "network") if getattr(own, name) is not None)
    if objects:
        return f"anybatch.resume({str(folder)!r}, {objects})"
    return command_line("resume", folder, (*naming_flags(config), *cluster_flag(config)))


def command_line(name: str, folder: Path, flags: tuple[str, ...]) -> str:
    return shlex.join(["anybatch", name, str(folder), *flags])


def naming_flags(config: AnyConfig) -> tuple[str, ...]:
    """The flags that name an environment and a network again, where a run folder may not name them alone."""
    flags: list[str] = []
    module, factory = envs.user_module(config.env), config.network.factory
    if module is not None and user_modules.must_be_named(module):
        flags += ["--env", config.env]
    if factory is not None and custom_networks.must_be_named(factory):
        flags += [f"--{user_modules.NETWORK_FACTORY}", factory]
    return tuple(flags)


def cluster_flag(config: AnyConfig) -> tuple[str, ...]:
    """The flag that names the Ray cluster again."""
    return ("--ray-address", config.ray_address) if is_elsewhere(config.ray_address) else ()
