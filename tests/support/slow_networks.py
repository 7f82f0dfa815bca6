"""A network that takes as long as a file says, so that iterations become long while a run trains."""

import os
import time
from pathlib import Path

from custom_networks import TwoLayers
from torch import Tensor

SECONDS_FILE = "ANYBATCH_TEST_SECONDS"
"""Environment variable: a file with the seconds that every pass takes."""


class Slow(TwoLayers):
    def forward(self, obs: Tensor) -> Tensor:
        time.sleep(float(Path(os.environ[SECONDS_FILE]).read_text()))
        return super().forward(obs)
