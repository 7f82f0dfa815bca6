"""Pictures of environments: made from their observations, or drawn by Gymnasium."""

import colorsys
import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import EnvError

SMALLEST_SIDE = 320
"""Pixels. Smaller images are enlarged by a whole factor, without smoothing."""


class DrawnEnv(NamedTuple):
    """One env, and the picture of what it shows: uint8 [H, W, 3] from its observations [1, …]."""

    env: VectorEnv
    draw: Callable[[np.ndarray], np.ndarray]


def make(env_id: str, config: EnvConfig, *, seed: int) -> DrawnEnv:
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
    """Planes [C, H, W] on black, one color each. The first, the player's, covers the others."""
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
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # otherwise SDL complains about the missing screen
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
