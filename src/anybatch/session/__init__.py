"""Training, evaluating and planning a run as a whole."""

from anybatch.session.evaluating import evaluate_run
from anybatch.session.outcome import Outcome
from anybatch.session.planning import notes_on_ranks, plan
from anybatch.session.training import resume, train

__all__ = ["Outcome", "evaluate_run", "notes_on_ranks", "plan", "resume", "train"]
