"""Our training loop, as a trainer of `learning.py`: what `anybatch train --env ENV` does."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import our_loop
from learning_process import Curve, Request, answer

from anybatch import presets
from anybatch.algorithms import algorithm_of
from anybatch.config import AnyConfig, EnvConfig
from anybatch.lab.studies.curves import EPISODES, RETURN
from anybatch.presets.by_env import for_env
from anybatch.runs import log
from anybatch.runs.display import Quiet
from anybatch.runs.run import Run

QUARTER = "ours-quarter"


class TimedCurve(Quiet):
    """Notes the time of each part of a run."""

    def __init__(self, curve: Curve):
        self._curve = curve

    def update(self, done: int, metrics: Any, note: str = "") -> None:
        del metrics, note
        self._curve.reached(done)


def config_of(request: Request) -> tuple[str, AnyConfig]:
    """The preset and the config of a run."""
    settings = dict(request.settings)
    preset = settings.pop("preset", None) or for_env(request.task, EnvConfig()).preset
    config = presets.load(preset).config.pinned()
    for group, values in settings.items():
        config = replace(config, **{group: replace(getattr(config, group), **values)})
    if request.trainer == QUARTER:
        config = replace(config, num_envs=max(1, config.num_envs // 4))
    config = replace(
        config, env=request.task, seed=request.seed, total_env_steps=request.env_steps, threads=1
    )
    record = replace(config.record, tensorboard=False, checkpoint_every_seconds=1e9)
    return preset, replace(config, record=record).completed()


def run(request: Request, curve: Curve) -> dict[str, Any]:
    preset, config = config_of(request)
    state = our_loop.start(config)
    with TemporaryDirectory() as folder:
        with Run.silent(Path(folder), config.record) as recorded:
            recorded.display = TimedCurve(curve)
            algorithm_of(config).train(config, state, recorded)
        for row in log.read(Path(folder)):
            if row.get(EPISODES):
                curve.add(row["env_steps"], row[RETURN], row[EPISODES])
    return {"preset": preset, "num_envs": config.num_envs, "native": state.backend.is_native}


if __name__ == "__main__":
    answer(run, ("torch", "gymnasium", "envpool"))
