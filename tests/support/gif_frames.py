"""The pictures of a GIF."""

from pathlib import Path

import numpy as np
from PIL import Image


def frames_of(gif: Path) -> list[tuple[np.ndarray, int]]:
    """The pictures of a GIF and the milliseconds each is shown: equal ones in a row are one."""
    with Image.open(gif) as image:
        found: list[tuple[np.ndarray, int]] = []
        for number in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(number)
            found.append((np.asarray(image.convert("RGB")), image.info["duration"]))
        return found
