"""Tensors written as a safetensors file under exactly the name that is given."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    # Not safetensors' own `save_file`: it writes under a random name first, and a kill would leave that file
    # in a folder where nobody may delete what they cannot recognize.
    path.write_bytes(save(dict(tensors)))
