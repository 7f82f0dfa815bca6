"""A video of the trained agent."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

import numpy as np

from anybatch import seeding
from anybatch.acting.evaluation import Player
from anybatch.algorithms import algorithm_of
from anybatch.backends.threads import set_threads
from anybatch.config import AnyConfig
from anybatch.envs import frames
from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.errors import DiskError, UserError, cause_of
from anybatch.evaluating import trained_player
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.storage import safe_files
from anybatch.text import counted, number_text

FORMATS = (".gif", ".mp4")
EXTRA = "install it with pip install 'anybatch[video]'"


@dataclass(frozen=True)
class Watched:
    """The frames and episodes of a video."""

    out: Path
    steps: int
    episodes: tuple[Episode, ...]
    env_steps: int
    """Env steps of the checkpoint that was shown."""

    def sentence(self) -> str:
        returns = [episode.episode_return for episode in self.episodes]
        count = counted(len(returns), "episode")
        ended = f", mean return {number_text(fmean(returns), 6)} over {count} that ended" if returns else ""
        played = counted(self.steps, "step")
        return f"{self.out}: {played} of play after {self.env_steps:,} env steps of training{ended}"


def watch(
    record: RunRecord,
    config: AnyConfig,
    out: Path,
    *,
    steps: int,
    frames_per_second: int,
    checkpoint: str = NEWEST,
) -> Watched:
    """Run `steps` steps with a checkpoint of a run, and write them to `out` as a video."""
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the file must end in {' or '.join(FORMATS)}")
    if steps < 1 or frames_per_second < 1:
        raise UserError(f"--steps {steps}, --frames-per-second {frames_per_second}: both must be at least 1")
    loaded = record.load_checkpoint(checkpoint, with_segments=False)
    (seed,) = seeding.env_seeds(config.seed, role="evaluation", num_envs=1)
    drawn = frames.make(config.env, config.env_config, seed=seed)
    tracker = EpisodeTracker(1)
    try:
        set_threads(config, algorithm_of(config).encoder_name(config, drawn.env.spec))
        player = trained_player(loaded, config, drawn.env.spec)
        write(out, play(player, drawn, tracker, steps), frames_per_second)
    finally:
        drawn.env.close()
    return Watched(out, steps, tuple(tracker.take()), loaded.env_steps)


def play(player: Player, drawn: frames.DrawnEnv, tracker: EpisodeTracker, steps: int) -> Iterator[np.ndarray]:
    """The rendered picture at each decision, [H, W, 3]."""
    obs = drawn.env.reset()
    for _ in range(steps):
        yield drawn.draw(obs)
        step = drawn.env.step(player.act(obs))
        tracker.update(step)
        obs = step.obs


def write(out: Path, pictures: Iterator[np.ndarray], frames_per_second: int) -> None:
    """Write a video of `pictures`, in the format of the file name `out`."""
    try:
        with safe_files.written_aside(out) as aside:
            if out.suffix.lower() == ".gif":
                write_gif(aside, pictures, frames_per_second)
            else:
                write_mp4(aside, pictures, frames_per_second)
    except OSError as error:
        raise DiskError(f"{out} could not be written: {cause_of(error)}") from error


def write_gif(out: Path, pictures: Iterator[np.ndarray], frames_per_second: int) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise UserError(f"a GIF needs the package pillow: {EXTRA}") from None
    images = (Image.fromarray(picture) for picture in pictures)
    milliseconds = 10 * max(1, round(100 / frames_per_second))  # the format counts in hundredths of a second
    next(images).save(out, save_all=True, append_images=images, duration=milliseconds, loop=0)


def write_mp4(out: Path, pictures: Iterator[np.ndarray], frames_per_second: int) -> None:
    try:
        from imageio_ffmpeg import write_frames
    except ImportError:
        raise UserError(f"an MP4 needs the package imageio-ffmpeg: {EXTRA}") from None
    first = next(pictures)
    height, width = (side - side % 2 for side in first.shape[:2])  # the codec needs even sides
    writer = write_frames(str(out), (width, height), fps=frames_per_second, macro_block_size=2)
    writer.send(None)
    try:
        for picture in chain([first], pictures):
            writer.send(np.ascontiguousarray(picture[:height, :width]))
    finally:
        writer.close()
