"""Our training loop, as one of the trainers of `peers.py`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import our_loop
from cases import CASES
from peer_process import RETURN_EPISODES, Rate, Reached, Request, answer, process_seconds, rate_of, versions

from anybatch import presets
from anybatch.algorithms import algorithm_of
from anybatch.runs.display import Quiet
from anybatch.runs.run import Run

PACKAGES = ("torch",)
PRESET = "cartpole-ppo-ewma"
"""What `anybatch train` does where it is told nothing."""


class StopAtReturn(Quiet):
    """Asks for a stop after the iteration in which the training return is reached."""

    def __init__(self, run: Run, wanted_return: float):
        self._run = run
        self._wanted_return = wanted_return
        self.seconds: float | None = None

    def update(self, done: int, metrics: Mapping[str, float | None], note: str = "") -> None:
        del done, metrics, note
        returns = self._run.recent_returns
        if len(returns) == RETURN_EPISODES and sum(returns) / len(returns) >= self._wanted_return:
            self.seconds = process_seconds()
            self._run.stop.requested = True


def rate(request: Request) -> Rate:
    assert request.work is not None
    config = CASES[request.case]
    stopwatch = our_loop.stopwatch_for(config, request.seconds)
    state = our_loop.start(config)
    saving = our_loop.train(config, state, stopwatch)
    return rate_of(stopwatch, request.work, PACKAGES, our_loop.rate(config, stopwatch, saving))


def reached(request: Request) -> Reached:
    config = replace(presets.load(PRESET).config, seed=request.seed)
    state = our_loop.start(config)
    with TemporaryDirectory() as folder, Run.silent(Path(folder), config.record) as run:
        run.display = watch = StopAtReturn(run, request.wanted_return)
        algorithm_of(config).train(config, state, run)
    return Reached(watch.seconds, state.env_steps, versions(PACKAGES))


if __name__ == "__main__":
    answer(rate, reached)
