"""Tensors written as a safetensors file under exactly the given name."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    # Not safetensors' own `save_file`: it first writes under a random name, and a kill would leave that file
    # in a folder where unrecognized files must not be deleted.
    path.write_bytes(save(dict(tensors)))
