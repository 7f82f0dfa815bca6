"""A video of the trained agent."""

import colorsys
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from anybatch import envs, seeding
from anybatch.acting.evaluation import InferencePolicy
from anybatch.algorithms import algorithm_of
from anybatch.backends.threads import set_threads
from anybatch.config import AnyConfig, EnvConfig
from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import DiskError, EnvError, UserError, cause_of
from anybatch.evaluating import trained_policy
from anybatch.runs.display import QUIET, Display, Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.storage import safe_files
from anybatch.text import counted, number_text

FORMATS = (".gif", ".mp4")
EXTRA = "install it with pip install 'anybatch[video]'"
SMALLEST_SIDE = 320
"""Pixels. Smaller images are enlarged by a whole factor, without smoothing."""


class DrawnEnv(NamedTuple):
    """One env, and the picture of what it shows: uint8 [H, W, 3] from its observations [1, …]."""

    env: VectorEnv
    draw: Callable[[np.ndarray], np.ndarray]


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
        steps = counted(self.steps, "step")
        return f"{self.out}: {steps} after {self.env_steps:,} env steps of training{ended}"


def watch(
    record: RunRecord,
    config: AnyConfig,
    out: Path,
    *,
    steps: int,
    frames_per_second: int,
    checkpoint: str = NEWEST,
    output: Output = QUIET,
) -> Watched:
    """Run `steps` steps with a checkpoint of a run, and write them to `out` as a video."""
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the file must end in {' or '.join(FORMATS)}")
    if steps < 1 or frames_per_second < 1:
        raise UserError(f"--steps {steps}, --frames-per-second {frames_per_second}: both must be at least 1")
    loaded = record.load_checkpoint(checkpoint, with_segments=False)
    (seed,) = seeding.env_seeds(config.seed, role="evaluation", num_envs=1)
    drawn = make_drawn(config.env, config.env_config, seed=seed)
    tracker = EpisodeTracker(1)
    try:
        set_threads(config, algorithm_of(config).encoder_name(config, drawn.env.spec))
        policy = trained_policy(loaded, config, drawn.env.spec)
        with output.display(steps, f"video of {config.env}", unit="steps", transient=True) as display:
            write(out, pictures_of(policy, drawn, tracker, steps, display), frames_per_second)
    finally:
        drawn.env.close()
    return Watched(out, steps, tuple(tracker.take()), loaded.env_steps)


def pictures_of(
    policy: InferencePolicy, drawn: DrawnEnv, tracker: EpisodeTracker, steps: int, display: Display
) -> Iterator[np.ndarray]:
    """The rendered picture at each decision, [H, W, 3]."""
    obs = drawn.env.reset()
    for done in range(1, steps + 1):
        yield drawn.draw(obs)
        step = drawn.env.step(policy.act(obs))
        tracker.update(step)
        obs = step.obs
        display.update(done, {})


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


def make_drawn(env_id: str, config: EnvConfig, *, seed: int) -> DrawnEnv:
    """One env of that id that can be drawn. Raises EnvError if there is none."""
    env = envs.make(env_id, config, seeds=[seed])
    layout = env.spec.obs_layout
    match layout.kind:
        case "image":
            return DrawnEnv(env, lambda obs: picture(layout.image_of(obs)[0]))
        case "planes":
            return DrawnEnv(env, lambda obs: picture_of_planes(layout.image_of(obs)[0]))
        case "vector":
            env.close()
            return _drawn_by_gymnasium(env_id, config, env.spec, seed)


def picture(image: np.ndarray) -> np.ndarray:
    """An image [C, H, W] of bytes or floats for display: three channels are colors, otherwise the last is
    gray."""
    channels = image if len(image) == 3 else np.repeat(image[-1:], 3, axis=0)
    if channels.dtype != np.uint8:
        channels = _bytes_of(channels)
    return enlarged(channels.transpose(1, 2, 0))


def _bytes_of(image: np.ndarray) -> np.ndarray:
    """Floats in [0, 1] as bytes; an image beyond that range is rescaled from its own range."""
    low, high = min(image.min(), 0.0), max(image.max(), 1.0)
    return np.round(255 * (image - low) / (high - low)).astype(np.uint8)


def picture_of_planes(planes: np.ndarray) -> np.ndarray:
    """Planes [C, H, W] on black, one color each. The first, the agent's, covers the others."""
    colored = np.zeros((*planes.shape[1:], 3), dtype=np.uint8)
    for index, plane in reversed(list(enumerate(planes))):
        colored[plane] = [round(255 * part) for part in colorsys.hsv_to_rgb(index / len(planes), 0.6, 1.0)]
    return enlarged(colored)


def enlarged(frame: np.ndarray) -> np.ndarray:
    """A frame [H, W, 3] with each pixel repeated until no side is below SMALLEST_SIDE."""
    factor = -(-SMALLEST_SIDE // min(frame.shape[:2]))
    return np.ascontiguousarray(frame.repeat(factor, axis=0).repeat(factor, axis=1))


def _drawn_by_gymnasium(env_id: str, config: EnvConfig, spec: EnvSpec, seed: int) -> DrawnEnv:
    """The same environment in Gymnasium, which can draw some of those that observe no images."""
    from anybatch.envs.gymnasium_adapter import GymnasiumEnv, registered

    is_gymnasium = spec.engine.startswith("gymnasium")
    if not is_gymnasium and not (spec.engine.startswith(("envpool", "native")) and registered(spec.env_id)):
        raise EnvError(f"{env_id} cannot be drawn: it shows no images, and Gymnasium does not have it")
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        # Without a screen, SDL would complain about it, and MuJoCo would look for one instead of drawing.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
    # Options of another engine mean nothing here.
    options = config.options if is_gymnasium else {}
    env = GymnasiumEnv.make(spec.env_id, replace(config, options=options), seeds=[seed])
    env.close()
    if (env.spec.obs_shape, env.spec.action_width) != (spec.obs_shape, spec.action_width):
        raise EnvError(f"{env_id} cannot be drawn: Gymnasium's has other observations or actions")
    if not env.can_be_drawn:
        raise EnvError(f"{env_id} cannot be drawn: its render modes have no rgb_array")
    options = options | {"render_mode": "rgb_array"}
    env = GymnasiumEnv.make(spec.env_id, replace(config, options=options), seeds=[seed])
    return DrawnEnv(env, lambda _: enlarged(env.render()))
