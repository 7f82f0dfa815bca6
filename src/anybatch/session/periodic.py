"""Evaluations during training, and the best policy that they found."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anybatch.acting.evaluation import Evaluation
from anybatch.algorithms import AnyState
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.errors import ConfigError
from anybatch.runs import log
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.run import Run
from anybatch.runs.stop import Stopped
from anybatch.session.custom import OwnParts
from anybatch.session.evaluating import evaluate_within_training


@dataclass
class PeriodicEvaluation:
    """Evaluates a run every `evaluation.every_env_steps`, and at the end of its training."""

    config: AnyConfig
    own: OwnParts
    best: BestCheckpoint
    evaluated_at: int
    """Env steps of the last evaluation; 0 before the first."""
    latest: Evaluation | None = None
    """The last evaluation, if this process made it."""

    @classmethod
    def of_run(cls, folder: Path, config: AnyConfig, own: OwnParts) -> "PeriodicEvaluation":
        """For a new run, or for a resumed one whose log has been cut back to its checkpoint."""
        evaluated = [0]
        if collectives.rank() == 0:
            evaluated += [row["env_steps"] for row in log.read(folder) if "evaluation/return" in row]
        return cls(config, own, BestCheckpoint(folder), evaluated_at=collectives.from_rank_0(max(evaluated)))

    def __call__(self, state: AnyState, run: Run) -> Mapping[str, float]:
        """Evaluate if it is due. A signal ends the evaluation at once, and the training as usual."""
        if not self._is_due(state.env_steps) or run.is_to_stop:
            return {}

        def show(played: int, total: int) -> None:
            run.display.update(state.env_steps, {}, f"evaluating: {played} of {total} episodes")

        try:
            with run.timer("evaluation"):
                evaluation = evaluate_within_training(self.config, state, own=self.own, report=show)
        except Stopped as stopped:
            signal.raise_signal(stopped.signal)  # the run's own handler takes over
            return {}
        self.take(evaluation, state)
        return {
            "evaluation/return": evaluation.mean_return,
            "evaluation/standard_error": evaluation.standard_error,
            "evaluation/length": evaluation.mean_length,
        }

    def take(self, evaluation: Evaluation, state: AnyState) -> None:
        """Record an evaluation of a state, and keep its policy if it is the best."""
        self.latest, self.evaluated_at = evaluation, state.env_steps
        if collectives.rank() == 0:
            self.best.offer(evaluation.mean_return, state.env_steps, state.shared())

    def made_at(self, env_steps: int) -> Evaluation | None:
        """The last evaluation, if it was made at `env_steps`."""
        return self.latest if self.evaluated_at == env_steps else None

    def _is_due(self, env_steps: int) -> bool:
        every = self.config.evaluation.every_env_steps
        is_over = env_steps >= self.config.total_env_steps
        return every > 0 and (is_over or env_steps // every > self.evaluated_at // every)


def refuse_one_env_for_two(config: AnyConfig, own: OwnParts) -> None:
    """Refuse an object: it is in the middle of training episodes and cannot run others in between."""
    every = config.evaluation.every_env_steps
    if every > 0 and own.env is not None and own.env.is_object:
        raise ConfigError(
            f"evaluation.every-env-steps = {every} needs environments other than those in training, but "
            f"{own.env.env_id} is one object: pass a function that makes it"
        )
